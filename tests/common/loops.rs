//! Functions with loops and branches, with their gradients and arguments, which tests of several engines share.

use super::random;
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Module};

/// A recurrent cell over rows: `h = tanh(h w + x)` in `n` steps of `width` elements, whose states are stacked.
pub(crate) fn cell(n: usize, width: usize) -> String {
    "func @cell(%h: f32[W], %w: f32[W,W], %xs: f32[N,W]) -> (f32[W], f32[N,W]) {
           %c, %ys = scan %h, %xs {carry = 1} : f32[W], f32[N,W] body(%s: f32[W], %x: f32[W]) {
             %a = dot_general %s, %w {contract = [0] x [0]} : f32[W]
             %b = add %a, %x : f32[W]
             %n = tanh %b : f32[W]
             yield %n, %n
           }
           return %c, %ys
         }"
    .replace('W', &width.to_string())
    .replace('N', &n.to_string())
}

/// The sum of what a cell carries at the end.
pub(crate) fn cell_loss(n: usize, width: usize) -> String {
    let body = cell(n, width).replace("func @cell", "func @loss");
    let head = format!("-> (f32[{width}], f32[{n},{width}])");
    body.replace(&head, "-> f32[]").replace(
        "return %c, %ys",
        "%t = reduce_sum %c {axes = [0]} : f32[] %u = reduce_sum %ys {axes = [0, 1]} : f32[]
         %l = add %t, %u : f32[] return %l",
    )
}

/// Loops in loops: rows of rows, with a branch by a truth value of each row and a count that is data.
const NESTED: &str = "func @nested(%x: f32[8], %m: f32[5,8], %c: bool[5], %k: i32[]) -> f32[] {
  %s = scan %x, %m, %c {carry = 1} : f32[8] body(%a: f32[8], %r: f32[8], %p: bool[]) {
    %i = fori 0, %k, %a : f32[8] body(%j: i32[], %b: f32[8]) {
      %f = convert_element_type %j : f32[]
      %g = broadcast_in_dim %f {dims = []} : f32[8]
      %q = mul %b, %r : f32[8]
      %n = add %q, %g : f32[8]
      %o = sin %n : f32[8]
      yield %o
    }
    %d = cond %p : f32[8] then {
      %e = mul %i, %r : f32[8]
      yield %e
    } else {
      yield %i
    }
    yield %d
  }
  %l = reduce_sum %s {axes = [0]} : f32[]
  return %l
}";

/// Names, functions and arguments: cells whose elements are aligned and not, forward and with their gradients.
pub(crate) fn functions() -> Vec<(String, Function, Vec<Array>)> {
    let mut all = Vec::new();
    let mut texts = Vec::new();
    for (n, width) in [(1, 4), (5, 4), (6, 3), (9, 8), (70, 4)] {
        texts.push((format!("cell {n} x {width}"), cell(n, width), false));
        texts.push((format!("loss {n} x {width}"), cell_loss(n, width), true));
        let back = cell(n, width).replace("{carry = 1}", "{carry = 1, reverse = true}");
        texts.push((format!("reversed {n} x {width}"), back, false));
    }
    texts.push(("nested".to_owned(), NESTED.to_owned(), true));
    for (name, text, differentiated) in texts {
        let module = parse(&text).unwrap_or_else(|e| panic!("{name}: {e:?}\n{text}"));
        let f = module.funcs.values().next().expect("a function").clone();
        let args = arguments(&f);
        if differentiated {
            let wrt = differentiable(&f, None).expect("has floats");
            let g = forward_and_backward(&Module::single(f.clone()), &f, &wrt);
            let g = g.unwrap_or_else(|d| panic!("{name}: {d}"));
            all.push((format!("gradient of {name}"), g, args.clone()));
        }
        all.push((name, f, args));
    }
    all
}

/// Floats are drawn, integers are 3.
fn arguments(f: &Function) -> Vec<Array> {
    let all = random::inputs(f, &[Domain::Normal]);
    let three = |a: Array| match a.dtype() {
        DType::I32 => Array::from_f64s(DType::I32, a.dims(), &vec![3.0; a.len()]).expect("fits"),
        _ => a,
    };
    all.into_iter().map(three).collect()
}

/// Loops with what their integers are, which are differentiated to higher orders.
pub(crate) const LOOPS: &[(&str, i64)] = &[
    // A scan with consts, carries, stacks; forwards and backwards.
    ("func @f(%h: f64[3], %w: f64[3], %xs: f64[4,3]) -> (f64[3], f64[4,3]) {
        %c, %ys = scan %h, %xs {carry = 1} : f64[3], f64[4,3] body(%s: f64[3], %x: f64[3]) {
          %a = mul %s, %w : f64[3] %b = add %a, %x : f64[3] %n = tanh %b : f64[3]
          %y = mul %n, %s : f64[3] yield %n, %y }
        return %c, %ys }", 0),
    ("func @f(%h: f64[3], %xs: f64[4,3], %zs: f64[4]) -> (f64[3], f64[4]) {
        %c, %ys = scan %h, %xs, %zs {carry = 1, reverse = true, unroll = 2} : f64[3], f64[4]
          body(%s: f64[3], %x: f64[3], %z: f64[]) {
          %b = mul %s, %x : f64[3] %n = sin %b : f64[3]
          %q = reduce_sum %n {axes = [0]} : f64[] %y = mul %q, %z : f64[] yield %n, %y }
        return %c, %ys }", 0),
    // A tangent that becomes nonzero in mid-loop; a carry that nothing depends on; one that only hands on.
    ("func @f(%x: f64[], %w: f64[]) -> f64[] {
        %a, %b, %c, %d = scan 1.0, 2.0, %x, 0.5 {carry = 4, length = 3} : f64[], f64[], f64[], f64[]
          body(%p: f64[], %q: f64[], %r: f64[], %s: f64[]) {
          %t = mul %q, %p : f64[] %u = mul %r, %w : f64[] %v = sin %u : f64[] yield %t, %r, %v, %s }
        %e = mul %a, %d : f64[] %g = add %e, %b : f64[] return %g }", 0),
    // No steps.
    ("func @f(%h: f64[2], %xs: f64[0,2]) -> (f64[2], f64[0,2]) {
        %c, %ys = scan %h, %xs {carry = 1} : f64[2], f64[0,2] body(%s: f64[2], %x: f64[2]) {
          %n = mul %s, %x : f64[2] yield %n, %n }
        return %c, %ys }", 0),
    // Loops in loops, and a branch by an index in one.
    ("func @f(%h: f64[2], %xs: f64[3,2]) -> f64[2] {
        %c = scan %h, %xs {carry = 1} : f64[2] body(%s: f64[2], %x: f64[2]) {
          %d = fori 0, 3, %s : f64[2] body(%i: i64[], %t: f64[2]) {
            %u = switch %i : f64[2] case { %e = sin %t : f64[2] yield %e } case { %e = mul %t, %x : f64[2] yield %e }
            yield %u }
          %n = mul %d, %x : f64[2] %m = cos %n : f64[2] yield %m }
        return %c }", 0),
    // A while in a scan, with what both read from outside.
    ("func @f(%w: f64[], %xs: f64[3]) -> f64[] {
        %c = scan 1.0, %xs {carry = 1} : f64[] body(%s: f64[], %x: f64[]) {
          %k, %r = while 2, %s : i32[], f64[] cond(%i: i32[], %t: f64[]) { %p = gt %i, 0 : bool[] yield %p }
            body(%i: i32[], %t: f64[]) { %a = mul %t, %w : f64[] %b = add %a, %x : f64[] %d = tanh %b : f64[] %j = sub %i, 1 : i32[] yield %j, %d }
          yield %r }
        return %c }", 0),
];

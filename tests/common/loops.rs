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

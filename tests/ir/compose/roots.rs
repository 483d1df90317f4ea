//! Roots that programs find by iterations, differentiated by the implicit function theorem: closed forms, differences,
//! all orders of the modes, batches.

use super::{dot, evaluate, first, numbers, program, scalar};
use adfuse::autodiff::{Batching, Derived, differentiable, grad, jvp, linearize, vjp};
use adfuse::backends::Array;
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::{inline, specialize};
use adfuse::ir::{DType, Diagnostic, Function, Kind, Module, Op, TensorType};
use adfuse::sample::{rng, sample};
use approx::assert_abs_diff_eq;
use std::collections::BTreeMap;

/// `x^3 = a` by Newton steps.
const CUBE_ROOT: &str = "
func @cube_root(%a: f64[]) -> f64[] custom_root(@cube) {
  %x = while 1.0 {max_trips = 100} : f64[] cond(%c: f64[]) {
    %0 = call %c, %a {func = @cube} : f64[] %1 = abs %0 : f64[] %2 = gt %1, 1e-14 : bool[] yield %2
  } body(%c: f64[]) {
    %0 = call %c, %a {func = @cube} : f64[] %1 = square %c : f64[] %2 = mul %1, 3.0 : f64[]
    %3 = div %0, %2 : f64[] %4 = sub %c, %3 : f64[] yield %4
  }
  return %x }
func @cube(%x: f64[], %a: f64[]) -> f64[] {
  %0 = integer_pow %x {y = 3} : f64[] %1 = sub %0, %a : f64[] return %1 }";

/// A root in a function of float parameters and results, and what to draw the parameters from.
struct RootProgram {
    name: &'static str,
    text: String,
    low: f64,
    high: f64,
}

fn root_program(name: &'static str, text: &str, (low, high): (f64, f64)) -> RootProgram {
    RootProgram { name, text: text.to_string(), low, high }
}

/// Newton's method of 40 steps would do as well: the derivative reads the residual alone.
fn programs() -> Vec<RootProgram> {
    let nested = "
func @f(%a: f64[]) -> f64[] {
  %0 = call %a {func = @outer} : f64[] return %0 }
func @outer(%a: f64[]) -> f64[] custom_root(@outer.residual) {
  %x = fori 0, 120, %a : f64[] body(%k: i64[], %c: f64[]) {
    %0 = call %c, %a {func = @outer.residual} : f64[] %1 = mul %0, 0.5 : f64[] %2 = sub %c, %1 : f64[] yield %2
  }
  return %x }
func @outer.residual(%x: f64[], %a: f64[]) -> f64[] {
  %0 = call %x {func = @cube_root} : f64[] %1 = add %x, %0 : f64[] %2 = sub %1, %a : f64[] return %2 }";
    vec![
        root_program(
            "a scalar, in a program that uses it twice",
            &format!(
                "func @f(%a: f64[], %b: f64[]) -> f64[] {{
                   %0 = call %a {{func = @cube_root}} : f64[] %1 = mul %0, %b : f64[] %2 = sin %0 : f64[]
                   %3 = mul %1, %2 : f64[] return %3 }}{CUBE_ROOT}"
            ),
            (0.5, 1.5),
        ),
        root_program(
            "Kepler's equation, elementwise",
            "func @f(%m: f64[4], %e: f64[]) -> f64[4] custom_root(@kepler) {
               %x = fori 0, 60, %m : f64[4] body(%k: i64[], %c: f64[4]) {
                 %0 = call %c, %m, %e {func = @kepler} : f64[4] %1 = sub %c, %0 : f64[4] yield %1
               }
               return %x }
             func @kepler(%x: f64[4], %m: f64[4], %e: f64[]) -> f64[4] {
               %0 = sin %x : f64[4] %1 = broadcast_in_dim %e {dims = []} : f64[4] %2 = mul %0, %1 : f64[4]
               %3 = sub %x, %2 : f64[4] %4 = sub %3, %m : f64[4] return %4 }",
            (0.1, 0.5),
        ),
        root_program(
            "a fixed point, a layer z = tanh(W z + x), from a guess",
            "func @f(%guess: f64[3], %w: f64[3,3], %x: f64[3]) -> f64[] {
               %z, %n = call %guess, %w, %x {func = @equilibrium} : f64[3], i32[]
               %0 = cos %z : f64[3] %1 = mul %0, %x : f64[3] %2 = reduce_sum %1 {axes = [0]} : f64[] return %2 }
             func @equilibrium(%guess: f64[3], %w: f64[3,3], %x: f64[3]) -> (f64[3], i32[]) custom_root(@distance) {
               %last, %found, %steps = while 1.0, %guess, 0 : f64[], f64[3], i32[] cond(%d: f64[], %z: f64[3], %n: i32[]) {
                 %0 = gt %d, 1e-15 : bool[] yield %0
               } body(%d: f64[], %z: f64[3], %n: i32[]) {
                 %0 = call %z, %w, %x {func = @layer} : f64[3] %1 = sub %0, %z : f64[3] %2 = abs %1 : f64[3]
                 %3 = reduce_max %2 {axes = [0]} : f64[] %4 = add %n, 1 : i32[] yield %3, %0, %4
               }
               return %found, %steps }
             func @layer(%z: f64[3], %w: f64[3,3], %x: f64[3]) -> f64[3] {
               %0 = dot_general %w, %z {contract = [1] x [0]} : f64[3] %1 = add %0, %x : f64[3]
               %2 = tanh %1 : f64[3] return %2 }
             func @distance(%z: f64[3], %guess: f64[3], %w: f64[3,3], %x: f64[3]) -> f64[3] {
               %0 = call %z, %w, %x {func = @layer} : f64[3] %1 = sub %z, %0 : f64[3] return %1 }",
            (-0.4, 0.4),
        ),
        root_program(
            "two unknowns of different types",
            "func @f(%a: f64[], %b: f64[2]) -> (f64[], f64[2]) custom_root(@system) {
               %u, %v = fori 0, 200, %a, %b : f64[], f64[2] body(%k: i64[], %x: f64[], %y: f64[2]) {
                 %0, %1 = call %x, %y, %a, %b {func = @system} : f64[], f64[2]
                 %2 = mul %0, 0.5 : f64[] %3 = mul %1, 0.5 : f64[2]
                 %4 = sub %x, %2 : f64[] %5 = sub %y, %3 : f64[2] yield %4, %5
               }
               return %u, %v }
             func @system(%x: f64[], %y: f64[2], %a: f64[], %b: f64[2]) -> (f64[], f64[2]) {
               %s = reduce_sum %y {axes = [0]} : f64[] %0 = sin %s : f64[] %1 = mul %0, %a : f64[]
               %2 = sub %x, %1 : f64[] %3 = sub %2, %a : f64[]
               %4 = broadcast_in_dim %x {dims = []} : f64[2] %5 = mul %4, %y : f64[2] %6 = mul %5, 0.5 : f64[2]
               %7 = add %y, %6 : f64[2] %8 = sub %7, %b : f64[2] return %3, %8 }",
            (0.1, 0.6),
        ),
        root_program(
            "equations in an order without a nonzero diagonal",
            "func @f(%a: f64[], %b: f64[]) -> (f64[], f64[], f64[]) custom_root(@cyclic) {
               %0 = square %a : f64[] %x = sub %b, %0 : f64[] %z = sin %x : f64[] return %x, %a, %z }
             func @cyclic(%x: f64[], %y: f64[], %z: f64[], %a: f64[], %b: f64[]) -> (f64[], f64[], f64[]) {
               %0 = sub %y, %a : f64[] %1 = sin %x : f64[] %2 = sub %z, %1 : f64[]
               %3 = square %y : f64[] %4 = add %x, %3 : f64[] %5 = sub %4, %b : f64[] return %0, %2, %5 }",
            (0.3, 0.9),
        ),
        root_program(
            "a matrix whose square is given",
            "func @f(%p: f64[2,2]) -> f64[2,2] {
               %one = constant {values = dense [1.0, 0.0, 0.0, 1.0]} : f64[2,2] %a = add %p, %one : f64[2,2]
               %0 = call %a {func = @root} : f64[2,2] return %0 }
             func @root(%a: f64[2,2]) -> f64[2,2] custom_root(@square) {
               %u = fori 0, 200, %a : f64[2,2] body(%k: i64[], %x: f64[2,2]) {
                 %0 = call %x, %a {func = @square} : f64[2,2] %1 = mul %0, 0.4 : f64[2,2]
                 %2 = sub %x, %1 : f64[2,2] yield %2
               }
               return %u }
             func @square(%x: f64[2,2], %a: f64[2,2]) -> f64[2,2] {
               %0 = dot_general %x, %x {contract = [1] x [0]} : f64[2,2] %1 = sub %0, %a : f64[2,2] return %1 }",
            (-0.2, 0.2),
        ),
        root_program("a root in a residual", &format!("{nested}{CUBE_ROOT}"), (1.5, 3.0)),
        root_program(
            "a root in a loop and in a branch",
            &format!(
                "func @f(%a: f64[], %xs: f64[3]) -> f64[] {{
                   %r = scan %a, %xs {{carry = 1}} : f64[] body(%c: f64[], %x: f64[]) {{
                     %p = gt %x, 0.9 : bool[]
                     %0 = cond %p : f64[] then {{
                       %1 = call %c {{func = @cube_root}} : f64[] yield %1
                     }} else {{
                       %1 = mul %c, %x : f64[] yield %1
                     }}
                     %2 = mul %0, %x : f64[] yield %2
                   }}
                   return %r }}{CUBE_ROOT}"
            ),
            (0.7, 1.2),
        ),
    ]
}

fn draw(ty: &TensorType, (low, high): (f64, f64), seed: u64) -> Array {
    sample(ty, Domain::Uniform(low, high), &mut rng(seed, 3)).expect("small")
}

fn all(types: &[TensorType], within: (f64, f64), seed: u64) -> Vec<Array> {
    types.iter().zip(seed..).map(|(t, k)| draw(t, within, k)).collect()
}

fn moved(at: &[Array], along: &[Array], h: f64) -> Vec<Array> {
    let sum = |(a, t): (&Array, &Array)| {
        let x: Vec<f64> = a.to_f64s().iter().zip(t.to_f64s()).map(|(x, t)| x + h * t).collect();
        Array::from_f64s(a.dtype(), a.dims(), &x).expect("fits")
    };
    at.iter().zip(along).map(sum).collect()
}

fn close(name: &str, found: &[f64], due: &[f64], share: f64) {
    assert_eq!(found.len(), due.len(), "{name}");
    let size = due.iter().fold(1f64, |m, x| m.max(x.abs()));
    for (a, b) in found.iter().zip(due) {
        assert!((a - b).abs() <= share * size, "{name}: {found:?}, not {due:?}");
    }
}

fn finished(chain: Result<Derived, Diagnostic>) -> Function {
    chain.and_then(Derived::finish).unwrap_or_else(|d| panic!("{d}"))
}

fn value(f: &Function, parts: &[&[Array]]) -> Vec<Array> {
    evaluate(f, &parts.concat()).unwrap_or_else(|e| panic!("{e}"))
}

/// How often an op is in a function.
fn count(f: &Function, wanted: Op) -> usize {
    let mut n = 0;
    f.walk(&mut |f, i| n += usize::from(f.op(i) == wanted));
    n
}

/// Order 1 in both modes against differences, order 2 in the four orders of the modes against differences of order 1.
#[test]
fn roots_have_their_derivatives_to_order_two() {
    for p in programs() {
        let module = program(&p.text);
        let f = first(&module);
        let name = p.name;
        let plain = inline(&module, f, &|_| true).map(|mut g| {
            g.rule = None;
            g
        });
        let plain = plain.expect("inlines");
        let wrt = differentiable(f, None).expect("floats");
        let chain = || Derived::new(&module, f);
        let at = all(&f.param_types(), (p.low, p.high), 1);
        let (t, s) =
            (all(&f.param_types(), (-1.0, 1.0), 21), all(&f.param_types(), (-1.0, 1.0), 31));
        let ct = all(&f.result_types(), (-1.0, 1.0), 41);
        let zero: Vec<Array> = moved(&ct, &ct, -1.0);
        let (n, m) = (wrt.len(), f.results().len());

        let slope = |g: &Function, given: &[Array], from: usize| -> Vec<f64> {
            let h = 1e-5;
            let side = |h: f64| numbers(&value(g, &[&moved(&at, &t, h), given])[from..]);
            side(h).iter().zip(side(-h)).map(|(a, b)| (a - b) / (2.0 * h)).collect()
        };
        let push = finished(chain().jvp(&wrt));
        let tangents = numbers(&value(&push, &[&at, &t])[m..]);
        close(&format!("{name}: jvp"), &tangents, &slope(&plain, &[], 0), 1e-7);
        let pull = finished(chain().vjp(&wrt));
        let cotangents = numbers(&value(&pull, &[&at, &ct])[m..]);
        let (left, right) = (dot(&numbers(&t), &cotangents), dot(&numbers(&ct), &tangents));
        close(&format!("{name}: vjp"), &[left], &[right], 1e-11);

        let due = slope(&pull, &ct, m);
        let forward_reverse = finished(chain().vjp(&wrt).and_then(|g| g.jvp(&wrt)));
        let found = numbers(&value(&forward_reverse, &[&at, &ct, &t])[2 * m + n..]);
        close(&format!("{name}: forward of reverse"), &found, &due, 1e-6);
        let reverse_reverse = finished(chain().vjp(&wrt).and_then(|g| g.vjp(&wrt)));
        let other = numbers(&value(&reverse_reverse, &[&at, &ct, &zero, &t])[m + n..]);
        close(&format!("{name}: reverse of reverse"), &other, &found, 1e-10);
        let reverse_forward = finished(chain().jvp(&wrt).and_then(|g| g.vjp(&wrt)));
        let other = numbers(&value(&reverse_forward, &[&at, &t, &zero, &ct])[2 * m..]);
        close(&format!("{name}: reverse of forward"), &other, &found, 1e-10);
        let forward_forward = finished(chain().jvp(&wrt).and_then(|g| g.jvp(&wrt)));
        let both = numbers(&value(&forward_forward, &[&at, &t, &s])[3 * m..]);
        let (left, right) = (dot(&both, &numbers(&ct)), dot(&numbers(&s), &found));
        close(&format!("{name}: forward of forward"), &[left], &[right], 1e-10);

        // No way back over the iterations, and none forward with tangents: their loops are those of the values.
        if !name.contains("in a loop") {
            for g in [&pull, &reverse_reverse, &forward_reverse] {
                assert_eq!(count(g, Op::Adjoint), 0, "{name}\n{g}");
            }
        }
    }
}

/// The first three derivatives of a cube root, and the gradient of a fixed point by the adjoint equation.
#[test]
fn roots_have_closed_forms() {
    let m = program(CUBE_ROOT);
    let f = || Derived::new(&m, first(&m));
    let a = 2.5f64;
    let at = [scalar(a)];
    let one = |g: Derived| numbers(&value(&finished(Ok(g)), &[&at]))[0];
    let g1 = f().grad(&[0]).expect("order 1");
    let g2 = g1.clone().grad(&[0]).expect("order 2");
    let g3 = g2.clone().grad(&[0]).expect("order 3");
    assert_abs_diff_eq!(one(g1), a.powf(-2.0 / 3.0) / 3.0, epsilon = 1e-13);
    assert_abs_diff_eq!(one(g2), -2.0 / 9.0 * a.powf(-5.0 / 3.0), epsilon = 1e-13);
    assert_abs_diff_eq!(one(g3), 10.0 / 27.0 * a.powf(-8.0 / 3.0), epsilon = 1e-13);
    let hessian = f().hessian(&[0]).expect("order 2");
    assert_abs_diff_eq!(one(hessian), -2.0 / 9.0 * a.powf(-5.0 / 3.0), epsilon = 1e-13);

    // A guess has no derivative: zeros to the bit. Every transformation alone knows the rule as well.
    let p = &programs()[2];
    let m = program(&p.text);
    let f = first(&m);
    let at = all(&f.param_types(), (p.low, p.high), 1);
    let g = grad(&m, f, &[0, 1, 2]).expect("reverses");
    let found = value(&g, &[&at]);
    assert_eq!(found[0].to_f64s(), [0.0; 3]);
    let split = linearize(&m, f, &[1]).expect("splits");
    assert_eq!(count(&split.linear, Op::While) + count(&split.linear, Op::Scan), 0);
    let residuals = value(&split.primal, &[&at])[1..].to_vec();
    let t = draw(&f.param_types()[1], (-1.0, 1.0), 5);
    let tangent = numbers(&value(&split.linear, &[&residuals, std::slice::from_ref(&t)]));
    close("linearize", &tangent, &[dot(&t.to_f64s(), &found[1].to_f64s())], 1e-12);
}

/// Over a batch, every element is solved in its own number of steps and has its own Jacobian.
#[test]
fn roots_over_a_batch_are_those_of_its_elements() {
    for p in programs() {
        let module = program(&p.text);
        let f = first(&module);
        let wrt = differentiable(f, None).expect("floats");
        let (n, m, size) = (f.params().len(), f.results().len(), 3usize);
        for mapped in 1..1usize << n {
            let is = |k: usize| mapped >> k & 1 == 1;
            let elements: Vec<Vec<Array>> = (0..size)
                .map(|e| {
                    let seed = |k: usize| 50 + k as u64 + if is(k) { 100 * e as u64 } else { 0 };
                    let types = f.param_types().into_iter().enumerate();
                    types.map(|(k, t)| draw(&t, (p.low, p.high), seed(k))).collect()
                })
                .collect();
            let cts: Vec<Vec<Array>> =
                (0..size as u64).map(|e| all(&f.result_types(), (-1.0, 1.0), 70 + e)).collect();
            let stacked = |k: usize, of: &[Vec<Array>]| {
                crate::common::batch::stack(&of.iter().map(|e| e[k].clone()).collect::<Vec<_>>(), 0)
            };
            let given: Vec<Array> = (0..n)
                .map(|k| if is(k) { stacked(k, &elements) } else { elements[0][k].clone() })
                .collect();
            let given_cts: Vec<Array> = (0..m).map(|k| stacked(k, &cts)).collect();
            let axes: Vec<Option<usize>> = (0..n).map(|k| is(k).then_some(0)).collect();

            let alone = finished(Derived::new(&module, f).vjp(&wrt));
            let each: Vec<Vec<Array>> =
                elements.iter().zip(&cts).map(|(x, ct)| value(&alone, &[x, ct])).collect();
            // The gradient over a batch, and the gradient of the function over a batch.
            let batching = Batching::new(size as u64, axes.iter().copied().chain(vec![Some(0); m]));
            let inner = Derived::new(&module, f).vjp(&wrt).and_then(|g| g.vmap(&batching));
            let found = value(&finished(inner), &[&given, &given_cts]);
            for (k, found) in found.iter().enumerate() {
                let name = format!("{}, mapped {mapped:b}, result {k}", p.name);
                close(&name, &found.to_f64s(), &stacked(k, &each).to_f64s(), 1e-12);
            }
            let batching = Batching::new(size as u64, axes.iter().copied());
            let outer = Derived::new(&module, f).vmap(&batching).and_then(|g| g.vjp(&wrt));
            let found = value(&finished(outer), &[&given, &given_cts]);
            for k in 0..n {
                let name = format!("{}, mapped {mapped:b}, gradient {k}", p.name);
                let own: Vec<Vec<f64>> = each.iter().map(|e| e[m + k].to_f64s()).collect();
                let due = match is(k) {
                    true => own.concat(),
                    // What all share has the sum.
                    false => (0..own[0].len()).map(|j| own.iter().map(|e| e[j]).sum()).collect(),
                };
                close(&name, &found[m + k].to_f64s(), &due, 1e-11);
            }
        }
    }
}

/// An extent that is not known until later, and element types whose Jacobians are inverted in another.
#[test]
fn roots_of_symbolic_extents_and_narrow_types() {
    let text = |ty: &str, symbols: &str, n: &str| {
        format!(
            "func @f{symbols}(%w: {ty}[{n},{n}], %x: {ty}[{n}]) -> {ty}[{n}] custom_root(@residual) {{
               %u = fori 0, 60, %x : {ty}[{n}] body(%k: i64[], %z: {ty}[{n}]) {{
                 %0 = call %z, %w, %x {{func = @residual}} : {ty}[{n}] %1 = sub %z, %0 : {ty}[{n}] yield %1
               }}
               return %u }}
             func @residual{symbols}(%z: {ty}[{n}], %w: {ty}[{n},{n}], %x: {ty}[{n}]) -> {ty}[{n}] {{
               %0 = dot_general %w, %z {{contract = [1] x [0]}} : {ty}[{n}] %1 = add %0, %x : {ty}[{n}]
               %2 = tanh %1 : {ty}[{n}] %3 = sub %z, %2 : {ty}[{n}] return %3 }}"
        )
    };
    let known = program(&text("f64", "", "4"));
    let types = first(&known).param_types();
    let within = (-0.3, 0.3);
    let at = [draw(&types[0], within, 1), draw(&types[1], within, 2), draw(&types[1], within, 3)];
    let due = numbers(&value(&vjp(&known, first(&known), &[0, 1]).expect("reverses"), &[&at]));

    let symbolic = program(&text("f64", "<n>", "n"));
    let g = vjp(&symbolic, first(&symbolic), &[0, 1]).expect("reverses");
    let extents = g.symbols.iter().map(|&s| (s, 4)).collect::<BTreeMap<_, _>>();
    let g = specialize(&g, &extents).unwrap_or_else(|e| panic!("{}\n{g}", e[0]));
    close("symbolic", &numbers(&value(&g, &[&at])), &due, 1e-13);

    for (ty, dtype, share) in [("f32", DType::F32, 1e-5), ("bf16", DType::BF16, 0.05)] {
        let module = program(&text(ty, "", "4"));
        let at: Vec<Array> = at.iter().map(|a| a.convert(dtype)).collect();
        let g = vjp(&module, first(&module), &[0, 1]).expect("reverses");
        close(ty, &numbers(&value(&g, &[&at])), &due, share);
    }
}

/// A rule that is needed and cannot be written is an error at the call, and only there.
#[test]
fn rules_that_cannot_be_written_are_refused_at_the_call() {
    let text = |ty: &str, residual: &str| {
        format!(
            "func @f<n>(%a: {ty}) -> {ty} {{
               %0 = call %a {{func = @g}} : {ty} return %0 }}
             func @g<n>(%a: {ty}) -> {ty} custom_root(@residual) {{ return %a }}
             func @residual<n>(%x: {ty}, %a: {ty}) -> {ty} {{ {residual} return %r }}"
        )
    };
    let cases = [
        (
            "f64[]",
            "%r = opaque %x, %a {name = \"user\"} : f64[]",
            Kind::Unsupported,
            "`user` has no derivative",
        ),
        (
            "f64[n,2]",
            "%t = dot_general %x, %x {batch = [0] x [0], contract = [1] x [1]} : f64[n]
             %u = broadcast_in_dim %t {dims = [0]} : f64[n,2] %r = sub %u, %a : f64[n,2]",
            Kind::Unsupported,
            "needs constant extents",
        ),
    ];
    for (ty, residual, kind, message) in cases {
        let module: Module = program(&text(ty, residual));
        let f = first(&module);
        for d in [jvp(&module, f, &[0]).err(), vjp(&module, f, &[0]).err()] {
            let d = d.expect("is refused");
            assert!(d.kind == kind && d.message.contains(message), "{d}");
            assert!(d.message.contains("custom_root of @g") && d.at.span.is_some(), "{d}");
        }
        inline(&module, f, &|_| true).expect("values need no rule");
    }
}

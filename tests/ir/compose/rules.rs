//! Custom rules inside of rules keep their meaning at every order, and over batches.

use super::{evaluate, first, numbers, program, scalar};
use adfuse::autodiff::{Batching, Derived};
use adfuse::backends::Array;
use adfuse::ir::{DType, Diagnostic, Kind};

/// Two functions with rules that say other things than they compute, one inside of the rule of the
/// other. The rule of `@outer` calls `@inner`, and so does its own.
const NESTED: &str = "func @f(%x: f64[], %k: f64[]) -> f64[] {
    %c = call %k {func = @outer} : f64[]
    %a = call %x {func = @outer} : f64[]
    %0 = mul %a, %c : f64[]
    return %0 }
func @outer(%x: f64[]) -> f64[] custom_jvp(@outer.jvp) {
    %0 = mul %x, %x : f64[]
    return %0 }
func @outer.jvp(%x: f64[], %t: f64[]) -> (f64[], f64[]) {
    %y = call %x {func = @outer} : f64[]
    %s = call %x {func = @inner} : f64[]
    %dy = mul %s, %t : f64[]
    return %y, %dy }
func @inner(%x: f64[]) -> f64[] INNER {
    %0 = round %x : f64[]
    return %0 }
func @inner.jvp(%x: f64[], %t: f64[]) -> (f64[], f64[]) {
    %y = call %x {func = @inner} : f64[]
    %dy = mul %t, 5.0 : f64[]
    return %y, %dy }
func @inner.fwd(%x: f64[]) -> f64[] {
    %y = call %x {func = @inner} : f64[]
    return %y }
func @inner.bwd(%ct: f64[]) -> f64[] {
    %dx = mul %ct, 5.0 : f64[]
    return %dx }";

/// The derivatives of what the rules say: first by `@outer`'s, then by `@inner`'s.
#[test]
fn rules_in_rules_keep_their_meaning_at_every_order() {
    let at = [scalar(2.3), scalar(3.0)];
    let value = |chain: Result<Derived, Diagnostic>, args: &[Array]| -> Vec<f64> {
        let f = chain.and_then(Derived::finish).expect("differentiates");
        numbers(&evaluate(&f, args).unwrap_or_else(|e| panic!("{e}")))
    };
    let with = |more: &[f64]| -> Vec<Array> {
        at.iter().cloned().chain(more.iter().map(|&x| scalar(x))).collect()
    };
    for (rule, forward) in
        [("custom_jvp(@inner.jvp)", true), ("custom_vjp(@inner.fwd, @inner.bwd)", false)]
    {
        let module = program(&NESTED.replace("INNER", rule));
        let f = || Derived::new(&module, first(&module));
        // c = 9; d/dx = round(x) c; d2/dx2 = 5 c; d2/dx dk = round(x) round(k).
        assert_eq!(value(f().grad(&[0]), &at), [18.0]);
        assert_eq!(value(f().grad(&[0]).and_then(|g| g.grad(&[0])), &at), [45.0]);
        assert_eq!(value(f().grad(&[0]).and_then(|g| g.grad(&[1])), &at), [6.0]);
        assert_eq!(value(f().grad(&[1]).and_then(|g| g.grad(&[1])), &at), [2.3 * 2.3 * 5.0]);
        assert_eq!(
            value(f().jacrev(&[0, 1]).and_then(|g| g.jacrev(&[0, 1])), &at),
            [45.0, 6.0, 6.0, 2.3 * 2.3 * 5.0]
        );
        assert_eq!(
            value(f().jvp(&[0]).and_then(|g| g.vjp(&[0])), &with(&[1.0, 0.0, 1.0]))[2],
            45.0
        );
        if forward {
            assert_eq!(value(f().hessian(&[0, 1]), &at), [45.0, 6.0, 6.0, 2.3 * 2.3 * 5.0]);
            assert_eq!(value(f().hvp(&[0]), &with(&[1.0])), [45.0]);
            assert_eq!(value(f().jvp(&[0]).and_then(|g| g.jvp(&[0])), &with(&[1.0, 1.0]))[3], 45.0);
        } else {
            let d = f().hvp(&[0]).expect_err("forward mode of a custom_vjp");
            assert!(
                d.kind == Kind::Unsupported && d.message.contains("@inner has a custom_vjp"),
                "{d}"
            );
        }
        // Over a batch, then differentiated.
        let batching = Batching::new(2, [Some(0), None]);
        let pair = Array::from_f64s(DType::F64, &[2], &[2.3, -1.2]).expect("two");
        let ones = Array::from_f64s(DType::F64, &[2], &[1.0, 1.0]).expect("two");
        let batched = f().vmap(&batching).and_then(|g| g.vjp(&[0]));
        assert_eq!(value(batched, &[pair.clone(), scalar(3.0), ones.clone()])[2..], [18.0, -9.0]);
        let batched = f().grad(&[0]).and_then(|g| g.vmap(&batching)).and_then(|g| g.vjp(&[0]));
        assert_eq!(value(batched, &[pair, scalar(3.0), ones])[2..], [45.0, 45.0]);
    }
}

/// A rule is handed zeros for the operands that do not move: what it makes of them alone is zero, which neither
/// stands in the way of a transposition nor is computed.
#[test]
fn rules_take_tangents_that_are_zero() {
    let rules = [
        "%0 = mul %s, %y : f64[] %1 = mul %t, %x : f64[] %dz = add %0, %1 : f64[]",
        // Zero times infinity.
        "%0 = mul %s, %y : f64[] %1 = div %t, 0.0 : f64[] %dz = add %0, %1 : f64[]",
        "%k, %l = fori 0, 3, %s, %t : f64[], f64[] body(%i: i64[], %u: f64[], %v: f64[]) {
           %2 = add %v, %v : f64[] %3 = add %u, %2 : f64[] yield %3, %v
         }
         %0 = mul %k, %y : f64[] %dz = add %0, %l : f64[]",
        "%p = gt %y, 0.0 : bool[]
         %k = cond %p : f64[] then { %2 = add %s, %t : f64[] yield %2 } else { yield %t }
         %dz = mul %k, %y : f64[]",
    ];
    for rule in rules {
        let module = program(&format!(
            "func @f(%x: f64[], %y: f64[]) -> f64[] {{
               %0 = call %x, %y {{func = @times}} : f64[] return %0 }}
             func @times(%x: f64[], %y: f64[]) -> f64[] custom_jvp(@times.jvp) {{
               %0 = mul %x, %y : f64[] return %0 }}
             func @times.jvp(%x: f64[], %y: f64[], %s: f64[], %t: f64[]) -> (f64[], f64[]) {{
               %z = mul %x, %y : f64[] {rule} return %z, %dz }}"
        ));
        let at = [scalar(1.5), scalar(2.5)];
        let f = || Derived::new(&module, first(&module));
        let reverse = f().grad(&[0]).and_then(Derived::finish).unwrap_or_else(|d| panic!("{d}"));
        assert_eq!(numbers(&evaluate(&reverse, &at).expect("runs")), [2.5], "{rule}");
        let forward = f().jvp(&[0]).and_then(Derived::finish).expect("forward");
        let with = [at[0].clone(), at[1].clone(), scalar(1.0)];
        assert_eq!(numbers(&evaluate(&forward, &with).expect("runs"))[1], 2.5, "{rule}");
    }
}

//! Each rule of `simplify`: a program on which it fires, and the same bits after it.

use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::rewrite::{ALGEBRA, Exactness, simplify};
use adfuse::ir::text::{parse, print_function};
use adfuse::ir::{DType, Function, Module, verify};
use std::collections::BTreeSet;

/// A rule, the op that it takes out of the program, and the program: instructions from `%x` and `%p`
/// to `%y`, all of type `T`.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("fold-literals", "add", "%a = add 1.5, 2.0 : T %y = mul %x, %a : T"),
    ("fold-literals", "exp", "%a = exp 1.5 : T %y = max %x, %a : T"),
    ("fold-literals", "div", "%a = div 1.0, -0.0 : T %y = max %x, %a : T"),
    ("one-times-x", "mul", "%y = mul %x, 1.0 : T"),
    ("one-times-x", "mul", "%y = mul 1.0, %x : T"),
    ("x-minus-zero", "sub", "%y = sub %x, 0.0 : T"),
    ("x-plus-negative-zero", "add", "%y = add %x, -0.0 : T"),
    ("x-plus-negative-zero", "add", "%y = add -0.0, %x : T"),
    ("x-over-one", "div", "%y = div %x, 1.0 : T"),
    ("minus-one-times-x", "mul", "%y = mul %x, -1.0 : T"),
    ("twice-negated", "neg", "%a = neg %x : T %y = neg %a : T"),
    ("twice-complemented", "not", "%a = not %p : P %b = not %a : P %y = select_n %b, %x, 1.0 : T"),
    ("twice-reversed", "rev", "%a = rev %x {axes = [0]} : T %y = rev %a {axes = [0]} : T"),
    ("chosen", "select_n", "%a = neg %x : T %y = select_n true, %x, %a : T"),
    ("chosen", "select_n", "%a = neg %x : T %y = select_n false, %x, %a : T"),
    ("chosen", "select_n", "%y = select_n %p, %x, %x : T"),
    ("same-type", "convert_element_type", "%y = convert_element_type %x : T"),
    ("same-shape", "reshape", "%y = reshape %x : T"),
    ("same-shape", "broadcast_in_dim", "%y = broadcast_in_dim %x {dims = [0]} : T"),
    ("nothing-moved", "transpose", "%y = transpose %x {perm = [0]} : T"),
    ("nothing-moved", "pad", "%y = pad %x, 1.0 {low = [0], high = [0], interior = [0]} : T"),
    ("nothing-moved", "slice", "%y = slice %x {start = [0], limit = [N], stride = [1]} : T"),
    ("nothing-moved", "rev", "%y = rev %x {axes = []} : T"),
    ("nothing-moved", "reduce_sum", "%y = reduce_sum %x {axes = []} : T"),
    ("nothing-moved", "reduce_prod", "%y = reduce_prod %x {axes = []} : T"),
    ("nothing-moved", "reduce_max", "%y = reduce_max %x {axes = []} : T"),
    ("nothing-moved", "reduce_min", "%y = reduce_min %x {axes = []} : T"),
    ("nothing-moved", "concatenate", "%y = concatenate %x {axis = 0} : T"),
    ("reshape-of-reshape", "reshape", "%a = reshape %x : D[N,1] %y = reshape %a : T"),
    (
        "transpose-of-transpose",
        "transpose",
        "%b = reshape %x : D[N,1] %a = transpose %b {perm = [1, 0]} : D[1,N]
        %c = transpose %a {perm = [1, 0]} : D[N,1] %y = reshape %c : T",
    ),
    (
        "broadcast-of-literal",
        "broadcast_in_dim",
        "%a = broadcast_in_dim 2.0 {dims = []} : T %y = mul %a, %x : T",
    ),
    ("first-power", "integer_pow", "%y = integer_pow %x {y = 1} : T"),
    ("relu-of-relu", "", "%a = relu %x : T %y = relu %a : T"),
    ("x-plus-zero", "add", "%y = add %x, 0.0 : T"),
    ("zero-times-x", "mul", "%y = mul %x, 0.0 : T"),
];

/// Elements that rules get wrong most easily.
const SPECIAL: [f64; 16] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1.5,
    -2.25,
    1e-45,
    -1e-45,
    5e-324,
    -1e-310,
    3.0e38,
    -1.7e308,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    0.1,
];

fn program(body: &str, dtype: DType) -> Module {
    let n = SPECIAL.len();
    let body = body
        .replace("D[", &format!("{dtype}["))
        .replace(": T", &format!(": {dtype}[N]"))
        .replace(": P", ": bool[N]")
        .replace('N', &n.to_string());
    let body = if dtype.is_int() { as_integers(&body) } else { body };
    let text =
        format!("func @f(%x: {dtype}[{n}], %p: bool[{n}]) -> {dtype}[{n}] {{ {body} return %y }}");
    let module = parse(&text).unwrap_or_else(|e| panic!("{text}\n{e:#?}"));
    verify(&module).unwrap_or_else(|e| panic!("{text}\n{e:#?}"));
    module
}

/// Literals with a point lose it.
fn as_integers(body: &str) -> String {
    body.replace("-0.0", "0").replace(".0", "")
}

fn inputs(dtype: DType, values: &[f64]) -> [Array; 2] {
    let dims = [values.len() as u64];
    let flags: Vec<f64> = (0..values.len()).map(|i| (i % 2) as f64).collect();
    [
        Array::from_f64s(dtype, &dims, values).expect("as many"),
        Array::from_f64s(DType::Bool, &dims, &flags).expect("as many"),
    ]
}

fn first(m: &Module) -> &Function {
    m.funcs.values().next().expect("a function")
}

fn result(m: &Module, args: &[Array]) -> Array {
    run(m, first(m), args, &mut Silent).expect("runs").swap_remove(0)
}

#[test]
fn every_rule_has_a_program() {
    let named: BTreeSet<&str> = PROGRAMS.iter().map(|p| p.0).collect();
    let all: BTreeSet<&str> = ALGEBRA.rules.iter().map(|r| r.name).collect();
    assert_eq!(all.len(), ALGEBRA.rules.len(), "names of rules are different");
    assert_eq!(named, all);
}

#[test]
fn exact_rules_fire_and_keep_every_bit() {
    for (name, gone, body) in PROGRAMS {
        let rule = ALGEBRA.rules.iter().find(|r| r.name == *name).expect("a rule");
        let integers = !["exp", "1.5", "-1.0", "-0.0"].iter().any(|w| body.contains(w));
        let floats = [DType::F32, DType::F64, DType::BF16, DType::F16];
        let ints = [DType::I32, DType::U8].into_iter().filter(|_| integers);
        for dtype in floats.into_iter().chain(ints) {
            let before = program(body, dtype);
            let count = |f: &Function| f.body_insts().len();
            let simplified = simplify(first(&before), Exactness::Exact).expect("simplifies");
            let text = print_function(&simplified);
            let gone_now = !text.contains(&format!("= {gone} "));
            let fired = count(&simplified) < count(first(&before)) || gone_now && !gone.is_empty();
            // On integers every zero is positive: both directions of a Finite rule are exact.
            if rule.exactness == Exactness::Exact {
                assert!(fired, "`{name}` does not fire:\n{text}");
                assert!(gone.is_empty() || gone_now, "`{name}` leaves `{gone}`:\n{text}");
            } else if dtype.is_float() {
                assert!(!fired, "`{name}` is not exact, and fires:\n{text}");
            }
            let after = Module::single(simplified);
            verify(&after).unwrap_or_else(|e| panic!("{text}\n{e:#?}"));
            let args = inputs(dtype, &SPECIAL);
            let (a, b) = (result(&before, &args), result(&after, &args));
            assert_eq!(a, b, "`{name}` on {dtype}:\n{text}");
        }
    }
}

#[test]
fn finite_rules_fire_where_they_are_allowed() {
    let tame =
        [0.0, 1.0, -1.0, 1.5, -2.25, 1e-30, 3.0, 0.1, 7.0, -8.0, 9.5, 100.0, 2.0, 4.0, 5.0, 6.0];
    for (name, gone, body) in PROGRAMS {
        let before = program(body, DType::F32);
        let simplified = simplify(first(&before), Exactness::Finite).expect("simplifies");
        let text = print_function(&simplified);
        assert!(gone.is_empty() || !text.contains(&format!("= {gone} ")), "`{name}`:\n{text}");
        let after = Module::single(simplified);
        verify(&after).unwrap_or_else(|e| panic!("{text}\n{e:#?}"));
        let args = inputs(DType::F32, &tame);
        let values = |m: &Module| result(m, &args).to_f64s();
        assert_eq!(values(&before), values(&after), "`{name}`:\n{text}");
    }
}

/// Programs that look like a rule's, but are not: nothing may be rewritten.
#[test]
fn rules_do_not_fire_beside_their_pattern() {
    let n = SPECIAL.len();
    let half = n / 2;
    for body in [
        "%y = mul %x, 2.0 : T".to_string(),
        "%y = sub 0.0, %x : T".into(),
        "%y = sub %x, -0.0 : T".into(),
        "%y = div 1.0, %x : T".into(),
        "%y = add %x, 0.0 : T".into(),
        "%y = rev %x {axes = [0]} : T".into(),
        "%a = relu %x : T %y = neg %a : T".into(),
        "%y = integer_pow %x {y = -1} : T".into(),
        format!(
            "%a = reshape %x : D[2,{half}] %b = transpose %a {{perm = [1, 0]}} : D[{half},2] %y = reshape %b : T"
        ),
        format!(
            "%a = reshape %x : D[2,{half}] %b = rev %a {{axes = [0]}} : D[2,{half}] \
                 %c = rev %b {{axes = [1]}} : D[2,{half}] %y = reshape %c : T"
        ),
    ] {
        let before = program(&body, DType::F32);
        let after = simplify(first(&before), Exactness::Exact).expect("simplifies");
        assert_eq!(print_function(&after), print_function(first(&before)));
    }
}

//! The structural ops where lists of other systems' tests have them: derivatives against differences in
//! both modes, by cases of their attributes and of where their indices fall.

use super::derivatives::{Point, check};
use adfuse::autodiff::{grad, vjp};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::op::Domain::{Normal, Uniform};
use adfuse::ir::text::{parse, parse_example};
use adfuse::ir::{DType, Function, Module, TensorType, verify};
use adfuse::sample::{rng, sample};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;

/// What the float operands of a case are.
#[derive(Clone, Copy, PartialEq)]
enum Floats {
    /// 3·N(0,1).
    Any,
    /// Distinct, and further apart than differences reach.
    Apart,
}
use Floats::{Any, Apart};

/// An instruction on `f64`, the values of its integer operands in order, what the others are, and to
/// which order it is differentiated.
struct Case<'a> {
    text: &'a str,
    integers: &'static [&'static [i64]],
    floats: Floats,
    orders: usize,
}

const fn case(text: &str) -> Case<'_> {
    Case { text, integers: &[], floats: Any, orders: 2 }
}

const fn at<'a>(text: &'a str, integers: &'static [&'static [i64]]) -> Case<'a> {
    Case { text, integers, floats: Any, orders: 2 }
}

const fn apart<'a>(text: &'a str, integers: &'static [&'static [i64]], orders: usize) -> Case<'a> {
    Case { text, integers, floats: Apart, orders }
}

const SHAPES: &[Case<'_>] = &[
    case("%x: f64[2,3], %y: f64[2,3], %z: f64[2,3] | concatenate %x, %y, %z {axis = 0} : f64[6,3]"),
    case("%x: f64[4,1], %y: f64[4,3], %z: f64[4,0] | concatenate %x, %y, %z {axis = 1} : f64[4,4]"),
    case("%x: f64[3] | concatenate %x, %x {axis = 0} : f64[6]"),
    case("%x: f64[7] | split %x {sizes = [3, 0, 4], axis = 0} : f64[3], f64[0], f64[4]"),
    case("%x: f64[2,5] | split %x {sizes = [2, 3], axis = 1} : f64[2,2], f64[2,3]"),
    case("%x: f64[] | broadcast_in_dim %x {dims = []} : f64[2,3]"),
    case("%x: f64[3] | broadcast_in_dim %x {dims = [0]} : f64[3,2]"),
    case("%x: f64[2,1] | broadcast_in_dim %x {dims = [0, 2]} : f64[2,4,3]"),
    case("%x: f64[3] | broadcast_in_dim %x {dims = [1]} : f64[0,3]"),
    case("%x: f64[3,4,5] | reshape %x : f64[3,20]"),
    case("%x: f64[1,6] | reshape %x : f64[2,1,3]"),
    case("%x: f64[1] | reshape %x : f64[]"),
    case("%x: f64[3,4] | transpose %x {perm = [1, 0]} : f64[4,3]"),
    case("%x: f64[2,3,4] | transpose %x {perm = [2, 0, 1]} : f64[4,2,3]"),
    case("%x: f64[4] | rev %x {axes = [0]} : f64[4]"),
    case("%x: f64[2,3,4] | rev %x {axes = [0, 2]} : f64[2,3,4]"),
    case(
        "%x: f64[2,3], %p: f64[] | pad %x, %p {low = [1, 2], high = [1, 0], interior = [0, 1]} : f64[4,7]",
    ),
    case(
        "%x: f64[5,4], %p: f64[] | pad %x, %p {low = [-1, 1], high = [2, -3], interior = [0, 0]} : f64[6,2]",
    ),
    case("%x: f64[4], %p: f64[] | pad %x, %p {low = [-2], high = [-1], interior = [2]} : f64[7]"),
    case("%x: f64[0], %p: f64[] | pad %x, %p {low = [1], high = [2], interior = [0]} : f64[3]"),
    case("%x: f64[5] | slice %x {start = [1], limit = [2], stride = [1]} : f64[1]"),
    case("%x: f64[7,5] | slice %x {start = [1, 0], limit = [7, 5], stride = [3, 2]} : f64[2,3]"),
    case("%x: f64[5,3] | slice %x {start = [2, 1], limit = [2, 3], stride = [1, 1]} : f64[0,2]"),
    case("%x: f64[2,3] | tile %x {counts = [2, 3]} : f64[4,9]"),
    case("%x: f64[2] | tile %x {counts = [0]} : f64[0]"),
    case("%p: bool[2,3], %x: f64[2,3], %y: f64[2,3] | select_n %p, %x, %y : f64[2,3]"),
];

const SUMS: &[Case<'_>] = &[
    case("%x: f64[3,2], %y: f64[2,4] | dot_general %x, %y {contract = [1] x [0]} : f64[3,4]"),
    case("%x: f64[5], %y: f64[5] | dot_general %x, %y {contract = [0] x [0]} : f64[]"),
    case("%x: f64[5,3], %y: f64[5,2] | dot_general %x, %y {contract = [0] x [0]} : f64[3,2]"),
    case(
        "%x: f64[3,5], %y: f64[2,5] | dot_general %x, %y {batch = [] x [], contract = [1] x [1]} : f64[3,2]",
    ),
    case(
        "%x: f64[5,3,2], %y: f64[5,2,4] | dot_general %x, %y {batch = [0] x [0], contract = [2] x [1]} : f64[5,3,4]",
    ),
    case(
        "%x: f64[3,5,2], %y: f64[4,2,5] | dot_general %x, %y {batch = [1] x [2], contract = [2] x [1]} : f64[5,3,4]",
    ),
    case(
        "%x: f64[2,3,4], %y: f64[4,3,5] | dot_general %x, %y {contract = [1, 2] x [1, 0]} : f64[2,5]",
    ),
    case("%x: f64[2,3], %y: f64[4] | dot_general %x, %y {contract = [] x []} : f64[2,3,4]"),
    case("%x: f64[2,0], %y: f64[0,3] | dot_general %x, %y {contract = [1] x [0]} : f64[2,3]"),
];

/// What is reduced and over which axes.
const REDUCED: [(&str, &str, &str); 9] = [
    ("f64[3,4,5]", "[0]", "f64[4,5]"),
    ("f64[3,4,5]", "[1, 2]", "f64[3]"),
    ("f64[3,4,5]", "[0, 2]", "f64[4]"),
    ("f64[3,4,5]", "[0, 1, 2]", "f64[]"),
    ("f64[3,1]", "[1]", "f64[3]"),
    ("f64[4]", "[0]", "f64[]"),
    ("f64[2,3]", "[]", "f64[2,3]"),
    ("f64[3,0]", "[0]", "f64[0]"),
    ("f64[0,3]", "[0]", "f64[3]"),
];

const WINDOWS: &[Case<'_>] = &[
    apart("%x: f64[5] | reduce_window_sum %x {window = [2]} : f64[4]", &[], 3),
    apart(
        "%x: f64[4,5] | reduce_window_sum %x {window = [2, 3], strides = [2, 1], low = [0, 1], high = [1, 0]} : f64[2,4]",
        &[],
        3,
    ),
    apart(
        "%x: f64[6] | reduce_window_sum %x {window = [2], base_dilation = [2], window_dilation = [3]} : f64[8]",
        &[],
        3,
    ),
    apart("%x: f64[5] | reduce_window_max %x {window = [3], strides = [2]} : f64[2]", &[], 3),
    apart(
        "%x: f64[4,5] | reduce_window_max %x {window = [2, 2], low = [1, -1], high = [0, 1]} : f64[4,4]",
        &[],
        3,
    ),
    apart(
        "%x: f64[4,5] | reduce_window_min %x {window = [2, 2], strides = [2, 1]} : f64[2,4]",
        &[],
        3,
    ),
    apart(
        "%s: f64[2,4], %x: f64[4,5] | select_and_scatter_add %s, %x {window = [2, 2], strides = [2, 1], select = ge} : f64[4,5]",
        &[],
        3,
    ),
    apart(
        "%s: f64[2], %x: f64[6] | select_and_scatter_add %s, %x {window = [3], strides = [3], select = le} : f64[6]",
        &[],
        3,
    ),
    apart("%x: f64[2,4] | cumprod %x {axis = 1} : f64[2,4]", &[], 2),
    apart("%x: f64[4] | cumprod %x {axis = 0, reverse = true} : f64[4]", &[], 2),
    apart("%x: f64[2,4] | cummax %x {axis = 1} : f64[2,4]", &[], 2),
    apart("%x: f64[2,4] | cummin %x {axis = 1, reverse = true} : f64[2,4]", &[], 2),
    apart("%x: f64[2,4] | cumlogsumexp %x {axis = 1} : f64[2,4]", &[], 2),
    apart("%x: f64[4,2] | cumsum %x {axis = 0} : f64[4,2]", &[], 2),
    apart("%x: f64[4,2] | cumsum %x {axis = 0, reverse = true} : f64[4,2]", &[], 2),
];

const CONVOLUTIONS: &[Case<'_>] = &[
    case("%x: f64[2,3,4,5], %w: f64[2,3,2,2] | conv_general_dilated %x, %w : f64[2,2,3,4]"),
    case(
        "%x: f64[1,2,4,5], %w: f64[3,2,2,3] | conv_general_dilated %x, %w {strides = [2, 1], low = [1, 1], high = [0, 2]} : f64[1,3,2,6]",
    ),
    case(
        "%x: f64[1,2,5], %w: f64[3,2,2] | conv_general_dilated %x, %w {low = [-1], high = [-1]} : f64[1,3,2]",
    ),
    case(
        "%x: f64[1,2,4], %w: f64[3,2,2] | conv_general_dilated %x, %w {low = [-2], high = [3], lhs_dilation = [3]} : f64[1,3,10]",
    ),
    case(
        "%x: f64[1,2,6], %w: f64[3,2,2] | conv_general_dilated %x, %w {rhs_dilation = [3], strides = [2]} : f64[1,3,2]",
    ),
    case(
        "%x: f64[2,4,3], %w: f64[6,2,2] | conv_general_dilated %x, %w {feature_group_count = 2} : f64[2,6,2]",
    ),
    case(
        "%x: f64[4,2,3], %w: f64[6,2,2] | conv_general_dilated %x, %w {batch_group_count = 2} : f64[2,6,2]",
    ),
    case(
        "%x: f64[2,4,5,3], %w: f64[2,2,3,2] | conv_general_dilated %x, %w {lhs_spec = [0, 3, 1, 2], rhs_spec = [3, 2, 0, 1], out_spec = [0, 3, 1, 2]} : f64[2,3,4,2]",
    ),
    case(
        "%x: f64[4,5,2,3], %w: f64[2,3,2,2] | conv_general_dilated %x, %w {lhs_spec = [2, 3, 0, 1], out_spec = [2, 3, 0, 1]} : f64[3,4,2,2]",
    ),
    case("%x: f64[0,3,4], %w: f64[2,3,2] | conv_general_dilated %x, %w : f64[0,2,3]"),
    case("%x: f64[2,0,4], %w: f64[2,0,2] | conv_general_dilated %x, %w : f64[2,2,3]"),
    case("%x: f64[2,3], %w: f64[4,3] | conv_general_dilated %x, %w : f64[2,4]"),
];

const PLACES: &[Case<'_>] = &[
    // Starts far below and above are clamped.
    at(
        "%x: f64[5,3], %i: i32[], %j: i32[] | dynamic_slice %x, %i, %j {sizes = [2, 3]} : f64[2,3]",
        &[&[1], &[0]],
    ),
    at("%x: f64[5], %i: i32[] | dynamic_slice %x, %i {sizes = [3]} : f64[3]", &[&[-7]]),
    at("%x: f64[5], %i: i64[] | dynamic_slice %x, %i {sizes = [3]} : f64[3]", &[&[9]]),
    at(
        "%x: f64[5,3], %u: f64[2,2], %i: i32[], %j: i32[] | dynamic_update_slice %x, %u, %i, %j : f64[5,3]",
        &[&[2], &[1]],
    ),
    at("%x: f64[5], %u: f64[3], %i: i32[] | dynamic_update_slice %x, %u, %i : f64[5]", &[&[-4]]),
    at("%x: f64[5], %u: f64[3], %i: i32[] | dynamic_update_slice %x, %u, %i : f64[5]", &[&[4]]),
    at(
        "%x: f64[5,3], %i: i32[3,1] | gather %x, %i {offset_dims = [1], collapsed = [0], start_map = [0], sizes = [1, 3], mode = clip} : f64[3,3]",
        &[&[4, -2, 9]],
    ),
    at(
        "%x: f64[5,3], %i: i32[3,1] | gather %x, %i {offset_dims = [1], collapsed = [0], start_map = [0], sizes = [1, 3], mode = fill} : f64[3,3]",
        &[&[4, 0, 4]],
    ),
    at(
        "%x: f64[5,3], %i: i32[3,1] | gather %x, %i {offset_dims = [1], collapsed = [0], start_map = [0], sizes = [1, 3], mode = zero} : f64[3,3]",
        &[&[4, -1, 5]],
    ),
    at(
        "%x: f64[5,3], %i: i32[3,1] | gather %x, %i {offset_dims = [1], collapsed = [0], start_map = [0], sizes = [1, 3], mode = promise} : f64[3,3]",
        &[&[4, 0, 2]],
    ),
    at(
        "%x: f64[5,3], %i: i32[2,2] | gather %x, %i {offset_dims = [0, 2], collapsed = [], start_map = [1, 0], sizes = [2, 2], mode = clip} : f64[2,2,2]",
        &[&[1, 3, 2, -1]],
    ),
    at(
        "%x: f64[5], %i: i32[0,1] | gather %x, %i {offset_dims = [], collapsed = [0], start_map = [0], sizes = [1], mode = clip} : f64[0]",
        &[&[]],
    ),
    at(
        "%x: f64[5,3], %i: i32[3,1], %u: f64[3,3] | scatter_add %x, %i, %u {window_dims = [1], inserted = [0], start_map = [0], mode = clip} : f64[5,3]",
        &[&[4, 4, 9]],
    ),
    at(
        "%x: f64[5,3], %i: i32[3,1], %u: f64[3,3] | scatter_add %x, %i, %u {window_dims = [1], inserted = [0], start_map = [0], mode = drop} : f64[5,3]",
        &[&[1, -1, 7]],
    ),
    at(
        "%x: f64[5,3], %i: i32[2,2], %u: f64[2,2,2] | scatter_add %x, %i, %u {window_dims = [1, 2], inserted = [], start_map = [1, 0], mode = promise} : f64[5,3]",
        &[&[0, 3, 1, 2]],
    ),
    at(
        "%x: f64[5,3], %i: i32[3,1], %u: f64[3,3] | scatter %x, %i, %u {window_dims = [1], inserted = [0], start_map = [0], mode = promise} : f64[5,3]",
        &[&[4, 0, 2]],
    ),
    at(
        "%x: f64[5,3], %i: i32[3,1], %u: f64[3,3] | scatter %x, %i, %u {window_dims = [1], inserted = [0], start_map = [0], mode = drop} : f64[5,3]",
        &[&[4, -1, 7]],
    ),
    at(
        "%x: f64[5], %i: i32[2,1], %u: f64[2] | scatter %x, %i, %u {window_dims = [], inserted = [0], start_map = [0], mode = clip} : f64[5]",
        &[&[-3, 8]],
    ),
    apart(
        "%x: f64[5], %i: i32[4,1], %u: f64[4] | scatter_max %x, %i, %u {window_dims = [], inserted = [0], start_map = [0], mode = clip} : f64[5]",
        &[&[1, 1, 9, 0]],
        2,
    ),
    apart(
        "%x: f64[5], %i: i32[4,1], %u: f64[4] | scatter_max %x, %i, %u {window_dims = [], inserted = [0], start_map = [0], mode = drop} : f64[5]",
        &[&[1, 1, 9, 0]],
        2,
    ),
    apart(
        "%x: f64[5,2], %i: i32[2,1], %u: f64[2,2] | scatter_min %x, %i, %u {window_dims = [1], inserted = [0], start_map = [0], mode = clip} : f64[5,2]",
        &[&[3, -1]],
        2,
    ),
    apart(
        "%x: f64[5], %i: i32[2,1], %u: f64[2] | scatter_min %x, %i, %u {window_dims = [], inserted = [0], start_map = [0], mode = promise} : f64[5]",
        &[&[3, 4]],
        2,
    ),
];

/// `n` numbers at least a tenth apart, in some order.
fn distinct(n: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut all: Vec<f64> = (0..n).map(|k| k as f64 * 0.25 - n as f64 * 0.11).collect();
    for k in (1..n).rev() {
        all.swap(k, rng.next_u32() as usize % (k + 1));
    }
    all
}

fn first(m: &Module) -> &Function {
    m.funcs.values().next().expect("a function")
}

fn arguments(m: &Module, case: &Case<'_>, rng: &mut ChaCha8Rng) -> Vec<Array> {
    let mut integers = case.integers.iter();
    let mut draw = |ty: &TensorType| {
        if ty.dtype.is_int() {
            let dims = ty.dims().expect("extents that are known");
            let values: Vec<f64> =
                integers.next().expect("its integers").iter().map(|&v| v as f64).collect();
            return Array::from_f64s(ty.dtype, &dims, &values).expect("a value for each element");
        }
        let any = sample(ty, if ty.dtype == DType::Bool { Uniform(0.0, 2.0) } else { Normal }, rng);
        let any = any.expect("samples");
        match case.floats {
            Apart if ty.dtype.is_float() => {
                Array::from_f64s(ty.dtype, any.dims(), &distinct(any.len(), rng)).expect("as many")
            }
            _ => any,
        }
    };
    first(m).param_types().iter().map(&mut draw).collect()
}

/// Checks a case in every order and mode: none may be refused.
fn checks(case: &Case<'_>, seed: u64) {
    let module = parse_example(case.text).unwrap_or_else(|e| panic!("{}: {e:#?}", case.text));
    verify(&module).unwrap_or_else(|e| panic!("{}: {e:#?}", case.text));
    let args = arguments(&module, case, &mut rng(seed, 0));
    let found = check(&Point { module, args }, case.orders, &mut rng(seed, 1));
    let n = found.unwrap_or_else(|e| panic!("{}: {e}", case.text));
    // Forward and reverse, and both of each for every further order.
    let whole: usize = (1..=case.orders).map(|k| 1 << k).sum();
    assert_eq!(n, whole, "{}: not every order and mode", case.text);
}

#[test]
fn structural_ops_have_their_derivatives() {
    for list in [SHAPES, SUMS, CONVOLUTIONS, PLACES] {
        for seed in 0..2 {
            list.iter().for_each(|case| checks(case, seed));
        }
    }
}

#[test]
fn windows_have_their_derivatives_to_order_three() {
    WINDOWS.iter().for_each(|case| checks(case, 5));
}

#[test]
fn reductions_have_their_derivatives() {
    for (from, axes, to) in REDUCED {
        for op in ["reduce_sum", "reduce_max", "reduce_min", "reduce_prod"] {
            // The largest of nothing is infinite, and has no differences.
            if from == "f64[0,3]" && op != "reduce_sum" && op != "reduce_prod" {
                continue;
            }
            let text = format!("%x: {from} | {op} %x {{axes = {axes}}} : {to}");
            let case = apart(&text, &[], 2);
            checks(&case, 9);
        }
    }
}

/// Every pair of float types converts, and the cotangent comes back in the type of the operand; through
/// integers nothing comes back.
#[test]
fn conversions_carry_cotangents_in_their_own_type() {
    let floats = [DType::F64, DType::F32, DType::BF16, DType::F16];
    for from in floats {
        for to in floats {
            let text = format!("%x: {from}[3] | convert_element_type %x : {to}[3]");
            let m = parse_example(&text).expect("parses");
            let back = Module::single(vjp(&m, first(&m), &[0]).expect("differentiates"));
            let x = Array::from_f64s(from, &[3], &[1.5, -2.0, 0.25]).expect("three");
            let ct = Array::from_f64s(to, &[3], &[0.5, 3.0, -1.0]).expect("three");
            let out = run(&back, first(&back), &[x, ct.clone()], &mut Silent).expect("runs");
            assert_eq!(out[1].dtype(), from, "{text}");
            assert_eq!(out[1].to_f64s(), ct.to_f64s(), "{text}");
        }
        let text = format!(
            "func @f(%x: {from}[]) -> {from}[] {{
            %0 = convert_element_type %x : i32[]
            %1 = convert_element_type %0 : {from}[]
            %2 = mul %1, %x : {from}[]
            return %2 }}"
        );
        let m = parse(&text).expect("parses");
        let g = Module::single(grad(&m, first(&m), &[0]).expect("differentiates"));
        let x = Array::from_f64s(from, &[], &[2.5]).expect("a scalar");
        let out = run(&g, first(&g), &[x], &mut Silent).expect("runs");
        assert_eq!(out[0].to_f64s(), [2.0], "{text}");
    }
}

/// The result of a contraction may be wider than its operands, whose cotangents are of their own types.
#[test]
fn wider_contractions_differentiate() {
    for (narrow, wide) in [("f32", "f64"), ("bf16", "f32"), ("f16", "f32"), ("bf16", "f64")] {
        let m = parse(&format!(
            "func @f(%x: {narrow}[2,3], %y: {narrow}[3,2]) -> {wide}[] {{
            %0 = dot_general %x, %y {{contract = [1] x [0]}} : {wide}[2,2]
            %1 = reduce_sum %0 {{axes = [0, 1]}} : {wide}[]
            return %1 }}"
        ))
        .expect("parses");
        let g = Module::single(grad(&m, first(&m), &[0, 1]).expect("differentiates"));
        let dtypes: Vec<DType> = first(&m).param_types().iter().map(|t| t.dtype).collect();
        let x = Array::from_f64s(dtypes[0], &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("six");
        let y = Array::from_f64s(dtypes[1], &[3, 2], &[0.5, 1.0, 1.5, 2.0, 2.5, 3.0]).expect("six");
        let out = run(&g, first(&g), &[x, y], &mut Silent).expect("runs");
        assert!(out.iter().all(|a| a.dtype() == dtypes[0]), "{out:?}");
        assert_eq!(out[0].to_f64s(), [1.5, 3.5, 5.5, 1.5, 3.5, 5.5]);
        assert_eq!(out[1].to_f64s(), [5.0, 5.0, 7.0, 7.0, 9.0, 9.0]);
    }
}

/// A gather of `bf16` that widens keeps the cotangent in `f32` until the sum at each place is whole: one
/// rounding, where adding in `bf16` would lose every one of the small terms.
#[test]
fn a_gather_of_bf16_sums_its_cotangent_in_f32() {
    let m = parse(
        "func @f(%x: bf16[2], %i: i32[257,1], %w: f32[257]) -> f32[] {
        %0 = gather %x, %i {offset_dims = [], collapsed = [0], start_map = [0], sizes = [1], mode = clip} : bf16[257]
        %1 = convert_element_type %0 : f32[257]
        %2 = mul %1, %w : f32[257]
        %3 = reduce_sum %2 {axes = [0]} : f32[]
        return %3 }",
    )
    .expect("parses");
    let g = Module::single(grad(&m, first(&m), &[0]).expect("differentiates"));
    let x = Array::from_f64s(DType::BF16, &[2], &[1.0, 2.0]).expect("two");
    let i = Array::from_f64s(DType::I32, &[257, 1], &[1.0; 257]).expect("indices");
    let mut weights = [1.0; 257];
    weights[0] = 256.0;
    let w = Array::from_f64s(DType::F32, &[257], &weights).expect("weights");
    let out = run(&g, first(&g), &[x, i, w], &mut Silent).expect("runs");
    assert_eq!(out[0].dtype(), DType::BF16);
    assert_eq!(out[0].to_f64s(), [0.0, 512.0]);
}

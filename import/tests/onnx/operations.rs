//! Single nodes: meanings that are easily missed, and numbers that are out of range.

use super::write::{
    F32, I64, Message, U64, floats, graph, int, int_list, ints, model, model_of_version, node,
    value,
};
use super::{array, imported, run};
use adfuse::backends::Array;
use adfuse::ir::DType;
use adfuse_import::{OnnxOptions, onnx};

/// A model of one node over these initializers, whose output is `y`.
fn one(node: Message, initializers: &[Message], inputs: &[Message], y: Message) -> Message {
    model(&graph([&[node], initializers, inputs, &[y]]))
}

fn refused(m: &Message, why: &str) {
    let error = onnx(&m.0, &OnnxOptions::default()).expect_err("out of range");
    assert!(error.to_string().contains(why), "{error}");
}

#[test]
fn operands_are_aligned_at_the_named_axis_before_version_7() {
    let square = |name| value(name, F32, &[Ok(2), Ok(2)]);
    let sum = |attributes: &[Message]| {
        let nodes = [node("Add", &["x", "b"], &["y"], attributes)];
        let bias = [floats("b", &[2], &[10.0, 20.0])];
        let made =
            imported(&model_of_version(6, &graph([&nodes, &bias, &[square("x")], &[square("y")]])));
        run(&made, &[array(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), array(&[2], &[10.0, 20.0])])
    };
    let broadcast = int("broadcast", 1);
    assert_eq!(sum(&[broadcast.clone(), int("axis", 0)]), [[11.0, 12.0, 23.0, 24.0]]);
    assert_eq!(sum(&[broadcast.clone(), int("axis", 1)]), [[11.0, 22.0, 13.0, 24.0]]);
    assert_eq!(sum(&[broadcast]), [[11.0, 22.0, 13.0, 24.0]]);
}

#[test]
fn integers_of_attributes_keep_all_bits() {
    let large = (1 << 53) + 1;
    let nodes = [
        node("Constant", &[], &["c"], &[int("value_int", large)]),
        node("Sub", &["c", "x"], &["y"], &[]),
    ];
    let made =
        imported(&model(&graph([&nodes, &[], &[value("x", I64, &[])], &[value("y", I64, &[])]])));
    let x = Array::from_bits(DType::I64, &[], &[large as u64 - 1]).expect("a number");
    assert_eq!(run(&made, &[x]), [[1.0]]);
}

#[test]
fn extremes_of_unsigned_integers_are_those_of_their_order() {
    let place = |op: &str| {
        let m = one(
            node(op, &["x"], &["y"], &[int("keepdims", 0)]),
            &[],
            &[value("x", U64, &[Ok(2)])],
            value("y", I64, &[]),
        );
        let x = Array::from_bits(DType::I64, &[2], &[1, u64::MAX]).expect("numbers");
        run(&imported(&m), &[x])
    };
    assert_eq!(place("ArgMax"), [[1.0]]);
    assert_eq!(place("ArgMin"), [[0.0]]);
}

#[test]
fn a_permutation_has_every_axis() {
    let m = one(
        node("Transpose", &["x"], &["y"], &[int_list("perm", &[0])]),
        &[],
        &[value("x", F32, &[Ok(2), Ok(3)])],
        value("y", F32, &[Ok(2), Ok(3)]),
    );
    refused(&m, "Transpose");
}

#[test]
fn angles_without_axes_are_refused() {
    let m = graph([
        &[node("RotaryEmbedding", &["x", "c", "c", "at"], &["y"], &[])],
        &[floats("c", &[], &[1.0])],
        &[value("x", F32, &[Ok(1), Ok(1), Ok(2), Ok(2)]), value("at", I64, &[Ok(1), Ok(2)])],
        &[value("y", F32, &[Ok(1), Ok(1), Ok(2), Ok(2)])],
    ]);
    refused(&model_of_version(23, &m), "axis 0 of 0");
}

#[test]
fn strides_beyond_all_extents_are_refused() {
    let wide = |name| value(name, F32, &[Ok(1), Ok(1), Ok(1 << 39)]);
    let strides = [int_list("strides", &[(1 << 30) - 1]), int_list("kernel_shape", &[1])];
    let spread = one(
        node("ConvTranspose", &["x", "w"], &["y"], &strides),
        &[floats("w", &[1, 1, 1], &[1.0])],
        &[wide("x")],
        wide("y"),
    );
    refused(&spread, "windows of [1]");
    let inputs = [wide("x"), value("at", I64, &[Ok(1), Ok(1), Ok(1 << 39)])];
    let unpooled = one(node("MaxUnpool", &["x", "at"], &["y"], &strides), &[], &inputs, wide("y"));
    refused(&unpooled, "windows of [1]");
}

#[test]
fn frequencies_beyond_integers_are_outside_of_a_mel_matrix() {
    let m = one(
        node("MelWeightMatrix", &["bins", "length", "rate", "low", "high"], &["y"], &[]),
        &[
            ints("bins", &[], &[1]),
            ints("length", &[], &[1 << 16]),
            ints("rate", &[], &[1]),
            floats("low", &[], &[-1.0]),
            floats("high", &[], &[f32::MAX]),
        ],
        &[],
        value("y", F32, &[Ok((1 << 15) + 1), Ok(1)]),
    );
    imported(&m);
}

#[test]
fn slices_without_elements_are_counted_too() {
    let m = one(
        node("Unique", &["x"], &["y"], &[int("axis", 0)]),
        &[ints("x", &[1 << 40, 0], &[])],
        &[],
        value("y", I64, &[Ok(1), Ok(0)]),
    );
    refused(&m, "slices of 0 elements");
}

#[test]
fn calls_share_the_constants_of_a_function() {
    const LEVELS: usize = 2;
    let opset = Message::default().text(1, "").int(2, 18);
    let function = |name: &str, nodes: &[Message]| {
        Message::default()
            .text(1, name)
            .text(4, "v0")
            .text(5, "w")
            .all(7, nodes)
            .message(9, &opset)
            .text(10, "mine")
    };
    // Ten calls of the level below, one behind the other.
    let calls = |level: usize| {
        let call = |k: usize| {
            let (from, to) = (format!("v{k}"), format!("v{}", k + 1));
            let to = if k == 9 { "w" } else { &to };
            node(&format!("Level{}", level - 1), &[&from], &[to], &[]).text(7, "mine")
        };
        function(&format!("Level{level}"), &(0..10).map(call).collect::<Vec<_>>())
    };
    let table: Vec<f32> = (0..1 << 17).map(|k| k as f32).collect();
    let constant = Message::default().text(1, "value").message(5, &floats("", &[1 << 17], &table));
    let last = [
        node("Constant", &[], &["c"], &[constant.int(20, 4)]),
        node("Add", &["v0", "c"], &["w"], &[]),
    ];
    let wide = |name| value(name, F32, &[Ok(1 << 17)]);
    let top = node(&format!("Level{LEVELS}"), &["x"], &["y"], &[]).text(7, "mine");
    let m = (1..=LEVELS)
        .fold(one(top, &[], &[wide("x")], wide("y")), |m, level| m.message(25, &calls(level)));
    let m = m.message(25, &function("Level0", &last));
    let used = allocation_counter::measure(|| drop(imported(&m)));
    assert!(used.bytes_max < 16 << 20, "{} bytes", used.bytes_max);
}

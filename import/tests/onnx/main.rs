//! ONNX models: what becomes of weights, extents, graphs in nodes, functions and files, and what is refused.

mod fuzz;
mod operations;
mod write;

use adfuse::autodiff::forward_and_backward;
use adfuse::backends::{Array, reference};
use adfuse::ir::rewrite::specialize;
use adfuse::ir::{DType, Function, Literal, Symbol};
use adfuse_import::{FixedValue, ImportError, ImportedModel, OnnxOptions, onnx, onnx_coverage};
use write::{
    BOOL, F32, I64, Message, floats, graph, graph_attribute, int, int_list, ints, model,
    model_of_version, node, value,
};

fn imported(m: &Message) -> ImportedModel {
    onnx(&m.0, &OnnxOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn array(dims: &[u64], all: &[f32]) -> Array {
    let bits: Vec<u64> = all.iter().map(|x| u64::from(x.to_bits())).collect();
    Array::from_bits(DType::F32, dims, &bits).expect("an array")
}

fn run_function(made: &ImportedModel, f: &Function, args: &[Array]) -> Vec<Vec<f64>> {
    let results = reference::run(&made.module, f, args, &mut reference::Silent);
    let results = results.unwrap_or_else(|e| panic!("{e}\n{}", made.module));
    results.iter().map(|a| a.iter().map(Literal::to_f64).collect()).collect()
}

fn run(made: &ImportedModel, args: &[Array]) -> Vec<Vec<f64>> {
    let f = made.module.funcs.values().next().expect("a function");
    run_function(made, f, args)
}

/// `relu(x w + b)`, with weights.
pub(crate) fn layer() -> Message {
    model(&graph([
        &[
            node("Gemm", &["x", "w", "b"], &["/layer/y"], &[]),
            node("Relu", &["/layer/y"], &["z"], &[]),
        ],
        &[floats("w", &[2, 2], &[1.0, 2.0, 3.0, 4.0]), floats("b", &[2], &[0.5, -100.0])],
        &[value("x", F32, &[Ok(1), Ok(2)])],
        &[value("z", F32, &[Ok(1), Ok(2)])],
    ]))
}

#[test]
fn weights_are_parameters_with_values_and_gradients() {
    let made = imported(&layer());
    let names: Vec<&str> = made.weights.iter().map(|w| w.name.as_str()).collect();
    assert_eq!(names, ["w", "b"]);
    assert!(made.module.to_string().contains("_layer_y"), "{}", made.module);
    let weight = |k: usize, dims: &[u64]| {
        Array::read_le(DType::F32, dims, &mut &made.weights[k].bytes[..]).expect("a weight")
    };
    let args = [array(&[1, 2], &[1.0, 1.0]), weight(0, &[2, 2]), weight(1, &[2])];
    assert_eq!(run(&made, &args), [[4.5, 0.0]]);
    let f = made.module.funcs.values().next().expect("a function");
    let g = forward_and_backward(&made.module, f, &[1]).expect("a gradient");
    let mut args = args.to_vec();
    args.push(array(&[1, 2], &[1.0, 1.0]));
    assert_eq!(run_function(&made, &g, &args)[1], [1.0, 0.0, 1.0, 0.0]);
}

/// `x` of unknown rows, reshaped by a shape that is computed from its own.
pub(crate) fn dynamic() -> Message {
    model(&graph([
        &[
            node("Shape", &["x"], &["s"], &[]),
            node("Gather", &["s", "zero"], &["rows"], &[]),
            node("Unsqueeze", &["rows", "axes"], &["r"], &[]),
            node("Concat", &["r", "tail"], &["to"], &[int("axis", 0)]),
            node("Reshape", &["x", "to"], &["y"], &[]),
            node("Cast", &["rows"], &["n"], &[int("to", F32)]),
            node("Mul", &["y", "n"], &["z"], &[]),
        ],
        &[ints("zero", &[], &[0]), ints("axes", &[1], &[0]), ints("tail", &[2], &[-1, 2])],
        &[value("x", F32, &[Err("batch"), Ok(4)])],
        &[value("z", F32, &[Err("batch"), Ok(2), Ok(2)])],
    ]))
}

#[test]
fn named_extents_are_symbols_and_shapes_are_folded() {
    let made = imported(&dynamic());
    let f = made.module.funcs.values().next().expect("a function");
    let batch = Symbol::new("batch").expect("a symbol");
    assert_eq!(f.symbols, [batch]);
    for rows in [1, 3] {
        let at = specialize(f, &[(batch, rows)].into()).expect("fits");
        let x: Vec<f32> = (0..4 * rows).map(|k| k as f32).collect();
        let wanted: Vec<f64> = x.iter().map(|&v| f64::from(v) * rows as f64).collect();
        assert_eq!(run_function(&made, &at, &[array(&[rows, 4], &x)]), [wanted]);
    }
    let given = OnnxOptions::default().extent("batch", 3);
    let made = onnx(&dynamic().0, &given).expect("imports");
    assert!(made.module.funcs.values().next().expect("a function").symbols.is_empty());
}

/// Parts of an axis of known extent, beside a batch of unknown extent.
#[test]
fn parts_of_a_known_axis_need_no_other_extent() {
    let nodes = [
        node("Split", &["x"], &["y", "z"], &[int("axis", 1)]),
        node("Slice", &["x", "from", "to", "axis"], &["w"], &[]),
    ];
    let bounds = [ints("from", &[1], &[1]), ints("to", &[1], &[-1]), ints("axis", &[1], &[1])];
    let of = |name: &str| value(name, F32, &[Err("batch"), Ok(2)]);
    let x = value("x", F32, &[Err("batch"), Ok(4)]);
    let made = imported(&model(&graph([&nodes, &bounds, &[x], &[of("y"), of("z"), of("w")]])));
    let f = made.module.funcs.values().next().expect("a function");
    let at = specialize(f, &[(f.symbols[0], 2)].into()).expect("fits");
    let x: Vec<f32> = (0..8).map(|k| k as f32).collect();
    let wanted = [[0.0, 1.0, 4.0, 5.0], [2.0, 3.0, 6.0, 7.0], [1.0, 2.0, 5.0, 6.0]];
    assert_eq!(run_function(&made, &at, &[array(&[2, 4], &x)]), wanted);
}

#[test]
fn inputs_that_decide_shapes_are_named_and_can_be_fixed() {
    let m = model(&graph([
        &[node("Reshape", &["x", "to"], &["y"], &[])],
        &[],
        &[value("x", F32, &[Ok(4)]), value("to", I64, &[Ok(2)])],
        &[value("y", F32, &[Err("a"), Err("b")])],
    ]));
    let Err(ImportError::Unsupported(coverage)) = onnx(&m.0, &OnnxOptions::default()) else {
        panic!("a shape that nobody knows")
    };
    assert_eq!(coverage.needed, ["to"]);
    assert_eq!(coverage.issues[0].node.as_deref(), Some("node_y"));
    let elements = [2, -1].map(|v| Literal::from_i64(DType::I64, v)).to_vec();
    let options = OnnxOptions::default().fix("to", FixedValue { dims: vec![2], elements });
    let made = onnx(&m.0, &options).expect("imports");
    assert_eq!(run(&made, &[array(&[4], &[1.0, 2.0, 3.0, 4.0])]), [[1.0, 2.0, 3.0, 4.0]]);
}

/// A loop that doubles a value, and stacks what it was.
pub(crate) fn doubling() -> Message {
    let body = graph([
        &[
            node("Identity", &["go"], &["goes"], &[]),
            node("Add", &["v", "v"], &["next"], &[]),
            node("Mul", &["v", "outer"], &["seen"], &[]),
        ],
        &[],
        &[value("i", I64, &[]), value("go", BOOL, &[]), value("v", F32, &[])],
        &[value("goes", BOOL, &[]), value("next", F32, &[]), value("seen", F32, &[])],
    ]);
    model(&graph([
        &[node("Loop", &["count", "", "x"], &["y", "all"], &[graph_attribute("body", &body)])],
        &[ints("count", &[], &[3])],
        &[value("x", F32, &[]), value("outer", F32, &[])],
        &[value("y", F32, &[]), value("all", F32, &[Ok(3)])],
    ]))
}

#[test]
fn loops_carry_and_stack_and_read_what_is_around() {
    let made = imported(&doubling());
    let results = run(&made, &[array(&[], &[1.0]), array(&[], &[10.0])]);
    assert_eq!(results, [vec![8.0], vec![10.0, 20.0, 40.0]]);
}

/// A branch on an input.
pub(crate) fn branching() -> Message {
    let branch =
        |op: &str| graph([&[node(op, &["x"], &["b"], &[])], &[], &[], &[value("b", F32, &[])]]);
    let attributes = [
        graph_attribute("then_branch", &branch("Neg")),
        graph_attribute("else_branch", &branch("Identity")),
    ];
    model(&graph([
        &[node("If", &["p"], &["y"], &attributes)],
        &[],
        &[value("p", BOOL, &[]), value("x", F32, &[])],
        &[value("y", F32, &[])],
    ]))
}

#[test]
fn branches_are_those_of_the_condition() {
    let made = imported(&branching());
    for (p, wanted) in [(1, -2.0), (0, 2.0)] {
        let p = Array::from_bits(DType::Bool, &[], &[p]).expect("a truth value");
        assert_eq!(run(&made, &[p, array(&[], &[2.0])]), [[wanted]]);
    }
}

/// A function with an attribute of its own, which its node refers to.
pub(crate) fn with_function() -> Message {
    let refers = Message::default().text(1, "alpha").text(21, "slope").int(20, 1);
    let leaky =
        Message::default().text(1, "v").text(2, "w").text(4, "LeakyRelu").message(5, &refers);
    let opset = Message::default().text(1, "").int(2, 18);
    let function = Message::default()
        .text(1, "Leak")
        .text(4, "v")
        .text(5, "w")
        .text(6, "slope")
        .message(7, &leaky)
        .message(9, &opset)
        .text(10, "mine");
    let mut slope = Message::default().text(1, "slope");
    slope.0.push(2 << 3 | 5);
    slope.0.extend(0.25f32.to_le_bytes());
    let call = node("Leak", &["x"], &["y"], &[slope.int(20, 1)]).text(7, "mine");
    let m =
        model(&graph([&[call], &[], &[value("x", F32, &[Ok(2)])], &[value("y", F32, &[Ok(2)])]]));
    m.message(25, &function)
}

#[test]
fn functions_of_the_model_are_written_out() {
    let made = imported(&with_function());
    assert_eq!(run(&made, &[array(&[2], &[-4.0, 4.0])]), [[-1.0, 4.0]]);
}

#[test]
fn all_that_is_unsupported_is_listed() {
    let m = model(&graph([
        &[
            node("Mystery", &["x"], &["a"], &[]),
            node("Mystery", &["x"], &["b"], &[]),
            node("Neg", &["x"], &["c"], &[int("speed", 9)]),
            node("Add", &["a", "c"], &["y"], &[]),
        ],
        &[],
        &[value("x", F32, &[Ok(2)])],
        &[value("y", F32, &[Ok(2)])],
    ]));
    let error = onnx(&m.0, &OnnxOptions::default()).expect_err("unknown ops");
    let text = error.to_string();
    assert!(text.contains("`Mystery` cannot be imported: no such op here (2 times)"), "{text}");
    assert!(text.contains("node_a"), "{text}");
    assert!(text.contains("`Neg` cannot be imported: the attribute `speed`"), "{text}");
    let table = onnx_coverage(&m.0, &OnnxOptions::default()).expect("a table").to_string();
    assert!(table.contains("Mystery        2        2  no such op here"), "{table}");
}

#[test]
fn versions_before_a_row_are_refused() {
    let old = |version: i64| {
        let graph = graph([
            &[node("Trilu", &["x"], &["y"], &[])],
            &[],
            &[value("x", F32, &[Ok(2), Ok(2)])],
            &[value("y", F32, &[Ok(2), Ok(2)])],
        ]);
        model_of_version(version, &graph)
    };
    assert!(onnx(&old(14).0, &OnnxOptions::default()).is_ok());
    let error = onnx(&old(13).0, &OnnxOptions::default()).expect_err("an old version");
    assert!(error.to_string().contains("version 13 of it, before 14"), "{error}");
}

#[test]
fn a_result_of_another_type_than_is_written_is_refused() {
    let m = model(&graph([
        &[node("Transpose", &["x"], &["y"], &[int_list("perm", &[1, 0])])],
        &[],
        &[value("x", F32, &[Ok(2), Ok(3)])],
        &[value("y", F32, &[Ok(2), Ok(3)])],
    ]));
    let error = onnx(&m.0, &OnnxOptions::default()).expect_err("the wrong shape");
    assert!(error.to_string().contains("the output `y`"), "{error}");
}

/// Elements that lie in a file beside the model.
#[test]
fn elements_in_files_are_read_from_the_folder_of_the_model() {
    let entry = |key: &str, text: &str| Message::default().text(1, key).text(2, text);
    let model_at = |place: &str| {
        let w = Message::default()
            .int(1, 2)
            .int(2, F32)
            .text(8, "w")
            .all(13, &[entry("location", place), entry("offset", "4"), entry("length", "8")])
            .int(14, 1);
        model(&graph([
            &[node("Add", &["x", "w"], &["y"], &[])],
            &[w],
            &[value("x", F32, &[Ok(2)])],
            &[value("y", F32, &[Ok(2)])],
        ]))
    };
    let folder = std::env::temp_dir().join(format!("adfuse-onnx-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let bytes: Vec<u8> = [9.0f32, 1.0, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    std::fs::write(folder.join("weights"), &bytes).expect("a file");
    let options = OnnxOptions::default().folder(&folder);
    let made = onnx(&model_at("weights").0, &options).expect("imports");
    assert_eq!(made.weights[0].bytes, bytes[4..]);
    for (m, options) in [
        (model_at("../weights"), &options),
        (model_at("weights"), &OnnxOptions::default()),
        (model_at("absent"), &options),
    ] {
        assert!(onnx(&m.0, options).is_err());
    }
    std::fs::remove_dir_all(folder).expect("the folder goes");
}

#[test]
fn graphs_in_graphs_and_calls_that_do_not_end_are_refused() {
    let mut inner = graph([&[node("Neg", &["x"], &["b"], &[])], &[], &[], &[value("b", F32, &[])]]);
    for _ in 0..200 {
        let attributes =
            [graph_attribute("then_branch", &inner), graph_attribute("else_branch", &inner)];
        if inner.0.len() > 1 << 20 {
            break;
        }
        inner =
            graph([&[node("If", &["p"], &["b"], &attributes)], &[], &[], &[value("b", F32, &[])]]);
    }
    assert!(onnx(&model(&inner).0, &OnnxOptions::default()).is_err());
    let call =
        |name: &str| Message::default().text(1, "v").text(2, "w").text(4, name).text(7, "mine");
    let function = Message::default()
        .text(1, "Again")
        .text(4, "v")
        .text(5, "w")
        .message(7, &call("Again"))
        .message(9, &Message::default().text(1, "").int(2, 18))
        .text(10, "mine");
    let m = model(&graph([
        &[node("Again", &["x"], &["y"], &[]).text(7, "mine")],
        &[],
        &[value("x", F32, &[Ok(2)])],
        &[value("y", F32, &[Ok(2)])],
    ]));
    let error = onnx(&m.message(25, &function).0, &OnnxOptions::default()).expect_err("no end");
    assert!(error.to_string().contains("calls that do not end"), "{error}");
}

//! `import`, and StableHLO text and ONNX models where a program is expected.

use crate::folder::Folder;
use crate::write::{F32, I64, floats, graph, model, node, value};
use std::fs;
use std::path::Path;

const SINES: &str = "module @sines {
  func.func public @main(%x: tensor<3xf32>) -> (tensor<f32> {jax.result_info = \"\"}) {
    %cst = stablehlo.constant dense<0.0> : tensor<f32>
    %y = call @wave(%x) : (tensor<3xf32>) -> tensor<3xf32>
    %0 = stablehlo.reduce(%y init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @wave(%x: tensor<3xf32>) -> tensor<3xf32> {
    %0 = stablehlo.sine %x : tensor<3xf32>
    return %0 : tensor<3xf32>
  }
}
";

const IR: &str = "func @main(%x: f32[3]) -> f32[] {
  %y = call %x {func = @wave} : f32[3]
  %0 = reduce_sum %y {axes = [0]} : f32[]
  return %0
}

func @wave(%x: f32[3]) -> f32[3] {
  %0 = sin %x : f32[3]
  return %0
}
";

const MINE: &str = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.custom_call @mine(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
";

#[test]
fn programs_are_printed_or_written() {
    let d = Folder::new();
    d.file("s.mlir", SINES);
    assert_eq!(d.good("import s.mlir"), IR);
    assert_eq!(d.good("import s.mlir -o s.ir"), "");
    assert_eq!(d.text("s.ir"), IR);
    assert_eq!(d.run("import s.mlir -o s.mlir").code, 2);
}

/// Commands give what they give for the imported text; what a file is named does not matter.
#[test]
fn commands_take_either_form() {
    let d = Folder::new();
    d.file("s.mlir", SINES).file("s.ir", IR).file("named.ir", SINES);
    for command in [
        "grad FILE --wrt x",
        "run FILE --input x=[1,2,3]",
        "plan FILE --grad --wrt x",
        "emit FILE --stage kernels",
    ] {
        let of = |file: &str| d.good(&command.replace("FILE", file));
        assert_eq!(of("s.mlir"), of("s.ir"), "{command}");
        assert_eq!(of("named.ir"), of("s.ir"), "{command}");
    }
    let refused = d.run("fmt s.mlir");
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("adfuse import"), "{}", refused.err);
}

/// Bytecode, recognized by what it begins with, is run as its text is; what is wrong with it is told with a place.
#[test]
fn commands_take_bytecode() {
    let d = Folder::new();
    let jax = Path::new(env!("CARGO_MANIFEST_DIR")).join("../import/tests/jax");
    let bytes = fs::read(jax.join("bytecode/softmax.1.17.0.mlirbc")).unwrap();
    d.file("s.mlir", fs::read(jax.join("softmax.mlir")).unwrap()).file("s.ir", &bytes);
    d.file("short.mlir", &bytes[..bytes.len() - 1]);
    let digests = |file: &str| {
        let out = d.good(&format!("run {file} --grad --digest"));
        out.lines().map(|l| l.split(' ').next_back().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(digests("s.ir"), digests("s.mlir"));
    let ran = d.run("import short.mlir");
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains("no StableHLO bytecode") && ran.err.contains("at byte"),
        "{}",
        ran.err
    );
}

#[test]
fn what_cannot_be_imported_is_told_with_its_line() {
    let d = Folder::new();
    d.file("m.mlir", MINE);
    for command in ["import m.mlir", "run m.mlir --input x=[1,2]"] {
        let ran = d.run(command);
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert!(
            ran.err.contains("`stablehlo.custom_call @mine` cannot be imported"),
            "{}",
            ran.err
        );
        assert!(ran.err.contains("m.mlir:2"), "{}", ran.err);
    }
    let table = d.good("import m.mlir --coverage");
    assert!(table.contains("stablehlo.custom_call @mine") && table.contains("refused"), "{table}");
}

/// `relu(x w + b)` for any number of rows, with weights.
fn layer() -> Vec<u8> {
    let nodes =
        [node("Gemm", &["x", "w", "b"], &["sum"], &[]), node("Relu", &["sum"], &["y"], &[])];
    let weights = [floats("w", &[2, 2], &[1.0, 2.0, 3.0, 4.0]), floats("b", &[2], &[0.5, -100.0])];
    let (x, y) = (value("x", F32, &[Err("n"), Ok(2)]), value("y", F32, &[Err("n"), Ok(2)]));
    model(&graph([&nodes, &weights, &[x], &[y]])).0
}

/// Every command takes a model. It runs with its weights, and so does what is written of it, unless others are given.
#[test]
fn models_run_and_are_differentiated_with_their_weights() {
    let d = Folder::new();
    d.file("m.onnx", layer()).file("named.ir", layer());
    let run = "run FILE --input x=[[1,1]]";
    let of = |command: &str, file: &str| d.good(&command.replace("FILE", file));
    assert!(of(run, "m.onnx").contains("[[4.5, 0.0]]"), "{}", of(run, "m.onnx"));
    assert_eq!(of(run, "named.ir"), of(run, "m.onnx"));
    let grad = format!("{run} --grad --wrt w");
    let gradient = of(&grad, "m.onnx");
    assert!(gradient.contains("grad_w"), "{gradient}");
    assert_eq!(d.good("import m.onnx -o f.ir"), "");
    assert!(d.text("f.ir").contains("func @main<n>(%x: f32[n,2], %w: f32[2,2], %b: f32[2])"));
    assert_eq!(of(run, "f.ir"), of(run, "m.onnx"));
    assert_eq!(of(&grad, "f.ir"), gradient);
    let plan = "plan FILE --grad --wrt w --dim n=3";
    assert_eq!(of(plan, "f.ir"), of(plan, "m.onnx"));
    let [of_text, of_model] =
        ["f.ir", "m.onnx"].map(|file| d.run(&format!("grad {file} --wrt w,b")));
    assert_eq!((of_text.code, of_text.out.as_str()), (0, of_model.out.as_str()));
    // What is printed has no weights, and what is written has them beside it, if nothing else is there.
    for ran in [of_text, of_model, d.run("import m.onnx")] {
        assert!(ran.err.starts_with("note: 2 weights are not in this text"), "{}", ran.err);
    }
    assert_eq!(d.good("grad m.onnx --wrt w,b -o g.ir"), "");
    let with_gradients = d.good("run g.ir --input x=[[1,1]] --input y_ct=[[1,1]]");
    assert!(with_gradients.contains("[[4.5, 0.0]]"), "{with_gradients}");
    d.file("precious.safetensors", safetensors("other", &[0.0; 4]));
    let refused = d.run("import m.onnx -o precious.ir");
    assert!(refused.code == 2 && refused.err.contains("would replace"), "{}", refused.err);
    d.file("other.safetensors", &safetensors("w", &[0.0; 4]));
    let weightless =
        d.good("run f.ir --input x=[[1,1]] --input b=[7,7] --weights other.safetensors");
    assert!(weightless.contains("[[7.0, 7.0]]"), "{weightless}");
    d.file("strange.safetensors", &safetensors("v", &[0.0; 4]));
    let refused = d.run("run f.ir --input x=[[1,1]] --weights strange.safetensors");
    assert!(refused.code == 2 && refused.err.contains("no tensor"), "{}", refused.err);
    d.file("short.safetensors", &safetensors("w", &[0.0; 4])[..70]);
    assert_eq!(d.run("run f.ir --input x=[[1,1]] --weights short.safetensors").code, 2);
}

/// A file of one tensor of two rows.
fn safetensors(name: &str, all: &[f32]) -> Vec<u8> {
    let header = format!(
        "{{\"{name}\":{{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,{}]}}}}",
        4 * all.len()
    );
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.extend(all.iter().flat_map(|x| x.to_le_bytes()));
    bytes
}

#[test]
fn what_a_model_needs_or_has_too_much_is_told() {
    let d = Folder::new();
    let reshape = node("Reshape", &["x", "to"], &["y"], &[]);
    let m = model(&graph([
        &[reshape],
        &[],
        &[value("x", F32, &[Ok(4)]), value("to", I64, &[Ok(2)])],
        &[value("y", F32, &[Err("a"), Err("b")])],
    ]));
    d.file("r.onnx", &m.0);
    let refused = d.run("run r.onnx");
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("node_y") && refused.err.contains("--fix"), "{}", refused.err);
    d.good("import r.onnx --fix to=[2,2] -o r.ir");
    assert!(d.text("r.ir").contains("f32[2,2]"));
    assert_eq!(d.run("import r.onnx --fix two=[2,2]").code, 2);
    let table = d.good("import r.onnx --coverage");
    assert!(table.contains("Reshape        1        1"), "{table}");
}

/// What symbols do not express of a text is imported at the extents that `--dim` gives, by every command.
#[test]
fn texts_are_imported_at_given_extents() {
    let d = Folder::new();
    d.file(
        "twice.mlir",
        "func.func public @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %m = stablehlo.add %n, %n : tensor<i32>
  %s = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
  %y = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
",
    );
    assert!(d.run("import twice.mlir").err.contains("an extent that is computed from others"));
    for command in ["import", "run", "plan", "emit --stage specialize"] {
        assert_eq!(d.run(&format!("{command} twice.mlir")).code, 1, "{command}");
        let ran = d.run(&format!("{command} twice.mlir --dim d0=3"));
        assert_eq!(ran.code, 0, "{command}: {}", ran.err);
    }
    assert!(d.run("run twice.mlir --dim d0=3").out.contains("f32[6]"));
    let other = d.run("run twice.mlir --dim d4=3");
    assert!(other.code != 0 && other.err.contains("`d4`"), "{}", other.err);
    assert!(d.run("run twice.mlir --fix x=ones").err.contains("--fix is for models"));
}

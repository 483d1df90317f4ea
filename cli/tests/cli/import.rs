//! `import`, and StableHLO text where a program is expected.

use crate::folder::Folder;
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
    assert_eq!(ran.code, 2);
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

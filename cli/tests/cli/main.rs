//! The command line, driven as users drive it: the built program, files and pipes.

mod bench;
mod book;
mod budget;
mod check;
mod compile_budget;
mod compose;
mod decided;
mod emit;
mod engine;
mod folder;
mod given;
mod import;
mod kept;
mod launch;
mod losses;
mod mistakes;
mod pack;
mod plan;
mod report;
mod save;
mod serve;
mod shared;
mod tune;
mod within;
mod wrong;
// Models are written for these tests as for those of the importer, which use more of it.
#[allow(dead_code)]
#[path = "../../../import/tests/onnx/write.rs"]
mod write;

use adfuse::ir::DType;
use adfuse::npz::Archive;
use folder::{Folder, npy};
use std::fs;
use std::process::{Command, Stdio};

const INTS: &str = "func @main(%x: i32[3]) -> (i32[3], i32[]) {
  %sq = mul %x, %x : i32[3]
  %y = add %sq, 1 : i32[3]
  %s = reduce_sum %y {axes = [0]} : i32[]
  return %y, %s
}
";

const LOSS: &str = "func @loss(%x: f32[3], %w: f32[3]) -> f32[] {
  %p = mul %x, %w : f32[3]
  %loss = reduce_sum %p {axes = [0]} : f32[]
  return %loss
}
";

const SYMBOLIC: &str = "func @double<n>(%x: f64[n,2], %z: f64[n]) -> f64[n,2] {
  %y = add %x, %x : f64[n,2]
  return %y
}
";

const TWO: &str = "func @first(%a: f32[]) -> f32[] {
  %0 = neg %a : f32[]
  return %0
}

func @second(%b: f32[], %i: i32[], %p: bool[]) -> (f32[], i32[]) {
  %0 = mul %b, %b : f32[]
  return %0, %i
}
";

const PRINTS: &str = "func @f(%x: f32[2]) -> f32[2] {
  %t = create_token : token
  %u = debug_print %t, %x {label = \"seen\"} : token
  return %x
}
";

fn programs() -> Folder {
    let folder = Folder::new();
    folder.file("ints.ir", INTS).file("loss.ir", LOSS).file("sym.ir", SYMBOLIC);
    folder.file("two.ir", TWO).file("prints.ir", PRINTS);
    folder
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

#[test]
fn run_prints_results_readably() {
    let d = programs();
    assert_eq!(d.good("run ints.ir --input x=[1,2,3]"), "y: i32[3]\n[ 2,  5, 10]\ns: i32[] = 17\n");
    assert_eq!(d.good("run ints.ir --input %x=2"), "y: i32[3]\n[5, 5, 5]\ns: i32[] = 15\n");
    assert_eq!(
        d.good("run two.ir --func @second --input b=-1.5 --input i=7"),
        "out0: f32[] = 2.25\ni: i32[] = 7\n"
    );
    assert_eq!(
        d.good("run sym.ir --input x=[[1,2],[3,nan]]"),
        "y: f64[2,2]\n[[2.0, 4.0],\n [6.0, nan]]\n"
    );
    assert_eq!(d.good("run sym.ir --dim n=1 --input x=ones"), "y: f64[1,2]\n[[2.0, 2.0]]\n");
}

#[test]
fn run_takes_the_gradient() {
    let d = programs();
    let inputs = "--input x=[1,2,3] --input w=[4,5,6]";
    assert_eq!(
        d.good(&format!("run loss.ir --grad {inputs}")),
        "loss: f32[] = 32.0\ngrad_x: f32[3]\n[4.0, 5.0, 6.0]\ngrad_w: f32[3]\n[1.0, 2.0, 3.0]\n"
    );
    assert_eq!(
        d.good(&format!("run loss.ir --grad --wrt w {inputs}")),
        "loss: f32[] = 32.0\ngrad_w: f32[3]\n[1.0, 2.0, 3.0]\n"
    );
    // A result that is no scalar takes a cotangent: ones, or what is given.
    let sym = "run sym.ir --grad --wrt x --digest --input x=[[1,2]]";
    let (ones, given) = (d.good(sym), d.good(&format!("{sym} --input y_ct=1")));
    assert_eq!(ones, given);
    assert_ne!(ones, d.good(&format!("{sym} --input y_ct=[[1,2]]")));
}

#[test]
fn digests_are_those_of_little_endian_bytes() {
    let d = programs();
    let expected = "\
        y i32[3] 26a15a75d1fd72469e03cd2bb83f1dfc33c9d38ebd55643685531de4f7f4d6c8\n\
        s i32[] 84fc05949dc1e486652a4ed316afb6434e9437eb30b714594a1d0b4205776602\n";
    assert_eq!(d.good("run ints.ir --digest --input x=[1,2,3]"), expected);
}

#[test]
fn random_inputs_depend_on_the_seed_and_their_position_alone() {
    let d = programs();
    let grad = |args: &str| d.good(&format!("run loss.ir --grad --digest {args}"));
    assert_eq!(grad(""), grad("--seed 0"));
    assert_ne!(grad(""), grad("--seed 1"));
    // The gradient with respect to x is w, whatever x is.
    let line = |text: String, start: &str| {
        text.lines().find(|l| l.starts_with(start)).unwrap().to_string()
    };
    assert_eq!(line(grad(""), "grad_x"), line(grad("--input x=zeros"), "grad_x"));
    assert_ne!(line(grad(""), "grad_w"), line(grad("--input x=zeros"), "grad_w"));
    // Inputs of one type differ.
    let digest = |start: &str| line(grad(""), start).split_whitespace().last().map(str::to_string);
    assert_ne!(digest("grad_x"), digest("grad_w"));
    // Literally, so that no build and no host may give others.
    assert_eq!(d.good("run two.ir --func first --seed 7"), "out0: f32[] = 0.7753719\n");
    // Normal by default, and by name; uniform is another.
    assert_eq!(grad(""), grad("--input w=randn"));
    assert_ne!(grad(""), grad("--input w=uniform"));
}

#[test]
fn json_has_everything() {
    let d = programs();
    let text = d.good("run loss.ir --grad --json --input x=[1,2,inf] --input w=1");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let expected = serde_json::json!({
        "func": "loss",
        "outputs": [{"name": "loss", "dtype": "f32", "shape": [], "data": "inf"}],
        "gradients": [
            {"name": "grad_x", "dtype": "f32", "shape": [3], "data": [1.0, 1.0, 1.0]},
            {"name": "grad_w", "dtype": "f32", "shape": [3], "data": [1.0, 2.0, "inf"]},
        ],
    });
    assert_eq!(json, expected);
    let text = d.good("run ints.ir --json");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(json.get("gradients").is_none());
}

#[test]
fn numpy_files_are_read_and_written() {
    let d = programs();
    d.file("x.npy", npy("<f4", "(3,)", &f32s(&[1.0, 2.0, 3.0])));
    d.file("w.npy", npy(">f4", "(3,)", &[0x40, 0x80, 0, 0, 0x40, 0xa0, 0, 0, 0x40, 0xc0, 0, 0]));
    let run = "run loss.ir --grad --input x=x.npy --input w=w.npy --save out.npz";
    assert!(d.good(run).starts_with("loss: f32[] = 32.0\n"));
    let mut archive = Archive::new(fs::File::open(d.0.join("out.npz")).unwrap()).unwrap();
    assert_eq!(archive.names(), ["loss", "grad_x", "grad_w"]);
    let mut array = |name: &str| {
        let array = archive.array(name).unwrap();
        assert_eq!(array.dtype(), DType::F32);
        (array.dims().to_vec(), array.to_f64s())
    };
    assert_eq!(array("loss"), (vec![], vec![32.0]));
    assert_eq!(array("grad_x"), (vec![3], vec![4.0, 5.0, 6.0]));
    assert_eq!(array("grad_w"), (vec![3], vec![1.0, 2.0, 3.0]));
    // What was written is read again, and equal results give equal files.
    let again = "run loss.ir --input x=out.npz#grad_w --input w=out.npz#grad_x";
    assert_eq!(d.good(again), "loss: f32[] = 32.0\n");
    let before = fs::read(d.0.join("out.npz")).unwrap();
    d.good(run);
    assert_eq!(fs::read(d.0.join("out.npz")).unwrap(), before);
    assert!(!d.names().iter().any(|n| n.ends_with(".tmp")), "{:?}", d.names());
}

#[test]
fn every_element_type_makes_the_round_trip() {
    let d = Folder::new();
    for ty in ["f64", "f32", "bf16", "f16", "i64", "i32", "u32", "i8", "u8", "bool"] {
        let value = if ty == "bool" { "[[true,false]]" } else { "[[1,3]]" };
        d.file("id.ir", format!("func @id(%x: {ty}[1,2]) -> {ty}[1,2] {{\n  return %x\n}}\n"));
        let first = d.good(&format!("run id.ir --digest --input x={value} --save a.npz"));
        assert_eq!(d.good("run id.ir --digest --input x=a.npz"), first, "{ty}");
        assert_ne!(d.good("run id.ir --digest --input x=zeros"), first, "{ty}");
    }
}

#[test]
fn what_the_program_prints_goes_to_standard_error() {
    let ran = programs().run("run prints.ir --input x=[1,2]");
    assert_eq!(ran.out, "x: f32[2]\n[1.0, 2.0]\n");
    assert_eq!(ran.err, "seen: f32[2]\n[1.0, 2.0]\n");
    let ran = programs().run("run prints.ir --input x=[1,2] --engine reference");
    assert_eq!(ran.err, "seen: f32[2]\n[1.0, 2.0]\n");
}

#[test]
fn derivatives_are_programs() {
    let d = programs();
    for (args, head, results) in [
        ("grad loss.ir", "func @loss_grad(%x: f32[3], %w: f32[3]) -> (f32[], f32[3], f32[3]) {", 3),
        ("grad loss.ir --wrt w", "func @loss_grad(%x: f32[3], %w: f32[3]) -> (f32[], f32[3]) {", 2),
        (
            "grad loss.ir --wrt w --no-value",
            "func @loss_grad(%x: f32[3], %w: f32[3]) -> f32[3] {",
            1,
        ),
        (
            "grad two.ir --func second",
            "func @second_grad(%b: f32[], %i: i32[], %p: bool[]) -> (f32[], i32[], f32[]) {",
            3,
        ),
        (
            "grad sym.ir --dim n=5 --wrt x",
            "func @double_grad(%x: f64[5,2], %z: f64[5], %y_ct: f64[5,2]) -> (f64[5,2], f64[5,2]) {",
            2,
        ),
        (
            "jvp loss.ir --wrt w,x",
            "func @loss_jvp(%x: f32[3], %w: f32[3], %w_t: f32[3], %x_t: f32[3]) -> (f32[], f32[]) {",
            2,
        ),
    ] {
        let text = d.good(args);
        assert_eq!(text.lines().next(), Some(head), "{args}");
        let formatted = d.pipe("fmt --check -", text.as_bytes());
        assert_eq!((formatted.code, formatted.out.as_str()), (0, ""), "{args}");
        let ran = d.pipe("run - --json", text.as_bytes());
        let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(json["outputs"].as_array().map(Vec::len), Some(results), "{args}");
        assert_eq!(d.pipe("check -", text.as_bytes()).code, 0, "{args}");
    }
}

#[test]
fn check_prints_a_table() {
    let d = programs();
    let text = d.good("check loss.ir");
    let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["function", "input", "mode", "result", "error"]);
    for (row, (input, mode)) in rows[1..].iter().zip([
        ("%x", "forward"),
        ("%x", "reverse"),
        ("%w", "forward"),
        ("%w", "reverse"),
    ]) {
        assert_eq!(row[..4], ["@loss", input, mode, "ok"]);
    }
    assert_eq!(text.lines().last(), Some("4 checks, none failed"));
    assert!(d.good("check ints.ir").ends_with("0 checks, none failed\n"));
    assert!(d.good("check sym.ir --dim n=2").ends_with("4 checks, none failed\n"));
}

#[test]
fn check_fails_on_a_wrong_rule() {
    let d = Folder::new();
    // The rule says 3 where the square has 2.
    d.file(
        "bad.ir",
        "func @square(%x: f64[]) -> f64[] custom_jvp(@rule) {
  %y = mul %x, %x : f64[]
  return %y
}

func @rule(%x: f64[], %t: f64[]) -> (f64[], f64[]) {
  %y = mul %x, %x : f64[]
  %a = mul %x, 3.0 : f64[]
  %b = mul %a, %t : f64[]
  return %y, %b
}

func @main(%x: f64[]) -> f64[] {
  %y = call %x {func = @square} : f64[]
  return %y
}
",
    );
    let ran = d.run("check bad.ir");
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{}", ran.out);
    let failed = ran.out.lines().find(|l| l.starts_with("@main")).unwrap();
    assert!(failed.contains("%x") && failed.contains("forward  FAILED"), "{}", ran.out);
    assert!(ran.out.contains("    at fault: %y = call %x {func = @square} : f64[]"), "{}", ran.out);
    let ran = d.run("check bad.ir --json");
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &json["passed"]), (1, &serde_json::Value::Bool(false)));
    // A tolerance wide enough forgives everything but the reverse mode, which agrees anyway.
    assert_eq!(d.run("check bad.ir --rtol 10").code, 0);
}

#[test]
fn fmt_writes_the_canonical_form_and_keeps_comments() {
    let messy = LOSS.replace("  ", " ").replace(" : f32[3]", "");
    let d = Folder::new();
    d.file("messy.ir", &messy).file("good.ir", LOSS);
    d.file(
        "commented.ir",
        format!("// the loss\n\n{}", LOSS.replace("return", "return  // it\n ")),
    );
    d.file("noted.ir", LOSS.replace("  return", "  // the sum\n  return"));
    assert_eq!(d.good("fmt messy.ir"), LOSS);
    assert_eq!(d.good("fmt messy.ir good.ir"), [LOSS, LOSS].concat());
    assert_eq!(d.pipe("fmt -", messy.as_bytes()).out, LOSS);
    let ran = d.run("fmt --check good.ir messy.ir noted.ir commented.ir");
    assert_eq!((ran.code, ran.out.as_str()), (1, "messy.ir\ncommented.ir\n"));
    // Refused as a whole: the other file stays as it is, too.
    let ran = d.run("fmt --write messy.ir commented.ir");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("lose its comments (2)") && ran.err.contains("--drop-comments"));
    assert_eq!(d.text("messy.ir"), messy);
    assert_eq!(d.good("fmt -w messy.ir good.ir noted.ir"), "");
    assert_eq!(d.text("messy.ir"), LOSS);
    assert!(d.text("noted.ir").contains("// the sum"));
    d.good("fmt --write --drop-comments commented.ir noted.ir");
    assert_eq!((d.text("commented.ir"), d.text("noted.ir")), (LOSS.into(), LOSS.into()));
}

#[test]
#[cfg(unix)]
fn devices_are_not_replaced() {
    let d = programs();
    std::os::unix::fs::symlink("/dev/null", d.0.join("null.npz")).unwrap();
    let ran = d.run("run loss.ir --save null.npz");
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("not a regular file"), "{}", ran.err);
    assert_eq!(d.names().len(), 6);
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let d = Folder::new();
    d.file("id.ir", "func @id(%x: f32[100000]) -> f32[100000] {\n  return %x\n}\n");
    let mut child = Command::new(env!("CARGO_BIN_EXE_adfuse"))
        .args(["run", "id.ir", "--json"])
        .current_dir(&d.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

/// A function that calls another, and so on.
fn chain(calls: usize) -> String {
    let mut text = String::from(
        "func @main(%x: f32[]) -> f32[] {\n  %0 = call %x {func = @f1} : f32[]\n  return %0\n}\n",
    );
    for k in 1..calls {
        let body = format!("%0 = call %x {{func = @f{}}} : f32[]", k + 1);
        text += &format!("\nfunc @f{k}(%x: f32[]) -> f32[] {{\n  {body}\n  return %0\n}}\n");
    }
    text + &format!("\nfunc @f{calls}(%x: f32[]) -> f32[] {{\n  return %x\n}}\n")
}

#[test]
fn a_long_chain_of_calls_is_followed_and_a_longer_one_refused() {
    let d = Folder::new();
    let ran = d.pipe("run - --input x=3", chain(499).as_bytes());
    assert_eq!((ran.code, ran.out.as_str()), (0, "out0: f32[] = 3.0\n"), "{}", ran.err);
    for calls in [500, 3000] {
        let ran = d.pipe("run - --input x=3", chain(calls).as_bytes());
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
        assert!(ran.err.contains("a chain of 500 calls"), "{}", ran.err);
    }
}

#[test]
fn help_and_version_are_results() {
    let d = Folder::new();
    assert!(d.good("--version").starts_with("adfuse "));
    let help = d.good("--help");
    assert!(
        ["grad", "jvp", "run", "check", "bench", "fmt"]
            .iter()
            .all(|c| help.contains(&format!("  {c} ")))
    );
    assert!(d.good("run --help").contains("<result>_ct"));
}

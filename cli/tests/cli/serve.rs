//! `run --serve`: a program that is compiled once and answers requests.

use crate::LOSS;
use crate::folder::Folder;
use std::fs;

const GIVEN: &str = "func @given(%x: f32[3], %w: f32[3]) -> (f32[3], f32[3]) {
  return %x, %w
}
";

#[test]
fn requests_are_answered_as_separate_runs_are() {
    let d = Folder::new();
    d.file("l.ir", LOSS).file("given.ir", GIVEN);
    for (name, x) in [("a", "[1,2,3]"), ("b", "[-1,0.5,8]")] {
        d.good(&format!("run given.ir --input x={x} --input w=[4,5,6] --save {name}.npz"));
        let inputs = format!("--input x={name}.npz --input w={name}.npz");
        d.good(&format!("run l.ir --grad {inputs} --save {name}.wanted.npz"));
    }
    let requests = "a.npz\ta.made.npz\nnone.npz\tc.npz\nb.npz\n\nb.npz\tb.made.npz\n";
    let ran = d.pipe("run l.ir --grad --serve", requests.as_bytes());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines.len(), 5, "{}", ran.out);
    assert_eq!((lines[0], lines[4]), ("ok", "ok"));
    assert!(lines[1].starts_with("error \"") && lines[1].contains("none.npz"), "{}", lines[1]);
    assert!(lines[2].contains("a tab between") && lines[3].contains("a tab between"));
    for name in ["a", "b"] {
        let bytes = |kind: &str| fs::read(d.0.join(format!("{name}.{kind}.npz"))).unwrap();
        assert!(bytes("made") == bytes("wanted"), "{name}");
    }
}

#[test]
fn a_server_needs_a_file_and_prints_nothing_else() {
    let d = Folder::new();
    d.file("l.ir", LOSS);
    for args in ["run - --serve", "run l.ir --serve --json", "run l.ir --serve --save o.npz"] {
        let ran = d.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args}");
    }
    // What is wrong with the program is told before there is a request.
    assert_eq!(d.run("run l.ir --serve --mem-budget 1 --no-cache").code, 1);
}

/// Weights that an archive lacks are those of the program; those that it has are its own.
#[test]
fn requests_may_leave_weights_out() {
    let d = Folder::new();
    let text =
        "func @f(%x: f32[2], %w: f32[2]) -> f32[2] {\n  %y = mul %x, %w : f32[2]\n  return %y\n}\n";
    d.file("f.ir", text).file("x.ir", "func @x(%x: f32[2]) -> (f32[2]) {\n  return %x\n}\n");
    d.good("run x.ir --input x=[1,2] --save x.npz");
    d.good("run f.ir --input x=[1,2] --input w=[3,4] --save wanted.npz");
    let mut weights = vec![];
    let header = br#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    weights.extend((header.len() as u64).to_le_bytes());
    weights.extend(header);
    weights.extend([3f32, 4.0].iter().flat_map(|x| x.to_le_bytes()));
    fs::write(d.0.join("w.safetensors"), weights).unwrap();
    let ran = d.pipe("run f.ir --weights w.safetensors --serve", b"x.npz\tmade.npz\n");
    assert_eq!(ran.out, "ok\n", "{}", ran.err);
    let bytes = |name: &str| fs::read(d.0.join(name)).unwrap();
    assert!(bytes("made.npz") == bytes("wanted.npz"));
    let ran = d.pipe("run f.ir --serve", b"x.npz\tmade.npz\n");
    assert!(ran.out.contains("no array `w`"), "{}", ran.out);
}

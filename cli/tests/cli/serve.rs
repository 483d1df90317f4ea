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

//! ONNX's node tests in the folder that `ADFUSE_ONNX_SUITE` names, which `scripts/onnx-suite.py` writes: each case has on the CPU
//! engine the verdict of `onnx_suite.txt`, which `cargo run -p adfuse-import --example onnx_suite -- DIR --record import/tests/onnx_suite.txt`
//! writes. Cases that are not in the list are not compared. Without the folder the test is ignored.

#[path = "../examples/onnx_suite/verdict.rs"]
mod verdict;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use verdict::{OnnxEngine, cases, judge};

const FOLDER: &str = "ADFUSE_ONNX_SUITE";

fn main() -> ExitCode {
    let trial = Trial::ignorable_test("verdicts_are_those_of_the_list", compared);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn compared() -> Result<Completion, Failed> {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return Ok(Completion::ignored_with(format!("{FOLDER} names no folder")));
    };
    let listed = include_str!("onnx_suite.txt").lines().filter_map(|l| l.split_once(' '));
    let listed: BTreeMap<&str, &str> = listed.map(|(verdict, name)| (name, verdict)).collect();
    let (mut wrong, mut found) = (Vec::new(), 0);
    for path in cases(Path::new(&folder)) {
        let name = path.file_name().map(|n| n.to_string_lossy().to_string()).unwrap_or_default();
        let Some(&wanted) = listed.get(name.as_str()) else { continue };
        found += 1;
        // The light models are large: each is run by one engine alone.
        let engine =
            if name.starts_with("light_") { OnnxEngine::Cpu } else { OnnxEngine::Reference };
        for engine in [OnnxEngine::Cpu, engine] {
            let verdict = judge(&path, engine);
            if verdict.class() != wanted {
                wrong.push(format!("{name} was {wanted}, is now {verdict}"));
            }
        }
    }
    match (wrong.is_empty(), found) {
        (_, 0) => Err("the folder has no case of the list".into()),
        (true, _) => Ok(Completion::Completed),
        (false, _) => Err(wrong.join("\n").into()),
    }
}

//! The suite of StableHLO tests in the folder that `ADFUSE_STABLEHLO_SUITE` names: each file has on both engines the
//! verdict of `suite.txt`, which `cargo run -p adfuse-import --example suite -- DIR --record import/tests/suite.txt` writes. Files
//! that are not in the list are not compared. Without the folder the test is ignored.

#[path = "../examples/suite/compare.rs"]
mod compare;
#[path = "../examples/suite/verdict.rs"]
mod verdict;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use verdict::{Engine, files, judge};

const FOLDER: &str = "ADFUSE_STABLEHLO_SUITE";

fn main() -> ExitCode {
    let trial = Trial::ignorable_test("verdicts_are_those_of_the_list", compared);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn compared() -> Result<Completion, Failed> {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return Ok(Completion::ignored_with(format!("{FOLDER} names no folder")));
    };
    let folder = Path::new(&folder);
    let listed = include_str!("suite.txt").lines().filter_map(|l| l.split_once(' '));
    let listed: BTreeMap<&str, &str> = listed.map(|(verdict, name)| (name, verdict)).collect();
    let (mut wrong, mut found) = (Vec::new(), 0);
    for path in files(folder) {
        let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        let Some(&wanted) = listed.get(name.as_str()) else { continue };
        found += 1;
        let text = std::fs::read_to_string(&path)?;
        for (engine, on) in [(Engine::Cpu, "cpu"), (Engine::Reference, "reference")] {
            let verdict = judge(&text, engine);
            if verdict.class() != wanted {
                wrong.push(format!("{name} was {wanted}, is on {on} {verdict}"));
            }
        }
    }
    match (wrong.is_empty(), found) {
        (_, 0) => Err("the folder has no file of the list".into()),
        (true, _) => Ok(Completion::Completed),
        (false, _) => Err(wrong.join("\n").into()),
    }
}

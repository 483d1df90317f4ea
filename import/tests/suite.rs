//! The suite of StableHLO tests in the folder that `ADFUSE_STABLEHLO_SUITE` names: each file has on both engines the
//! verdict of `suite.txt`, which `cargo run -p adfuse-import --example suite -- DIR --record import/tests/suite.txt` writes. Files
//! that are not in the list are not compared. Without the folder the test is ignored. Where `ADFUSE_STABLEHLO_ARTIFACTS` names the
//! folder that `examples/suite/artifacts.py` wrote, the bytecode of each file has that verdict too.

#[path = "../examples/suite/compare.rs"]
mod compare;
#[path = "../examples/suite/verdict.rs"]
mod verdict;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use verdict::{SuiteEngine, files, judge, modules};

const FOLDER: &str = "ADFUSE_STABLEHLO_SUITE";
const ARTIFACTS: &str = "ADFUSE_STABLEHLO_ARTIFACTS";

fn main() -> ExitCode {
    let trial = Trial::ignorable_test("verdicts_are_those_of_the_list", compared);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn compared() -> Result<Completion, Failed> {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return Ok(Completion::ignored_with(format!("{FOLDER} names no folder")));
    };
    let folder = Path::new(&folder);
    let artifacts = std::env::var_os(ARTIFACTS).map(PathBuf::from);
    let listed = include_str!("suite.txt").lines().filter_map(|l| l.split_once(' '));
    let listed: BTreeMap<&str, &str> = listed.map(|(verdict, name)| (name, verdict)).collect();
    let (mut wrong, mut found) = (Vec::new(), 0);
    for path in files(folder) {
        let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        let Some(&wanted) = listed.get(name.as_str()) else { continue };
        found += 1;
        let (text, _) = modules(folder, &path, None)?;
        let mut ways = vec![
            (SuiteEngine::Cpu, "cpu", text.clone()),
            (SuiteEngine::Reference, "reference", text),
        ];
        if let Some(artifacts) = &artifacts {
            let (text, read) = modules(folder, &path, Some(artifacts))?;
            if read > 0 {
                ways.push((SuiteEngine::Reference, "reference, from bytecode,", text));
            }
        }
        for (engine, on, text) in ways {
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

//! The table of marks, small: every program is planned, compiled and run at both efforts.

use adfuse::fusion::Fp;
use adfuse::ir::{Op, text};
use adfuse_benches::marks::{MARKS, Scale};
use std::process::Command;

#[test]
fn every_mark_has_a_row() {
    let out = Command::new(env!("CARGO_BIN_EXE_marks")).arg("--quick").output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    let names: Vec<&str> = adfuse_benches::marks::MARKS.iter().map(|row| row.name).collect();
    let rows = text.lines().filter_map(|line| Some(line.strip_prefix("| ")?.split_once(' ')?.0));
    let rows: Vec<&str> = rows.filter(|name| *name != "program" && *name != "---").collect();
    assert_eq!(rows, names);
    assert!(text.contains(&format!("of {} marks are met", names.len())), "{text}");
}

/// What is measured is what users get: the engine has a step for attention.
#[test]
fn programs_are_prepared_as_for_their_engine() {
    let bert = MARKS.iter().find(|row| row.name == "bert").expect("a row");
    let program = (bert.program)(Scale::Gpu).expect("is traced");
    let count = |fp| {
        let f = program.prepared(true, fp).expect("is prepared");
        f.body_insts().iter().filter(|&&i| f.op(i) == Op::Attention).count()
    };
    assert_eq!([Fp::Strict, Fp::Fast].map(count), [0, 12]);
}

#[test]
fn programs_are_saved_as_text() {
    let folder = std::env::temp_dir().join(format!("marks-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let marks = || Command::new(env!("CARGO_BIN_EXE_marks"));
    let out = marks().args(["--quick", "--only", "bert", "--save"]).arg(&folder).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let saved = std::fs::read_to_string(folder.join("bert.ir")).unwrap();
    assert_eq!(text::parse(&saved).unwrap().funcs.values().count(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
    let out = marks().args(["--quick", "--only", "bert", "--save"]).arg(&folder).output().unwrap();
    assert!(!out.status.success() && !out.stderr.is_empty(), "no such folder");
}

//! The table of marks, small: every program is planned, compiled and run at both efforts.

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

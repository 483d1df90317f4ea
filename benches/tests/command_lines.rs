//! Command lines of the tables: names that no program has are errors, and all print their usage.

use std::process::Command;

const TABLES: [(&str, &str); 5] = [
    ("plans", env!("CARGO_BIN_EXE_plans")),
    ("marks", env!("CARGO_BIN_EXE_marks")),
    ("ops", env!("CARGO_BIN_EXE_ops")),
    ("frontiers", env!("CARGO_BIN_EXE_frontiers")),
    ("remat_table", env!("CARGO_BIN_EXE_remat_table")),
];

/// The exit status, and what is written to standard output and standard error.
fn ran(program: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let out = Command::new(program).args(args).output().unwrap();
    let [text, told] = [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (out.status.code(), text, told)
}

#[test]
fn help_is_usage() {
    for (name, program) in TABLES {
        let (code, text, told) = ran(program, &["--help"]);
        assert_eq!(code, Some(0), "{name}: {told}");
        assert!(text.contains(&format!("Usage: {name} ")), "{name}: {text}");
    }
}

#[test]
fn names_that_no_program_has_are_errors() {
    for (name, args, near) in [
        ("plans", &["--only", "gptt", "--check"][..], "`gptt`"),
        ("plans", &["--only", "none*", "--save", "."][..], "`none*`: there are "),
        ("marks", &["--only", "layer_nrm", "--quick"][..], "`layer_nrm`"),
        ("ops", &["--only", "sinn.f32", "--quick"][..], "`sinn.f32`"),
    ] {
        let (_, program) = TABLES.iter().find(|(of, _)| *of == name).unwrap();
        let (code, text, told) = ran(program, args);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{name} {args:?}: {told}");
        assert!(told.contains(near) && told.contains("there are "), "{name} {args:?}: {told}");
    }
    let (_, frontiers) = TABLES[3];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/programs");
    let (code, text, told) = ran(frontiers, &[folder, "none"]);
    assert!(code == Some(1) && text.is_empty() && told.contains("called `none`"), "{text}{told}");
}

//! Words and phrases that are not used: riddles that a reader has to solve, and names for which the field has a term.

use crate::{none, root, sources};

/// Phrases that a native engineer has to read twice, with what to write. In lower case, as whole words.
const PHRASES: &[(&str, &str)] = &[
    ("so many", "this many, or the number"),
    ("is no matter of", "does not depend on"),
    ("what it goes along", "its axes"),
    ("goes along what", "has the axes of what"),
    ("as much as not", "unless"),
];

/// Files and types that had names of their own where the field has a term.
const OLD_NAMES: &[(&str, &str)] = &[
    ("few", "unroll_windows"),
    ("pick", "index_columns"),
    ("lying", "access_cost"),
    ("again", "instantiate"),
    ("crew", "workers"),
    ("apart", "fission"),
    ("ahead", "async_copy"),
    ("far", "nontemporal"),
    ("takes", "supports"),
    ("stretch", "loop_split"),
];

#[test]
fn sentences_are_plain() {
    let mut wrong = Vec::new();
    let mut texts: Vec<(String, String)> = sources().into_iter().collect();
    for entry in std::fs::read_dir(root().join("docs")).expect("docs").flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "md") {
            texts.push((
                format!("docs/{}", entry.file_name().to_string_lossy()),
                crate::read(&path),
            ));
        }
    }
    for (name, text) in texts.iter().filter(|(n, _)| !n.starts_with("tests/tidy/")) {
        for (n, line) in text.lines().enumerate() {
            let low = line.to_lowercase();
            for (phrase, better) in PHRASES.iter().filter(|(p, _)| low.contains(p)) {
                wrong.push(format!("{name}:{}: `{phrase}`: write {better}", n + 1));
            }
        }
    }
    none(wrong, "phrases");
}

#[test]
fn files_have_the_names_of_the_field() {
    let mut wrong = Vec::new();
    for name in sources().keys().filter(|n| n.contains("/src/")) {
        let file = name.rsplit('/').next().unwrap_or(name).trim_end_matches(".rs");
        if let Some((_, better)) = OLD_NAMES.iter().find(|(old, _)| *old == file) {
            wrong.push(format!("{name}: the field says {better}"));
        }
    }
    none(wrong, "names of files");
}

/// Folders that a path in a page begins with.
const FOLDERS: &[&str] = &[
    "ir", "memplan", "autodiff", "fusion", "backends", "src", "cli", "tests", "benches",
    "examples", "scripts", "docs",
];

#[test]
fn paths_in_pages_exist() {
    let mut wrong = Vec::new();
    let pages = std::fs::read_dir(root().join("docs")).expect("docs").flatten().map(|e| e.path());
    for page in pages.chain([root().join("README.md")]) {
        let text = crate::read(&page);
        // Every second piece stands between backquotes, where they are paired in a line.
        for line in text.lines() {
            for quoted in line.split('`').skip(1).step_by(2) {
                let plain = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
                let begins = quoted.split_once('/').is_some_and(|(top, _)| FOLDERS.contains(&top));
                let path = quoted.chars().all(plain) && (begins || quoted.ends_with(".rs"));
                if path && !root().join(quoted).exists() {
                    wrong.push(format!("{}: `{quoted}`", page.display()));
                }
            }
        }
    }
    none(wrong, "paths that are not there");
}

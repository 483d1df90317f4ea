//! What holds of the sources as text: sizes, documentation, which crate imports which, words that are
//! not used, and that generated pages are fresh.
// What the tests count is printed for whoever runs them with `--nocapture`.
#![allow(clippy::print_stdout)]

mod book;
mod doc_examples;
mod functions;
mod graph;
mod imports;
mod names;
mod ops_page;
mod packages;
mod rules_page;
mod words;

use adfuse::pipeline::PASSES;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Lines of a file at most; the aim is 500.
const MOST_LINES: usize = 520;

/// Which of the project's crates each may import.
const FLOORS: &[(&str, &[&str])] = &[
    ("adfuse-ir", &[]),
    ("adfuse-memplan", &[]),
    ("adfuse-derive", &[]),
    ("adfuse-autodiff", &["adfuse-ir"]),
    ("adfuse-import", &["adfuse-ir"]),
    ("adfuse-fusion", &["adfuse-ir", "adfuse-memplan"]),
    ("adfuse-backends", &["adfuse-ir", "adfuse-memplan"]),
    ("adfuse-report", &["adfuse-ir", "adfuse-fusion"]),
    (
        "adfuse",
        &[
            "adfuse-ir",
            "adfuse-memplan",
            "adfuse-derive",
            "adfuse-autodiff",
            "adfuse-import",
            "adfuse-fusion",
            "adfuse-backends",
            "adfuse-report",
        ],
    ),
    ("adfuse-cli", &["adfuse"]),
    ("adfuse-examples", &["adfuse"]),
    ("adfuse-benches", &["adfuse"]),
];

/// Words that say nothing about what a thing is.
const EMPTY_WORDS: &[&str] =
    &["tape", "node", "nodes", "manager", "util", "utils", "helper", "helpers"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The folders of the workspace's packages, the root first.
fn packages() -> Vec<PathBuf> {
    let manifest = read(&root().join("Cargo.toml"));
    let members = manifest.split_once("members = [").and_then(|(_, m)| m.split_once(']'));
    let members = members.expect("a list of members").0;
    let names = members.split(',').map(|m| m.trim().trim_matches('"')).filter(|m| !m.is_empty());
    std::iter::once(root().to_path_buf()).chain(names.map(|m| root().join(m))).collect()
}

/// The Rust files of all packages, by their path from the root.
fn sources() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for package in packages() {
        for part in ["src", "tests", "benches", "examples"] {
            rust_files(&package.join(part), &mut found);
        }
    }
    assert!(found.len() > 50, "{} files", found.len());
    found
}

/// The files of all packages that are no files of tests, parsed, by their paths.
fn parsed_sources() -> Vec<(String, syn::File)> {
    let mut all = Vec::new();
    for (package, files) in package_sources() {
        for (name, text) in files {
            let folder = if package == "adfuse" { String::new() } else { format!("{package}/") };
            let file = format!("{folder}src/{name}");
            if file.ends_with("tests.rs") || file.ends_with("checks.rs") {
                continue;
            }
            let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
            all.push((file, parsed));
        }
    }
    all
}

/// The files of each package's `src`, by package (the folder's name; the root is `adfuse`) and by their path below it.
fn package_sources() -> BTreeMap<String, BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for package in packages() {
        let (mut found, mut files) = (BTreeMap::new(), BTreeMap::new());
        let src = package.join("src");
        rust_files(&src, &mut found);
        for (name, text) in found {
            let below = root().join(&name);
            let below =
                below.strip_prefix(&src).expect("below src").to_string_lossy().replace('\\', "/");
            files.insert(below, text);
        }
        let name = match package.strip_prefix(root()) {
            Ok(p) if !p.as_os_str().is_empty() => p.to_string_lossy().into_owned(),
            _ => "adfuse".to_string(),
        };
        if !files.is_empty() {
            all.insert(name, files);
        }
    }
    assert!(all.len() >= 6, "{} packages", all.len());
    all
}

fn rust_files(folder: &Path, found: &mut BTreeMap<String, String>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    for path in entries.map(|e| e.expect("an entry").path()) {
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let name = path.strip_prefix(root()).expect("below the root");
            found.insert(name.to_string_lossy().replace('\\', "/"), read(&path));
        }
    }
}

/// The lines of a file that are code: no comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(n, l)| (n + 1, l));
    lines.map(|(n, l)| (n, l.split("//").next().unwrap_or(l)))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty())
}

fn none(found: Vec<String>, what: &str) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn files_are_small_and_begin_with_what_they_are() {
    let mut wrong = Vec::new();
    for (name, text) in sources() {
        let lines = text.lines().count();
        if lines > MOST_LINES {
            wrong.push(format!("{name} has {lines} lines, the limit is {MOST_LINES}"));
        }
        if !text.starts_with("//! ") {
            wrong.push(format!("{name} does not begin with a `//!` line"));
        }
    }
    none(wrong, "files");
}

#[test]
fn crates_import_from_lower_floors_alone() {
    let mut wrong = Vec::new();
    for package in packages() {
        let manifest = read(&package.join("Cargo.toml"));
        let (mut section, mut name) = (String::new(), String::new());
        for line in manifest.lines().map(str::trim) {
            if line.starts_with('[') {
                section = line.trim_matches(['[', ']']).to_string();
            } else if let Some(quoted) =
                line.strip_prefix("name = ").filter(|_| section == "package")
            {
                name = quoted.trim_matches('"').to_string();
            } else if section == "dependencies" && line.starts_with("adfuse") {
                let imported = line.split(['.', ' ', '=']).next().unwrap_or(line);
                let floor = FLOORS.iter().find(|(n, _)| *n == name);
                if !floor.is_some_and(|(_, below)| below.contains(&imported)) {
                    wrong.push(format!("{name} imports {imported}"));
                }
            }
        }
        if !FLOORS.iter().any(|(n, _)| *n == name) {
            wrong.push(format!("{name} has no floor"));
        }
    }
    none(wrong, "imports");
}

/// A library without unit tests says so and is not compiled a second time for them; what says so has none,
/// for they would not run.
#[test]
fn libraries_without_unit_tests_say_so() {
    let manifests = packages().into_iter().map(|p| (p.join("src/lib.rs"), p.join("Cargo.toml")));
    let mut wrong = Vec::new();
    for (library, manifest) in manifests.filter(|(library, _)| library.exists()) {
        let mut files = BTreeMap::new();
        rust_files(library.parent().expect("a folder"), &mut files);
        let marks = ["#[test]", "#[cfg(test)]"];
        let tests = |text: &String| code(text).any(|(_, l)| marks.iter().any(|m| l.contains(m)));
        let (has, text) = (files.values().any(tests), read(&manifest));
        let section = text.split_once("\n[lib]\n").map_or("", |(_, rest)| rest);
        let runs =
            !section.lines().take_while(|l| !l.starts_with('[')).any(|l| l == "test = false");
        if has != runs {
            wrong.push(format!("{}: unit tests: {has}, run: {runs}", manifest.display()));
        }
    }
    none(wrong, "libraries");
}

#[test]
fn only_engines_hold_unsafe_code() {
    let mut wrong = Vec::new();
    for (name, text) in sources().iter().filter(|(n, _)| !n.starts_with("backends/")) {
        for (n, line) in code(text) {
            if words(line).any(|w| w == "unsafe") && !line.contains('"') {
                wrong.push(format!("{name}:{n}: {}", line.trim()));
            }
        }
    }
    none(wrong, "unsafe code");
}

#[test]
fn nothing_is_left_to_do() {
    // In two parts, so that this file does not name them.
    let macros = [["to", "do!"], ["unimple", "mented!"], ["db", "g!"]].map(|p| p.concat());
    let mut wrong = Vec::new();
    for (name, text) in sources() {
        for (n, line) in code(&text) {
            if macros.iter().any(|m| line.contains(m.as_str())) {
                wrong.push(format!("{name}:{n}: {}", line.trim()));
            }
        }
    }
    none(wrong, "stubs");
}

/// `CamelCase` as words in lower case.
fn camel_words(name: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for c in name.chars() {
        match out.last_mut() {
            Some(word) if !c.is_uppercase() => word.push(c),
            _ => out.push(c.to_lowercase().collect()),
        }
    }
    out
}

#[test]
fn names_say_what_things_are() {
    let mut wrong = Vec::new();
    let empty = |w: &str| EMPTY_WORDS.contains(&w);
    for (name, text) in sources() {
        if name.trim_end_matches(".rs").split(['/', '_']).any(empty) {
            wrong.push(name.clone());
        }
        for (n, line) in code(&text) {
            let mut rest =
                words(line).skip_while(|w| !["struct", "enum", "trait", "type"].contains(w));
            let declared = rest.nth(1).filter(|w| w.starts_with(char::is_uppercase));
            if declared.is_some_and(|d| camel_words(d).iter().any(|w| empty(w))) {
                wrong.push(format!("{name}:{n}: {}", line.trim()));
            }
        }
    }
    none(wrong, "names");
    assert_eq!(camel_words("ScopeNode"), ["scope", "node"]);
}

#[test]
fn the_page_of_ops_is_fresh() {
    let path = root().join("docs/ops.md");
    fresh(&path, &ops_page::page());
}

#[test]
fn the_page_of_rules_is_fresh() {
    fresh(&root().join("docs/rules.md"), &rules_page::page());
}

/// Checks that a page is as it has to be, or makes it so.
fn fresh(path: &Path, due: &str) {
    let name = path.display();
    if std::env::var_os("ADFUSE_BLESS").is_some_and(|v| v != "0") {
        std::fs::write(path, due).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let first = due.lines().zip(found.lines()).position(|(a, b)| a != b);
    let line = first.unwrap_or(due.lines().count().min(found.lines().count())) + 1;
    assert!(due == found, "{name} differs at line {line}: run this test with ADFUSE_BLESS=1");
}

/// The table of passes stands between these lines of the architecture page.
const TABLE: [&str; 2] = ["<!-- passes -->\n", "<!-- end of passes -->\n"];

#[test]
fn the_table_of_passes_is_fresh() {
    let path = root().join("docs/architecture.md");
    let page = read(&path);
    let (before, rest) = page.split_once(TABLE[0]).expect("the page has the table's first line");
    let (_, after) = rest.split_once(TABLE[1]).expect("the page has the table's last line");
    let mut table =
        String::from("| pass | takes | gives | verifier | what it does |\n|---|---|---|---|---|\n");
    for pass in PASSES.iter() {
        let engine = pass.engine.map_or_else(String::new, |e| format!(" (engine `{e}`)"));
        table += &format!(
            "| `{}`{engine} | {} | {} | {} | {} |\n",
            pass.name,
            pass.takes.name(),
            pass.gives.name(),
            pass.verifier.name(),
            pass.about
        );
    }
    fresh(&path, &[before, TABLE[0], &table, TABLE[1], after].concat());
}

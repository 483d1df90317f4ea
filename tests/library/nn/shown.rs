//! Every public item of `nn` and `optim` is in an example of the documentation, all of which are run.

use std::collections::BTreeSet;
use std::path::Path;

/// The sources of a folder.
fn sources(folder: &str) -> Vec<String> {
    let all = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    let files = all.expect("a folder").map(|f| f.expect("a file").path());
    files.map(|path| std::fs::read_to_string(path).expect("a source")).collect()
}

fn words(line: &str) -> impl Iterator<Item = String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.split(move |c| !word(c)).filter(|w| !w.is_empty()).map(str::to_string)
}

/// The words in examples of doc comments.
fn examples(text: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut found = BTreeSet::new();
    for line in text.lines().map(str::trim_start) {
        let Some(doc) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            inside = false;
            continue;
        };
        if doc.trim_start().starts_with("```") {
            inside = !inside && !doc.contains("ignore") && !doc.contains("text");
        } else if inside {
            found.extend(words(doc));
        }
    }
    found
}

/// What a module exports: names of `pub use`, traits, structs and functions.
fn exported(module: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in module.lines() {
        if let Some((_, names)) = line.strip_prefix("pub use ").and_then(|l| l.rsplit_once("::")) {
            found.extend(words(names));
        }
        for kind in ["pub struct ", "pub trait ", "pub enum ", "pub fn "] {
            found.extend(line.strip_prefix(kind).and_then(|rest| words(rest).next()));
        }
    }
    found
}

#[test]
fn every_public_item_is_in_an_example() {
    for (folder, least) in [("src/nn", 20), ("src/optim", 12)] {
        let shown: BTreeSet<String> = sources(folder).iter().flat_map(|s| examples(s)).collect();
        let module = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join("mod.rs");
        let all = exported(&std::fs::read_to_string(module).expect("a source"));
        assert!(all.len() >= least, "{folder}: {all:?}");
        let missing: Vec<&String> = all.difference(&shown).collect();
        assert!(missing.is_empty(), "{folder}: no example has {missing:?}");
    }
}

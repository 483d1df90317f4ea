//! Words and phrases that are not used: riddles that a reader has to solve, and names for which the field has a term.

use crate::{none, root, sources};

/// Phrases that a native engineer has to read twice, with what to write. In lower case.
const PHRASES: &[(&str, &str)] = &[
    ("so many", "this many, or the number"),
    ("is no matter of", "does not depend on"),
    ("what it goes along", "its axes"),
    ("goes along what", "has the axes of what"),
    ("as much as not", "unless"),
    ("goes along", "iterates over, or is contiguous along"),
    ("as many as there are", "all, or the number of"),
    ("as one likes", "any number of times"),
    ("speaks for", "the score of, or the reason for"),
    ("takes down", "records"),
    ("that there are not", "unknown"),
    ("comes by", "gets, or reads"),
    (" come by ", "get, or read"),
    ("emitter of wide vectors", "the x86 emitter"),
    ("wide emitter", "the x86 emitter"),
    ("functions of the user's", "user functions"),
    ("in the place of", "over, or instead of"),
    ("of which the next", "a sentence of its own"),
    ("so far into", "the offset in"),
    ("makes none twice", "caches them"),
];

/// Files that had names of their own where the field has a term.
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

/// The pages of the documentation, by their path from the root.
pub(crate) fn pages() -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> =
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
            .map(|name| (name.to_string(), crate::read(&root().join(name))))
            .into();
    for package in crate::packages().iter().skip(1) {
        let page = package.join("README.md");
        if page.exists() {
            let name = page.strip_prefix(root()).expect("a package of the workspace");
            found.push((name.to_string_lossy().replace('\\', "/"), crate::read(&page)));
        }
    }
    for folder in ["docs", "docs/guide", "docs/how", "docs/notes", "docs/performance"] {
        for entry in std::fs::read_dir(root().join(folder)).expect(folder).flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|e| e == "md") {
                let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
                found.push((name, crate::read(&path)));
            }
        }
    }
    found
}

#[test]
fn sentences_are_plain() {
    let mut wrong = Vec::new();
    let texts: Vec<(String, String)> = sources().into_iter().chain(pages()).collect();
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
    for name in sources().keys().filter(|n| n.starts_with("src/") || n.contains("/src/")) {
        // A `mod.rs` has the name of its folder.
        let path = name.trim_end_matches("/mod.rs").trim_end_matches(".rs");
        let file = path.rsplit('/').next().unwrap_or(path);
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
    for (page, text) in pages() {
        // Every second piece stands between backquotes, where they are paired in a line.
        for line in text.lines() {
            for quoted in line.split('`').skip(1).step_by(2) {
                let plain = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
                let begins = quoted.split_once('/').is_some_and(|(top, _)| FOLDERS.contains(&top));
                let path = quoted.chars().all(plain) && (begins || quoted.ends_with(".rs"));
                if path && !root().join(quoted).exists() {
                    wrong.push(format!("{page}: `{quoted}`"));
                }
            }
        }
    }
    none(wrong, "paths that are not there");
}

/// The anchor of a heading, as Markdown viewers make it.
fn anchor(heading: &str) -> String {
    let plain = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = plain.chars().filter(|&c| c.is_alphanumeric() || "-_ ".contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Where the links of a page lead, in order.
pub(crate) fn links(page: &str) -> impl Iterator<Item = &str> {
    page.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

#[test]
fn links_in_pages_lead_somewhere() {
    let pages = pages();
    let anchors = |path: &std::path::Path| -> Vec<String> {
        crate::read(path).lines().filter(|l| l.starts_with('#')).map(anchor).collect()
    };
    let mut wrong = Vec::new();
    for (page, text) in &pages {
        let folder = root().join(page);
        let folder = folder.parent().expect("a page is in a folder");
        for link in links(text) {
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            let (file, part) = link.split_once('#').unwrap_or((link, ""));
            let to = if file.is_empty() { root().join(page) } else { folder.join(file) };
            let is_page = to.extension().is_some_and(|e| e == "md");
            if !to.exists() || (is_page && !part.is_empty() && !anchors(&to).contains(&part.into()))
            {
                wrong.push(format!("{page}: {link}"));
            }
        }
    }
    none(wrong, "links that lead nowhere");
}

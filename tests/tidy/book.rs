//! The book: every page is in its table of contents, says first what it is for, and has its Rust examples run.

use crate::words::{links, pages};
use crate::{none, read, root};
use std::collections::BTreeSet;

/// The pages that the table of contents names, by their path from `docs`.
fn contents() -> Vec<String> {
    links(&read(&root().join("docs/SUMMARY.md"))).map(str::to_owned).collect()
}

#[test]
fn the_table_of_contents_has_every_page_once() {
    let listed = contents();
    let all: BTreeSet<String> = pages()
        .into_iter()
        .filter_map(|(name, _)| name.strip_prefix("docs/").map(str::to_owned))
        .filter(|name| name != "SUMMARY.md")
        .collect();
    let once: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(once.len(), listed.len(), "a page is listed twice");
    let missing = all.symmetric_difference(&once).cloned().collect();
    none(missing, "pages in one of `docs` and `docs/SUMMARY.md` alone");
}

#[test]
fn pages_say_first_what_one_can_do_then() {
    let mut wrong = Vec::new();
    for (name, text) in pages() {
        // Notes are measurements, and the front page is about all of adfuse.
        let Some(page) = name.strip_prefix("docs/").filter(|page| !page.starts_with("notes/"))
        else {
            continue;
        };
        if ["README.md", "SUMMARY.md"].contains(&page) {
            continue;
        }
        let first = text.lines().nth(2).unwrap_or_default();
        if !["After this page you", "After this chapter you"].iter().any(|b| first.starts_with(b)) {
            wrong.push(format!("{name}: {first}"));
        }
        let is_chapter = ["guide/", "how/"].iter().any(|folder| page.starts_with(folder));
        if is_chapter && text.lines().count() > 260 {
            wrong.push(format!("{name} is longer than 260 lines"));
        }
    }
    none(wrong, "pages");
}

#[test]
fn rust_in_pages_runs_with_the_documentation() {
    let included = read(&root().join("examples/book.rs"));
    let mut wrong = Vec::new();
    for (name, text) in pages() {
        let has_rust = text.lines().any(|l| l.starts_with("```rust"));
        // The page of a package may be the documentation of its library.
        let library = root().join(name.replace("README.md", "src/lib.rs"));
        let own = name.ends_with("/README.md")
            && std::fs::read_to_string(library).is_ok_and(|l| l.contains("\"../README.md\""));
        let runs = own || included.contains(&format!("include_str!(\"../{name}\")"));
        if has_rust && !runs {
            wrong.push(format!("{name} has Rust blocks that `examples/book.rs` does not include"));
        }
        if text.contains("```rust,ignore") {
            wrong.push(format!("{name} has a Rust block that does not compile"));
        }
    }
    none(wrong, "pages");
}

/// A folder's `README.md` is rendered as `index.html`, which links to it do not lead to.
#[test]
fn pages_link_to_no_readme() {
    let mut wrong = Vec::new();
    for (name, text) in pages().into_iter().filter(|(name, _)| name.starts_with("docs/")) {
        for link in links(&text) {
            let page = link.split('#').next().unwrap_or(link);
            if page.ends_with("README.md") && !page.contains("://") && name != "docs/SUMMARY.md" {
                wrong.push(format!("{name}: {link}"));
            }
        }
    }
    none(wrong, "links that the rendered book has no page for");
}

#[test]
fn the_page_of_errors_has_every_class() {
    let page = read(&root().join("docs/errors.md"));
    let headings: String = page.lines().filter(|l| l.starts_with("## ")).collect();
    let file = syn::parse_file(&read(&root().join("ir/src/diag.rs"))).expect("Rust");
    let kinds = file.items.iter().find_map(|item| match item {
        syn::Item::Enum(e) if e.ident == "Kind" => Some(&e.variants),
        _ => None,
    });
    let named: String = headings.replace('-', "");
    let missing = kinds
        .expect("the classes")
        .iter()
        .map(|v| v.ident.to_string())
        .filter(|name| !named.contains(&format!("`{}`", name.to_lowercase())))
        .collect();
    none(missing, "classes of errors without a heading in docs/errors.md");
}

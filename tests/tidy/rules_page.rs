//! `docs/rules.md`, made from the tables of rewrite rules.

use adfuse::pipeline::rules::tables;
use std::collections::BTreeSet;
use std::fmt::Write;

const HEAD: &str = "\
# Rewrite rules

After this page you know which rewrites adfuse makes, and which bits each keeps.

Made from the tables of rules by `ADFUSE_BLESS=1 cargo test --test tidy`; a test compares the two. `adfuse emit --rules`
prints the same list.

A rule (`ir/src/rewrite/rule.rs`) has a name, what it keeps, a pattern over ops, a condition and a build. What a rule keeps:
`exact` is every bit of every result; `finite` is every bit but where zeros are negative or operands are not finite;
`real` is the number that the formula has over the reals, rounded otherwise.
";

/// The whole page.
pub(crate) fn page() -> String {
    let mut out = HEAD.to_string();
    let mut names = BTreeSet::new();
    for table in tables() {
        let mut title: Vec<char> = table.name.chars().collect();
        title[0] = title[0].to_ascii_uppercase();
        let title: String = title.into_iter().collect();
        let _ = write!(out, "\n## {title}\n\n{}\n\n", table.doc);
        out.push_str("| rule | keeps | what it does |\n|---|---|---|\n");
        for rule in table.rules {
            assert!(names.insert(rule.name), "two rules are called {}", rule.name);
            let _ = writeln!(out, "| `{}` | {} | {} |", rule.name, rule.exactness, rule.doc);
        }
    }
    out
}

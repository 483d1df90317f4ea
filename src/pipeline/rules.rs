//! The rewrite rules that apply to a function on its way to an engine.

use crate::fusion::RULE_TABLES;
use crate::ir::rewrite::{
    ALGEBRA, ATTENTION, CONVOLUTIONS, FOLDED_NORMS, PRODUCT_SUMS, RuleTable, STABLE,
};
use std::fmt::Write as _;

/// All tables of rules, in the order in which a function meets them.
pub fn tables() -> impl Iterator<Item = &'static RuleTable> {
    [&STABLE, &ATTENTION, &CONVOLUTIONS, &PRODUCT_SUMS, &FOLDED_NORMS, &ALGEBRA]
        .into_iter()
        .chain(RULE_TABLES.iter().copied())
}

/// All rules as text: for each table its name and use, then for each rule its name, what it keeps and what it does.
pub fn text() -> String {
    let mut out = String::new();
    for (k, table) in tables().enumerate() {
        let gap = if k > 0 { "\n" } else { "" };
        // Nothing is wrong with writing to a string.
        let _ = writeln!(out, "{gap}{}: {}", table.name, table.doc);
        for rule in table.rules {
            let _ = writeln!(out, "  {} ({}): {}", rule.name, rule.exactness, rule.doc);
        }
    }
    out
}

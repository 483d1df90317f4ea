//! Fusion opportunities as text and as JSON.

use super::table::columns;
use adfuse::fusion::Candidate;
use adfuse::ir::Function;
use adfuse::ir::text::Names;
use serde_json::{Value, json};

/// How many are shown as text.
const SHOWN: usize = 40;

/// The best, a line each with the reason below.
pub(super) fn text(f: &Function, found: &[Candidate]) -> String {
    let names = Names::of(f);
    let head = [
        "score", "fused", "relation", "name", "saved", "launch", "regs", "prims", "folds",
        "ops/byte", "bound", "at",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    for c in found.iter().take(SHOWN) {
        let at = c.values.last().map_or_else(String::new, |&v| format!("%{}", names.get(v)));
        rows.push(vec![
            format!("{:.2}", c.score),
            if c.fused { "yes" } else { "no" }.into(),
            c.relation.name().into(),
            c.name.clone(),
            noted(c.saved_share(), 0.3),
            noted(c.launch_share, 0.1),
            c.registers.to_string(),
            c.primitives.to_string(),
            c.folds.to_string(),
            format!("{:.2}", c.intensity),
            if c.compute_bound() { "compute" } else { "memory" }.into(),
            at,
        ]);
    }
    let mut out = String::new();
    for (k, line) in columns(&rows).lines().enumerate() {
        out += &format!("{line}\n");
        if let Some(c) = k.checked_sub(1).and_then(|k| found.get(k)) {
            let below = if c.reason.is_empty() { &c.name } else { &c.reason };
            out += &format!("      {below}\n");
            if let Some(why) = c.refused.as_ref().filter(|_| !c.fused) {
                out += &format!("      one kernel cannot: {why}\n");
            }
        }
    }
    if found.len() > SHOWN {
        out += &format!("and {} more, which --json lists\n", found.len() - SHOWN);
    }
    out
}

/// A share in percent, with a mark from where it is of note.
fn noted(share: f64, from: f64) -> String {
    let mark = if share > from { "*" } else { "" };
    format!("{:.0}%{mark}", share * 100.0)
}

/// All of them, the best first.
pub(super) fn json(f: &Function, found: &[Candidate]) -> Value {
    let names = Names::of(f);
    let one = |c: &Candidate| {
        let values: Vec<String> = c.values.iter().map(|&v| format!("%{}", names.get(v))).collect();
        json!({
            "relation": c.relation.name(),
            "name": c.name,
            "patterns": c.patterns,
            "values": values,
            "score": rounded(c.score),
            "fused": c.fused,
            "reason": c.reason,
            "refused": c.refused,
            "bytes_apart": c.bytes_apart.round() as u64,
            "bytes_together": c.bytes_together.round() as u64,
            "saved_share": rounded(c.saved_share()),
            "launch_share": rounded(c.launch_share),
            "registers": c.registers,
            "primitives": c.primitives,
            "folds": c.folds,
            "intensity": rounded(c.intensity),
            "balance": rounded(c.balance),
            "bound": if c.compute_bound() { "compute" } else { "memory" },
        })
    };
    Value::Array(found.iter().map(one).collect())
}

fn rounded(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}

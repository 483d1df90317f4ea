//! A plan as a table of text.

use super::lists::{repeats, shortened};
use super::recomputed;
use super::report::{PlanReport, ProgramFigures, StepRow};
use super::times::at_most;
use crate::values::counted;
use adfuse::fusion::LoopReport;
pub(crate) use adfuse::report::sizes::{bytes, limit};

/// The most values that a list of the table names; JSON has all.
const MOST_VALUES: usize = 24;

/// The most places of a pattern that the table names; JSON has all.
const MOST_PLACES: usize = 3;

/// The most extents of kernels that a line of the table shows.
const MOST_DOMAINS: usize = 3;

/// The report in lines and columns, with the hashes of the plan and the function if they are wanted.
pub(super) fn text(report: &PlanReport, hashes: bool) -> String {
    let r = report;
    let mut out = format!("@{} on {}, fp {}, effort {}", r.function, r.device, r.fp, r.effort);
    if let Some(layout) = r.layout {
        out += &format!(", layout {}", layout.name());
    }
    out.push('\n');
    if hashes {
        out += &format!("plan {}\ngraph {}\n", r.plan, r.graph);
    }
    out.push('\n');
    out += &columns(&figures(&r.chosen, &r.off));
    if r.budget.is_some() || r.compile_budget.is_some() {
        out += "\neffort off: one kernel for each instruction, without a budget\n";
    }
    if let Some(l) = &r.leanest {
        out += &format!(
            "\nless memory: with --mem-budget {} ({}) predicted ms at most {}, which the groups of effort {} take\n",
            l.peak_bytes,
            limit(l.peak_bytes),
            at_most(l.predicted_ms),
            l.effort
        );
    }
    if let Some(b) = &r.budget {
        out += &format!(
            "\nbudget {} ({}): {:.1} % slower than the fastest, which takes {:.4} ms and {}\n",
            limit(b.bytes),
            counted(b.bytes, "byte"),
            b.slower_percent,
            b.fastest_ms,
            limit(b.fastest_peak)
        );
    }
    if let Some(b) = &r.compile_budget {
        out += &format!(
            "\nbudget to compile {:.3} ms: {:.1} % slower than the fastest, which takes {:.4} ms\n",
            b.budget_ms, b.slower_percent, b.fastest_ms
        );
    }
    if r.budget.is_some() || !r.again.is_empty() || !r.segments.is_empty() {
        let again = recomputed::summary(&r.segments, &r.again, MOST_VALUES);
        out += &format!("\ncomputed again: {again}\n");
    }
    out += &loops(&r.loops);
    for of in &r.residuals {
        let lines = of.to_string();
        out += &format!("\nresiduals of {}", lines.trim_start_matches("adjoint: "));
    }
    let lossy: Vec<String> = r.lossy.iter().map(|(of, form)| format!("{of} as {form}")).collect();
    for (what, list) in [("kept with losses", &lossy), ("donated", &r.donated)] {
        if !list.is_empty() {
            out += &format!("\n{what}: {}\n", list.join(", "));
        }
    }
    for (what, list) in [("recognised", &r.recognised), ("patterns", &r.patterns)] {
        if !list.is_empty() {
            out += &format!("\n{what}: {}\n", places(list));
        }
    }
    if !r.unstable.is_empty() {
        out += "\nstrict mode computes these as they are written; --fp reproducible has stable forms\n";
        for u in &r.unstable {
            out += &format!("  {} at {}: {}\n", u.rule, u.at, u.why);
        }
    }
    let head = ["", "name", "kind", "domain", "read", "written", "ops", "ms", "bound"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(r.groups.iter().enumerate().map(|(k, row)| cells(k, row)));
    out.push('\n');
    // What each reads and writes follows its line.
    for (k, line) in columns(&rows).lines().enumerate() {
        out += &format!("{line}\n");
        if let Some(row) = k.checked_sub(1).and_then(|k| r.groups.get(k)) {
            out += &format!("      {} <- {}\n", list(&row.writes), list(&row.reads));
        }
    }
    out
}

/// What is found at several places is told once, with the first of these: equal layers have the same.
fn places(found: &[(&'static str, String)]) -> String {
    let mut each: Vec<(&str, Vec<String>)> = Vec::new();
    for (name, at) in found {
        match each.iter_mut().find(|(known, _)| known == name) {
            Some((_, places)) => places.push(at.clone()),
            None => each.push((name, vec![at.clone()])),
        }
    }
    let told = each.into_iter().map(|(name, places)| {
        format!("{name} at {}", shortened(places.into_iter(), MOST_PLACES, ", "))
    });
    told.collect::<Vec<_>>().join("; ")
}

/// Loops, those of equal layers once.
fn loops(all: &[LoopReport]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = all.iter().map(ToString::to_string).collect();
    let mut out = "\nloops\n".to_string();
    for (line, times) in repeats(&lines) {
        let times = if times > 1 { format!(" ({times} times)") } else { String::new() };
        out += &format!("  {line}{times}\n");
    }
    out
}

fn figures(chosen: &ProgramFigures, off: &ProgramFigures) -> Vec<Vec<String>> {
    let head = ["", "plan", "effort off", "ratio"].map(String::from).to_vec();
    let mut rows = vec![head];
    let mut row = |name: &str, mine: String, theirs: String, (a, b): (f64, f64)| {
        let ratio = if a == b { 1.0 } else { a / b };
        let ratio = if ratio.is_finite() { format!("{ratio:.3}") } else { "-".into() };
        rows.push(vec![name.into(), mine, theirs, ratio]);
    };
    let count = |a: u64, b: u64| (a as f64, b as f64);
    let (a, b) = (chosen, off);
    row("launches", a.launches.to_string(), b.launches.to_string(), count(a.launches, b.launches));
    let nearest: fn(u64) -> String = bytes;
    for (name, printed, a, b) in [
        ("bytes moved", nearest, a.bytes_moved, b.bytes_moved),
        ("least possible", nearest, a.least_bytes, b.least_bytes),
        ("arena", nearest, a.arena_bytes, b.arena_bytes),
        ("peak", limit, a.peak_bytes, b.peak_bytes),
        ("saved for backward", nearest, a.saved_bytes, b.saved_bytes),
    ] {
        row(name, printed(a), printed(b), count(a, b));
    }
    let ms = |x: f64| format!("{x:.4}");
    let times = (a.predicted_ms, b.predicted_ms);
    row("predicted ms", ms(a.predicted_ms), ms(b.predicted_ms), times);
    let times = (a.compile_ms, b.compile_ms);
    row("to compile, ms", ms(a.compile_ms), ms(b.compile_ms), times);
    row("code", bytes(a.code_bytes), bytes(b.code_bytes), count(a.code_bytes, b.code_bytes));
    rows
}

fn cells(k: usize, row: &StepRow) -> Vec<String> {
    let domains = row.domains.iter().map(|d| format!("{:?}", d.as_slice()));
    vec![
        k.to_string(),
        row.name.clone(),
        row.kind.into(),
        shortened(domains, MOST_DOMAINS, " "),
        bytes(row.read_bytes),
        bytes(row.written_bytes),
        row.ops.to_string(),
        format!("{:.4}", row.predicted_ms),
        row.bound.into(),
    ]
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "-".into() } else { shortened(names.iter().cloned(), MOST_VALUES, ", ") }
}

/// Cells under each other, two blanks between columns: words to the left, numbers to the right.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max();
    let number =
        |s: &String| s.starts_with(|c: char| c.is_ascii_digit()) || s == "-" || s.is_empty();
    let numbers = |c: usize| rows.iter().skip(1).filter_map(|r| r.get(c)).all(number);
    let layout: Vec<(usize, bool)> =
        (0..count).map(|c| (width(c).unwrap_or(0), numbers(c))).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, (cell, &(width, number))) in row.iter().zip(&layout).enumerate() {
            let gap = if c > 0 { "  " } else { "" };
            line += &match number {
                true => format!("{gap}{cell:>width$}"),
                false => format!("{gap}{cell:<width$}"),
            };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_recurs_is_told_once() {
        let found: Vec<(&str, String)> = (0..5)
            .flat_map(|k| [("softmax", format!("%p{k}")), ("gelu", format!("%g{k}"))])
            .chain([("dropout", "%d".into())])
            .collect();
        let due =
            "softmax at %p0, %p1, %p2 and 2 more; gelu at %g0, %g1, %g2 and 2 more; dropout at %d";
        assert_eq!(places(&found), due);
    }

    /// What is read of a limit as a budget is no less, and at most a hundredth of the unit more.
    #[test]
    fn limits_hold_what_they_stand_for() {
        for k in 0..63u32 {
            for n in [1u64 << k, (1 << k) + 1, (1 << k) + (1 << (k / 2)), (3 << k) / 2 + 1] {
                let read = adfuse::device::bytes(&limit(n)).expect("is a size");
                let most = n + n / 100 + 1;
                assert!((n..=most).contains(&read), "{n}: {} is read as {read}", limit(n));
            }
        }
    }

    #[test]
    fn numbers_stand_to_the_right() {
        let rows = [["", "n"], ["ab", "1"], ["c", "20"]];
        let rows: Vec<Vec<String>> = rows.iter().map(|r| r.map(String::from).to_vec()).collect();
        assert_eq!(columns(&rows), "     n\nab   1\nc   20\n");
    }
}

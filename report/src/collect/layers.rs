//! Sequences of equal steps that follow each other: the layers of a model.

use super::context::Collected;
use crate::data::{PlanStep, RepeatedLayer};
use adfuse_ir::kernel::Role;

/// The longest layer, and the most steps that are searched for layers.
const LONGEST: usize = 200;
const MOST_STEPS: usize = 4000;

/// The repeated sequences from the first step on, each the one that covers the most steps from where it begins.
pub(super) fn layers(c: &Collected<'_>, steps: &[PlanStep]) -> Vec<RepeatedLayer> {
    let mut found = Vec::new();
    if steps.len() > MOST_STEPS {
        return found;
    }
    let equal = |a: usize, b: usize| work(&steps[a]) == work(&steps[b]);
    let mut at = 0;
    while at < steps.len() {
        match longest(at, steps.len(), &equal) {
            Some((period, count)) => {
                let name = name(c, at, period, count);
                let phase = steps[at].phase;
                found.push(RepeatedLayer { name, first: at, period, count, phase });
                at += period * count;
            }
            None => at += 1,
        }
    }
    found
}

/// What a step does, but for the data that it does it on.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct StepWork<'a> {
    texts: [&'a str; 3],
    counts: [u64; 3],
    launches: u32,
    phase: u16,
}

/// What a step does. Steps that do the same work on other data are equal in this.
pub(super) fn work(s: &PlanStep) -> StepWork<'_> {
    StepWork {
        texts: [&s.name, &s.kind, &s.domain],
        counts: [s.read_bytes, s.written_bytes, s.ops],
        launches: s.launches,
        phase: s.phase,
    }
}

/// The period and the number of occurrences that cover the most steps from one on; of those the shortest period.
fn longest(at: usize, end: usize, equal: &dyn Fn(usize, usize) -> bool) -> Option<(usize, usize)> {
    let mut best: Option<(usize, usize)> = None;
    for period in 1..=((end - at) / 2).min(LONGEST) {
        let mut same = 0;
        while at + period + same < end && equal(at + same, at + period + same) {
            same += 1;
        }
        let count = same / period + 1;
        // A single step that occurs twice is no layer.
        let is_layer = count >= 2 && period * count >= 4;
        let covers = |(p, n): (usize, usize)| p * n;
        if is_layer && best.is_none_or(|b| covers((period, count)) > covers(b)) {
            best = Some((period, count));
        }
    }
    best
}

/// What the names of the parameters of all occurrences have in common, with `*` where their numbers differ.
fn name(c: &Collected<'_>, first: usize, period: usize, count: usize) -> String {
    let program = &c.laid.program;
    let read = |n: usize| {
        let inputs = program.steps[n].reads().map(|b| &program.buffers[b]);
        let own: Vec<&str> =
            inputs.filter(|d| d.role == Role::Input).map(|d| d.name.as_str()).collect();
        own
    };
    let mut stems: Vec<String> = Vec::new();
    for k in 0..period {
        let all: Vec<Vec<&str>> = (0..count).map(|n| read(first + n * period + k)).collect();
        for (j, first) in all[0].iter().enumerate() {
            let others: Option<Vec<&str>> = all.iter().map(|a| a.get(j).copied()).collect();
            let Some(others) = others else { continue };
            if let Some(stem) = common(first, &others) {
                stems.push(stem);
            }
        }
    }
    stems.sort();
    stems.dedup();
    match stems.as_slice() {
        [] => format!("steps {first}\u{2013}{}", first + period - 1),
        [one] => format!("%{one}"),
        [first, .., last] => format!("%{first} \u{2026} %{last}"),
    }
}

/// `block.*` for `block.0.w` and `block.1.w`; nothing where names differ in more than one number, or not at all.
fn common(first: &str, all: &[&str]) -> Option<String> {
    let differs = |other: &&&str| **other != first;
    let other = all.iter().find(differs)?;
    let same = first.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let stem = first.get(..same)?.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_numbered = |name: &&str| {
        name.strip_prefix(stem).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    all.iter().all(is_numbered).then(|| format!("{stem}*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_that_covers_the_most_is_found() {
        let found = |text: &str, at: usize| {
            let letters = text.as_bytes();
            longest(at, letters.len(), &|a, b| letters[a] == letters[b])
        };
        assert_eq!(found("xabcabcabcy", 1), Some((3, 3)));
        assert_eq!(found("aaaa", 0), Some((1, 4)));
        assert_eq!(found("aab", 0), None);
        assert_eq!(found("abab", 0), Some((2, 2)));
        assert_eq!(found("abcdef", 0), None);
    }

    #[test]
    fn names_have_a_star_where_numbers_differ() {
        assert_eq!(common("h0_w", &["h0_w", "h1_w", "h10_w"]).as_deref(), Some("h*"));
        assert_eq!(common("net.b.1.w", &["net.b.1.w", "net.b.12.w"]).as_deref(), Some("net.b.*"));
        assert_eq!(common("w", &["w", "w"]), None);
        assert_eq!(common("wq", &["wq", "wk"]), None);
    }
}

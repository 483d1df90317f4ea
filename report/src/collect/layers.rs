//! Sequences of equal steps that follow each other: the layers of a model.

use super::context::Collected;
use crate::data::{PlanStep, RepeatedLayer};
use adfuse_ir::kernel::Role;
use std::collections::BTreeSet;

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
        // The first layer may read what the others have from the layer before.
        let fewest = all.iter().min_by_key(|names| names.len());
        stems.extend(fewest.into_iter().flatten().filter_map(|name| common(name, &all)));
    }
    stems.sort();
    stems.dedup();
    match stems.as_slice() {
        [] if period == 1 => format!("step {first}"),
        [] => format!("steps {first}\u{2013}{}", first + period - 1),
        [one] => format!("%{one}"),
        [first, .., last] => format!("%{first} \u{2026} %{last}"),
    }
}

/// `block.*` for `block.0.w` where every occurrence reads a value of such a name with another number; nothing where there
/// is no such number.
fn common(name: &str, all: &[Vec<&str>]) -> Option<String> {
    let is_digit = |c: char| c.is_ascii_digit();
    // A name without one of its numbers: what is before it, and what is after.
    let parts = |name: &'_ str, stem: &str| {
        let rest = name.strip_prefix(stem).filter(|rest| rest.starts_with(is_digit))?;
        let number = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        Some((number.to_owned(), rest[number.len()..].to_owned()))
    };
    let begins = |k: usize| !name[..k].ends_with(is_digit);
    let stems = name.match_indices(is_digit).filter(|&(k, _)| begins(k)).map(|(k, _)| &name[..k]);
    for stem in stems {
        let (_, end) = parts(name, stem)?;
        let of = |names: &Vec<&str>| {
            let mut found = names.iter().filter_map(|other| parts(other, stem));
            found.find(|(_, rest)| *rest == end).map(|(number, _)| number)
        };
        let Some(numbers) = all.iter().map(of).collect::<Option<BTreeSet<String>>>() else {
            continue;
        };
        if numbers.len() == all.len() {
            return Some(format!("{stem}*"));
        }
    }
    None
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
        let of = |all: &[&[&str]]| {
            let all: Vec<Vec<&str>> = all.iter().map(|names| names.to_vec()).collect();
            common(all[0][0], &all)
        };
        assert_eq!(of(&[&["h0_w"], &["h1_w"], &["h10_w"]]).as_deref(), Some("h*"));
        assert_eq!(of(&[&["net.b.1.w"], &["net.b.12.w"]]).as_deref(), Some("net.b.*"));
        assert_eq!(of(&[&["b.1.w2"], &["b.2.w2", "b.2.w1"]]).as_deref(), Some("b.*"));
        assert_eq!(of(&[&["w2"], &["w3"], &["x", "w1"]]).as_deref(), Some("w*"));
        assert_eq!(of(&[&["w"], &["w"]]), None);
        assert_eq!(of(&[&["w1"], &["w1"]]), None);
        assert_eq!(of(&[&["wq"], &["wk"]]), None);
    }
}

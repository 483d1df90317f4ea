//! Carries of a loop that are equal in every step, or never change: partition refinement over value numbers.
//!
//! All carries are assumed to keep their initial values, then all of one initial value to stay equal. An assumption
//! that a step breaks is given up, until none is: what remains holds by induction over the steps.

use super::numbering::{Numbering, phase_of};
use super::scan_body::{ScanBody, ScannedInput};
use super::uniform::repeated;
use adfuse_ir::rewrite::Copier;
use adfuse_ir::{Builder, Diagnostic, Function, Value};

/// Where a result of a loop comes from once carries and stacks are merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LoopOutcome {
    /// This carry.
    Carry(usize),
    /// This stack.
    Stack(usize),
    /// A value around the loop.
    Outside(Value),
    /// A stack of elements that all are this value around the loop.
    Repeated(Value),
}

/// A loop with each carry, stack and scanned operand once.
pub(super) struct RefinedScan {
    pub(super) scan: ScanBody,
    /// For each carry and each stack of the original.
    pub(super) results: Vec<LoopOutcome>,
    /// For each carry of the original, the first that is equal to it in every step; itself, where it is the first.
    pub(super) leaders: Vec<usize>,
}

impl RefinedScan {
    /// The values of the original's results, from those of this loop, which was placed last.
    pub(super) fn outcomes(&self, b: &mut Builder, placed: &[Value]) -> Vec<Value> {
        let carries = self.scan.carry.len();
        let value = |r: &LoopOutcome| match *r {
            LoopOutcome::Carry(k) => placed[k],
            LoopOutcome::Stack(k) => placed[carries + k],
            LoopOutcome::Outside(v) => v,
            LoopOutcome::Repeated(v) => {
                b.set_phase(phase_of(b.func(), v).max(self.scan.phase));
                repeated(b, v, self.scan.trips)
            }
        };
        self.results.iter().map(value).collect()
    }

    /// The same loop around which other values stand for those of the original.
    pub(super) fn mapped(&self, map: &mut dyn FnMut(Value) -> Value) -> RefinedScan {
        let scan = &self.scan;
        let results = self.results.iter().map(|r| match *r {
            LoopOutcome::Outside(v) => LoopOutcome::Outside(map(v)),
            LoopOutcome::Repeated(v) => LoopOutcome::Repeated(map(v)),
            other => other,
        });
        let results = results.collect();
        let captures = scan.captures.iter().map(|&v| map(v)).collect();
        let carry = scan.carry.iter().map(|&v| map(v)).collect();
        let xs = scan.xs.iter().map(|x| match *x {
            ScannedInput::Elements(v) => ScannedInput::Elements(map(v)),
            ScannedInput::Position => ScannedInput::Position,
        });
        let scan = ScanBody { captures, carry, xs: xs.collect(), body: scan.body.clone(), ..*scan };
        RefinedScan { scan, results, leaders: self.leaders.clone() }
    }
}

/// What is assumed of the carries.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct CarryPartition {
    /// The class of each carry; none where it keeps its initial value.
    classes: Vec<Option<usize>>,
    count: usize,
}

impl CarryPartition {
    /// Values of one key are in one class, numbered in the order of their first occurrence.
    fn by_key<K: PartialEq>(keys: Vec<Option<K>>) -> CarryPartition {
        let mut known: Vec<K> = Vec::new();
        let mut class = |key: Option<K>| {
            let key = key?;
            Some(known.iter().position(|k| *k == key).unwrap_or_else(|| {
                known.push(key);
                known.len() - 1
            }))
        };
        let classes = keys.into_iter().map(&mut class).collect();
        CarryPartition { classes, count: known.len() }
    }

    /// Whether a carry keeps its initial value.
    pub(super) fn is_invariant(&self, k: usize) -> bool {
        self.classes[k].is_none()
    }

    /// The first carry that is equal to another in every step.
    pub(super) fn leader(&self, k: usize) -> usize {
        if self.is_invariant(k) {
            return k;
        }
        self.classes.iter().position(|&c| c == self.classes[k]).unwrap_or(k)
    }
}

/// Numbers the body under what is assumed of its carries. Elements of one operand have one number.
fn numbered<'s>(scan: &'s ScanBody, partition: &CarryPartition) -> Numbering<'s> {
    let f = &scan.body;
    let [captures, carry, xs] = scan.params();
    let mut numbers = Numbering::new(f);
    for (k, &p) in captures.iter().enumerate() {
        let first = scan.captures.iter().position(|&v| v == scan.captures[k]).unwrap_or(k);
        let n = numbers.of(captures[first]);
        numbers.set(p, n);
    }
    for (k, &p) in carry.iter().enumerate() {
        let n = match partition.classes[k] {
            Some(_) => numbers.of(carry[partition.leader(k)]),
            None => initial(scan, partition, &mut numbers, k),
        };
        numbers.set(p, n);
    }
    for (k, &p) in xs.iter().enumerate() {
        let first = scan.xs.iter().position(|&x| x == scan.xs[k]).unwrap_or(k);
        let n = numbers.of(xs[first]);
        numbers.set(p, n);
    }
    numbers.body();
    numbers
}

/// The number of a carry that keeps its initial value: that of the literal or the capture that it begins with.
fn initial(
    scan: &ScanBody,
    partition: &CarryPartition,
    numbers: &mut Numbering<'_>,
    k: usize,
) -> u32 {
    let captures = scan.params()[0];
    match scan.captures.iter().position(|&v| v == scan.carry[k]) {
        Some(c) => numbers.of(captures[c]),
        None => {
            // Nothing but carries that keep this initial value has it.
            let keeps = |&j: &usize| scan.carry[j] == scan.carry[k] && partition.is_invariant(j);
            let first = (0..k).find(keeps).unwrap_or(k);
            numbers.of(scan.params()[1][first])
        }
    }
}

/// The coarsest partition that holds in every step.
pub(super) fn partition(scan: &ScanBody) -> CarryPartition {
    let carries = scan.carry.len();
    let mut now = CarryPartition { classes: vec![None; carries], count: 0 };
    loop {
        let mut numbers = numbered(scan, &now);
        let next: Vec<u32> =
            scan.body.results()[..carries].iter().map(|&v| numbers.of(v)).collect();
        let mut keys = Vec::new();
        for (k, &next) in next.iter().enumerate() {
            let changes = numbers.of(scan.params()[1][k]) != next;
            // Those that begin to change are told apart by what they begin with.
            let fresh = scan.carry.iter().position(|&v| v == scan.carry[k]);
            keys.push(match now.classes[k] {
                None if !changes => None,
                None => Some((now.count + fresh.unwrap_or(k), next)),
                Some(class) => Some((class, next)),
            });
        }
        let refined = CarryPartition::by_key(keys);
        if refined == now {
            return now;
        }
        now = refined;
    }
}

/// The loop with equal carries merged, those that never change captured, and stacks that are equal or are scanned
/// operands left out. `outer` is the function that the loop is in.
pub(super) fn refined(outer: &Function, scan: &ScanBody) -> Result<RefinedScan, Diagnostic> {
    let partition = partition(scan);
    let mut numbers = numbered(scan, &partition);
    let f = &scan.body;
    let [captures, carry, xs] = scan.params();
    let mut b = Builder::new(f.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    let mut copier = Copier::new(f);
    captures.iter().for_each(|&p| copier.param(&mut b, p));
    let mut outside = scan.captures.clone();
    for (k, &p) in carry.iter().enumerate().filter(|(k, _)| partition.is_invariant(*k)) {
        match outer.literal(scan.carry[k]) {
            Some(l) => {
                let new = b.literal(f.ty(p), l);
                copier.set(p, new);
            }
            None => {
                outside.push(scan.carry[k]);
                copier.param(&mut b, p);
            }
        }
    }
    let leaders: Vec<usize> = (0..carry.len()).map(|k| partition.leader(k)).collect();
    let mut results = Vec::new();
    let mut kept: Vec<usize> = Vec::new();
    for (k, &p) in carry.iter().enumerate() {
        if partition.is_invariant(k) {
            results.push(LoopOutcome::Outside(scan.carry[k]));
            continue;
        }
        let place = kept.iter().position(|&j| j == leaders[k]).unwrap_or_else(|| {
            kept.push(k);
            copier.param(&mut b, p);
            kept.len() - 1
        });
        let new = copier.get(&mut b, carry[kept[place]]);
        copier.set(p, new);
        results.push(LoopOutcome::Carry(place));
    }
    xs.iter().for_each(|&p| copier.param(&mut b, p));
    for &i in f.body_insts() {
        copier.inst(&mut b, i);
    }
    let (next, stacks) = f.results().split_at(carry.len());
    let (stacked, outcomes) = distinct_stacks(scan, &mut numbers, stacks);
    results.extend(outcomes);
    let ends = kept.iter().map(|&k| next[k]).chain(stacked);
    let ends: Vec<Value> = ends.map(|v| copier.get(&mut b, v)).collect();
    b.set_results(&ends);
    let body = b.finish()?;
    let carry = kept.iter().map(|&k| scan.carry[k]).collect();
    let scan = ScanBody { captures: outside, carry, body, ..scan.clone() };
    Ok(RefinedScan { scan: scan.tidied()?, results, leaders })
}

/// Each stack once, without those that are scanned operands, and where each comes from.
fn distinct_stacks(
    scan: &ScanBody,
    numbers: &mut Numbering<'_>,
    stacks: &[Value],
) -> (Vec<Value>, Vec<LoopOutcome>) {
    let [captures, _, xs] = scan.params();
    let (mut kept, mut known, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
    for &y in stacks {
        let n = numbers.of(y);
        let scanned = xs.iter().position(|&x| numbers.of(x) == n);
        if let Some(ScannedInput::Elements(v)) = scanned.map(|k| scan.xs[k]) {
            outcomes.push(LoopOutcome::Outside(v));
            continue;
        }
        if let Some(k) = captures.iter().position(|&c| numbers.of(c) == n) {
            outcomes.push(LoopOutcome::Repeated(scan.captures[k]));
            continue;
        }
        let place = known.iter().position(|&s| s == n).unwrap_or_else(|| {
            known.push(n);
            kept.push(y);
            known.len() - 1
        });
        outcomes.push(LoopOutcome::Stack(place));
    }
    (kept, outcomes)
}

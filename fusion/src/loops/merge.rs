//! Loops that compute the same carries become one loop.
//!
//! Two loops of a region may run as one if they take the same steps in the same direction and neither depends on the
//! other. They are merged if they have a carry in common, or if one has no carry and they compute something in common:
//! what both compute is then computed once, and everything that either stacks is stacked by one loop.

use super::hoist::hoist_invariants;
use super::numbering::{merge_equal, reads};
use super::refine::{RefinedScan, refined};
use super::scan_body::ScanBody;
use super::uniform::uniform_elements;
use adfuse_ir::control::{LoopRoles, prune};
use adfuse_ir::op::{Body, Bounds, Control};
use adfuse_ir::rewrite::{Copier, Each};
use adfuse_ir::{Builder, Diagnostic, Function, Inst, Region, Value};
use cranelift_entity::EntitySet;

/// How often loops are made simpler before merging goes on.
const ROUNDS: usize = 16;

/// The function with loops that compute the same carries merged; the bits of its results stay.
///
/// In each loop that scans a known number of steps, what does not change from step to step is computed before the loop,
/// equal carries are merged, a carry that never changes is captured, and what nothing reads is removed. Loops without a
/// known number of steps and `adjoint`s stay as they are, and so do loops with effects.
///
/// # Errors
/// Those of construction, which a verified function does not have.
pub fn merge_loops(f: &Function) -> Result<Function, Diagnostic> {
    let mut f = prune(f)?;
    merge_equal(&mut f);
    loop {
        // What leaves one loop may let another be simpler.
        for _ in 0..ROUNDS {
            let before = f.to_string();
            let scans = foris_with_partners(&f);
            let each: Each<'_> = &mut |copier, b, i| tidy(&scans, copier, b, i);
            f = prune(&Copier::new(&f).rebuild(each)?)?;
            merge_equal(&mut f);
            if f.to_string() == before {
                break;
            }
        }
        let Some(pair) = mergeable(&f, f.body())? else { return Ok(f) };
        f = Copier::new(&f).rebuild(&mut |copier, b, i| pair.place(copier, b, i))?;
    }
}

/// Takes back the instruction that was placed last.
pub(super) fn take_back(b: &mut Builder, i: Inst) {
    let region = b.region();
    let last = b.func_mut().region_mut(region).insts.pop();
    debug_assert_eq!(last, Some(i), "nothing follows it");
}

/// The loops between constants that become scans, since a scan beside them takes as many steps from one of their
/// initial values.
fn foris_with_partners(f: &Function) -> EntitySet<Inst> {
    let mut found = EntitySet::new();
    each_region(f, &mut |f, region| {
        let loops: Vec<(Inst, ScanBody)> =
            f.region(region).insts.iter().filter_map(|&i| Some((i, ScanBody::of(f, i)?))).collect();
        for (i, own) in loops.iter().filter(|(i, _)| LoopRoles::at(f, *i).index()) {
            let partner = |(j, other): &&(Inst, ScanBody)| {
                !LoopRoles::at(f, *j).index() && may_share(own, other)
            };
            if loops.iter().any(|l| partner(&l)) {
                found.insert(*i);
            }
        }
    });
    found
}

/// Calls `visit` for every region of a function.
fn each_region(f: &Function, visit: &mut dyn FnMut(&Function, Region)) {
    visit(f, f.body());
    f.walk(&mut |f, i| f.inst(i).regions.iter().for_each(|&r| visit(f, r)));
}

/// Copies an instruction; a loop with what is invariant before it, and with each carry and stack once.
fn tidy(
    foris: &EntitySet<Inst>,
    copier: &mut Copier<'_>,
    b: &mut Builder,
    i: Inst,
) -> Result<(), Diagnostic> {
    let from = copier.from();
    let new = copier.inst_with(b, i, &mut |copier, b, i| tidy(foris, copier, b, i))?;
    let chosen = foris.contains(i)
        || matches!(from.op(i).control(), Some(Control::Loop(row)) if row.bounds == Bounds::Length);
    let scan = if chosen { ScanBody::of(b.func(), new) } else { None };
    let Some(scan) = scan else { return Ok(()) };
    take_back(b, new);
    let scan = uniform_elements(b.func(), scan)?;
    let mut once = refined(b.func(), &scan)?;
    once.scan = hoist_invariants(once.scan, b)?;
    b.follow(from, i);
    let placed = once.scan.place(b);
    let results = once.outcomes(b, &placed);
    copier.stand_for(b, from.inst_results(i), &results);
    Ok(())
}

/// Two loops that become one.
struct LoopPair {
    first: Inst,
    second: Inst,
    /// What the second depends on between the two.
    between: Vec<Inst>,
    merged: RefinedScan,
    /// Carries and stacks of each.
    carries: [usize; 2],
    stacks: [usize; 2],
}

impl LoopPair {
    fn place(&self, copier: &mut Copier<'_>, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        if i == self.second || self.between.contains(&i) {
            return Ok(());
        }
        if i != self.first {
            copier.inst_with(b, i, &mut |copier, b, i| self.place(copier, b, i))?;
            return Ok(());
        }
        for &i in &self.between {
            copier.inst(b, i);
        }
        let from = copier.from();
        let merged = self.merged.mapped(&mut |v| copier.get(b, v));
        b.follow(from, i);
        let placed = merged.scan.place(b);
        let all = merged.outcomes(b, &placed);
        let (carries, stacks) = all.split_at(self.carries[0] + self.carries[1]);
        let (a, c) = carries.split_at(self.carries[0]);
        let (s, t) = stacks.split_at(self.stacks[0]);
        copier.stand_for(b, from.inst_results(self.first), &[a, s].concat());
        copier.stand_for(b, from.inst_results(self.second), &[c, t].concat());
        Ok(())
    }
}

/// The first pair of loops in a region, or in one of its regions, that are to be merged.
fn mergeable(f: &Function, region: Region) -> Result<Option<LoopPair>, Diagnostic> {
    let insts = &f.region(region).insts;
    let mut before: Vec<(usize, ScanBody)> = Vec::new();
    for (at, &i) in insts.iter().enumerate() {
        for &r in &f.inst(i).regions {
            if let Some(pair) = mergeable(f, r)? {
                return Ok(Some(pair));
            }
        }
        let Some(own) = ScanBody::of(f, i) else { continue };
        for (start, other) in &before {
            let pair = (insts[*start], i);
            // What one of them reads may be of a later phase than the other.
            let phase = other.place_phase(f).max(own.place_phase(f));
            // What a checkpoint region computes again is not kept from before.
            let again = f.path(pair.0).is_again() != f.path(i).is_again();
            if again || !may_share(other, &own) || phase > other.phase.min(own.phase) {
                continue;
            }
            let Some(between) = independent(f, &insts[*start..at], i) else { continue };
            let joined = joined(other, &own)?;
            let merged = refined(f, &joined)?;
            if !shares(other, &own, &joined, &merged) {
                continue;
            }
            let carries = [other.carry.len(), own.carry.len()];
            let stacks = [other.stacks(), own.stacks()];
            let (first, second) = pair;
            return Ok(Some(LoopPair { first, second, between, merged, carries, stacks }));
        }
        before.push((at, own));
    }
    Ok(None)
}

/// For each stack of a loop whether another loop, were they merged, has it too.
pub(super) fn common_stacks(
    f: &Function,
    other: &ScanBody,
    own: &ScanBody,
) -> Result<Vec<bool>, Diagnostic> {
    if !may_share(other, own) {
        return Ok(vec![false; own.stacks()]);
    }
    let merged = refined(f, &joined(other, own)?)?;
    let stacks = &merged.results[other.carry.len() + own.carry.len()..];
    let (theirs, ours) = stacks.split_at(other.stacks());
    Ok(ours.iter().map(|s| theirs.contains(s)).collect())
}

/// Whether two loops take the same steps, and begin with or scan something in common.
fn may_share(a: &ScanBody, b: &ScanBody) -> bool {
    let begin = a.carry.iter().any(|v| b.carry.contains(v));
    let scan = (a.carry.is_empty() || b.carry.is_empty()) && a.xs.iter().any(|x| b.xs.contains(x));
    a.trips == b.trips && a.reverse == b.reverse && (begin || scan)
}

/// The instructions among `before` that an instruction depends on, if the first of them is not one.
fn independent(f: &Function, before: &[Inst], i: Inst) -> Option<Vec<Inst>> {
    let mut needed: EntitySet<Value> = EntitySet::new();
    needed.extend(reads(f, i));
    let mut found = Vec::new();
    for &j in before.iter().rev() {
        if f.inst_results(j).iter().any(|&v| needed.contains(v)) {
            needed.extend(reads(f, j));
            found.push(j);
        }
    }
    found.reverse();
    (found.first() != before.first()).then_some(found)
}

/// One loop that does what two do, nothing merged yet: carries of both, then stacks of both.
fn joined(a: &ScanBody, c: &ScanBody) -> Result<ScanBody, Diagnostic> {
    let mut b = Builder::new(a.body.name.clone());
    b.func_mut().symbols = a.body.symbols.clone();
    let (mut into_a, mut into_c) = (Copier::new(&a.body), Copier::new(&c.body));
    for role in 0..3 {
        a.params()[role].iter().for_each(|&p| into_a.param(&mut b, p));
        c.params()[role].iter().for_each(|&p| into_c.param(&mut b, p));
    }
    let mut ends = [Vec::new(), Vec::new()];
    for (copier, scan) in [(&mut into_a, a), (&mut into_c, c)] {
        for &i in scan.body.body_insts() {
            copier.inst(&mut b, i);
        }
        for (k, &v) in scan.body.results().iter().enumerate() {
            ends[usize::from(k >= scan.carry.len())].push(copier.get(&mut b, v));
        }
    }
    b.set_results(&ends.concat());
    Ok(ScanBody {
        captures: [&a.captures[..], &c.captures].concat(),
        carry: [&a.carry[..], &c.carry].concat(),
        xs: [&a.xs[..], &c.xs].concat(),
        body: b.finish()?,
        trips: a.trips,
        reverse: a.reverse,
        unroll: a.unroll.max(c.unroll),
        phase: a.phase.min(c.phase),
    })
}

/// Whether two loops compute something in common once they are one.
fn shares(a: &ScanBody, c: &ScanBody, joined: &ScanBody, merged: &RefinedScan) -> bool {
    let carries = a.carry.len();
    if (carries..joined.carry.len()).any(|k| merged.leaders[k] < carries) {
        return true;
    }
    let count = |f: &Function| {
        let computed = |i: &&Inst| {
            !matches!(f.op(**i).def().body, Body::View(_) | Body::Source(_) | Body::Constant)
        };
        f.body_insts().iter().filter(computed).count()
    };
    let no_carry = a.carry.is_empty() || c.carry.is_empty();
    no_carry && count(&merged.scan.body) < count(&a.body) + count(&c.body)
}

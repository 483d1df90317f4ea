//! Order of what is computed again: instructions that a checkpoint region has computed again for a later phase run no
//! sooner than that phase needs them.
//!
//! Such an instruction reads nothing of its phase, so that it could run in the forward pass, and its result would be
//! kept after all. So it waits for a value that its first reader reads beside it, a cotangent as a rule. It may run in
//! the kernel that computes this value.

use adfuse_ir::control::reads;
use adfuse_ir::{CheckpointPath, Function, Inst, Phase, ScopeKind, Value, ValueDef};
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// Whether a checkpoint policy keeps the results of an instruction for later phases.
pub(crate) fn is_kept(f: &Function, i: Inst) -> bool {
    f.path(i).innermost() == Some(ScopeKind::Named)
}

/// For each instruction that computes again the value that it waits for, if there is one.
pub(crate) fn awaited(f: &Function) -> SecondaryMap<Inst, Option<Value>> {
    let mut after: SecondaryMap<Inst, Option<Value>> = SecondaryMap::new();
    if !f.body_insts().iter().any(|&i| f.path(i).is_again()) {
        return after;
    }
    let mut place: SecondaryMap<Inst, u32> = SecondaryMap::new();
    let mut users: SecondaryMap<Value, SmallVec<[Inst; 4]>> = SecondaryMap::new();
    // Whether an instruction depends on nothing of its phase but what is computed again.
    let mut apart: SecondaryMap<Inst, bool> = SecondaryMap::new();
    for (&i, at) in f.body_insts().iter().zip(0..) {
        place[i] = at;
        let read = reads(f, i);
        let late = || read.iter().filter_map(|&a| later(f, a));
        let asked = f.path(i).is_again() || late().next().is_some();
        apart[i] = asked && late().all(|j| apart[j]);
        read.iter().for_each(|&a| users[a].push(i));
    }
    let made_at = |v: Value| later(f, v).map_or(0, |i| place[i]);
    for &i in f.body_insts().iter().rev().filter(|i| apart[**i]) {
        let readers = f.inst_results(i).iter().flat_map(|&v| &users[v]);
        let waits = readers.filter_map(|&u| match apart[u] {
            true => after[u],
            false => {
                let beside = reads(f, u).into_iter();
                let live = |&v: &Value| later(f, v).is_some_and(|j| !apart[j]);
                beside.filter(live).max_by_key(|&v| made_at(v))
            }
        });
        // The earliest of them does not depend on this instruction.
        let first = waits.min_by_key(|&v| made_at(v));
        after[i] = first.filter(|&v| made_at(v) < place[i]);
    }
    after
}

/// The instruction of a later phase than the first that computes a value.
fn later(f: &Function, v: Value) -> Option<Inst> {
    match f.def(v) {
        ValueDef::Inst(i, _) if f.inst(i).phase > Phase::PRIMAL => Some(i),
        _ => None,
    }
}

/// The innermost checkpoint region around the instruction that computes a value and all that read it, for the values of
/// the body. What a policy keeps by name stays in its scope whoever reads it, and results are in no region.
pub(crate) fn scopes(f: &Function) -> SecondaryMap<Value, CheckpointPath> {
    let mut scope: SecondaryMap<Value, CheckpointPath> = SecondaryMap::new();
    let mut results = EntitySet::new();
    results.extend(f.results().iter().copied());
    let named = |path: &CheckpointPath| path.innermost() == Some(ScopeKind::Named);
    for &i in f.body_insts() {
        for &v in f.inst_results(i) {
            if !results.contains(v) || named(f.path(i)) {
                scope[v] = f.path(i).clone();
            }
        }
        for a in reads(f, i) {
            if !scope[a].is_empty() && !named(&scope[a]) {
                scope[a] = scope[a].common(f.path(i));
            }
        }
    }
    scope
}

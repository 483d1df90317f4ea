//! Order of what is computed again: instructions that a checkpoint region has computed again for a later phase run no
//! sooner than that phase needs them.
//!
//! Such an instruction reads nothing of its phase, so that it could run in the forward pass, and its result would be
//! kept after all. So it waits for a value that its first reader reads beside it, a cotangent as a rule. It may run in
//! the kernel that computes this value.

use super::class::InstClass;
use super::facts::Facts;
use super::leaves::leaves;
use adfuse_ir::control::reads;
use adfuse_ir::{Function, Inst, Phase, ScopeKind, Value, ValueDef};
use cranelift_entity::SecondaryMap;
use smallvec::{SmallVec, smallvec};

/// Whether an instruction computes again what an earlier phase has computed.
pub(crate) fn is_again(f: &Function, i: Inst) -> bool {
    f.path(i).innermost() == Some(ScopeKind::Again)
}

/// Whether a checkpoint policy keeps the results of an instruction for later phases.
pub(crate) fn is_kept(f: &Function, i: Inst) -> bool {
    f.path(i).innermost() == Some(ScopeKind::Named)
}

/// For each instruction that computes again the value that it waits for, if there is one.
pub(crate) fn awaited(
    f: &Function,
    users: &SecondaryMap<Value, SmallVec<[Inst; 4]>>,
) -> SecondaryMap<Inst, Option<Value>> {
    let mut after: SecondaryMap<Inst, Option<Value>> = SecondaryMap::new();
    if !f.body_insts().iter().any(|&i| is_again(f, i)) {
        return after;
    }
    let mut place: SecondaryMap<Inst, u32> = SecondaryMap::new();
    // Whether an instruction depends on nothing of its phase but what is computed again.
    let mut apart: SecondaryMap<Inst, bool> = SecondaryMap::new();
    for (&i, at) in f.body_insts().iter().zip(0..) {
        place[i] = at;
        let read = reads(f, i);
        let late = || read.iter().filter_map(|&a| later(f, a));
        apart[i] = is_again(f, i) || late().next().is_some() && late().all(|j| apart[j]);
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
        after[i] = waits.min_by_key(|&v| made_at(v));
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

impl Facts<'_> {
    /// Values that an instruction does not read and that must have been computed before it runs, or in its kernel.
    pub(crate) fn order(&self, i: Inst) -> SmallVec<[Value; 8]> {
        match self.after[i].filter(|_| is_again(self.f, i)) {
            None => SmallVec::new(),
            Some(v) => match self.f.def(v) {
                ValueDef::Inst(j, _) if self.class[j] == InstClass::Free => leaves(self, j),
                _ => smallvec![v],
            },
        }
    }
}

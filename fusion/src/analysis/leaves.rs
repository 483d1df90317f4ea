//! The values that an instruction reads from memory.

use super::class::InstClass;
use super::facts::Facts;
use adfuse_ir::control::reads;
use adfuse_ir::{Function, Inst, Value, ValueDef};
use smallvec::{SmallVec, smallvec};

/// What an instruction reads once free ones are written out, constants apart.
pub(crate) fn leaves(facts: &Facts<'_>, i: Inst) -> SmallVec<[Value; 8]> {
    leaves_under(facts.f, i, |j| facts.class[j] == InstClass::Free)
}

/// Values that an instruction does not read and that must have been computed before it runs, or in its kernel: what a
/// recomputation waits for.
pub(crate) fn order(facts: &Facts<'_>, i: Inst) -> SmallVec<[Value; 8]> {
    match facts.after[i].filter(|_| facts.f.path(i).is_again()) {
        None => SmallVec::new(),
        Some(v) => match facts.f.def(v) {
            ValueDef::Inst(j, _) if facts.class[j] == InstClass::Free => leaves(facts, j),
            _ => smallvec![v],
        },
    }
}

/// As [`leaves`], where `free` says what is written out.
pub(crate) fn leaves_under(
    f: &Function,
    i: Inst,
    free: impl Fn(Inst) -> bool,
) -> SmallVec<[Value; 8]> {
    let (mut found, mut seen) = (SmallVec::new(), SmallVec::<[Inst; 8]>::new());
    let mut stack: SmallVec<[Inst; 8]> = SmallVec::from_iter([i]);
    while let Some(i) = stack.pop() {
        for a in reads(f, i) {
            match f.def(a) {
                ValueDef::Literal(_) => {}
                ValueDef::Inst(j, _) if free(j) => {
                    if !seen.contains(&j) {
                        seen.push(j);
                        stack.push(j);
                    }
                }
                _ if found.contains(&a) => {}
                _ => found.push(a),
            }
        }
    }
    found
}

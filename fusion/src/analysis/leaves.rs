//! The values that an instruction reads from memory.

use super::class::InstClass;
use super::facts::Facts;
use adfuse_ir::control::reads;
use adfuse_ir::{Function, Inst, Value, ValueDef};
use smallvec::SmallVec;

/// What an instruction reads once free ones are written out, constants apart.
pub(crate) fn leaves(facts: &Facts<'_>, i: Inst) -> SmallVec<[Value; 8]> {
    leaves_under(facts.f, i, |j| facts.class[j] == InstClass::Free)
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

//! The order of effects and exchanges in plans: that of the function, each once.

use super::instances::members;
use crate::analysis::class::is_in_no_group;
use crate::plan::Plan;
use adfuse_ir::verify::at_inst;
use adfuse_ir::{Diagnostic, Function, Inst, Kind};
use cranelift_entity::EntitySet;

/// Checks that a plan has every effect and every exchange between ranks once, and all of them in the order of the function. Steps run one after the other,
/// so nothing else is needed to keep that order.
///
/// # Errors
/// [`Kind::Usage`] with the effect that is repeated, or that another should come before.
pub(super) fn in_order(f: &Function, plan: &Plan) -> Result<(), Diagnostic> {
    let acts = |i: &Inst| f.is_ordered(*i) && !is_in_no_group(f.op(*i).def().body);
    let mut due = f.body_insts().iter().copied().filter(acts);
    let mut done = EntitySet::<Inst>::new();
    for i in members(plan).filter(acts) {
        let wrong = |m: &str| Err(Diagnostic::new(at_inst(f, i), Kind::Usage, m));
        if done.contains(i) {
            return wrong("an effect or an exchange happens once, and the plan repeats it");
        }
        match due.next() {
            Some(next) if next == i => {}
            Some(next) if !members(plan).any(|j| j == next) => {
                let m = "no group of the plan computes this";
                return Err(Diagnostic::new(at_inst(f, next), Kind::Usage, m));
            }
            _ => return wrong("the plan changes the order of effects and exchanges"),
        }
        done.insert(i);
    }
    Ok(())
}

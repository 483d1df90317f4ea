//! Steps that the host takes: effects and calls of user functions, in the order of the program.

use super::instances::members;
use super::{Lower, is_stored};
use crate::plan::Plan;
use adfuse_ir::kernel::{Buffer, DebugPrint, Library, Step};
use adfuse_ir::op::{Body, Effect};
use adfuse_ir::verify::at_inst;
use adfuse_ir::{Diagnostic, Function, Inst, Kind};
use cranelift_entity::EntitySet;

/// Checks that a plan has every effect once, and all of them in the order of the function. Steps run one after the other,
/// so nothing else is needed to keep that order.
///
/// # Errors
/// [`Kind::Usage`] with the effect that is repeated, or that another should come before.
pub(super) fn in_order(f: &Function, plan: &Plan) -> Result<(), Diagnostic> {
    let acts = |i: &Inst| f.has_effect(*i) && !is_start(f, *i);
    let mut due = f.body_insts().iter().copied().filter(acts);
    let mut done = EntitySet::<Inst>::new();
    for i in members(plan).filter(acts) {
        let wrong = |m: &str| Err(Diagnostic::new(at_inst(f, i), Kind::Usage, m));
        if done.contains(i) {
            return wrong("an effect happens once, and the plan repeats it");
        }
        if due.next() != Some(i) {
            return wrong("the plan changes the order of effects");
        }
        done.insert(i);
    }
    Ok(())
}

/// Whether an instruction begins a chain of effects.
fn is_start(f: &Function, i: Inst) -> bool {
    matches!(f.op(i).def().body, Body::Effect(Effect::Start))
}

impl Lower<'_> {
    /// The step of an effect.
    pub(super) fn effect(&mut self, i: Inst) -> Result<Step, Diagnostic> {
        let f = self.facts.f;
        let (label, from) = (f.attrs(i).text("label").into(), self.scalar(i, f.args(i)[1])?);
        Ok(Step::Print(DebugPrint { label, from }))
    }

    /// The step of a user function; what it reads and its one result are in buffers.
    pub(super) fn opaque(&mut self, i: Inst) -> Result<Step, Diagnostic> {
        let f = self.facts.f;
        let mut inputs: Vec<Buffer> = Vec::new();
        for &v in f.args(i).iter().filter(|v| is_stored(f, **v)) {
            inputs.push(self.scalar(i, v)?);
        }
        let outputs = self.results_of(i, 0..f.inst_results(i).len())?;
        let attrs = f.attrs(i);
        // The schema has no negative ones.
        let fact = |name| attrs.int(name).unsigned_abs();
        Ok(Step::Library(Library {
            function: attrs.text("name").into(),
            inputs,
            outputs,
            scratch: fact("scratch"),
            operations: fact("operations"),
            bytes: fact("bytes"),
        }))
    }
}

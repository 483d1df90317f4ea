//! Steps that are one instruction: effects, calls of user functions, attention.

use super::{Lower, is_stored};
use crate::analysis::class::PartKind;
use adfuse_ir::kernel::{Attend, Buffer, DebugPrint, Library, Step};
use adfuse_ir::{Diagnostic, Inst, Op};

impl Lower<'_> {
    /// The step of a part that is one instruction and no loops over elements.
    pub(super) fn whole(&mut self, kind: PartKind) -> Result<Option<Step>, Diagnostic> {
        Ok(Some(match kind {
            PartKind::Control(i) => self.control(i)?,
            PartKind::Attention(i) => self.attention(i)?,
            PartKind::Opaque(i) => self.opaque(i)?,
            PartKind::Effect(i) => self.effect(i)?,
            PartKind::Kernel
            | PartKind::Contract(_)
            | PartKind::Scatter(_)
            | PartKind::Argsort(_) => return Ok(None),
        }))
    }

    /// The step of an effect.
    pub(super) fn effect(&mut self, i: Inst) -> Result<Step, Diagnostic> {
        let f = self.facts.f;
        let (label, from) = (f.attrs(i).text("label").into(), self.scalar(i, f.args(i)[1])?);
        Ok(Step::Print(DebugPrint { label, from }))
    }

    /// The step of attention, or of its way back.
    pub(super) fn attention(&mut self, i: Inst) -> Result<Step, Diagnostic> {
        let f = self.facts.f;
        let mut inputs: Vec<Buffer> = Vec::new();
        for &v in f.args(i) {
            inputs.push(self.scalar(i, v)?);
        }
        let outputs = self.results_of(i, 0..f.inst_results(i).len())?;
        let (backward, causal) = (f.op(i) == Op::AttentionGrad, f.attrs(i).flag("causal"));
        Ok(Step::Attend(Attend { backward, causal, inputs, outputs }))
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

//! Steps that are one instruction: effects, calls of user functions, attention, exchanges between ranks.

use super::{Lower, is_stored};
use crate::analysis::class::PartKind;
use adfuse_ir::kernel::{Attend, Buffer, DebugPrint, Exchange, ExchangeKind, Library, Step};
use adfuse_ir::op::AttentionReach;
use adfuse_ir::verify::at_inst;
use adfuse_ir::{Diagnostic, Inst, Kind, Op};

impl Lower<'_> {
    /// The step of a part that is one instruction and no loops over elements.
    pub(super) fn whole(&mut self, kind: PartKind) -> Result<Option<Step>, Diagnostic> {
        Ok(Some(match kind {
            PartKind::Control(i) => self.control(i)?,
            PartKind::Attention(i) => self.attention(i)?,
            PartKind::Opaque(i) => self.opaque(i)?,
            PartKind::Exchange(i) => self.exchange(i)?,
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

    /// The step of an exchange between ranks, which is one of those that engines have.
    fn exchange(&mut self, i: Inst) -> Result<Step, Diagnostic> {
        let f = self.facts.f;
        let attrs = f.attrs(i);
        let first = |name| attrs.int(name) == 0;
        // The schema has small numbers alone.
        let number = |name| attrs.int(name) as u32;
        let kind = match f.op(i) {
            Op::AllGather if first("axis") => ExchangeKind::AllGather,
            Op::AllToAll if first("split") && first("concat") => ExchangeKind::AllToAll,
            Op::Broadcast => ExchangeKind::Broadcast { root: number("root") },
            Op::AxisIndex => ExchangeKind::Index,
            op => {
                let m = format!("`{op}` is not written in exchanges");
                return Err(Diagnostic::new(at_inst(f, i), Kind::Unsupported, m));
            }
        };
        let from = f.args(i).first().map(|&v| self.scalar(i, v)).transpose()?;
        let to = self.results_of(i, 0..1)?[0];
        let (over, ranks) = (attrs.text("over").into(), number("ranks"));
        Ok(Step::Exchange(Exchange { kind, over, ranks, from, to }))
    }

    /// The step of attention, or of its way back.
    pub(super) fn attention(&mut self, i: Inst) -> Result<Step, Diagnostic> {
        let f = self.facts.f;
        let mut inputs: Vec<Buffer> = Vec::new();
        for &v in f.args(i) {
            inputs.push(self.scalar(i, v)?);
        }
        let outputs = self.results_of(i, 0..f.inst_results(i).len())?;
        let (backward, reach) = (f.op(i) == Op::AttentionGrad, AttentionReach::of(f.attrs(i)));
        Ok(Step::Attend(Attend { backward, reach, inputs, outputs }))
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

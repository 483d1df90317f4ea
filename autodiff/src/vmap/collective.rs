//! Collectives over a batch: those over the batch's own axis are ordinary ops, whose elements are the ranks; those over
//! another axis take the batch along.

use super::Batch;
use super::flow::depends;
use adfuse_ir::op::Collective;
use adfuse_ir::rewrite::over_batch;
use adfuse_ir::{Builder, Diagnostic, Dim, Inst, Kind, Value};

impl Batch<'_, '_> {
    /// Places a collective over the ranks that the batch is of; `None` for other instructions.
    pub(super) fn over_ranks(
        &mut self,
        b: &mut Builder,
        i: Inst,
    ) -> Result<Option<Vec<Value>>, Diagnostic> {
        let f = self.f;
        let Some(which) = f.op(i).collective() else { return Ok(None) };
        let attrs = f.attrs(i);
        let name = attrs.text("over");
        if self.batching.name.as_deref() != Some(name) {
            return Ok(None);
        }
        let ranks = attrs.int("ranks");
        if self.size() != Dim::Const(ranks as u64) {
            let m = format!(
                "`{}` is over {ranks} ranks, the batch `{name}` has {}",
                f.op(i),
                self.size()
            );
            return Err(self.error(i, Kind::Shape, m));
        }
        // A batch of one rank whose operand is shared is like any other.
        let x = f.args(i).first().map(|&x| self.batched(b, x));
        let x = match which {
            Collective::Index => None,
            _ => x,
        };
        Ok(Some(vec![over_batch(b, which, attrs, x)]))
    }

    /// Refuses a call of a function that exchanges over the batch: it is called for one element at a time.
    pub(super) fn refuse_exchanges(&self, i: Inst) -> Result<(), Diagnostic> {
        let callee = self.f.attrs(i).text("func");
        let Some(callee) = self.module.find(callee) else { return Ok(()) };
        let mut found = None;
        for g in std::iter::once(callee).chain(self.module.reached(callee).funcs.values()) {
            let own = |j: &Inst| depends(g, self.batching, *j).is_some();
            found = found.or_else(|| g.body_insts().iter().copied().find(own).map(|j| g.op(j)));
        }
        let Some(op) = found else { return Ok(()) };
        let m = format!("@{} has a rule, and a `{op}` over the batch", callee.name);
        let hint = "exchange before or after the call";
        Err(self.error(i, Kind::Unsupported, m).hint(hint))
    }
}

//! Slices written at places of each element's own: a scatter, in which each has a row to itself.

use super::Batch;
use adfuse_ir::{Attr, Attrs, Builder, DType, Diagnostic, Inst, Op, Value};

impl Batch<'_, '_> {
    /// Places a `dynamic_update_slice` of which a start depends on the batch.
    pub(super) fn updates(&mut self, b: &mut Builder, i: Inst) -> Result<Value, Diagnostic> {
        let f = self.f;
        let (x, u, starts) = (f.args(i)[0], f.args(i)[1], &f.args(i)[2..]);
        let rank = starts.len() as i64;
        let at = self.starts(b, starts);
        let at = self.with_place(b, i, at)?;
        let (mut x, mut u) = (self.batched(b, x), self.batched(b, u));
        let ty = self.type_of(f.inst_results(i)[0]);
        // Truth values do not scatter.
        let whole = if ty.dtype == DType::Bool { ty.with_dtype(DType::U8) } else { ty.clone() };
        if whole != ty {
            let small = b.ty(u).with_dtype(whole.dtype);
            x = b.op_as(Op::ConvertElementType, &[x], Attrs::none(), &whole);
            u = b.op_as(Op::ConvertElementType, &[u], Attrs::none(), &small);
        }
        let attrs = Attrs::none()
            .with_ints("window_dims", 1..=rank)
            .with_ints("inserted", [0])
            .with_ints("start_map", 0..=rank)
            .with("mode", Attr::Word("clip"));
        let out = b.op_as(Op::Scatter, &[x, at, u], attrs, &whole);
        if whole == ty {
            return Ok(out);
        }
        Ok(b.op_as(Op::ConvertElementType, &[out], Attrs::none(), &ty))
    }
}

//! Slices written at places of each element's own. There is no op that overwrites at many places, so
//! what is overwritten is cleared first, by a mask, and then added to.

use super::Batch;
use adfuse_ir::{
    Attr, Attrs, Builder, DType, Diagnostic, Inst, Kind, Literal, Op, TensorType, Value,
};

impl Batch<'_, '_> {
    /// Places a `dynamic_update_slice` of which a start depends on the batch.
    pub(super) fn updates(&mut self, b: &mut Builder, i: Inst) -> Result<Value, Diagnostic> {
        let f = self.f;
        let (x, u, starts) = (f.args(i)[0], f.args(i)[1], &f.args(i)[2..]);
        let rank = starts.len() as i64;
        let inside = self.covered(b, i)?;
        let at = self.starts(b, starts);
        let at = self.with_place(b, i, at)?;
        let (mut x, mut u) = (self.batched(b, x), self.batched(b, u));
        let ty = self.type_of(f.inst_results(i)[0]);
        // Truth values do not add.
        let sums = if ty.dtype == DType::Bool { ty.with_dtype(DType::U8) } else { ty.clone() };
        if sums != ty {
            let small = b.ty(u).with_dtype(sums.dtype);
            x = b.op_as(Op::ConvertElementType, &[x], Attrs::none(), &sums);
            u = b.op_as(Op::ConvertElementType, &[u], Attrs::none(), &small);
        }
        // What is added to -0 keeps its bits, -0 among them.
        let clear = match sums.dtype.is_float() {
            true => Literal::from_f64(sums.dtype, -0.0),
            false => Literal::zero(sums.dtype),
        };
        let clear = b.literal(&sums, clear);
        let rest = b.op_as(Op::SelectN, &[inside, x, clear], Attrs::none(), &sums);
        let attrs = Attrs::none()
            .with_ints("window_dims", 1..=rank)
            .with_ints("inserted", [0])
            .with_ints("start_map", 0..=rank)
            .with("mode", Attr::Word("clip"));
        let out = b.op_as(Op::ScatterAdd, &[rest, at, u], attrs, &sums);
        if sums == ty {
            return Ok(out);
        }
        Ok(b.op_as(Op::ConvertElementType, &[out], Attrs::none(), &ty))
    }

    /// Which elements of the batched operand are overwritten.
    fn covered(&mut self, b: &mut Builder, i: Inst) -> Result<Value, Diagnostic> {
        let f = self.f;
        let (whole, slice) = (f.ty(f.args(i)[0]).clone(), f.ty(f.args(i)[1]).clone());
        let places = self.type_of(f.inst_results(i)[0]).with_dtype(DType::I64);
        let flags = places.with_dtype(DType::Bool);
        let mut inside: Option<Value> = None;
        for (d, &start) in f.args(i)[2..].iter().enumerate() {
            if whole.shape[d] == slice.shape[d] {
                continue;
            }
            let (Some(n), Some(m)) = (whole.shape[d].known(), slice.shape[d].known()) else {
                let m = format!("axis {d} of {whole} must have a known extent");
                return Err(self.error(i, Kind::Unsupported, m));
            };
            let start = self.batched(b, start);
            let ty = b.ty(start).with_dtype(DType::I64);
            let start = b.op_as(Op::ConvertElementType, &[start], Attrs::none(), &ty);
            let number = |b: &mut Builder, ty: &TensorType, n: i64| {
                b.literal(ty, Literal::from_i64(ty.dtype, n))
            };
            let (low, high) = (number(b, &ty, 0), number(b, &ty, (n - m) as i64));
            let start = b.op_as(Op::Clamp, &[low, start, high], Attrs::none(), &ty);
            let dims = Attrs::none().with_ints("dims", [0]);
            let start = b.op_as(Op::BroadcastInDim, &[start], dims, &places);
            let along = Attrs::none().with_int("axis", d as i64 + 1);
            let place = b.op_as(Op::Iota, &[], along, &places);
            let from = b.op(Op::Sub, &[place, start]);
            let (none, end) = (number(b, &places, 0), number(b, &places, m as i64));
            for test in [b.op(Op::Ge, &[from, none]), b.op(Op::Lt, &[from, end])] {
                inside = Some(match inside {
                    Some(so_far) => b.op(Op::And, &[so_far, test]),
                    None => test,
                });
            }
        }
        let all = Literal::one(DType::Bool);
        Ok(inside.unwrap_or_else(|| b.literal(&flags, all)))
    }
}

//! Views over a batch: their axes shift. A value around what a view places that is each element's own is
//! selected, and slices of a batch of unknown extent are cuts and reshapes, which need no extent.

use super::{Batch, repeated};
use adfuse_ir::{Attrs, Builder, DType, Diagnostic, Inst, Kind, Literal, Op, TensorType, Value};

impl Batch<'_, '_> {
    /// Places a view.
    pub(super) fn view(&mut self, b: &mut Builder, i: Inst) -> Result<Vec<Value>, Diagnostic> {
        match self.f.op(i) {
            Op::Pad | Op::Unskew => self.around(b, i).map(|v| vec![v]),
            Op::Slice if self.size().known().is_none() => Ok(vec![self.slice(b, i)]),
            _ => self.shifted(b, i),
        }
    }

    /// A view that puts a scalar where it reads nothing.
    fn around(&mut self, b: &mut Builder, i: Inst) -> Result<Value, Diagnostic> {
        let f = self.f;
        let (x, value) = (f.args(i)[0], f.args(i)[1]);
        let attrs = super::attrs::shifted(f.op(i), f.attrs(i), self.size())
            .map_err(|m| self.error(i, Kind::Unsupported, m))?;
        let ty = self.type_of(f.inst_results(i)[0]);
        let wide = self.batched(b, x);
        if !self.is_mapped(value) {
            let value = self.values.get(b, value);
            return Ok(b.op_as(f.op(i), &[wide, value], attrs, &ty));
        }
        // Which elements are padding is the same for the whole batch.
        let dtype = f.ty(x).dtype;
        let zero = b.literal(&TensorType::scalar(dtype), Literal::zero(dtype));
        let padded = b.op_as(f.op(i), &[wide, zero], attrs, &ty);
        let truth = |b: &mut Builder, ty: &TensorType, bit: i64| {
            b.literal(&ty.with_dtype(DType::Bool), Literal::from_i64(DType::Bool, bit))
        };
        let inside = truth(b, f.ty(x), 1);
        let outside = truth(b, &TensorType::scalar(dtype), 0);
        let one = f.ty(f.inst_results(i)[0]).with_dtype(DType::Bool);
        let mask = b.op_as(f.op(i), &[inside, outside], f.attrs(i).clone(), &one);
        let mask = repeated(b, mask, 0, self.size());
        let value = self.values.get(b, value);
        let value =
            b.op_as(Op::BroadcastInDim, &[value], Attrs::none().with_ints("dims", [0]), &ty);
        Ok(b.op_as(Op::SelectN, &[mask, value, padded], Attrs::none(), &ty))
    }

    /// The slice as a cut, for strides a reshape that puts what is skipped on an axis of its own, and
    /// a cut of that axis.
    fn slice(&mut self, b: &mut Builder, i: Inst) -> Value {
        let f = self.f;
        let x = f.args(i)[0];
        let ty = f.ty(f.inst_results(i)[0]);
        let (start, stride) = (f.attrs(i).ints("start"), f.attrs(i).ints("stride"));
        let rank = start.len();
        let found = b.extents(f.ty(x));
        let due = b.extents(ty);
        let zero = b.literal(&TensorType::scalar(ty.dtype), Literal::zero(ty.dtype));
        let lead = |rest: Vec<i64>| std::iter::once(0).chain(rest);
        let end = |d: usize| start[d].saturating_add((due[d] as i64).saturating_mul(stride[d]));
        let attrs = Attrs::none()
            .with_ints("low", lead(start.iter().map(|s| -s).collect()))
            .with_ints("high", lead((0..rank).map(|d| end(d) - found[d] as i64).collect()))
            .with_ints("interior", lead(vec![0; rank]));
        let mut v = self.batched(b, x);
        v = b.op_with(Op::Pad, &[v, zero], attrs);
        if stride.iter().all(|&s| s == 1) {
            return v;
        }
        let mut apart = TensorType::new(ty.dtype, [self.size()]);
        for d in 0..rank {
            apart.shape.extend([due[d].into(), (stride[d] as u64).into()]);
        }
        v = b.op_as(Op::Reshape, &[v], Attrs::none(), &apart);
        let rest = (0..rank).flat_map(|d| [0, 1 - stride[d]]).collect();
        let attrs = Attrs::none()
            .with_ints("low", lead(vec![0; 2 * rank]))
            .with_ints("high", lead(rest))
            .with_ints("interior", lead(vec![0; 2 * rank]));
        v = b.op_with(Op::Pad, &[v, zero], attrs);
        let ty = self.type_of(f.inst_results(i)[0]);
        b.op_as(Op::Reshape, &[v], Attrs::none(), &ty)
    }
}

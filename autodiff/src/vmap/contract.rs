//! Contractions over a batch: a batch axis where both operands have it, a free one where one does.

use super::mask::select;
use super::{Batch, to_front, with_axis};
use crate::forward::zeros;
use adfuse_ir::attrs::Ints;
use adfuse_ir::{Attr, Attrs, Builder, Inst, Value};

impl Batch<'_, '_> {
    /// Places a contraction.
    pub(super) fn contract(&mut self, b: &mut Builder, i: Inst) -> Value {
        let f = self.f;
        let (args, attrs, result) = (f.args(i), f.attrs(i), f.inst_results(i)[0]);
        let mapped = [self.is_mapped(args[0]), self.is_mapped(args[1])];
        let mut values = [self.values.get(b, args[0]), self.values.get(b, args[1])];
        if let Some(mask) = self.lanes
            && let Some(k) = (0..2).find(|&k| mapped[k] && self.shares(args[1 - k]))
        {
            // The derivative by what all share sums products with these, which may be infinite for an element that
            // does not take the region: zero times infinity is NaN.
            let ty = b.ty(values[k]).clone();
            let zero = zeros(b, &ty);
            values[k] = select(b, mask, zero, values[k], &ty);
        }
        let moved = |axes: &[i64], k: usize| -> Ints {
            axes.iter().map(|a| a + i64::from(mapped[k])).collect()
        };
        let (batch, contract) = (attrs.pair("batch"), attrs.pair("contract"));
        let mut batches = [moved(batch.0, 0), moved(batch.1, 1)];
        let mut contracts = [moved(contract.0, 0), moved(contract.1, 1)];
        let free = |k: usize| f.ty(args[k]).rank() - batch.0.len() - contract.0.len();
        // Where the batch comes to lie in the result.
        let mut at = 0;
        if mapped[0] && mapped[1] {
            batches.iter_mut().for_each(|axes| axes.insert(0, 0));
        } else if mapped[0] || free(0) == 0 {
            at = batch.0.len();
        } else if free(1) == 0 {
            // Products commute: the other way round the batch comes first by itself.
            values.swap(0, 1);
            batches.swap(0, 1);
            contracts.swap(0, 1);
            at = batch.0.len();
        } else {
            at = batch.0.len() + free(0);
        }
        let [b0, b1] = batches;
        let [c0, c1] = contracts;
        let attrs =
            Attrs::none().with("batch", Attr::Pair(b0, b1)).with("contract", Attr::Pair(c0, c1));
        let ty = with_axis(f.ty(result), at, self.size());
        let out = b.op_as(f.op(i), &values, attrs, &ty);
        if b.error().is_some() { out } else { to_front(b, out, at) }
    }
}

//! Branches over a batch: they are batched where all elements take the same one, and all are
//! computed and selected from where they do not, gated so that derivatives are those of one branch.

use super::Batch;
use super::mask::{LaneMask, gated, select};
use adfuse_ir::control::{branch, captures};
use adfuse_ir::{
    Attrs, Builder, DType, Diagnostic, Function, Inst, Kind, Literal, Op, Region, TensorType, Value,
};

impl Batch<'_, '_> {
    /// Places a branch.
    pub(super) fn branch(&mut self, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        if self.is_mapped(self.f.args(i)[0]) { self.each(b, i) } else { self.one(b, i) }
    }

    /// All elements take the same branch.
    fn one(&mut self, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        let f = self.f;
        let results = f.inst_results(i);
        let predicate = self.values.get(b, f.args(i)[0]);
        let mut regions = Vec::new();
        for &r in &f.inst(i).regions {
            let new = b.open_region();
            for &j in &f.region(r).insts {
                self.inst(b, j)?;
            }
            b.set_phase(self.phase(i));
            let mut yields = Vec::new();
            for (&v, &result) in f.region(r).results.iter().zip(results) {
                let mapped = self.is_mapped(result);
                yields.push(if mapped { self.batched(b, v) } else { self.values.get(b, v) });
            }
            b.close_region(&yields);
            regions.push(new);
        }
        let types: Vec<TensorType> = results
            .iter()
            .map(|&v| if self.is_mapped(v) { self.type_of(v) } else { f.ty(v).clone() })
            .collect();
        b.follow(f, i);
        let new = branch(b, f.op(i), predicate, &types, &regions);
        let values = b.func().inst_results(new).to_vec();
        for (&old, &v) in results.iter().zip(&values) {
            b.func_mut().set_name(v, f.name_of(old));
            self.values.set(old, v);
        }
        Ok(())
    }

    /// Elements differ: every branch is computed, and each element keeps the results of its own.
    fn each(&mut self, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        let f = self.f;
        if f.inst_results(i).iter().any(|&v| f.ty(v).dtype == DType::Token) {
            let m = "a branch that depends on the batch passes a token: effects cannot be batched";
            return Err(self.error(i, Kind::Effect, m));
        }
        let regions = &f.inst(i).regions;
        let masks = self.masks(b, i);
        // What a branch reads is gated by its mask, so that it is computed no earlier.
        let before = self.least;
        self.least = self.phase(i);
        for (&r, &mask) in regions.iter().zip(&masks) {
            b.set_phase(self.phase(i));
            let mask = self.conjoined(b, mask);
            let outer = self.entered(b, i, r, mask);
            let lanes = self.lanes.replace(mask);
            for &j in &f.region(r).insts {
                self.inst(b, j)?;
            }
            self.lanes = lanes;
            for (old, new) in outer {
                self.values.set(old, new);
            }
        }
        self.least = before;
        b.set_phase(self.phase(i));
        b.follow(f, i);
        for (k, &result) in f.inst_results(i).iter().enumerate() {
            let mut ends = Vec::new();
            for &r in regions {
                ends.push(self.batched(b, f.region(r).results[k]));
            }
            let ty = self.type_of(result);
            let mut value = ends[ends.len() - 1];
            for (&end, &mask) in ends.iter().zip(&masks).rev().skip(1) {
                if end != value {
                    value = select(b, mask, value, end, &ty);
                }
            }
            self.values.stand_for(b, &[result], &[value]);
        }
        Ok(())
    }

    /// The elements that take a region inside of the one under way: those that take both.
    pub(super) fn conjoined(&self, b: &mut Builder, mask: LaneMask) -> LaneMask {
        let Some(around) = self.lanes else { return mask };
        let (around, own) = (around.positive(b), mask.positive(b));
        LaneMask { own: b.op(Op::And, &[around, own]), taken: true }
    }

    /// For each region which elements take it.
    fn masks(&mut self, b: &mut Builder, i: Inst) -> Vec<LaneMask> {
        let f = self.f;
        let selector = self.values.get(b, f.args(i)[0]);
        let ty = b.ty(selector).clone();
        if ty.dtype == DType::Bool {
            return vec![
                LaneMask { own: selector, taken: true },
                LaneMask { own: selector, taken: false },
            ];
        }
        let last = f.inst(i).regions.len() as i64 - 1;
        let number = |b: &mut Builder, k: i64| b.literal(&ty, Literal::from_i64(ty.dtype, k));
        let (low, high) = (number(b, 0), number(b, last));
        let index = b.op_as(Op::Clamp, &[low, selector, high], Attrs::none(), &ty);
        let mut all = Vec::new();
        for k in 0..=last {
            let k = number(b, k);
            all.push(LaneMask { own: b.op(Op::Eq, &[index, k]), taken: true });
        }
        all
    }
}

impl Batch<'_, '_> {
    /// Gates what a region reads from outside: derivatives pass into it only for the elements that take
    /// it, so that one which is infinite for others does them no harm (0 times infinity is NaN).
    /// The numbers stay what they are. Gives the values to put back.
    pub(super) fn entered(
        &mut self,
        b: &mut Builder,
        i: Inst,
        region: Region,
        mask: LaneMask,
    ) -> Vec<(Value, Value)> {
        let f = self.f;
        b.set_phase(self.phase(i));
        b.follow(f, i);
        let mut outer = Vec::new();
        for old in read_from_outside(f, region) {
            let new = self.values.get(b, old);
            let gated = gated(b, new, self.is_mapped(old), mask);
            self.values.set(old, gated);
            outer.push((old, new));
        }
        outer
    }
}

/// The floats that the instructions of a region read and it does not define, each once, in order.
fn read_from_outside(f: &Function, region: Region) -> Vec<Value> {
    let mut found = captures(f, region);
    found.retain(|&v| f.ty(v).dtype.is_float());
    found
}

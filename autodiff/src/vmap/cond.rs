//! `cond` over a batch: branches are batched where all elements take the same one, and both are
//! computed and selected from where they do not, gated so that derivatives are those of one branch.

use super::Batch;
use adfuse_ir::{
    Attrs, Builder, DType, Diagnostic, Function, Inst, Kind, NewInst, Op, Region, TensorType, Value,
};
use cranelift_entity::EntitySet;

impl Batch<'_, '_> {
    /// Places a `cond`.
    pub(super) fn cond(&mut self, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        if self.is_mapped(self.f.args(i)[0]) { self.both(b, i) } else { self.one(b, i) }
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
        let (at, attrs, phase) = (b.region(), f.attrs(i).clone(), self.phase(i));
        let new = b.func_mut().add_inst(
            at,
            NewInst {
                op: f.op(i),
                args: &[predicate],
                attrs,
                results: &types,
                regions: &regions,
                phase,
            },
        );
        b.func_mut().set_span(new, f.span(i));
        let values = b.func().inst_results(new).to_vec();
        for (&old, &v) in results.iter().zip(&values) {
            b.func_mut().set_name(v, f.name_of(old));
            self.values.set(old, v);
        }
        Ok(())
    }

    /// Elements differ: both branches are computed, and each element keeps the results of its own.
    fn both(&mut self, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        let f = self.f;
        if f.inst_results(i).iter().any(|&v| f.ty(v).dtype == DType::Token) {
            let m = "a branch that depends on the batch passes a token: effects cannot be batched";
            return Err(self.error(i, Kind::Effect, m));
        }
        let regions = &f.inst(i).regions;
        let predicate = self.values.get(b, f.args(i)[0]);
        // What a branch reads is gated by the predicate, so that it is computed no earlier.
        let before = self.least;
        self.least = self.phase(i);
        for (&r, taken) in regions.iter().zip([true, false]) {
            let outer = self.entered(b, i, r, taken);
            for &j in &f.region(r).insts {
                self.inst(b, j)?;
            }
            for (old, new) in outer {
                self.values.set(old, new);
            }
        }
        self.least = before;
        b.set_phase(self.phase(i));
        b.set_span(f.span(i));
        for (k, &result) in f.inst_results(i).iter().enumerate() {
            let [yes, no] = [0, 1].map(|r| f.region(regions[r]).results[k]);
            let (yes, no) = (self.batched(b, yes), self.batched(b, no));
            let value = if yes == no {
                yes
            } else {
                let ty = self.type_of(result);
                let mask = spread(b, predicate, &ty);
                b.op_as(Op::SelectN, &[mask, no, yes], Attrs::none(), &ty)
            };
            if b.func().literal(value).is_none() && b.func().name_of(value).is_none() {
                b.func_mut().set_name(value, f.name_of(result));
            }
            self.values.set(result, value);
        }
        Ok(())
    }
}

impl Batch<'_, '_> {
    /// Gates what a branch reads from outside: derivatives pass into it only for the elements that take
    /// the branch, so that one which is infinite for others does them no harm (0 times infinity is NaN).
    /// The numbers stay what they are. Gives the values to put back.
    fn entered(
        &mut self,
        b: &mut Builder,
        i: Inst,
        region: Region,
        taken: bool,
    ) -> Vec<(Value, Value)> {
        let f = self.f;
        b.set_phase(self.phase(i));
        b.set_span(f.span(i));
        let own = self.values.get(b, f.args(i)[0]);
        let mut outer = Vec::new();
        for old in read_from_outside(f, region) {
            let new = self.values.get(b, old);
            let ty = b.ty(new).clone();
            let mask = if self.is_mapped(old) {
                spread(b, own, &ty)
            } else {
                // What all share is used if any element takes the branch.
                let own = if taken { own } else { b.op(Op::Not, &[own]) };
                let any = b.op_with(Op::ReduceOr, &[own], Attrs::none().with_ints("axes", [0]));
                let any = if taken { any } else { b.op(Op::Not, &[any]) };
                let dims = Attrs::none().with_ints("dims", []);
                match ty.rank() {
                    0 => any,
                    _ => b.op_as(Op::BroadcastInDim, &[any], dims, &ty.with_dtype(DType::Bool)),
                }
            };
            let fixed = b.op(Op::StopGradient, &[new]);
            let (no, yes) = if taken { (fixed, new) } else { (new, fixed) };
            let gated = b.op_as(Op::SelectN, &[mask, no, yes], Attrs::none(), &ty);
            self.values.set(old, gated);
            outer.push((old, new));
        }
        outer
    }
}

/// The floats that the instructions of a region read and it does not define, each once, in order.
fn read_from_outside(f: &Function, region: Region) -> Vec<Value> {
    let mut inside: EntitySet<Value> = EntitySet::new();
    let mut found = Vec::new();
    let mut open: Vec<Inst> = f.region(region).insts.iter().rev().copied().collect();
    while let Some(i) = open.pop() {
        let regions = &f.inst(i).regions;
        let yields = regions.iter().flat_map(|&r| &f.region(r).results);
        let nested = regions.iter().flat_map(|&r| &f.region(r).insts);
        open.extend(nested.rev().copied());
        inside.extend(f.inst_results(i).iter().copied());
        found.extend(f.args(i).iter().chain(yields).copied());
    }
    let mut seen: EntitySet<Value> = EntitySet::new();
    found.retain(|&v| {
        let float = f.ty(v).dtype.is_float() && f.literal(v).is_none();
        float && !inside.contains(v) && seen.insert(v)
    });
    found
}

/// One truth value an element of the batch, over a whole batched type.
fn spread(b: &mut Builder, predicate: Value, ty: &TensorType) -> Value {
    if ty.rank() == 1 {
        return predicate;
    }
    let attrs = Attrs::none().with_ints("dims", [0]);
    b.op_as(Op::BroadcastInDim, &[predicate], attrs, &ty.with_dtype(DType::Bool))
}

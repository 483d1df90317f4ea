//! Which tensors can be divided, and which values are needed whole, in parts, or both.

use super::decision::{ShardedSums, ShardedTensor, StatePair, StateSharding, part};
use crate::ValueDef;
use crate::captures::reads;
use crate::dtype::DType;
use crate::entity::{Inst, Value};
use crate::function::Function;
use crate::op::{Body, Collective, Monoid, Op};
use cranelift_entity::EntitySet;

/// The values of a function that can be computed in parts.
pub(super) struct PartialValues<'f> {
    f: &'f Function,
    over: &'f str,
    ranks: u32,
    /// The parameters that are divided.
    params: EntitySet<Value>,
    /// Those, and what is computed of them element by element: there is no whole of it.
    divided: EntitySet<Value>,
    /// Sums over the ranks, and what is computed of them element by element: whole or in parts.
    summed: EntitySet<Value>,
}

impl<'f> PartialValues<'f> {
    pub(super) fn of(f: &'f Function, sharding: &'f StateSharding) -> PartialValues<'f> {
        let mut params = EntitySet::new();
        params.extend(sharding.tensors.iter().filter_map(|t| f.params().get(t.param).copied()));
        let mut found = PartialValues {
            f,
            over: &sharding.over,
            ranks: sharding.ranks,
            params,
            divided: EntitySet::new(),
            summed: EntitySet::new(),
        };
        found.divided = found.params.clone();
        for &i in f.body_insts() {
            found.visit(i);
        }
        found
    }

    fn visit(&mut self, i: Inst) {
        let &[result] = self.f.inst_results(i) else { return };
        if self.is_sum(i) {
            self.summed.insert(result);
        }
        if !self.is_elementwise(i) || self.working_copy(i).is_some() {
            return;
        }
        let args = self.f.args(i);
        if args.iter().any(|&v| self.divided.contains(v)) {
            self.divided.insert(result);
        } else if args.iter().any(|&v| self.summed.contains(v)) {
            self.summed.insert(result);
        }
    }

    /// Whether there is no whole of a value.
    pub(super) fn is_divided(&self, v: Value) -> bool {
        self.divided.contains(v)
    }

    /// Whether a value is computed in parts where it is needed so.
    pub(super) fn is_partial(&self, v: Value) -> bool {
        self.divided.contains(v) || self.summed.contains(v)
    }

    pub(super) fn is_param(&self, v: Value) -> bool {
        self.params.contains(v)
    }

    /// Whether it is a sum over the ranks that is worth dividing.
    pub(super) fn is_sum(&self, i: Inst) -> bool {
        let f = self.f;
        let is_sum = matches!(f.op(i).collective(), Some(Collective::AllReduce(Monoid::Sum)));
        let same = |i| f.attrs(i).text("over") == self.over;
        let n = || f.inst_results(i).first().and_then(|&v| f.ty(v).elements()).unwrap_or(0);
        is_sum
            && same(i)
            && f.attrs(i).int("ranks") == i64::from(self.ranks)
            && part(n(), self.ranks) < n()
    }

    /// Whether each element of the result is computed of the elements at the same place of the operands.
    pub(super) fn is_elementwise(&self, i: Inst) -> bool {
        let f = self.f;
        let &[result] = f.inst_results(i) else { return false };
        let ty = f.ty(result);
        let same = || f.args(i).iter().all(|&v| f.ty(v).shape == ty.shape);
        match f.op(i).def().body {
            Body::Map(_) => ty.dims().is_some() && ty.rank() > 0 && same(),
            _ => f.op(i) == Op::Reshape && ty.dims().is_some() && ty.rank() > 0,
        }
    }

    /// Whether all elements of the result are one scalar.
    pub(super) fn spread(&self, i: Inst) -> Option<Value> {
        let &[scalar] = self.f.args(i) else { return None };
        (self.f.op(i) == Op::BroadcastInDim && self.f.ty(scalar).rank() == 0).then_some(scalar)
    }

    /// The divided parameter that an instruction rounds to 16 bits, as a model computes with it.
    pub(super) fn working_copy(&self, i: Inst) -> Option<Value> {
        let (&[from], &[to]) = (self.f.args(i), self.f.inst_results(i)) else { return None };
        let rounds = self.f.op(i) == Op::ConvertElementType
            && self.f.ty(to).dtype.is_narrow_float()
            && !self.f.ty(from).dtype.is_narrow_float();
        (rounds && self.params.contains(from)).then_some(from)
    }

    /// Whether it folds all elements of its operand, which can be done part by part.
    pub(super) fn is_fold(&self, i: Inst) -> bool {
        let f = self.f;
        let (Body::Reduce(monoid), &[x]) = (f.op(i).def().body, f.args(i)) else { return false };
        let ty = f.ty(x);
        let of_all = ty.rank() > 0 && f.attrs(i).ints("axes").len() == ty.rank();
        // A sum of 16-bit floats is rounded once, and sums of parts would be each.
        let fits = match monoid {
            Monoid::Sum => !ty.dtype.is_narrow_float(),
            Monoid::Max | Monoid::Min => true,
            Monoid::And | Monoid::Or => ty.dtype == DType::Bool,
            _ => false,
        };
        of_all && fits && ty.dims().is_some()
    }

    /// The first divided value that an instruction needs whole.
    fn misfit(&self, i: Inst) -> Option<Value> {
        if self.is_elementwise(i) || self.is_fold(i) {
            return None;
        }
        reads(self.f, i).into_iter().find(|&v| self.divided.contains(v))
    }

    /// The divided parameters that a divided value is computed of.
    fn sources(&self, of: Value) -> EntitySet<Value> {
        let (mut found, mut seen, mut stack) = (EntitySet::new(), EntitySet::new(), vec![of]);
        while let Some(v) = stack.pop() {
            if !self.divided.contains(v) || !seen.insert(v) {
                continue;
            }
            match self.f.def(v) {
                ValueDef::Inst(i, _) => stack.extend(self.f.args(i)),
                _ => {
                    found.insert(v);
                }
            }
        }
        found
    }
}

impl StateSharding {
    /// The tensors among `pairs` that can be divided: from those that have fewer elements in parts, all whose next values, and
    /// whatever else is computed of them, is computed element by element or is a sum or an extremum of all elements. A parameter that is
    /// read otherwise in a type of 16 bits is gathered in that type where it is read.
    pub fn of(
        f: &Function,
        (over, ranks): (&str, u32),
        sums: ShardedSums,
        pairs: &[StatePair],
    ) -> StateSharding {
        let over = over.to_string();
        let mut sharding = StateSharding { over, ranks, sums, tensors: Vec::new() };
        sharding.tensors = Candidates::of(f, &sharding, pairs).divisible();
        sharding
    }
}

/// Tensors that may be divided.
struct Candidates<'f> {
    f: &'f Function,
    sharding: StateSharding,
}

impl<'f> Candidates<'f> {
    /// Those that have fewer elements in parts, and a next value of their type.
    pub(super) fn of(f: &'f Function, of: &StateSharding, pairs: &[StatePair]) -> Candidates<'f> {
        let tensor = |pair: &StatePair| {
            let (&p, &r) = (f.params().get(pair.param)?, f.results().get(pair.result)?);
            let elements = f.ty(p).elements().filter(|_| f.ty(p) == f.ty(r))?;
            let StatePair { param, result } = *pair;
            (part(elements, of.ranks) < elements).then_some(ShardedTensor {
                param,
                result,
                elements,
            })
        };
        let mut tensors: Vec<ShardedTensor> = pairs.iter().filter_map(tensor).collect();
        tensors.sort_by_key(|t| t.param);
        Candidates { f, sharding: StateSharding { tensors, ..of.clone() } }
    }

    /// Those of them that no instruction needs whole, but for copies in 16 bits.
    fn divisible(mut self) -> Vec<ShardedTensor> {
        loop {
            let mut whole = EntitySet::<Value>::new();
            {
                let values = PartialValues::of(self.f, &self.sharding);
                for &i in self.f.body_insts() {
                    let Some(v) = values.misfit(i).filter(|_| values.working_copy(i).is_none())
                    else {
                        continue;
                    };
                    for p in values.sources(v).keys() {
                        whole.insert(p);
                    }
                }
            }
            let before = self.sharding.tensors.len();
            let params = self.f.params();
            self.sharding.tensors.retain(|t| !whole.contains(params[t.param]));
            if self.sharding.tensors.len() == before {
                return self.sharding.tensors;
            }
        }
    }
}

/// What is needed of the values of a function whose tensors are divided.
pub(super) struct Demand<'f> {
    pub(super) values: PartialValues<'f>,
    /// Values that are needed whole.
    pub(super) whole: EntitySet<Value>,
    /// Values of which each rank needs its part.
    pub(super) part: EntitySet<Value>,
    /// Folds of all elements that are done part by part.
    pub(super) folds: EntitySet<Inst>,
}

impl<'f> Demand<'f> {
    pub(super) fn of(f: &'f Function, sharding: &'f StateSharding) -> Demand<'f> {
        let values = PartialValues::of(f, sharding);
        let (whole, part, folds) = (EntitySet::new(), EntitySet::new(), EntitySet::new());
        let mut demand = Demand { values, whole, part, folds };
        for (k, &v) in f.results().iter().enumerate() {
            let is_part = sharding.tensors.iter().any(|t| t.result == k);
            match is_part || demand.values.is_divided(v) {
                true => demand.part.insert(v),
                false => demand.whole.insert(v),
            };
        }
        for &i in f.body_insts().iter().rev() {
            demand.visit(f, i);
        }
        demand
    }

    fn visit(&mut self, f: &Function, i: Inst) {
        let results = f.inst_results(i);
        for &v in results {
            if self.part.contains(v) {
                self.visit_part(f, i, v);
            }
        }
        if !f.has_effect(i) && !results.iter().any(|&v| self.whole.contains(v)) {
            return;
        }
        if let Some(p) = self.values.working_copy(i) {
            self.part.insert(p);
        } else if self.values.is_fold(i) && self.is_done_by_parts(f, f.args(i)[0]) {
            self.folds.insert(i);
            self.part.insert(f.args(i)[0]);
        } else {
            for v in reads(f, i) {
                self.whole.insert(v);
            }
        }
    }

    /// Of a value that is needed in parts.
    fn visit_part(&mut self, f: &Function, i: Inst, v: Value) {
        if let Some(scalar) = self.values.spread(i) {
            self.whole.insert(scalar);
        } else if !self.values.is_partial(v) || self.values.working_copy(i).is_some() {
            self.whole.insert(v);
        } else if self.values.is_sum(i) {
            // What the ranks sum is there whole.
            self.whole.insert(f.args(i)[0]);
        } else {
            for &arg in f.args(i) {
                self.part.insert(arg);
            }
        }
    }

    /// Whether each rank has its part of a value, or all that it is computed of, anyway.
    fn is_done_by_parts(&self, f: &Function, of: Value) -> bool {
        if self.values.is_divided(of) {
            return true;
        }
        let (mut stack, mut seen) = (vec![of], EntitySet::<Value>::new());
        while let Some(v) = stack.pop() {
            if self.part.contains(v) || !seen.insert(v) {
                continue;
            }
            match f.def(v) {
                ValueDef::Inst(i, _) if self.values.is_partial(v) && !self.values.is_sum(i) => {
                    stack.extend(f.args(i).iter().filter(|&&v| self.values.is_partial(v)));
                }
                _ => return false,
            }
        }
        true
    }
}

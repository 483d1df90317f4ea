//! Writing a function whose tensors are divided among ranks.

use super::analysis::Demand;
use super::decision::{StatePair, StateSharding, part};
use super::parts::Ranks;
use super::sums::PartialFold;
use crate::ValueDef;
use crate::attrs::Attrs;
use crate::builder::Builder;
use crate::diag::{At, Diagnostic, Kind};
use crate::dtype::DType;
use crate::entity::{Inst, Phase, Value};
use crate::function::Function;
use crate::op::Op;
use crate::rewrite::Copier;
use crate::types::TensorType;
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;

/// A function with tensors divided among ranks: their parameters and results are parts.
///
/// # Errors
/// Those of construction; [`Kind::Usage`](crate::Kind::Usage) where the function does not allow the decision.
pub fn sharded(f: &Function, sharding: &StateSharding) -> Result<Function, Diagnostic> {
    ShardedWriter::new(f, sharding)?.written()
}

struct ShardedWriter<'f> {
    f: &'f Function,
    sharding: &'f StateSharding,
    demand: Demand<'f>,
    copier: Copier<'f>,
    /// The parts of old values, in the new function.
    parts: SecondaryMap<Value, PackedOption<Value>>,
    /// Copies of divided parameters in 16 bits, gathered.
    copies: Vec<(Value, DType, Value)>,
    /// The phase of what is written.
    phase: Phase,
}

impl<'f> ShardedWriter<'f> {
    /// # Errors
    /// [`Kind::Usage`] where the function has no such parameters, or needs one of them whole.
    fn new(f: &'f Function, sharding: &'f StateSharding) -> Result<ShardedWriter<'f>, Diagnostic> {
        let pairs = sharding.tensors.iter().map(|t| StatePair { param: t.param, result: t.result });
        let pairs: Vec<StatePair> = pairs.collect();
        let over = (sharding.over.as_str(), sharding.ranks);
        let possible = StateSharding::of(f, over, sharding.sums, &pairs);
        if let Some(t) = sharding.tensors.iter().find(|t| !possible.tensors.contains(t)) {
            let m = format!(
                "parameter {} of `{}` cannot be divided among {} ranks, with result {} of {} elements as its next value",
                t.param, f.name, sharding.ranks, t.result, t.elements
            );
            let at = At { func: Some(f.name.clone()), ..At::default() };
            return Err(Diagnostic::new(at, Kind::Usage, m));
        }
        Ok(ShardedWriter {
            f,
            sharding,
            demand: Demand::of(f, sharding),
            copier: Copier::new(f),
            parts: SecondaryMap::new(),
            copies: Vec::new(),
            phase: Phase::default(),
        })
    }

    fn ranks(&self) -> Ranks<'f> {
        Ranks { over: &self.sharding.over, ranks: self.sharding.ranks }
    }

    fn part_type(&self, v: Value) -> TensorType {
        let ty = self.f.ty(v);
        TensorType::of(ty.dtype, &[part(ty.elements().unwrap_or(0), self.sharding.ranks)])
    }

    fn written(mut self) -> Result<Function, Diagnostic> {
        let mut b = self.copier.begin_bare();
        for &p in self.f.params() {
            if self.demand.values.is_param(p) {
                self.parts[p] = b.param(self.part_type(p), self.f.name_of(p)).into();
            } else {
                self.copier.param(&mut b, p);
            }
        }
        for &i in self.f.body_insts() {
            self.inst(&mut b, i);
        }
        let mut results = Vec::new();
        for (k, &v) in self.f.results().iter().enumerate() {
            let is_part = self.sharding.tensors.iter().any(|t| t.result == k);
            results.push(if is_part { self.part(&mut b, v) } else { self.copier.get(&mut b, v) });
        }
        b.set_results(&results);
        b.finish()
    }

    fn inst(&mut self, b: &mut Builder, i: Inst) {
        let f = self.f;
        let results = f.inst_results(i);
        self.phase = f.inst(i).phase;
        b.set_phase(self.phase);
        b.follow(f, i);
        let is_whole = f.has_effect(i) || results.iter().any(|&v| self.demand.whole.contains(v));
        if is_whole {
            self.whole(b, i);
        }
        let &[v] = results else { return };
        if !self.demand.part.contains(v) {
            return;
        }
        self.computed_part(b, i, v);
        let is_result = |(k, &r): (usize, &Value)| {
            r == v && self.sharding.tensors.iter().all(|t| t.result != k)
        };
        if self.demand.values.is_divided(v) && f.results().iter().enumerate().any(is_result) {
            let own = self.part(b, v);
            let whole = self.ranks().whole(b, own, f.ty(v));
            self.copier.stand_for(b, &[v], &[whole]);
        }
    }

    fn whole(&mut self, b: &mut Builder, i: Inst) {
        let f = self.f;
        let made = if let Some(p) = self.demand.values.working_copy(i) {
            self.working_copy(b, p, f.inst_results(i)[0])
        } else if self.demand.folds.contains(i) {
            let x = f.args(i)[0];
            let own = self.part(b, x);
            let elements = f.ty(x).elements().unwrap_or(0);
            let fold = PartialFold { ranks: self.ranks(), elements, sums: self.sharding.sums };
            fold.written(b, f.op(i), own)
        } else {
            self.copier.inst(b, i);
            return;
        };
        self.copier.stand_for(b, f.inst_results(i), &[made]);
    }

    /// A parameter in 16 bits, which is gathered once.
    fn working_copy(&mut self, b: &mut Builder, param: Value, copy: Value) -> Value {
        let ty = self.f.ty(copy);
        let known = self.copies.iter().find(|(p, dtype, _)| (*p, *dtype) == (param, ty.dtype));
        if let Some(&(_, _, made)) = known {
            return made;
        }
        // Every phase may read it.
        b.set_phase(Phase::PRIMAL);
        let own = self.part(b, param);
        let own = b.converted(own, ty.dtype);
        let made = self.ranks().whole(b, own, ty);
        b.set_phase(self.phase);
        self.copies.push((param, ty.dtype, made));
        made
    }

    /// Writes the part of a value where it is computed in parts.
    fn computed_part(&mut self, b: &mut Builder, i: Inst, v: Value) {
        let f = self.f;
        let values = &self.demand.values;
        let part = if let Some(scalar) = values.spread(i) {
            let scalar = self.copier.get(b, scalar);
            let dims = Attrs::none().with_ints("dims", []);
            b.op_as(Op::BroadcastInDim, &[scalar], dims, &self.part_type(v))
        } else if !values.is_partial(v) || self.copier.find(v).is_some() && values.is_sum(i) {
            // The whole is there: its part is taken where it is needed.
            return;
        } else if values.is_sum(i) {
            let own = self.unwidened(b, f.args(i)[0]);
            self.ranks().summed_part(b, own)
        } else if f.op(i) == Op::Reshape {
            self.part(b, f.args(i)[0])
        } else {
            let args: Vec<Value> = f.args(i).iter().map(|&arg| self.part(b, arg)).collect();
            let ty = self.part_type(v);
            let made = b.place(f.op(i), &args, f.attrs(i).clone(), &[ty], &[]);
            b.func().inst_results(made)[0]
        };
        self.parts[v] = part.into();
    }

    /// What a value was before it was widened, and its type.
    fn unwidened(&mut self, b: &mut Builder, v: Value) -> (Value, DType) {
        let f = self.f;
        let source = match f.def(v) {
            ValueDef::Inst(i, _) if f.op(i) == Op::ConvertElementType => f.args(i)[0],
            _ => v,
        };
        let is_narrow = f.ty(source).dtype.is_narrow_float() && self.copier.find(source).is_some();
        let sent = if is_narrow { source } else { v };
        (self.copier.get(b, sent), f.ty(v).dtype)
    }

    /// The part of a value, in the new function; it is taken of the whole where it is not computed by itself.
    fn part(&mut self, b: &mut Builder, v: Value) -> Value {
        if let Some(part) = self.parts[v].expand() {
            return part;
        }
        if let Some(literal) = self.f.literal(v) {
            return b.literal(&self.part_type(v), literal);
        }
        // It may be read again in an earlier phase than this one.
        b.set_phase(match self.f.def(v) {
            ValueDef::Inst(i, _) => self.f.inst(i).phase,
            _ => Phase::default(),
        });
        let whole = self.copier.get(b, v);
        let part = self.ranks().own_part(b, whole);
        b.set_phase(self.phase);
        self.parts[v] = part.into();
        part
    }
}

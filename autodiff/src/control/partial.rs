//! Partial evaluation at the level of values: a part of a function's values is computed by a part of its
//! instructions, and of an instruction with regions by the part of the regions that it needs.

use adfuse_ir::control::{Liveness, captures};
use adfuse_ir::op::Control;
use adfuse_ir::rewrite::Copier;
use adfuse_ir::{Builder, Function, Inst, Value};
use cranelift_entity::SecondaryMap;
use std::rc::Rc;

/// What computes some of a function's values from the others: the tangents from what is known, or what is known from
/// the parameters.
///
/// Where an instruction with regions has results on both sides, each side has a copy of it that computes the results
/// of its side alone. What both copies need in their regions, both compute.
pub(crate) struct PartialEval<'f> {
    f: &'f Function,
    inside: &'f dyn Fn(Value) -> bool,
    live: Liveness<'f>,
    regions: SecondaryMap<Inst, Option<Rc<Liveness<'f>>>>,
    effects: bool,
}

impl<'f> PartialEval<'f> {
    /// What computes the values among `wanted` for which `inside` holds, which says what belongs to the part. With
    /// `effects`, what has an effect belongs to it.
    pub(crate) fn new(
        f: &'f Function,
        wanted: &[Value],
        inside: &'f dyn Fn(Value) -> bool,
        effects: bool,
    ) -> PartialEval<'f> {
        let live = Liveness::new(f, effects);
        let mut part = PartialEval { f, inside, live, regions: SecondaryMap::new(), effects };
        for &v in wanted {
            part.live.need(v);
        }
        for &i in f.body_insts().iter().rev() {
            part.visit(i);
        }
        part
    }

    /// The results of an instruction that belong to the part and are needed.
    fn computed(&self, i: Inst) -> impl Iterator<Item = Value> {
        let results = self.f.inst_results(i).iter().copied();
        results.filter(|&v| (self.inside)(v) && self.live.contains(v))
    }

    fn has_regions(&self, i: Inst) -> bool {
        matches!(self.f.op(i).control(), Some(Control::Branch | Control::Loop(_) | Control::While))
    }

    /// Whether an instruction without regions is needed by the part.
    fn needs(&self, i: Inst) -> bool {
        let all_inside = || self.f.inst_results(i).iter().all(|&v| (self.inside)(v));
        self.computed(i).next().is_some() || self.effects && self.live.needs(i) && all_inside()
    }

    fn visit(&mut self, i: Inst) {
        let f = self.f;
        if !self.has_regions(i) {
            if self.needs(i) {
                self.live.inst(i);
            }
            return;
        }
        let mut own = Liveness::new(f, self.effects);
        let computed: Vec<Value> = self.computed(i).collect();
        for v in computed {
            own.need(v);
        }
        if !own.needs(i) {
            return;
        }
        own.inst(i);
        let around = f.inst(i).regions.iter().flat_map(|&r| captures(f, r));
        for v in f.args(i).iter().copied().chain(around).filter(|&v| own.contains(v)) {
            self.live.need(v);
        }
        self.regions[i] = Some(Rc::new(own));
    }

    /// The values that the part reads and that do not belong to it, in the order of their definition.
    pub(crate) fn reads(&self) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        let f = self.f;
        let defined = f.body_insts().iter().flat_map(|&i| f.inst_results(i));
        for &v in f.params().iter().chain(defined) {
            if self.live.contains(v) && !(self.inside)(v) {
                all.push(v);
            }
        }
        all
    }

    /// Whether the part has a copy of an instruction.
    pub(crate) fn has(&self, i: Inst) -> bool {
        if self.has_regions(i) { self.regions[i].is_some() } else { self.needs(i) }
    }

    /// Copies what the part has of an instruction.
    pub(crate) fn copy(&self, copier: &mut Copier<'_>, b: &mut Builder, i: Inst) {
        match &self.regions[i] {
            Some(own) => own.copy(copier, b, i),
            None if self.has(i) => {
                copier.inst(b, i);
            }
            None => {}
        }
    }
}

//! Program slices: the instructions that compute some values of a function from others.

use adfuse_ir::control::{Liveness, captures};
use adfuse_ir::op::Control;
use adfuse_ir::rewrite::Copier;
use adfuse_ir::{Builder, Function, Inst, Value};
use cranelift_entity::{EntitySet, SecondaryMap};
use std::rc::Rc;

/// What computes wanted values of a function's body from given ones and from its parameters.
///
/// Of an instruction with regions it has the part that the wanted results need.
pub(super) struct ProgramSlice<'f> {
    f: &'f Function,
    needed: EntitySet<Value>,
    insts: EntitySet<Inst>,
    regions: SecondaryMap<Inst, Option<Rc<Liveness<'f>>>>,
    /// The given values that it reads, in the order of their definition; parameters are not among them.
    pub(super) given: Vec<Value>,
}

impl<'f> ProgramSlice<'f> {
    pub(super) fn new(
        f: &'f Function,
        wanted: &[Value],
        is_given: &dyn Fn(Value) -> bool,
    ) -> ProgramSlice<'f> {
        let (needed, insts) = (EntitySet::new(), EntitySet::new());
        let (regions, given) = (SecondaryMap::new(), Vec::new());
        let mut slice = ProgramSlice { f, needed, insts, regions, given };
        slice.needed.extend(wanted.iter().copied());
        for &i in f.body_insts().iter().rev() {
            slice.visit(i, is_given);
        }
        let defined = f.body_insts().iter().flat_map(|&i| f.inst_results(i).iter().copied());
        let read = |&v: &Value| slice.needed.contains(v) && is_given(v);
        slice.given = defined.filter(read).collect();
        slice
    }

    fn visit(&mut self, i: Inst, is_given: &dyn Fn(Value) -> bool) {
        let f = self.f;
        let computed =
            f.inst_results(i).iter().copied().filter(|&v| self.needed.contains(v) && !is_given(v));
        let computed: Vec<Value> = computed.collect();
        if computed.is_empty() {
            return;
        }
        self.insts.insert(i);
        if !has_regions(f, i) {
            self.needed.extend(f.args(i).iter().copied());
            return;
        }
        let mut own = Liveness::new(f, false);
        computed.iter().for_each(|&v| {
            own.need(v);
        });
        own.inst(i);
        let around = f.inst(i).regions.iter().flat_map(|&r| captures(f, r));
        let read = f.args(i).iter().copied().chain(around).filter(|&v| own.contains(v));
        self.needed.extend(read);
        self.regions[i] = Some(Rc::new(own));
    }

    /// Copies it. What is given, and the parameters that it reads, must have been declared to the copier.
    pub(super) fn copy(&self, copier: &mut Copier<'_>, b: &mut Builder) {
        for &i in self.f.body_insts().iter().filter(|&&i| self.insts.contains(i)) {
            match &self.regions[i] {
                Some(own) => own.copy(copier, b, i),
                None => {
                    copier.inst(b, i);
                }
            }
        }
    }
}

fn has_regions(f: &Function, i: Inst) -> bool {
    matches!(f.op(i).control(), Some(Control::Branch | Control::Loop(_) | Control::While))
}

//! What the planner knows about a function before it decides anything.

use super::axes::{LoopAxes, TensorAxes};
use super::class::InstClass;
use super::shifts::Shifts;
use super::views::ViewOrigins;
use adfuse_ir::index::{IndexExpr, ViewMap};
use adfuse_ir::kernel::Extents;
use adfuse_ir::op::Body;
use adfuse_ir::scalar::ScalarProgram;
use adfuse_ir::{Function, Inst, Literal, Value, ValueDef};
use cranelift_entity::{PrimaryMap, SecondaryMap, entity_impl};
use smallvec::SmallVec;
use std::ops::Deref;
use std::sync::Arc;

/// The scalar program of some instructions.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Recorded(u32);
entity_impl!(Recorded, "program");

/// Facts about a function: those that hold whatever is decided, and the class of each instruction.
pub(crate) struct Facts<'f> {
    pub(crate) f: &'f Function,
    pub(crate) class: SecondaryMap<Inst, InstClass>,
    /// What copies have in common.
    pub(super) fixed: Arc<FixedFacts>,
}

/// Facts about a function that no decision changes.
#[derive(Default)]
pub(crate) struct FixedFacts {
    /// Known extents of every value.
    pub(crate) dims: SecondaryMap<Value, Extents>,
    pub(crate) elements: SecondaryMap<Value, i64>,
    pub(crate) users: SecondaryMap<Value, SmallVec<[Inst; 4]>>,
    /// Whether a value must be in a buffer: results, and operands that are found by address.
    pub(crate) forced: SecondaryMap<Value, bool>,
    /// Whether a contraction reads a value, as it is or through views in equal steps: then it is in a buffer unless a plan says
    /// otherwise.
    pub(super) operand: SecondaryMap<Value, bool>,
    /// Whether a block of a loop or a branch reads or writes a value that is no stack of elements: it is stored as it
    /// is.
    pub(crate) bound: SecondaryMap<Value, bool>,
    /// Whether a loop or a branch reads or writes a value.
    pub(super) stack: SecondaryMap<Value, bool>,
    /// What an instruction that computes again waits for.
    pub(crate) after: SecondaryMap<Inst, Option<Value>>,
    /// The views, which instances have in common.
    pub(super) views: SecondaryMap<Inst, Option<Arc<ViewOrigins>>>,
    /// Whether a view is a matter of axes alone.
    pub(super) aligned: SecondaryMap<Inst, bool>,
    /// Primitives that an element takes by itself.
    pub(crate) weight: SecondaryMap<Inst, u32>,
    pub(super) recorded: SecondaryMap<Inst, Option<Recorded>>,
    pub(super) programs: Arc<RecordedPrograms>,
}

/// The scalar programs of a function, equal ones once.
#[derive(Default)]
pub(crate) struct RecordedPrograms {
    pub(super) programs: PrimaryMap<Recorded, ScalarProgram>,
    pub(super) weights: SecondaryMap<Recorded, u32>,
}

impl Deref for Facts<'_> {
    type Target = FixedFacts;

    fn deref(&self) -> &FixedFacts {
        &self.fixed
    }
}

impl Clone for Facts<'_> {
    fn clone(&self) -> Self {
        Facts { f: self.f, class: self.class.clone(), fixed: Arc::clone(&self.fixed) }
    }
}

impl Facts<'_> {
    /// The value that a contraction reads where it asks for this one: what lies under views that are
    /// steps along axes.
    pub(crate) fn base(&self, v: Value) -> Value {
        let mut v = v;
        while let ValueDef::Inst(i, _) = self.f.def(v)
            && matches!(self.f.op(i).def().body, Body::View(_))
            && self.is_strided(i)
        {
            v = self.f.args(i)[0];
        }
        v
    }

    /// Whether a value is in a buffer unless an engine is known to do without: what must be, and operands of contractions.
    pub(crate) fn is_held(&self, v: Value) -> bool {
        self.forced[v] || self.operand[v]
    }

    /// The one value that all elements have, where that is known from views of a literal.
    pub(crate) fn splat(&self, v: Value) -> Option<Literal> {
        let mut v = v;
        loop {
            match self.f.def(v) {
                ValueDef::Literal(l) => return Some(l),
                ValueDef::Inst(i, _)
                    if matches!(self.f.op(i).def().body, Body::View(_))
                        && self.f.args(i).len() == 1 =>
                {
                    v = self.f.args(i)[0];
                }
                _ => return None,
            }
        }
    }

    /// Whether a view is a matter of axes alone.
    pub(crate) fn is_aligned(&self, i: Inst) -> bool {
        self.aligned[i]
    }

    /// Whether readers find a view's elements in equal steps, without a guard.
    pub(crate) fn is_strided(&self, i: Inst) -> bool {
        if self.splat(self.f.inst_results(i)[0]).is_some() || self.is_aligned(i) {
            return true;
        }
        let Some(map) = self.view(i) else { return false };
        let [piece] = map.pieces.as_slice() else { return false };
        piece.guards.is_empty() && piece.index.iter().all(is_affine)
    }

    /// The first instruction that would be written out through more shifted views than any plan of
    /// ours has: index expressions double with each.
    pub(crate) fn too_deep(&self) -> Option<Inst> {
        self.inlined_shifts().err()
    }

    /// The shifted views that lie under what is inlined.
    ///
    /// # Errors
    /// The first instruction under which there are too many.
    pub(crate) fn inlined_shifts(&self) -> Result<SecondaryMap<Value, Shifts>, Inst> {
        let mut shifted: SecondaryMap<Value, Shifts> = SecondaryMap::new();
        for &i in self.f.body_insts() {
            let shifts = self.shifts(i, &shifted);
            if self.class[i] == InstClass::Free {
                shifted[self.f.inst_results(i)[0]] = shifts;
            }
            if shifts.are_too_deep() {
                return Err(i);
            }
        }
        Ok(shifted)
    }

    /// Whether a value may be packed in this many bits an element: where it is a stack of elements, each begins with a
    /// word.
    pub(crate) fn packs(&self, v: Value, bits: u8) -> bool {
        let element: i64 = self.dims[v].iter().skip(1).product();
        !self.bound[v] && (!self.stack[v] || element % (32 / i64::from(bits)) == 0)
    }

    /// Marks instructions to be inlined wherever they are used.
    pub(crate) fn set_free(&mut self, i: Inst) {
        self.class[i] = InstClass::Free;
    }

    /// Whether a scan's axis has extent 1.
    pub(crate) fn scans_nothing(&self, i: Inst) -> bool {
        let axis = self.f.attrs(i).int("axis") as usize;
        matches!(self.f.op(i).def().body, Body::Scan(_)) && self.dims[self.f.args(i)[0]][axis] == 1
    }

    /// Whether a reduction's axes all have extent 1.
    pub(crate) fn folds_nothing(&self, i: Inst) -> bool {
        let dims = &self.dims[self.f.args(i)[0]];
        dims.iter().zip(folded(self, i)).all(|(&n, folded)| n == 1 || !folded)
    }

    /// The scalar program of an elementwise or generated instruction, and its primitives.
    pub(crate) fn program(&self, i: Inst) -> Option<(&ScalarProgram, u32)> {
        let RecordedPrograms { programs, weights } = &*self.programs;
        self.recorded[i].map(|id| (&programs[id], weights[id]))
    }

    /// The instruction that makes a value, when it is free.
    pub(crate) fn free(&self, v: Value) -> Option<Inst> {
        match self.f.def(v) {
            ValueDef::Inst(i, _) if self.class[i] == InstClass::Free => Some(i),
            _ => None,
        }
    }

    /// The index map of a view.
    pub(crate) fn view(&self, i: Inst) -> Option<&ViewMap> {
        self.views[i].as_ref().map(|view| &view.map)
    }

    /// Where the operand of a view lies when its result lies at `place`; `None` where that does not depend on axes alone
    /// (slices, padding, reversal).
    pub(crate) fn through(
        &self,
        axes: &mut LoopAxes,
        i: Inst,
        place: &TensorAxes,
    ) -> Option<TensorAxes> {
        self.views[i].as_ref()?.through(axes, place, &self.dims[self.f.args(i)[0]])
    }
}

/// Whether an index is a sum of coordinates times constants.
pub(crate) fn is_affine(e: &IndexExpr) -> bool {
    match e {
        IndexExpr::Axis(_) | IndexExpr::Const(_) => true,
        IndexExpr::Add(a, b) => is_affine(a) && is_affine(b),
        IndexExpr::Mul(a, _) => is_affine(a),
        IndexExpr::FloorDiv(..) | IndexExpr::Mod(..) | IndexExpr::Data { .. } => false,
    }
}

/// The value whose axes an instruction runs along.
pub(crate) fn space(facts: &Facts<'_>, i: Inst) -> Value {
    match facts.class[i] {
        InstClass::Reduce(_) | InstClass::Scan(_) => facts.f.args(i)[0],
        _ => facts.f.inst_results(i)[0],
    }
}

/// Which axes of its operand a reduction folds.
pub(crate) fn folded(facts: &Facts<'_>, i: Inst) -> SmallVec<[bool; 8]> {
    let attrs = facts.f.attrs(i);
    let rank = facts.dims[facts.f.args(i)[0]].len() as i64;
    match facts.class[i] {
        InstClass::Reduce(m) if m.is_arg() => (0..rank).map(|d| d == attrs.int("axis")).collect(),
        _ => (0..rank).map(|d| attrs.ints("axes").contains(&d)).collect(),
    }
}

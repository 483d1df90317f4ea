//! What a tracer has recorded so far.

use crate::ir::{
    At, Builder, DType, Diagnostic, Dim, Function, Inst, Kind, Literal, Number, Phase, TensorType,
    ValueDef,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::Location;
use std::rc::Rc;

/// The trace that a handle belongs to; `None` inside once it has ended.
pub(super) type Shared = Rc<RefCell<Option<State>>>;

pub(super) struct State {
    pub(super) b: Builder,
    pub(super) error: Option<Diagnostic>,
    /// The functions that it calls, and what those need.
    pub(super) callees: Vec<Function>,
    /// The names of the inputs, and what asked for them.
    pub(super) inputs: BTreeMap<String, &'static Location<'static>>,
}

impl State {
    pub(super) fn new(name: &str) -> State {
        let (callees, inputs) = (Vec::new(), BTreeMap::new());
        State { b: Builder::new(name), error: None, callees, inputs }
    }

    /// Gives an input a name that no other has: whoever looks for an input by name finds one.
    pub(super) fn called(&mut self, place: &'static Location<'static>, name: &str) {
        if let Some(first) = self.inputs.insert(name.into(), place) {
            let m = format!("there is an input {name:?} already, asked for at {first}");
            self.fail(place, Kind::Usage, m);
        }
    }

    pub(super) fn fail(&mut self, place: &Location<'_>, kind: Kind, message: String) {
        let at = At { func: Some(self.b.func().name.clone()), ..At::default() };
        self.error.get_or_insert_with(|| asked_for(Diagnostic::new(at, kind, message), place));
    }

    /// The phase of an instruction with these operands: the latest of theirs.
    pub(super) fn phase(&self, args: &[&Tensor]) -> Phase {
        let f = self.b.func();
        let of = |t: &&Tensor| match f.def(t.value) {
            ValueDef::Inst(i, _) => f.inst(i).phase,
            _ => Phase::PRIMAL,
        };
        args.iter().map(of).max().unwrap_or(Phase::PRIMAL)
    }

    pub(super) fn declare(&mut self, d: Dim) {
        if let Dim::Sym(symbol) = d
            && !self.b.func().symbols.contains(&symbol)
        {
            self.b.func_mut().symbols.push(symbol);
        }
    }

    /// Declares the symbols of a type the program wrote; whether it is within the limits.
    pub(super) fn admit(&mut self, place: &Location<'_>, ty: &TensorType) -> bool {
        if let Some(why) = ty.excess() {
            self.fail(place, Kind::Limit, why);
            return false;
        }
        ty.shape.iter().for_each(|&d| self.declare(d));
        true
    }

    /// The number as an element of `dtype`; an error if it is none.
    pub(super) fn typed(&mut self, place: &Location<'_>, x: f64, dtype: DType) -> Option<Literal> {
        // 2^63, the first integer that is too large.
        let end = -(i64::MIN as f64);
        let whole = x.fract() == 0.0 && (-end..end).contains(&x);
        let n = if whole && !dtype.is_float() { Number::Int(x as i64) } else { Number::Float(x) };
        let l = n.typed(dtype);
        if l.is_none() {
            self.fail(place, Kind::Literal, format!("{x:?} is no {dtype}"));
        }
        l
    }
}

/// Moves an instruction and those in its regions to `phase`, if theirs is earlier.
fn raise(f: &mut Function, i: Inst, phase: Phase) {
    let later = phase.max(f.inst(i).phase);
    f.set_phase(i, later);
    for r in f.inst(i).regions.clone() {
        for i in f.region(r).insts.clone() {
            raise(f, i, phase);
        }
    }
}

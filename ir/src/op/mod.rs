//! Ops: the table, one row each, and what is read off it.

mod attention;
mod collective;
mod composed;
mod contract;
mod control;
pub mod def;
mod definitions;
mod fourier;
mod indirect;
mod infer;
mod inverse;
mod inverse_row;
mod linalg;
mod loop_roles;
mod maps;
mod monoid;
mod opaque;
mod opcode;
mod order;
mod pad;
mod reduce;
mod reshape;
mod rows;
mod signature;
mod skew;
mod source;
mod table;
mod table_collectives;
mod table_linalg;
mod tensor_program;
mod tensor_writer;
mod view;

pub use attention::{ATTENTION_BLOCK, ATTENTION_JOINT, AttentionReach, AttentionShape};
pub use composed::{composition, composition_of_step};
pub use def::{
    Arity, Body, Bounds, Check, Collective, Compose, Composition, Control, Deriv, Domain, Effect,
    Indirect, Infer, JvpRule, LinearSlots, LoopRow, MapBody, MapCx, Monoid, OpDef, Partials, Place,
    RuleCx, SourceBody, StepBody, Tangents, TransposeRule, Update, ViewCx,
};
pub use inverse_row::{Accuracy, FloatRange, Inverse, InverseBody, InverseError, Recovery};
pub use loop_roles::{Entered, LoopRoles, Trips};
pub use opaque::batched_opaque;
pub use opcode::Op;
pub use signature::{Signature, element, signature, stacked};
pub use tensor_program::{tensor_literal, tensor_program};

use crate::attrs::Attrs;
use crate::dtype::DType;
use crate::scalar::{Func, Prim, Recorder, SOp, ScalarProgram};
use smallvec::SmallVec;
use std::fmt;
use std::sync::OnceLock;

impl Op {
    /// The op of this name.
    pub fn from_name(name: &str) -> Option<Op> {
        Op::ALL.iter().copied().find(|op| op.def().name == name)
    }

    /// The name in text.
    pub fn name(self) -> &'static str {
        self.def().name
    }

    /// Whether this op has an effect that order matters for.
    pub fn is_effect(self) -> bool {
        matches!(self.def().body, Body::Effect(_))
    }

    /// What kind of control it is, for ops with regions or a callee.
    pub fn control(self) -> Option<Control> {
        match self.def().body {
            Body::Region(control) => Some(control),
            _ => None,
        }
    }

    /// The names of its regions where an instruction has this many; none where it cannot.
    pub fn region_names(self, count: usize) -> Option<SmallVec<[&'static str; 2]>> {
        let names = self.def().regions;
        match (names, self.control()) {
            ([name], Some(Control::Branch)) => {
                (count > 0).then(|| std::iter::repeat_n(*name, count).collect())
            }
            _ => (names.len() == count).then(|| names.iter().copied().collect()),
        }
    }

    /// The scalar program of an elementwise op on operands of these types; `None` for other ops.
    ///
    /// 16-bit float operands are widened first and the result is rounded once.
    pub fn scalar_program(
        self,
        args: &[DType],
        result: DType,
        attrs: &Attrs,
    ) -> Option<ScalarProgram> {
        let Body::Map(body) = self.def().body else { return None };
        Some(Recorder::record(args, &[result], |_, x| {
            let y = match body {
                MapBody::Plain(f) => f(x),
                MapBody::With(f) => f(&MapCx { attrs, result }, x),
            };
            SmallVec::from_iter([y])
        }))
    }

    /// The scalar program of a generated source: parameters are the row-major position and the
    /// coordinate along the `axis` attribute (both `i64`), then the operands.
    pub fn source_program(self, args: &[DType], result: DType) -> Option<ScalarProgram> {
        let Body::Source(body) = self.def().body else { return None };
        let params: SmallVec<[DType; 4]> =
            [DType::I64, DType::I64].into_iter().chain(args.iter().copied()).collect();
        Some(Recorder::record(&params, &[result], |_, x| {
            let place = Place { linear: x[0], along: x[1] };
            SmallVec::from_iter([body(place, &x[2..], result.compute())])
        }))
    }

    /// The partial derivative with respect to operand `k`, as a program of the answer (parameter 0)
    /// and the operands. Its result is a float factor or a `bool` gate. 16-bit floats count as
    /// `f32` here. `None` when the op does not differentiate by partials.
    pub fn partial(
        self,
        k: usize,
        args: &[DType],
        result: DType,
        attrs: &Attrs,
    ) -> Option<ScalarProgram> {
        let Deriv::Partials(partials) = self.def().deriv else { return None };
        let params: SmallVec<[DType; 4]> =
            std::iter::once(result).chain(args.iter().copied()).map(DType::compute).collect();
        Some(Recorder::record_any(&params, |x| match partials {
            Partials::Plain(fs) => fs[k](x[0], &x[1..]),
            Partials::With(fs) => fs[k](&MapCx { attrs, result }, x[0], &x[1..]),
        }))
    }

    /// The attributes with which a linear op maps tangents: the primal's, but for what the op adds of
    /// its own.
    pub fn tangent_attrs(self, attrs: &Attrs) -> Attrs {
        match self {
            Op::Gather => indirect::tangent_of_gather(attrs),
            _ => attrs.clone(),
        }
    }

    /// The elementwise op that is just this scalar operation, with, for each operand of the op, the
    /// operand of the scalar operation that it is, and the op's attributes.
    pub fn of_scalar(op: SOp) -> Option<(Op, &'static [usize], Attrs)> {
        if let SOp::Func(Func::Polygamma(n)) = op {
            return Some((Op::Polygamma, &[0], Attrs::none().with_int("n", n.into())));
        }
        static ROWS: OnceLock<Vec<(SOp, Op, Vec<usize>)>> = OnceLock::new();
        let rows = ROWS.get_or_init(|| Op::ALL.iter().filter_map(|&op| single(op)).collect());
        let row = rows.iter().find(|(s, ..)| *s == op);
        row.map(|(_, op, order)| (*op, order.as_slice(), Attrs::none()))
    }
}

/// The one scalar operation an op is, when its program is just that.
fn single(op: Op) -> Option<(SOp, Op, Vec<usize>)> {
    let Infer::Map(sig) = op.def().infer else { return None };
    if op.def().declared || !op.def().attrs.is_empty() {
        return None;
    }
    let t = [DType::F32, DType::I32, DType::Bool].into_iter().find(|&d| sig.t.contains(d))?;
    let of = |class| if class == crate::infer::Class::Bool { DType::Bool } else { t };
    let args: Vec<DType> = sig.args.iter().map(|&c| of(c)).collect();
    let program = op.scalar_program(&args, of(sig.result), &Attrs::none())?;
    let last = &program.insts[*program.outputs.first()?];
    let params = |k: &crate::scalar::SVal| match program.insts[*k].op {
        SOp::Param(p) => Some(p as usize),
        _ => None,
    };
    let scalar_args: Vec<usize> = last.args.iter().map(params).collect::<Option<_>>()?;
    if !matches!(last.op, SOp::Prim(_) | SOp::Func(_)) || scalar_args.len() != args.len() {
        return None;
    }
    let order = (0..args.len()).map(|k| scalar_args.iter().position(|&p| p == k));
    Some((last.op, op, order.collect::<Option<_>>()?))
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The scalar operations that are an op of their own, for tests of completeness.
pub fn scalar_ops() -> impl Iterator<Item = SOp> {
    let funcs = Func::ALL.iter().map(|&f| SOp::Func(f));
    [Prim::Add, Prim::Mul, Prim::Select].map(SOp::Prim).into_iter().chain(funcs)
}

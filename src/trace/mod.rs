//! Tracing: a Rust closure over [`Tensor`] handles becomes a function.
//!
//! ```
//! use adfuse::prelude::*;
//!
//! let f = trace("loss", |t| {
//!     let x = t.input("x", f32s([128, 64]));
//!     let w = t.input("w", f32s([64, 10]));
//!     x.dot(&w).relu().sum(&[0, 1])
//! })?;
//! assert_eq!(f.params().len(), 2);
//! # Ok::<(), adfuse::ir::Diagnostic>(())
//! ```

mod activation;
mod attention;
mod axes;
mod broadcast;
mod callee;
mod checkpoint;
pub(crate) mod closure;
mod collective;
mod constant;
mod contract;
mod control;
mod effect;
mod einsum;
mod extents;
mod index;
mod layer_context;
mod layers;
mod linalg;
mod loss;
mod loss_linear;
mod math;
mod normalize;
mod operators;
mod quantize;
mod random;
mod record;
mod reduce;
mod root;
mod rule;
mod shape;
mod slice;
mod tensor;
mod window;
mod window_options;

pub use attention::AttentionMask;
pub use axes::{Axes, AxisIndex, KeptAxes, keep};
pub use callee::{Callee, Traced};
pub use collective::RankAxis;
pub use constant::{ConstantValues, NestedArray, RustElement, evaluate};
pub use control::{LoopBounds, ScanOptions};
pub use effect::OpaqueFunction;
pub use extents::IntoShape;
pub use operators::TensorOperand;
pub use random::Key;
pub use shape::{NewExtent, NewShape};
pub use slice::{AxisRange, SliceRange, SliceRanges};
pub use tensor::Tensor;
pub use window_options::{Conv, ConvGeneral, Padding, PerAxis, Pool, ReduceWindow};

use crate::backends::Array;
use crate::ir::rewrite::Copier;
use crate::ir::verify::{substitute, verify};
use crate::ir::{
    At, Builder, DType, Diagnostic, Dim, Function, Inst, Kind, Literal, Module, Number, Op, Phase,
    Provenance, SourceLine, TensorType, Value, ValueDef,
};
use crate::tree::{Params, leaves, map};
use callee::{bound, is_plain, named};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

/// The type `f32[dims]`.
pub fn f32s(dims: impl IntoShape) -> TensorType {
    TensorType::new(DType::F32, dims.shape())
}

/// The type `f64[dims]`.
pub fn f64s(dims: impl IntoShape) -> TensorType {
    TensorType::new(DType::F64, dims.shape())
}

/// The type `i32[dims]`.
pub fn i32s(dims: impl IntoShape) -> TensorType {
    TensorType::new(DType::I32, dims.shape())
}

/// Traces `body` into a function of this name. Inputs become parameters in the order they are asked
/// for; what the closure returns becomes the results. The function is verified, with the functions that it
/// calls, which come along ([`Tracer::call`]).
///
/// # Errors
/// The first operation whose operands do not fit, with the place in the Rust source that asked for
/// it; then what the verifier finds.
#[track_caller]
pub fn trace<R: Params<Tensor>>(
    name: &str,
    body: impl FnOnce(&Tracer) -> R,
) -> Result<Traced, Diagnostic> {
    let place = Location::caller();
    if !is_identifier(name) {
        let d = Diagnostic::new(At::default(), Kind::Usage, no_identifier("a function", name));
        return Err(asked_for(d, place));
    }
    let tracer = Tracer { state: Rc::default() };
    *tracer.state.borrow_mut() = Some(TraceState::new(name));
    let results = leaves(&body(&tracer));
    let state = tracer.state.borrow_mut().take();
    let Some(mut state) = state else {
        return Err(Diagnostic::new(At::default(), Kind::Internal, "a trace ended twice"));
    };
    if results.iter().any(|t| !Rc::ptr_eq(&t.state, &tracer.state)) {
        state.fail(place, Kind::Usage, "a result belongs to another trace".into());
    }
    let TraceState { mut b, error, callees, .. } = state;
    if let Some(e) = error {
        return Err(e);
    }
    let results: Vec<Value> = results.into_iter().map(|t| t.value).collect();
    b.set_results(&results);
    let traced = Traced { f: b.finish()?, callees };
    match verify(&Module::from(traced.clone())).map_err(|errors| errors.into_iter().next()) {
        Err(Some(d)) => {
            Err(if d.hint.is_none() && d.at.line.is_none() { asked_for(d, place) } else { d })
        }
        Ok(()) | Err(None) => Ok(traced),
    }
}

/// As [`trace`], with a tree like what the closure returns, which has arrays instead of those to come.
#[track_caller]
pub(crate) fn trace_like<R: Params<Tensor>>(
    name: &str,
    body: impl FnOnce(&Tracer) -> R,
) -> Result<(Traced, R::With<Array>), Diagnostic> {
    let mut like = None;
    let nothing = Array::scalar(Literal::zero(DType::Bool));
    let traced = trace(name, |t| {
        let out = body(t);
        like = Some(map(&out, |_, _| nothing.clone()));
        out
    })?;
    let like = like.unwrap_or_else(|| unreachable!("the closure has been run"));
    Ok((traced, like))
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
}

fn no_identifier(what: &str, name: &str) -> String {
    format!("the name of {what} must be letters, digits, `_` and `.`, found {name:?}")
}

fn asked_for(d: Diagnostic, place: &Location<'_>) -> Diagnostic {
    d.hint(format!("asked for at {place}"))
}

/// The trace that a handle belongs to; `None` inside once it has ended.
type SharedTrace = Rc<RefCell<Option<TraceState>>>;

struct TraceState {
    b: Builder,
    error: Option<Diagnostic>,
    /// The functions that it calls, and what those need.
    callees: Vec<Function>,
    /// The names of the inputs, and what asked for them.
    inputs: BTreeMap<String, &'static Location<'static>>,
    /// How many checkpoint regions there are.
    regions: u32,
    layers: layer_context::LayerContext,
}

/// What a traced closure makes inputs and constants from.
pub struct Tracer {
    state: SharedTrace,
}

impl Tracer {
    /// A parameter of the function. Its name is an identifier: letters, digits, `_` and `.`. No other input has it.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let f = trace("f", |t| t.input("x", f32s([2])) + t.input("b.0", f32s([])))?;
    /// assert_eq!(f.params().len(), 2);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn input(&self, name: &str, ty: TensorType) -> Tensor {
        let place = Location::caller();
        record(&self.state, &ty, |s| {
            if !is_identifier(name) {
                s.fail(place, Kind::Usage, no_identifier("an input", name));
            }
            s.called(place, name);
            s.admit(place, &ty).then(|| s.b.param(ty.clone(), Some(name)))
        })
    }

    /// The results of a verified function of these arguments: of a [`Function`], of what [`trace`] gave, or of
    /// `(&module, f)`, a function of a module. Symbols of its parameters become the extents of the arguments.
    ///
    /// A function that has no rule and calls nothing is copied into the trace. Any other is called, and comes
    /// along with what it needs, so that its rule holds wherever the traced function is differentiated.
    ///
    /// ```
    /// # use adfuse::autodiff::jvp;
    /// # use adfuse::prelude::*;
    /// let cube = trace("cube", |t| t.input("x", f32s([2])).powi(3))?;
    /// let slope = jvp(&Module::single(cube.clone()), &cube, &[0])?;
    /// let f = trace("f", |t| {
    ///     let x = t.input("x", f32s([2]));
    ///     t.call(&slope, &[&x, &x.ones_like()]).remove(1)
    /// })?;
    /// assert_eq!(f.result_types()[0], f32s([2]));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn call(&self, callee: impl Callee, args: &[&Tensor]) -> Vec<Tensor> {
        let place = Location::caller();
        let f = callee.function();
        let own = own_all(&self.state, args, place, &format!("@{}", f.name));
        let found: Vec<TensorType> = args.iter().map(|t| t.ty.clone()).collect();
        let extents = bound(f, &found);
        let fits = extents.is_some();
        let extents = extents.unwrap_or_default();
        let retype = |ty: &TensorType| substitute(ty, &extents);
        let types: Vec<TensorType> = f.result_types().iter().map(retype).collect();
        record_all(&self.state, &types, |s| {
            if !fits {
                s.fail(place, Kind::Usage, callee::misfit(f, &found));
            }
            if !own || s.error.is_some() {
                return None;
            }
            let free = f.symbols.iter().filter(|symbol| !extents.contains_key(symbol));
            free.for_each(|&symbol| s.declare(Dim::Sym(symbol)));
            let phase = s.phase(args);
            if !is_plain(f) {
                let values: Vec<Value> = args.iter().map(|t| t.value).collect();
                s.b.set_phase(phase);
                return s
                    .link(place, &callee)
                    .then(|| s.b.inst(Op::Call, &values, named(f), Some(&types)).to_vec());
            }
            let mut copier = Copier::retyping(f, &retype);
            for (&p, a) in f.params().iter().zip(args) {
                copier.set(p, a.value);
            }
            for &i in f.body_insts() {
                let new = copier.inst(&mut s.b, i);
                raise(s.b.func_mut(), new, phase);
                s.enclose(new);
            }
            Some(f.results().iter().map(|&r| copier.get(&mut s.b, r)).collect())
        })
    }
}

/// Runs `f` on each of these traces that has not ended, once.
fn each_live<'t>(
    traces: impl IntoIterator<Item = &'t SharedTrace>,
    mut f: impl FnMut(&mut TraceState),
) {
    let mut seen: Vec<&SharedTrace> = Vec::new();
    for shared in traces {
        if !seen.iter().any(|s| Rc::ptr_eq(s, shared)) {
            seen.push(shared);
            if let Some(s) = shared.borrow_mut().as_mut() {
                f(s);
            }
        }
    }
}

/// Whether the trace lives and all operands are its own; if not, every live one gets an error.
fn own_all(shared: &SharedTrace, args: &[&Tensor], place: &Location<'_>, what: &str) -> bool {
    let alive = shared.borrow().is_some();
    let foreign = args.iter().any(|t| !Rc::ptr_eq(&t.state, shared));
    if alive && !foreign {
        return true;
    }
    let ended = !alive || args.iter().any(|t| t.state.borrow().is_none());
    let why = if ended { "a trace that has ended" } else { "another trace" };
    each_live(std::iter::once(shared).chain(args.iter().map(|t| &t.state)), |s| {
        s.fail(place, Kind::Usage, format!("{what}: an operand belongs to {why}"));
    });
    false
}

/// The values that `f` makes, of these types; stand-ins after an error and after the trace's end.
/// The error is what the caller of [`trace`] gets. Instructions have the line of the caller.
#[track_caller]
fn record_all(
    shared: &SharedTrace,
    types: &[TensorType],
    f: impl FnOnce(&mut TraceState) -> Option<Vec<Value>>,
) -> Vec<Tensor> {
    let handle = |value, ty: &TensorType| Tensor { state: shared.clone(), value, ty: ty.clone() };
    let line = Some(Arc::new(SourceLine::of(Location::caller())));
    let made = shared.borrow_mut().as_mut().and_then(|s| {
        s.b.set_origin(Provenance { span: None, line });
        let values = f(s).filter(|_| s.error.is_none())?;
        Some(values.into_iter().map(|v| handle(v, s.b.ty(v))).collect())
    });
    let stand_in = |ty: &TensorType| match ty.excess() {
        Some(_) => handle(Value::from_u32(0), &TensorType::scalar(ty.dtype)),
        None => handle(Value::from_u32(0), ty),
    };
    made.unwrap_or_else(|| types.iter().map(stand_in).collect())
}

/// As [`record_all`], for one value.
#[track_caller]
fn record(
    shared: &SharedTrace,
    ty: &TensorType,
    f: impl FnOnce(&mut TraceState) -> Option<Value>,
) -> Tensor {
    record_all(shared, std::slice::from_ref(ty), |s| f(s).map(|v| vec![v])).remove(0)
}

/// The number `x` as an operand together with `other`.
#[track_caller]
fn number(other: &Tensor, x: Number) -> Tensor {
    let place = Location::caller();
    record(&other.state, &other.ty, |s| {
        let l = s.typed(place, x, other.ty.dtype)?;
        Some(s.b.literal(&other.ty, l))
    })
}

impl TraceState {
    fn new(name: &str) -> TraceState {
        let (callees, inputs) = (Vec::new(), BTreeMap::new());
        let layers = layer_context::LayerContext::default();
        TraceState { b: Builder::new(name), error: None, callees, inputs, regions: 0, layers }
    }

    /// Gives an input a name that no other has: whoever looks for an input by name finds one.
    fn called(&mut self, place: &'static Location<'static>, name: &str) {
        if let Some(first) = self.inputs.insert(name.into(), place) {
            let m = format!("there is an input {name:?} already, asked for at {first}");
            self.fail(place, Kind::Usage, m);
        }
    }

    fn fail(&mut self, place: &Location<'_>, kind: Kind, message: String) {
        let at = At { func: Some(self.b.func().name.clone()), ..At::default() };
        self.error.get_or_insert_with(|| asked_for(Diagnostic::new(at, kind, message), place));
    }

    /// The phase of an instruction with these operands: the latest of theirs.
    fn phase(&self, args: &[&Tensor]) -> Phase {
        let f = self.b.func();
        let of = |t: &&Tensor| match f.def(t.value) {
            ValueDef::Inst(i, _) => f.inst(i).phase,
            _ => Phase::PRIMAL,
        };
        args.iter().map(of).max().unwrap_or(Phase::PRIMAL)
    }

    fn declare(&mut self, d: Dim) {
        if let Dim::Sym(symbol) = d
            && !self.b.func().symbols.contains(&symbol)
        {
            self.b.func_mut().symbols.push(symbol);
        }
    }

    /// Declares the symbols of a type the program wrote; whether it is within the limits.
    fn admit(&mut self, place: &Location<'_>, ty: &TensorType) -> bool {
        if let Some(why) = ty.excess() {
            self.fail(place, Kind::Limit, why);
            return false;
        }
        ty.shape.iter().for_each(|&d| self.declare(d));
        true
    }

    /// The number as an element of `dtype`; an error if it is none.
    fn typed(&mut self, place: &Location<'_>, x: Number, dtype: DType) -> Option<Literal> {
        // 2^63, the first integer that is too large.
        let end = -(i64::MIN as f64);
        let n = match x {
            // A whole float is an integer.
            Number::Float(f)
                if !dtype.is_float() && f.fract() == 0.0 && (-end..end).contains(&f) =>
            {
                Number::Int(f as i64)
            }
            other => other,
        };
        let l = n.typed(dtype);
        if l.is_none() {
            let fractional = matches!(n, Number::Float(_)) && dtype.is_int();
            let hint = if fractional { ": convert the tensor, `.convert(DType::F32)`" } else { "" };
            self.fail(place, Kind::Literal, format!("{x} is no {dtype}{hint}"));
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

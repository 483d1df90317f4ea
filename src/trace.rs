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

use crate::ir::attrs::{Attr, Attrs};
use crate::ir::rewrite::Copier;
use crate::ir::{
    At, Builder, DType, Diagnostic, Dim, Function, Kind, Literal, Op, Shape, TensorType, Value,
};
use std::cell::RefCell;
use std::fmt;
use std::ops;
use std::rc::Rc;

/// The type `f32[dims]`.
pub fn f32s<const N: usize>(dims: [u64; N]) -> TensorType {
    TensorType::of(DType::F32, &dims)
}

/// The type `f64[dims]`.
pub fn f64s<const N: usize>(dims: [u64; N]) -> TensorType {
    TensorType::of(DType::F64, &dims)
}

/// The type `i32[dims]`.
pub fn i32s<const N: usize>(dims: [u64; N]) -> TensorType {
    TensorType::of(DType::I32, &dims)
}

/// Traces `body` into a function of this name. Inputs become parameters in the order they are asked
/// for; what the closure returns becomes the results.
///
/// # Errors
/// The first operation whose operands do not fit, with the place in the Rust source that asked for it.
pub fn trace<R: Outputs>(
    name: &str,
    body: impl FnOnce(&Tracer) -> R,
) -> Result<Function, Diagnostic> {
    let tracer = Tracer { state: Rc::default() };
    *tracer.state.borrow_mut() = Some(State { b: Builder::new(name), error: None });
    let results = body(&tracer).tensors();
    let state = tracer.state.borrow_mut().take();
    let Some(State { mut b, error }) = state else {
        return Err(Diagnostic::new(At::default(), Kind::Internal, "a trace ended twice"));
    };
    if let Some(e) = error {
        return Err(e);
    }
    let foreign = results.iter().any(|t| !Rc::ptr_eq(&t.state, &tracer.state));
    if foreign {
        return Err(Diagnostic::new(
            At::default(),
            Kind::Usage,
            "a result belongs to another trace",
        ));
    }
    let results: Vec<Value> = results.into_iter().map(|t| t.value).collect();
    b.set_results(&results);
    b.finish()
}

type Shared = Rc<RefCell<Option<State>>>;

struct State {
    b: Builder,
    error: Option<Diagnostic>,
}

/// What a traced closure makes inputs and constants from.
pub struct Tracer {
    state: Shared,
}

impl Tracer {
    /// A parameter of the function.
    #[track_caller]
    pub fn input(&self, name: &str, ty: TensorType) -> Tensor {
        let value = with(&self.state, |s| {
            if let Some(why) = ty.excess() {
                s.fail(Kind::Limit, why);
            }
            for d in &ty.shape {
                if let Dim::Sym(symbol) = *d
                    && !s.b.func().symbols.contains(&symbol)
                {
                    s.b.func_mut().symbols.push(symbol);
                }
            }
            s.b.param(ty, Some(name))
        });
        Tensor { state: self.state.clone(), value }
    }

    /// A tensor filled with a number of `ty`'s element type.
    #[track_caller]
    pub fn full(&self, ty: TensorType, x: f64) -> Tensor {
        let value = with(&self.state, |s| {
            let l = s.b.literal(&ty, Literal::from_f64(ty.dtype, x));
            s.b.materialize(l)
        });
        Tensor { state: self.state.clone(), value }
    }

    /// The coordinate along `axis`.
    #[track_caller]
    pub fn iota(&self, ty: TensorType, axis: usize) -> Tensor {
        let attrs = Attrs::none().with_int("axis", axis as i64);
        self.apply(Op::Iota, &[], attrs, Some(&ty))
    }

    /// The results of a function of these arguments, its instructions copied into the trace. The
    /// function must not call others.
    #[track_caller]
    pub fn call(&self, f: &Function, args: &[&Tensor]) -> Vec<Tensor> {
        let values = with(&self.state, |s| {
            let due = f.param_types();
            let found: Vec<TensorType> = args.iter().map(|t| s.b.ty(t.value).clone()).collect();
            if args.iter().any(|t| !Rc::ptr_eq(&t.state, &self.state)) || due != found {
                s.fail(Kind::Usage, format!("@{} takes {due:?}, found {found:?}", f.name));
            }
            if s.error.is_some() {
                let types = f.result_types();
                return types.iter().map(|t| s.b.literal(t, Literal::zero(t.dtype))).collect();
            }
            let mut copier = Copier::new(f);
            for (&p, a) in f.params().iter().zip(args) {
                copier.set(p, a.value);
            }
            for &i in f.body_insts() {
                copier.inst(&mut s.b, i);
            }
            f.results().iter().map(|&r| copier.get(&mut s.b, r)).collect::<Vec<Value>>()
        });
        values.into_iter().map(|value| Tensor { state: self.state.clone(), value }).collect()
    }

    /// Any op on any operands; the type of the result where it is not inferred.
    #[track_caller]
    pub fn apply(&self, op: Op, args: &[&Tensor], attrs: Attrs, ty: Option<&TensorType>) -> Tensor {
        apply(&self.state, op, args, attrs, ty)
    }
}

/// What a traced closure may return: a tensor, or several.
pub trait Outputs {
    /// The results in order.
    fn tensors(self) -> Vec<Tensor>;
}

impl Outputs for Tensor {
    fn tensors(self) -> Vec<Tensor> {
        vec![self]
    }
}

impl Outputs for Vec<Tensor> {
    fn tensors(self) -> Vec<Tensor> {
        self
    }
}

impl<const N: usize> Outputs for [Tensor; N] {
    fn tensors(self) -> Vec<Tensor> {
        self.into()
    }
}

impl Outputs for (Tensor, Tensor) {
    fn tensors(self) -> Vec<Tensor> {
        vec![self.0, self.1]
    }
}

/// Runs `f` on the state of a trace that has not ended.
///
/// # Panics
/// When a tensor outlives the closure it was traced in, which is a mistake of the program.
fn with<T>(shared: &Shared, f: impl FnOnce(&mut State) -> T) -> T {
    f(shared.borrow_mut().as_mut().expect("a tensor is used after its trace has ended"))
}

impl State {
    #[track_caller]
    fn fail(&mut self, kind: Kind, message: String) {
        let place = std::panic::Location::caller();
        let at = At { func: Some(self.b.func().name.clone()), ..At::default() };
        let d = Diagnostic::new(at, kind, message).hint(format!("asked for at {place}"));
        self.error.get_or_insert(d);
    }
}

#[track_caller]
fn apply(
    shared: &Shared,
    op: Op,
    args: &[&Tensor],
    attrs: Attrs,
    ty: Option<&TensorType>,
) -> Tensor {
    let value = with(shared, |s| {
        if args.iter().any(|t| !Rc::ptr_eq(&t.state, shared)) {
            s.fail(Kind::Usage, format!("`{op}`: an operand belongs to another trace"));
        }
        if s.error.is_some() {
            // After an error everything is a stand-in; the error is what the caller gets.
            return s.b.literal(&TensorType::scalar(DType::F32), Literal::zero(DType::F32));
        }
        let values: Vec<Value> = args.iter().map(|t| t.value).collect();
        let out = s.b.inst(op, &values, attrs, ty.map(std::slice::from_ref));
        if let Some(d) = s.b.error() {
            let message = format!("`{op}`: {}", d.message);
            s.fail(Kind::Usage, message);
        }
        out[0]
    });
    Tensor { state: shared.clone(), value }
}

/// A tensor in a trace: cheap to clone; operators and methods record instructions.
///
/// Shapes are explicit: operands of arithmetic have equal types, [`Tensor::broadcast_like`] and
/// [`Tensor::broadcast`] make them so. A plain `f64` may stand for either operand of an operator.
#[derive(Clone)]
pub struct Tensor {
    state: Shared,
    value: Value,
}

macro_rules! unary {
    ($($name:ident $op:ident;)*) => {
        $(#[doc = concat!("The op [`Op::", stringify!($op), "`].")]
        #[track_caller]
        #[must_use]
        pub fn $name(&self) -> Tensor {
            apply(&self.state, Op::$op, &[self], Attrs::none(), None)
        })*
    };
}

macro_rules! binary {
    ($($name:ident $op:ident;)*) => {
        $(#[doc = concat!("The op [`Op::", stringify!($op), "`].")]
        #[track_caller]
        #[must_use]
        pub fn $name(&self, other: impl Operand) -> Tensor {
            let other = other.beside(self);
            apply(&self.state, Op::$op, &[self, &other], Attrs::none(), None)
        })*
    };
}

macro_rules! reductions {
    ($($name:ident $op:ident;)*) => {
        $(#[doc = concat!("The op [`Op::", stringify!($op), "`] over `axes`.")]
        #[track_caller]
        #[must_use]
        pub fn $name(&self, axes: &[usize]) -> Tensor {
            let attrs = Attrs::none().with_ints("axes", axes.iter().map(|&a| a as i64));
            apply(&self.state, Op::$op, &[self], attrs, None)
        })*
    };
}

impl Tensor {
    unary! {
        abs Abs; sign Sign; square Square; relu Relu; floor Floor; ceil Ceil; round Round;
        exp Exp; exp2 Exp2; expm1 Expm1; log Log; log1p Log1p; sqrt Sqrt; rsqrt Rsqrt; cbrt Cbrt;
        logistic Logistic; erf Erf; erfc Erfc; sin Sin; cos Cos; tan Tan; asin Asin; acos Acos;
        atan Atan; sinh Sinh; cosh Cosh; tanh Tanh; asinh Asinh; acosh Acosh; atanh Atanh;
        is_finite IsFinite; stop_gradient StopGradient;
    }

    binary! {
        max Max; min Min; pow Pow; atan2 Atan2; rem Rem;
        eq Eq; ne Ne; lt Lt; le Le; gt Gt; ge Ge;
    }

    reductions! { sum ReduceSum; prod ReduceProd; max_over ReduceMax; min_over ReduceMin; rev Rev; }

    /// The tensor's type.
    pub fn ty(&self) -> TensorType {
        with(&self.state, |s| s.b.ty(self.value).clone())
    }

    /// Names the value, for text and for gradients that belong to it.
    #[must_use]
    pub fn named(self, name: &str) -> Tensor {
        with(&self.state, |s| s.b.func_mut().set_name(self.value, Some(name)));
        self
    }

    /// Mean over axes of known extents.
    #[track_caller]
    #[must_use]
    pub fn mean(&self, axes: &[usize]) -> Tensor {
        let ty = self.ty();
        let count: Option<u64> =
            axes.iter().map(|&a| ty.shape.get(a).and_then(|d| d.known())).product();
        match count {
            Some(n) => self.sum(axes) / n as f64,
            None => {
                let m = format!("`mean` needs known extents of {axes:?} in {ty}");
                with(&self.state, |s| s.fail(Kind::Shape, m));
                self.clone()
            }
        }
    }

    /// Matrix product: the last axis of `self` with the first of `other`.
    #[track_caller]
    #[must_use]
    pub fn dot(&self, other: &Tensor) -> Tensor {
        let last = self.ty().rank() as i64 - 1;
        self.dot_general(other, ([].as_slice(), &[]), (&[last], &[0]))
    }

    /// Sums of products over pairs of `contract` axes, for each index of the pairs of `batch` axes.
    #[track_caller]
    #[must_use]
    pub fn dot_general(
        &self,
        other: &Tensor,
        batch: (&[i64], &[i64]),
        contract: (&[i64], &[i64]),
    ) -> Tensor {
        let pair = |(a, b): (&[i64], &[i64])| Attr::Pair(a.into(), b.into());
        let attrs = Attrs::none().with("batch", pair(batch)).with("contract", pair(contract));
        apply(&self.state, Op::DotGeneral, &[self, other], attrs, None)
    }

    /// Axis i becomes axis `dims[i]` of `shape`; it repeats along the others.
    #[track_caller]
    #[must_use]
    pub fn broadcast(&self, dims: &[usize], shape: &[Dim]) -> Tensor {
        let ty = TensorType::new(self.ty().dtype, shape.iter().copied());
        let attrs = Attrs::none().with_ints("dims", dims.iter().map(|&d| d as i64));
        apply(&self.state, Op::BroadcastInDim, &[self], attrs, Some(&ty))
    }

    /// Repeats along leading axes to the shape of `other`: this tensor's axes are its last ones.
    #[track_caller]
    #[must_use]
    pub fn broadcast_like(&self, other: &Tensor) -> Tensor {
        let (mine, theirs) = (self.ty().rank(), other.ty());
        let first = theirs.rank().saturating_sub(mine);
        let dims: Vec<usize> = (first..first + mine).collect();
        self.broadcast(&dims, &theirs.shape)
    }

    /// Puts back the axes that a reduction of `other` over `axes` removed, repeating along them.
    #[track_caller]
    #[must_use]
    pub fn spread(&self, axes: &[usize], other: &Tensor) -> Tensor {
        let theirs = other.ty();
        let dims: Vec<usize> = (0..theirs.rank()).filter(|d| !axes.contains(d)).collect();
        self.broadcast(&dims, &theirs.shape)
    }

    /// The same elements under another shape.
    #[track_caller]
    #[must_use]
    pub fn reshape(&self, shape: impl IntoIterator<Item = u64>) -> Tensor {
        let shape: Shape = shape.into_iter().map(Dim::Const).collect();
        let ty = TensorType { dtype: self.ty().dtype, shape };
        apply(&self.state, Op::Reshape, &[self], Attrs::none(), Some(&ty))
    }

    /// Result axis i is axis `perm[i]`.
    #[track_caller]
    #[must_use]
    pub fn transpose(&self, perm: &[usize]) -> Tensor {
        let attrs = Attrs::none().with_ints("perm", perm.iter().map(|&p| p as i64));
        apply(&self.state, Op::Transpose, &[self], attrs, None)
    }

    /// The same numbers in another element type.
    #[track_caller]
    #[must_use]
    pub fn convert(&self, dtype: DType) -> Tensor {
        let ty = self.ty().with_dtype(dtype);
        apply(&self.state, Op::ConvertElementType, &[self], Attrs::none(), Some(&ty))
    }

    /// Where this `bool` tensor holds, `yes`, elsewhere `no`.
    #[track_caller]
    #[must_use]
    pub fn select(&self, yes: &Tensor, no: impl Operand) -> Tensor {
        let no = no.beside(yes);
        apply(&self.state, Op::SelectN, &[self, &no, yes], Attrs::none(), None)
    }

    /// Integer power.
    #[track_caller]
    #[must_use]
    pub fn powi(&self, y: i64) -> Tensor {
        let attrs = Attrs::none().with_int("y", y);
        apply(&self.state, Op::IntegerPow, &[self], attrs, None)
    }

    /// `log(softmax)` over the last axis, shifted by the maximum so that nothing overflows.
    #[track_caller]
    #[must_use]
    pub fn log_softmax(&self) -> Tensor {
        let last = [self.ty().rank().saturating_sub(1)];
        let top = self.max_over(&last).stop_gradient();
        let shifted = self - top.spread(&last, self);
        let sum = shifted.exp().sum(&last);
        &shifted - sum.log().spread(&last, &shifted)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state.borrow().as_ref() {
            Some(s) => write!(f, "{}: {}", self.value, s.b.ty(self.value)),
            None => f.write_str("a tensor of a trace that has ended"),
        }
    }
}

/// What may stand beside a tensor: another one, or a number of its type.
pub trait Operand {
    /// The operand as a tensor like `other`.
    fn beside(self, other: &Tensor) -> Tensor;
}

impl Operand for Tensor {
    fn beside(self, _: &Tensor) -> Tensor {
        self
    }
}

impl Operand for &Tensor {
    fn beside(self, _: &Tensor) -> Tensor {
        self.clone()
    }
}

impl Operand for f64 {
    fn beside(self, other: &Tensor) -> Tensor {
        let value = with(&other.state, |s| {
            let ty = s.b.ty(other.value).clone();
            s.b.literal(&ty, Literal::from_f64(ty.dtype, self))
        });
        Tensor { state: other.state.clone(), value }
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)*) => {
        $(impl<O: Operand> ops::$trait<O> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: O) -> Tensor {
                let other = other.beside(self);
                apply(&self.state, Op::$op, &[self, &other], Attrs::none(), None)
            }
        }
        impl<O: Operand> ops::$trait<O> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: O) -> Tensor {
                ops::$trait::$method(&self, other)
            }
        }
        impl ops::$trait<&Tensor> for f64 {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: &Tensor) -> Tensor {
                ops::$trait::$method(&self.beside(other), other)
            }
        }
        impl ops::$trait<Tensor> for f64 {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor {
                ops::$trait::$method(self, &other)
            }
        })*
    };
}

operators! { Add add Add; Sub sub Sub; Mul mul Mul; Div div Div; }

impl ops::Neg for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        apply(&self.state, Op::Neg, &[self], Attrs::none(), None)
    }
}

impl ops::Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        -&self
    }
}

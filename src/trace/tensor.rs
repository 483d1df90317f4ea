//! Tensor handles: the operators and methods that record instructions.

use super::{SharedTrace, apply, apply_all, each_live, number, own_all};
use crate::ir::attrs::{Attr, Attrs};
use crate::ir::{DType, Dim, Kind, Op, Shape, TensorType, Value};
use std::fmt;
use std::ops;
use std::panic::Location;

/// A tensor in a trace: cheap to clone; operators and methods record instructions.
///
/// Shapes are explicit: operands of arithmetic have equal types, [`Tensor::broadcast_like`] and
/// [`Tensor::broadcast`] make them so. A plain `f64` may stand for either operand of an operator.
#[derive(Clone)]
pub struct Tensor {
    pub(super) state: SharedTrace,
    pub(super) value: Value,
    pub(super) ty: TensorType,
}

impl crate::tree::Leaf for Tensor {}

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
        pub fn $name(&self, other: impl TensorOperand) -> Tensor {
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
        logistic Logistic; erf Erf; erfc Erfc; erf_inv ErfInv; lgamma Lgamma; digamma Digamma; sin Sin; cos Cos; tan Tan; asin Asin; acos Acos;
        atan Atan; sinh Sinh; cosh Cosh; tanh Tanh; asinh Asinh; acosh Acosh; atanh Atanh;
        is_finite IsFinite; stop_gradient StopGradient;
    }

    binary! {
        max Max; min Min; pow Pow; atan2 Atan2; rem Rem; logaddexp Logaddexp; xlogy Xlogy;
        eq Eq; ne Ne; lt Lt; le Le; gt Gt; ge Ge;
    }

    reductions! { sum ReduceSum; prod ReduceProd; max_over ReduceMax; min_over ReduceMin; rev Rev; }

    /// The tensor's type.
    pub fn ty(&self) -> TensorType {
        self.ty.clone()
    }

    /// Names the value, for text and for gradients that belong to it. An input gets no name that another has.
    #[track_caller]
    #[must_use]
    pub fn named(self, name: &str) -> Tensor {
        let place = Location::caller();
        each_live([&self.state], |s| {
            // After an error the value may be a stand-in of no function.
            if s.error.is_some() {
                return;
            }
            if s.b.func().params().contains(&self.value) {
                let old = s.b.func().name_of(self.value).map(str::to_string);
                old.and_then(|old| s.inputs.remove(&old));
                s.called(place, name);
            }
            s.b.func_mut().set_name(self.value, Some(name));
        });
        self
    }

    /// Mean over axes of known extents.
    #[track_caller]
    #[must_use]
    pub fn mean(&self, axes: &[usize]) -> Tensor {
        let place = Location::caller();
        let extent = |&a: &usize| self.ty.shape.get(a).and_then(|d| d.known());
        let count = axes.iter().try_fold(1u64, |n, a| n.checked_mul(extent(a)?));
        match count {
            Some(n) => self.sum(axes) / n as f64,
            None => {
                let m = format!("`mean` needs known extents of {axes:?} in {}", self.ty);
                each_live([&self.state], |s| s.fail(place, Kind::Shape, m.clone()));
                self.clone()
            }
        }
    }

    /// Matrix product: the last axis of `self` with the first of `other`.
    #[track_caller]
    #[must_use]
    pub fn dot(&self, other: &Tensor) -> Tensor {
        let last = self.ty.rank() as i64 - 1;
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
        let ty = TensorType::new(self.ty.dtype, shape.iter().copied());
        let attrs = Attrs::none().with_ints("dims", dims.iter().map(|&d| d as i64));
        apply(&self.state, Op::BroadcastInDim, &[self], attrs, Some(&ty))
    }

    /// Repeats along leading axes to the shape of `other`: this tensor's axes are its last ones.
    #[track_caller]
    #[must_use]
    pub fn broadcast_like(&self, other: &Tensor) -> Tensor {
        own_all(&self.state, &[other], Location::caller(), "`broadcast_like`");
        let (mine, theirs) = (self.ty.rank(), &other.ty);
        let first = theirs.rank().saturating_sub(mine);
        let dims: Vec<usize> = (first..first + mine).collect();
        self.broadcast(&dims, &theirs.shape)
    }

    /// Puts back the axes that a reduction of `other` over `axes` removed, repeating along them.
    #[track_caller]
    #[must_use]
    pub fn spread(&self, axes: &[usize], other: &Tensor) -> Tensor {
        own_all(&self.state, &[other], Location::caller(), "`spread`");
        let theirs = &other.ty;
        let dims: Vec<usize> = (0..theirs.rank()).filter(|d| !axes.contains(d)).collect();
        self.broadcast(&dims, &theirs.shape)
    }

    /// Pieces of these sizes along `axis`, in order.
    #[track_caller]
    #[must_use]
    pub fn split(&self, sizes: &[u64], axis: usize) -> Vec<Tensor> {
        let sizes = sizes.iter().map(|&n| n as i64);
        let attrs = Attrs::none().with_ints("sizes", sizes).with_int("axis", axis as i64);
        apply_all(&self.state, Op::Split, &[self], attrs, None)
    }

    /// The same elements under another shape.
    #[track_caller]
    #[must_use]
    pub fn reshape(&self, shape: impl IntoIterator<Item = u64>) -> Tensor {
        let shape: Shape = shape.into_iter().map(Dim::Const).collect();
        let ty = TensorType { dtype: self.ty.dtype, shape };
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
        let ty = self.ty.with_dtype(dtype);
        apply(&self.state, Op::ConvertElementType, &[self], Attrs::none(), Some(&ty))
    }

    /// Where this `bool` tensor holds, `yes`, elsewhere `no`.
    #[track_caller]
    #[must_use]
    pub fn select(&self, yes: &Tensor, no: impl TensorOperand) -> Tensor {
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

    /// The derivative of digamma of order `n`.
    #[track_caller]
    #[must_use]
    pub fn polygamma(&self, n: i64) -> Tensor {
        let attrs = Attrs::none().with_int("n", n);
        apply(&self.state, Op::Polygamma, &[self], attrs, None)
    }

    /// Places of the elements along `axis` in ascending order, `i32`: equal ones as they come, NaN after all numbers.
    #[track_caller]
    #[must_use]
    pub fn argsort(&self, axis: usize) -> Tensor {
        apply(&self.state, Op::Argsort, &[self], along(axis), None)
    }

    /// The elements along `axis` in ascending order, NaN after all numbers.
    #[track_caller]
    #[must_use]
    pub fn sort(&self, axis: usize) -> Tensor {
        apply(&self.state, Op::Sort, &[self], along(axis), None)
    }

    /// The elements along `axis` in ascending order, and `values`, of the same shape, in that order too.
    #[track_caller]
    #[must_use]
    pub fn sort_key_val(&self, values: &Tensor, axis: usize) -> (Tensor, Tensor) {
        self.pair(apply_all(&self.state, Op::SortKeyVal, &[self, values], along(axis), None))
    }

    /// The `k` largest elements along the last axis, largest first, and their places, `i32`: of equal ones the
    /// first, NaN before all numbers.
    #[track_caller]
    #[must_use]
    pub fn top_k(&self, k: u64) -> (Tensor, Tensor) {
        // What is too large for the attribute is too large for any axis.
        let attrs = Attrs::none().with_int("k", i64::try_from(k).unwrap_or(i64::MAX));
        self.pair(apply_all(&self.state, Op::TopK, &[self], attrs, None))
    }

    /// Two results; after an error there may be one stand-in.
    fn pair(&self, results: Vec<Tensor>) -> (Tensor, Tensor) {
        let mut results = results.into_iter();
        let first = results.next().unwrap_or_else(|| self.clone());
        let second = results.next().unwrap_or_else(|| first.clone());
        (first, second)
    }

    /// `log(softmax)` over the last axis, shifted by the maximum so that nothing overflows.
    #[track_caller]
    #[must_use]
    pub fn log_softmax(&self) -> Tensor {
        let last = [self.ty.rank().saturating_sub(1)];
        let top = self.max_over(&last).stop_gradient();
        let shifted = self - top.spread(&last, self);
        let sum = shifted.exp().sum(&last);
        &shifted - sum.log().spread(&last, &shifted)
    }
}

/// The attribute that names an axis.
fn along(axis: usize) -> Attrs {
    Attrs::none().with_int("axis", axis as i64)
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state.borrow().as_ref() {
            Some(_) => write!(f, "{}: {}", self.value, self.ty),
            None => write!(f, "a tensor of a trace that has ended: {}", self.ty),
        }
    }
}

/// An operand of a tensor operator: another tensor, or a number of its type.
pub trait TensorOperand {
    /// The operand as a tensor like `other`. A number must be one of `other`'s element type.
    #[track_caller]
    fn beside(self, other: &Tensor) -> Tensor;
}

impl TensorOperand for Tensor {
    #[track_caller]
    fn beside(self, _: &Tensor) -> Tensor {
        self
    }
}

impl TensorOperand for &Tensor {
    #[track_caller]
    fn beside(self, _: &Tensor) -> Tensor {
        self.clone()
    }
}

impl TensorOperand for f64 {
    #[track_caller]
    fn beside(self, other: &Tensor) -> Tensor {
        number(other, self)
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)*) => {
        $(impl<O: TensorOperand> ops::$trait<O> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: O) -> Tensor {
                let other = other.beside(self);
                apply(&self.state, Op::$op, &[self, &other], Attrs::none(), None)
            }
        }
        impl<O: TensorOperand> ops::$trait<O> for Tensor {
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

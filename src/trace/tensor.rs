//! Tensor handles.

use super::{SharedTrace, Tracer, each_live};
use crate::ir::{DType, TensorType, Value};
use std::fmt;
use std::panic::Location;

/// A tensor in a trace: cheap to clone; operators and methods record instructions.
///
/// Operands of arithmetic and comparisons have one element type. Shapes broadcast: an operand of lower rank is
/// aligned with the last axes of the other, whose extents it has, or 1; operands of equal rank are stretched where
/// one has extent 1. Rust numbers may stand for either operand of an operator: `f64`, `f32`, `i64` and `i32` on the
/// right, `f64` and `i64` on the left. Axes may be negative: -1 is the last one ([`Axes`](super::Axes)).
///
/// What does not fit is an error of [`trace`](super::trace) that names the line in the Rust source; methods never
/// panic.
#[derive(Clone)]
pub struct Tensor {
    pub(super) state: SharedTrace,
    pub(super) value: Value,
    pub(super) ty: TensorType,
}

impl crate::tree::Leaf for Tensor {}

impl Tensor {
    /// The tensor's type.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// # evaluate(|t| {
    /// let x = t.zeros(f32s([2, 3]));
    /// assert_eq!(x.sum(0).ty(), f32s([3]));
    /// # x })?;
    /// # Ok::<(), Diagnostic>(())
    /// ```
    pub fn ty(&self) -> TensorType {
        self.ty.clone()
    }

    /// The element type.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// # evaluate(|t| {
    /// # let x = t.zeros(f32s([2]));
    /// assert_eq!(x.dtype(), DType::F32);
    /// # x })?;
    /// # Ok::<(), Diagnostic>(())
    /// ```
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// The number of axes.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// # evaluate(|t| {
    /// # let x = t.zeros(f32s([2, 3]));
    /// assert_eq!(x.rank(), 2);
    /// # x })?;
    /// # Ok::<(), Diagnostic>(())
    /// ```
    pub fn rank(&self) -> usize {
        self.ty.rank()
    }

    /// What makes inputs and constants in this tensor's trace.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let half = |x: &Tensor| x * x.tracer().full(x.ty(), 0.5);
    /// assert_eq!(evaluate(|t| half(&t.constant([3.0])))?.to_f64s(), [1.5]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    pub fn tracer(&self) -> Tracer {
        Tracer { state: self.state.clone() }
    }

    /// Names the value, for text and for gradients that belong to it. An input gets no name that another has.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let f = trace("f", |t| t.input("x", f32s([2])).exp().named("y"))?;
    /// assert!(f.to_string().contains("%y = exp %x"));
    /// # Ok::<(), Diagnostic>(())
    /// ```
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

    /// Two results; after an error there may be one stand-in.
    pub(super) fn pair(&self, results: Vec<Tensor>) -> (Tensor, Tensor) {
        let mut results = results.into_iter();
        let first = results.next().unwrap_or_else(|| self.clone());
        let second = results.next().unwrap_or_else(|| first.clone());
        (first, second)
    }

    /// The results of an instruction with three; each is this tensor where it was refused.
    pub(super) fn triple(&self, results: Vec<Tensor>) -> (Tensor, Tensor, Tensor) {
        let mut results = results.into_iter();
        let mut next = || results.next().unwrap_or_else(|| self.clone());
        (next(), next(), next())
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state.borrow().as_ref() {
            Some(_) => write!(f, "{}: {}", self.value, self.ty),
            None => write!(f, "a tensor of a trace that has ended: {}", self.ty),
        }
    }
}

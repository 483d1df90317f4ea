//! Tensors from Rust values, and tensors that are filled by a rule.

use super::{AxisIndex, Tensor, Tracer, axes, record, trace};
use crate::backends::Array;
use crate::backends::reference::{Silent, run};
use crate::ir::attrs::{Attr, Attrs};
use crate::ir::{At, DType, Diagnostic, Kind, Module, Number, Op, Phase, TensorType};
use std::ops::{Range, RangeInclusive};
use std::panic::Location;

/// A Rust number or truth value as the element of a tensor.
pub trait RustElement: Copy {
    /// The element type.
    const DTYPE: DType;
    /// The element's bits, in the low bits of the word.
    fn to_word(self) -> u64;
}

macro_rules! elements {
    ($($rust:ty: $dtype:ident $bits:expr;)*) => {
        $(impl RustElement for $rust {
            const DTYPE: DType = DType::$dtype;
            fn to_word(self) -> u64 {
                $bits(self)
            }
        })*
    };
}

elements! {
    f64: F64 f64::to_bits;
    f32: F32 |x: f32| x.to_bits().into();
    i64: I64 |x| x as u64;
    i32: I32 |x| x as u32 as u64;
    u32: U32 u64::from;
    i8: I8 |x| x as u8 as u64;
    u8: U8 u64::from;
    bool: Bool u64::from;
}

/// A number, or nested arrays of numbers, whose extents the type says.
pub trait NestedArray {
    /// The element type.
    const DTYPE: DType;
    /// Adds the extents, outermost first.
    fn extents(dims: &mut Vec<u64>);
    /// Adds the elements' bits, row-major.
    fn words(&self, out: &mut Vec<u64>);
}

impl<E: RustElement> NestedArray for E {
    const DTYPE: DType = E::DTYPE;

    fn extents(_: &mut Vec<u64>) {}

    fn words(&self, out: &mut Vec<u64>) {
        out.push(self.to_word());
    }
}

impl<A: NestedArray, const N: usize> NestedArray for [A; N] {
    const DTYPE: DType = A::DTYPE;

    fn extents(dims: &mut Vec<u64>) {
        dims.push(N as u64);
        A::extents(dims);
    }

    fn words(&self, out: &mut Vec<u64>) {
        self.iter().for_each(|x| x.words(out));
    }
}

/// What [`Tracer::constant`] takes: an [`Array`], a number, nested arrays of numbers, or a vector or slice of these.
pub trait ConstantValues {
    /// The values.
    ///
    /// # Errors
    /// If they are too large for memory.
    fn to_array(&self) -> Result<Array, Diagnostic>;
}

impl ConstantValues for Array {
    fn to_array(&self) -> Result<Array, Diagnostic> {
        Ok(self.clone())
    }
}

impl ConstantValues for &Array {
    fn to_array(&self) -> Result<Array, Diagnostic> {
        Ok((*self).clone())
    }
}

impl<A: NestedArray> ConstantValues for A {
    fn to_array(&self) -> Result<Array, Diagnostic> {
        let (mut dims, mut words) = (Vec::new(), Vec::new());
        A::extents(&mut dims);
        self.words(&mut words);
        Array::from_bits(A::DTYPE, &dims, &words)
    }
}

impl<A: NestedArray> ConstantValues for &[A] {
    fn to_array(&self) -> Result<Array, Diagnostic> {
        let (mut dims, mut words) = (vec![self.len() as u64], Vec::new());
        A::extents(&mut dims);
        self.iter().for_each(|x| x.words(&mut words));
        Array::from_bits(A::DTYPE, &dims, &words)
    }
}

impl<A: NestedArray> ConstantValues for Vec<A> {
    fn to_array(&self) -> Result<Array, Diagnostic> {
        self.as_slice().to_array()
    }
}

impl<A: NestedArray> ConstantValues for &Vec<A> {
    fn to_array(&self) -> Result<Array, Diagnostic> {
        self.as_slice().to_array()
    }
}

/// The value of a closure without inputs, by the reference engine: to try things out.
///
/// ```
/// use adfuse::prelude::*;
///
/// let y = evaluate(|t| t.constant([1.0, 4.0]).sqrt())?;
/// assert_eq!(y.to_f64s(), [1.0, 2.0]);
/// # Ok::<(), Diagnostic>(())
/// ```
///
/// # Errors
/// As [`trace`], and what running gives.
#[track_caller]
pub fn evaluate(body: impl FnOnce(&Tracer) -> Tensor) -> Result<Array, Diagnostic> {
    let f = trace("closure", body)?;
    if let Some(&p) = f.params().first() {
        let m = format!("`evaluate` takes closures without inputs, found one of {}", f.ty(p));
        return Err(Diagnostic::new(At::default(), Kind::Usage, m));
    }
    let module = Module::single(f.clone());
    let mut results = run(&module, &f, &[], &mut Silent)?;
    Ok(results.swap_remove(0))
}

impl Tracer {
    /// A tensor filled with a number of `ty`'s element type: integers must fit it, floats round.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// assert_eq!(evaluate(|t| t.full(f32s([2]), 0.5))?.to_f64s(), [0.5, 0.5]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn full(&self, ty: TensorType, x: f64) -> Tensor {
        self.filled(ty, Number::Float(x))
    }

    #[track_caller]
    fn filled(&self, ty: TensorType, x: Number) -> Tensor {
        let place = Location::caller();
        record(&self.state, &ty, |s| {
            let l = s.typed(place, x, ty.dtype)?;
            if !s.admit(place, &ty) {
                return None;
            }
            s.b.set_phase(Phase::PRIMAL);
            let l = s.b.literal(&ty, l);
            Some(s.b.materialize(l))
        })
    }

    /// Zeros, or `false`.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// assert_eq!(evaluate(|t| t.zeros(i32s([2])))?.to_f64s(), [0.0, 0.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn zeros(&self, ty: TensorType) -> Tensor {
        let zero = if ty.dtype == DType::Bool { Number::Bool(false) } else { Number::Int(0) };
        self.filled(ty, zero)
    }

    /// Ones, or `true`.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// assert_eq!(evaluate(|t| t.ones(f32s([2])))?.to_f64s(), [1.0, 1.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn ones(&self, ty: TensorType) -> Tensor {
        let one = if ty.dtype == DType::Bool { Number::Bool(true) } else { Number::Int(1) };
        self.filled(ty, one)
    }

    /// The coordinate along `axis`, which may be negative.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// assert_eq!(evaluate(|t| t.iota(i32s([2, 2]), 1))?.to_f64s(), [0.0, 1.0, 0.0, 1.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn iota(&self, ty: TensorType, axis: impl AxisIndex) -> Tensor {
        let axis = axis.written();
        let axis = axes::resolve(axis, ty.rank()).map_or(axis, |a| a as i64);
        let attrs = Attrs::none().with_int("axis", axis);
        self.apply(Op::Iota, &[], attrs, Some(&ty))
    }

    /// The identity matrix of `n` rows.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// assert_eq!(evaluate(|t| t.eye(2, DType::F32))?.to_f64s(), [1.0, 0.0, 0.0, 1.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn eye(&self, n: u64, dtype: DType) -> Tensor {
        let ty = TensorType::of(DType::I64, &[n, n]);
        self.iota(ty.clone(), 0).eq(self.iota(ty, 1)).convert(dtype)
    }

    /// The integers of a range, in an element type.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// assert_eq!(evaluate(|t| t.arange(2..5, DType::F32))?.to_f64s(), [2.0, 3.0, 4.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn arange(&self, range: Range<i64>, dtype: DType) -> Tensor {
        let n = range.end.saturating_sub(range.start).max(0) as u64;
        let ty = TensorType::of(DType::I64, &[n]);
        (self.iota(ty, 0) + range.start).convert(dtype)
    }

    /// `n` numbers from the first to the last of a range, both included, at equal distances.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// assert_eq!(evaluate(|t| t.linspace(-1.0..=1.0, 3, DType::F32))?.to_f64s(), [-1.0, 0.0, 1.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn linspace(&self, range: RangeInclusive<f64>, n: u64, dtype: DType) -> Tensor {
        let ty = TensorType::of(dtype, &[n]);
        if !dtype.is_float() {
            let m = format!("`linspace` is of a float type, found {dtype}");
            self.fail(Location::caller(), Kind::DType, m);
        }
        // Both ends are exact: there one of the two shares is 1 and the other 0.
        let share = self.iota(ty, 0) / n.saturating_sub(1).max(1) as f64;
        (1.0 - &share) * *range.start() + share * *range.end()
    }

    /// Values written in the program: an [`Array`], or Rust numbers, `f64` and `i32` where their type is open.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| t.constant([[1.0f32, 2.0], [3.0, 4.0]]).sum(0))?;
    /// assert_eq!((y.dtype(), y.to_f64s()), (DType::F32, vec![4.0, 6.0]));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn constant(&self, values: impl ConstantValues) -> Tensor {
        let values = match values.to_array() {
            Ok(values) => values,
            Err(d) => {
                self.fail(Location::caller(), d.kind, d.message);
                return self.zeros(TensorType::scalar(DType::F32));
            }
        };
        let attrs = Attrs::none().with("values", Attr::Literals(values.iter().collect()));
        self.apply(Op::Constant, &[], attrs, Some(&values.ty()))
    }
}

impl Tensor {
    /// Zeros of this tensor's type.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// assert_eq!(evaluate(|t| t.constant([1.0, 2.0]).zeros_like())?.to_f64s(), [0.0, 0.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn zeros_like(&self) -> Tensor {
        self.tracer().zeros(self.ty())
    }

    /// Ones of this tensor's type.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// assert_eq!(evaluate(|t| t.constant([5.0, 2.0]).ones_like())?.to_f64s(), [1.0, 1.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn ones_like(&self) -> Tensor {
        self.tracer().ones(self.ty())
    }

    /// A tensor of this one's type, filled with a number.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// assert_eq!(evaluate(|t| t.constant([5.0, 2.0]).full_like(0.5))?.to_f64s(), [0.5, 0.5]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn full_like(&self, x: f64) -> Tensor {
        self.tracer().full(self.ty(), x)
    }
}

//! Control flow on trees: branches and loops in the trace of their operands. Where there is no tensor among the operands
//! that could tell the trace, the methods of [`Tracer`](crate::trace::Tracer) do the same.

use super::rules::trace_of;
use crate::trace::{LoopBounds, ScanOptions, Tensor};
use crate::tree::{Params, leaves};

/// As [`Tracer::cond`](crate::trace::Tracer::cond): one of two closures, by a scalar truth value.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{cond, grad, jit};
///
/// let f = |x: &Tensor| cond(&x.lt(0.0), || x * -2.0, || x.square());
/// let slope = jit(move |x: Tensor| grad(f)(&x));
/// assert_eq!(slope.call(&Array::from_f32s(&[], &[-3.0])?)?.to_f64s(), [-2.0]);
/// assert_eq!(slope.call(&Array::from_f32s(&[], &[3.0])?)?.to_f64s(), [6.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn cond<R: Params<Tensor>>(
    predicate: &Tensor,
    then: impl FnOnce() -> R,
    otherwise: impl FnOnce() -> R,
) -> R {
    predicate.tracer().cond(predicate, then, otherwise)
}

/// As [`Tracer::switch`](crate::trace::Tracer::switch): the closure of this number.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::ir::DType;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{jit, switch};
///
/// let f = jit(|(k, x): (Tensor, Tensor)| switch(&k, &[&|| x.sin(), &|| &x * 2.0, &|| x.square()]));
/// let k = Array::from_i64s(DType::I32, &[], &[2])?;
/// assert_eq!(f.call(&(k, Array::from_f32s(&[], &[3.0])?))?.to_f64s(), [9.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
///
/// # Panics
/// If there is no closure.
#[track_caller]
pub fn switch<R: Params<Tensor>>(index: &Tensor, cases: &[&dyn Fn() -> R]) -> R {
    index.tracer().switch(index, cases)
}

/// As [`Tracer::scan`](crate::trace::Tracer::scan): a closure for each element of `xs` along their first axes.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{jit, scan};
///
/// let sums = jit(|(start, xs): (Tensor, Tensor)| {
///     scan(start, xs, |sum, x| {
///         let sum = sum + x;
///         (sum.clone(), sum)
///     })
/// });
/// let xs = Array::from_f32s(&[3], &[1.0, 2.0, 3.0])?;
/// let (last, all) = sums.call(&(Array::from_f32s(&[], &[10.0])?, xs))?;
/// assert_eq!(last.to_f64s(), [16.0]);
/// assert_eq!(all.to_f64s(), [11.0, 13.0, 16.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
///
/// # Panics
/// If neither `init` nor `xs` has a tensor.
#[track_caller]
pub fn scan<C: Params<Tensor>, X: Params<Tensor>, Y: Params<Tensor>>(
    init: C,
    xs: X,
    body: impl FnOnce(C, X) -> (C, Y),
) -> (C, Y) {
    scan_with(ScanOptions::default(), init, xs, body)
}

/// As [`scan`], in another order or of a given length.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::{ScanOptions, Tensor};
/// use adfuse::transform::{jit, scan_with};
///
/// let last = ScanOptions { reverse: true, ..ScanOptions::default() };
/// let f = jit(move |(x, xs): (Tensor, Tensor)| scan_with(last, x, xs, |_, x| (x, ())).0);
/// let xs = Array::from_f32s(&[3], &[1.0, 2.0, 3.0])?;
/// assert_eq!(f.call(&(Array::from_f32s(&[], &[0.0])?, xs))?.to_f64s(), [1.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
///
/// # Panics
/// As [`scan`].
#[track_caller]
pub fn scan_with<C: Params<Tensor>, X: Params<Tensor>, Y: Params<Tensor>>(
    options: ScanOptions,
    init: C,
    xs: X,
    body: impl FnOnce(C, X) -> (C, Y),
) -> (C, Y) {
    let tensors = [leaves(&init), leaves(&xs)].concat();
    trace_of(&tensors, "what `scan` carries and scans").scan_with(options, init, xs, body)
}

/// As [`Tracer::fori`](crate::trace::Tracer::fori): a closure for each integer of a range.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{fori, jit};
///
/// let power = jit(|x: Tensor| fori(0..3, x.clone(), |_, y| y * &x));
/// assert_eq!(power.call(&Array::from_f32s(&[], &[3.0])?)?.to_f64s(), [81.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
///
/// # Panics
/// If `init` has no tensor.
#[track_caller]
pub fn fori<C: Params<Tensor>>(
    range: impl LoopBounds,
    init: C,
    body: impl FnOnce(Tensor, C) -> C,
) -> C {
    trace_of(&leaves(&init), "what `fori` carries").fori(range, init, body)
}

/// As [`Tracer::while_loop`](crate::trace::Tracer::while_loop): a closure as long as a condition holds.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{jit, while_loop};
///
/// let f = jit(|x: Tensor| while_loop(x, |x| x.lt(100.0), |x| x * 2.0));
/// assert_eq!(f.call(&Array::from_f32s(&[], &[3.0])?)?.to_f64s(), [192.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
///
/// # Panics
/// If `init` has no tensor.
#[track_caller]
pub fn while_loop<C: Params<Tensor>>(
    init: C,
    condition: impl FnOnce(C) -> Tensor,
    body: impl FnOnce(C) -> C,
) -> C {
    trace_of(&leaves(&init), "what `while_loop` carries").while_loop(init, condition, body)
}

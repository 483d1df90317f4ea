//! Reductions and scans in the defined order.

use super::EvalTensor;
use super::order::{reduce_axes, scan as scan_order};
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::eval_one;
use adfuse_ir::{Attrs, DType, Diagnostic, Literal, TensorType};

/// Folds axes away. 16-bit floats accumulate in `f32` and round once, at the end.
pub(super) fn reduce(
    monoid: Monoid,
    x: &EvalTensor,
    attrs: &Attrs,
    ty: &TensorType,
) -> Result<EvalTensor, Diagnostic> {
    let dims: Vec<usize> = x.dims.iter().map(|&n| n as usize).collect();
    if matches!(monoid, Monoid::ArgMax | Monoid::ArgMin) {
        return arg_extremum(monoid, x, attrs.int("axis") as usize, ty);
    }
    let mut reduced = vec![false; dims.len()];
    for &a in attrs.ints("axes") {
        reduced[a as usize] = true;
    }
    let wide = x.dtype.compute();
    let convert = |from, to, b| Literal::from_bits(from, b).convert(to).bits();
    let xs: Vec<u64> = x.bits.iter().map(|&b| convert(x.dtype, wide, b)).collect();
    let empty = monoid.empty(wide).bits();
    let out =
        with_combine(monoid, wide, |combine| reduce_axes(&xs, &dims, &reduced, combine, empty));
    EvalTensor::build(ty, |bits| {
        bits.extend(out.into_iter().map(|b| convert(wide, ty.dtype, b)));
        Ok(())
    })
}

/// A running fold along an axis.
pub(super) fn scan(
    monoid: Monoid,
    x: &EvalTensor,
    attrs: &Attrs,
    ty: &TensorType,
) -> Result<EvalTensor, Diagnostic> {
    let axis = attrs.int("axis") as usize;
    let extent = x.dims[axis] as usize;
    let inner: usize = x.dims[axis + 1..].iter().map(|&n| n as usize).product();
    let wide = x.dtype.compute();
    let convert = |from, to, b| Literal::from_bits(from, b).convert(to).bits();
    EvalTensor::build(ty, |bits| {
        bits.extend_from_slice(&x.bits);
        with_combine(monoid, wide, |combine| {
            for line in 0..bits.len() / extent.max(1) {
                let start = line / inner * extent * inner + line % inner;
                let place = |k: usize| {
                    let k = if attrs.flag("reverse") { extent - 1 - k } else { k };
                    start + k * inner
                };
                let mut run: Vec<u64> =
                    (0..extent).map(|k| convert(x.dtype, wide, bits[place(k)])).collect();
                scan_order(&mut run, combine);
                for (k, v) in run.into_iter().enumerate() {
                    bits[place(k)] = convert(wide, ty.dtype, v);
                }
            }
        });
        Ok(())
    })
}

/// Calls `body` with the monoid's operation on bits: hard-wired where it is hot, by the scalar
/// interpreter elsewhere.
pub(super) fn with_combine<R>(
    monoid: Monoid,
    dtype: DType,
    body: impl FnOnce(&dyn Fn(u64, u64) -> u64) -> R,
) -> R {
    let f32s = |f: fn(f32, f32) -> f32| {
        move |a: u64, b: u64| {
            u64::from(f(f32::from_bits(a as u32), f32::from_bits(b as u32)).to_bits())
        }
    };
    let f64s = |f: fn(f64, f64) -> f64| {
        move |a: u64, b: u64| f(f64::from_bits(a), f64::from_bits(b)).to_bits()
    };
    match (monoid, dtype) {
        (Monoid::Sum, DType::F32) => body(&f32s(|a, b| a + b)),
        (Monoid::Sum, DType::F64) => body(&f64s(|a, b| a + b)),
        (Monoid::Prod, DType::F32) => body(&f32s(|a, b| a * b)),
        (Monoid::Prod, DType::F64) => body(&f64s(|a, b| a * b)),
        _ => {
            let program = monoid.combine(dtype);
            let literal = |b| Literal::from_bits(dtype, b);
            body(&|a, b| eval_one(&program, &[literal(a), literal(b)]).bits())
        }
    }
}

/// The index of the first extremum; a NaN is more extreme than any number.
fn arg_extremum(
    monoid: Monoid,
    x: &EvalTensor,
    axis: usize,
    ty: &TensorType,
) -> Result<EvalTensor, Diagnostic> {
    let extent = x.dims[axis] as usize;
    let inner: usize = x.dims[axis + 1..].iter().map(|&n| n as usize).product();
    let outer: usize = x.dims[..axis].iter().map(|&n| n as usize).product();
    EvalTensor::build(ty, |bits| {
        for line in 0..outer * inner {
            let at = |k: usize| line / inner * extent * inner + line % inner + k * inner;
            bits.push(first_extremum(monoid, x.dtype, extent, |k| x.bits[at(k)]) as u64);
        }
        Ok(())
    })
}

/// The first of `n` places, 0 for none, whose value no other beats.
pub(super) fn first_extremum(
    monoid: Monoid,
    dtype: DType,
    n: usize,
    value: impl Fn(usize) -> u64,
) -> usize {
    let value = |k: usize| Literal::from_bits(dtype, value(k));
    let beats = |a: Literal, b: Literal| {
        if !dtype.is_float() {
            let (a, b) = (a.to_i64(), b.to_i64());
            return if monoid == Monoid::ArgMax { a > b } else { a < b };
        }
        let (a, b) = (a.to_f64(), b.to_f64());
        let further = if monoid == Monoid::ArgMax { a > b } else { a < b };
        !b.is_nan() && (further || a.is_nan())
    };
    (1..n).fold(0, |best, k| if beats(value(k), value(best)) { k } else { best })
}

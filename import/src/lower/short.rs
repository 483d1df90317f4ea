//! Sums of few elements, written out: in the order of the text, where longer ones have the order of the IR's ops.

use super::context::{ModuleLowering, Val};
use super::number::{ComplexPart, ImportedNumber};
use crate::emit::arithmetic::apply;
use crate::emit::refusal::Unlowered;
use crate::text::tree::Instruction;
use adfuse_ir::{Attr, Attrs, Op, TensorType, Value};
use smallvec::SmallVec;

/// The most terms of a sum that is written out.
const MOST_TERMS: u64 = 16;

/// The most elements of a window whose sum is written out.
const MOST_OF_WINDOW: i64 = 16;

/// The product of two complex numbers.
type ComplexProduct = fn(
    &mut ModuleLowering<'_>,
    ImportedNumber,
    ImportedNumber,
) -> Result<ImportedNumber, Unlowered>;

/// The place `k` of an axis, which stays with an extent of 1.
fn at(cx: &mut ModuleLowering<'_>, x: Value, axis: usize, k: u64) -> Result<Value, Unlowered> {
    let dims: SmallVec<[u64; 4]> = cx.b.ty(x).dims().unwrap_or_default();
    let of = |here: u64, other: fn(u64) -> u64| -> Vec<i64> {
        dims.iter()
            .enumerate()
            .map(|(d, &n)| if d == axis { here } else { other(n) } as i64)
            .collect()
    };
    let attrs = Attrs::none().with_ints("start", of(k, |_| 0));
    let attrs = attrs.with_ints("limit", of(k + 1, |n| n)).with_ints("stride", of(1, |_| 1));
    let full = cx.b.materialize(x);
    cx.emit(Op::Slice, &[full], attrs)
}

/// A running sum along an axis; `None` where it is long.
pub(super) fn running_sum(
    cx: &mut ModuleLowering<'_>,
    x: Val,
    axis: usize,
    reverse: bool,
) -> Result<Option<Value>, Unlowered> {
    let n = cx.dims(x)?[axis];
    if !x.element.is_float() || !(2..=MOST_TERMS).contains(&n) {
        return Ok(None);
    }
    let order: Vec<u64> = if reverse { (0..n).rev().collect() } else { (0..n).collect() };
    let mut sums: Vec<Value> = Vec::new();
    for k in order {
        let term = at(cx, x.value, axis, k)?;
        sums.push(match sums.last() {
            Some(&sum) => cx.op(Op::Add, &[sum, term])?,
            None => term,
        });
    }
    if reverse {
        sums.reverse();
    }
    cx.emit(Op::Concatenate, &sums, Attrs::none().with_int("axis", axis as i64)).map(Some)
}

/// The fold along an axis of floats from an initial value that changes something, in the order of the elements; `None` where it
/// is long.
pub(super) fn fold_from(
    cx: &mut ModuleLowering<'_>,
    (op, x, init): (Op, Val, Val),
    axes: &[i64],
) -> Result<Option<Value>, Unlowered> {
    let ([axis], Some(dims)) = (axes, cx.b.ty(x.value).dims()) else { return Ok(None) };
    let axis = usize::try_from(*axis).unwrap_or(usize::MAX);
    let short = dims.get(axis).is_some_and(|n| (1..=MOST_TERMS).contains(n));
    if !short || !x.element.is_float() {
        return Ok(None);
    }
    let kept = dims.iter().enumerate().filter(|&(d, _)| d != axis).map(|(_, &n)| n);
    let ty = TensorType::of(x.element.storage(), &kept.collect::<SmallVec<[u64; 4]>>());
    let mut sum = cx.splat(init, &ty)?.value;
    for k in 0..dims[axis] {
        let one = at(cx, x.value, axis, k)?;
        let term = cx.emit_as(Op::Reshape, &[one], Attrs::none(), &ty)?;
        sum = cx.op(op, &[sum, term])?;
    }
    Ok(Some(sum))
}

/// The elements of a window, where it is short.
pub(super) fn short_window(sizes: &[i64]) -> Option<i64> {
    let count = sizes.iter().try_fold(1i64, |n, &s| n.checked_mul(s))?;
    (sizes.iter().all(|&s| s > 0) && (2..=MOST_OF_WINDOW).contains(&count)).then_some(count)
}

/// The sums of the windows of a padded tensor, each added in the order of its elements; `None` where a window is large or an
/// extent is a symbol.
pub(super) fn window_sums(
    cx: &mut ModuleLowering<'_>,
    padded: Value,
    sizes: &[i64],
    (strides, dilation): (&[i64], &[i64]),
) -> Result<Option<Value>, Unlowered> {
    let (Some(count), Some(dims)) = (short_window(sizes), cx.b.ty(padded).dims()) else {
        return Ok(None);
    };
    let axes = || 0..sizes.len();
    // What the last window of each axis begins at.
    let last = axes().map(|d| {
        let span = (sizes[d] - 1).checked_mul(dilation[d])?;
        i64::try_from(dims[d]).ok()?.checked_sub(span)?.checked_sub(1).filter(|&n| n >= 0)
    });
    let Some(last) = last.collect::<Option<Vec<i64>>>() else { return Ok(None) };
    let mut sum: Option<Value> = None;
    for k in 0..count {
        let (mut rest, mut start) = (k, vec![0; sizes.len()]);
        for d in axes().rev() {
            start[d] = rest % sizes[d] * dilation[d];
            rest /= sizes[d];
        }
        let limit = axes().map(|d| start[d] + last[d] / strides[d] * strides[d] + 1);
        let attrs = Attrs::none()
            .with_ints("limit", limit)
            .with_ints("stride", strides.iter().copied())
            .with_ints("start", start.clone());
        let term = cx.emit(Op::Slice, &[padded], attrs)?;
        sum = Some(match sum {
            Some(sum) => cx.op(Op::Add, &[sum, term])?,
            None => term,
        });
    }
    Ok(sum)
}

/// Sums of products of complex numbers over one axis: each product is rounded before it is added, as other implementations
/// have it. `None` where sums are long, or over several axes.
pub(super) fn dot(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
    x: ImportedNumber,
    y: ImportedNumber,
    product: ComplexProduct,
) -> Result<Option<ImportedNumber>, Unlowered> {
    let (batch, contract) = super::shape::dot_axes(cx.b.ty(x.re.value).rank(), inst)?;
    let (Ok(x_dims), Ok(y_dims)) = (cx.dims(x.re), cx.dims(y.re)) else { return Ok(None) };
    let ([of_x], [of_y]) = (&contract.0[..], &contract.1[..]) else { return Ok(None) };
    let axes = (usize::try_from(*of_x).ok(), usize::try_from(*of_y).ok());
    let (Some(of_x), Some(of_y)) = axes else { return Ok(None) };
    let inside = |axes: &[i64], rank: usize| axes.iter().all(|&d| (0..rank as i64).contains(&d));
    let (nx, ny) = (x_dims.len(), y_dims.len());
    let fits = of_x < nx && of_y < ny && x_dims[of_x] == y_dims[of_y];
    let fits = fits && inside(&batch.0, nx) && inside(&batch.1, ny);
    let fits = fits && batch.0.len() == batch.1.len() && x.re.element == y.re.element;
    if !fits || !(1..=MOST_TERMS).contains(&x_dims[of_x]) {
        return Ok(None);
    }
    let (element, ty) = cx.reading(Some(ComplexPart::Real), |cx| cx.result_type(inst, 0))?;
    if element != x.re.element || ty.rank() + 2 + batch.0.len() != nx + ny {
        return Ok(None);
    }
    let free_of_x = nx - 1 - batch.0.len();
    let places = |rank: usize, summed: usize, batch: &[i64], first: usize| -> Vec<usize> {
        let mut next = first;
        let place = |d: usize| match batch.iter().position(|&b| b == d as i64) {
            Some(k) => k,
            None => {
                next += usize::from(d != summed);
                next - 1
            }
        };
        (0..rank).map(place).collect()
    };
    // The summed axis has no place.
    let x_at = places(nx, of_x, &batch.0, batch.0.len());
    let y_at = places(ny, of_y, &batch.1, batch.0.len() + free_of_x);
    let mut sum: Option<ImportedNumber> = None;
    for k in 0..x_dims[of_x] {
        let mut term = |n: ImportedNumber, axis: usize, places: &[usize]| {
            let mut part = |v: Val| -> Result<Val, Unlowered> {
                let one = at(cx, v.value, axis, k)?;
                Ok(Val { value: spread(cx, one, (axis, places), &ty)?, ..v })
            };
            let im = n.im.map(&mut part).transpose()?;
            Ok(ImportedNumber { re: part(n.re)?, im })
        };
        let (a, b) = (term(x, of_x, &x_at)?, term(y, of_y, &y_at)?);
        let made = product(cx, a, b)?;
        sum = Some(match sum {
            None => made,
            Some(sum) => {
                let re = apply(cx, Op::Add, &[sum.re, made.re])?;
                let im = match (sum.im, made.im) {
                    (Some(x), Some(y)) => Some(apply(cx, Op::Add, &[x, y])?),
                    _ => None,
                };
                ImportedNumber { re, im }
            }
        });
    }
    Ok(sum)
}

/// A value without one axis, broadcast with its other axes at these places of a shape.
fn spread(
    cx: &mut ModuleLowering<'_>,
    x: Value,
    (gone, places): (usize, &[usize]),
    ty: &TensorType,
) -> Result<Value, Unlowered> {
    let mut order: Vec<usize> = (0..places.len()).filter(|&d| d != gone).collect();
    order.sort_by_key(|&d| places[d]);
    let perm = order.iter().copied().chain([gone]).map(|d| d as i64);
    let turned = cx.emit(Op::Transpose, &[x], Attrs::none().with_ints("perm", perm))?;
    let dims: SmallVec<[u64; 4]> = cx.b.ty(turned).dims().unwrap_or_default();
    let without = TensorType::of(ty.dtype, &dims[..dims.len() - 1]);
    let reshaped = cx.emit_as(Op::Reshape, &[turned], Attrs::none(), &without)?;
    let at = Attr::Ints(order.iter().map(|&d| places[d] as i64).collect());
    cx.emit_as(Op::BroadcastInDim, &[reshaped], Attrs::none().with("dims", at), ty)
}

//! Gathers of one window: slices at places that are operands.

use super::context::{LoweredValues, ModuleLowering, Val, written_type};
use super::dimension_numbers::DimensionNumbers;
use super::extents::COMPUTED;
use crate::emit::refusal::{Unlowered, refuse};
use crate::text::tree::Instruction;
use adfuse_ir::{Attrs, DType, Dim, Literal, Op, TensorType, Value};
use smallvec::smallvec;

/// The place of the window along each axis that has one; `None` for several windows.
fn places(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
    n: &DimensionNumbers,
) -> Result<Option<Vec<Value>>, Unlowered> {
    let given = cx.operand(inst, 1)?;
    let dims = cx.b.ty(given.value).shape.clone();
    let count = match dims[..] {
        [] => 1,
        [Dim::Const(count)] => count,
        _ => return Ok(None),
    };
    if !n.batching.is_empty() || n.map.len() as u64 != count || !given.element.is_int() {
        return Ok(None);
    }
    let mut all = Vec::new();
    for k in 0..count as i64 {
        all.push(element(cx, given, k)?);
    }
    Ok(Some(all))
}

/// A slice some of whose places are not known: along such axes it has as many elements as the text says.
pub(super) fn slice_at(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
    x: Val,
    places: &[Option<i64>],
    stride: &[i64],
) -> LoweredValues {
    let shape = cx.b.ty(x.value).shape.clone();
    let limits = super::extents::said(cx, inst, 2)?;
    let written = written_type(inst, 0)?.extents().to_vec();
    let rank = shape.len();
    if [places.len(), limits.len(), written.len()] != [rank; 3] || stride.iter().any(|&n| n != 1) {
        return refuse("a slice at places that are not known, with strides or other axes");
    }
    let given = cx.operand(inst, 1)?;
    let (mut sizes, mut starts) = (Vec::new(), Vec::new());
    for d in 0..rank {
        let size = match (written[d], places[d], limits[d]) {
            (Some(n), ..) => Dim::Const(n),
            (None, Some(start), Some(Dim::Const(end))) => {
                Dim::Const(end.saturating_sub(start as u64))
            }
            (None, Some(0), Some(end)) => end,
            _ => return refuse(COMPUTED),
        };
        sizes.push(size);
        starts.push(element(cx, given, d as i64)?);
    }
    let axes: Vec<(usize, Option<Value>)> = starts.into_iter().map(Some).enumerate().collect();
    windowed(cx, x, &sizes, &axes)
}

/// An element of a list of integers, as a scalar.
fn element(cx: &mut ModuleLowering<'_>, given: Val, k: i64) -> Result<Value, Unlowered> {
    let ty = TensorType::scalar(given.element.storage());
    let full = cx.b.materialize(given.value);
    let one = match cx.b.ty(full).rank() {
        0 => full,
        _ => {
            let attrs = Attrs::none().with_ints("start", [k]).with_ints("limit", [k + 1]);
            cx.emit(Op::Slice, &[full], attrs.with_ints("stride", [1]))?
        }
    };
    cx.emit_as(Op::Reshape, &[one], Attrs::none(), &ty)
}

/// The window without the axes that no result has.
fn collapsed(cx: &mut ModuleLowering<'_>, x: Val, gone: &[i64]) -> Result<Val, Unlowered> {
    if gone.is_empty() {
        return Ok(x);
    }
    let ty = cx.b.ty(x.value).clone();
    let kept = (0..ty.rank()).filter(|&d| !gone.contains(&(d as i64)));
    let ty = TensorType::new(ty.dtype, kept.map(|d| ty.shape[d]));
    Ok(Val { value: cx.emit_as(Op::Reshape, &[x.value], Attrs::none(), &ty)?, ..x })
}

/// A gather of one window as a slice, which loops over rows are recognized by; `None` for several windows.
pub(super) fn single_slice(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
    n: &DimensionNumbers,
    sizes: &[i64],
) -> Result<Option<Val>, Unlowered> {
    let x = cx.operand(inst, 0)?;
    let rank = cx.b.ty(x.value).rank();
    let Some(places) = places(cx, inst, n)? else { return Ok(None) };
    if sizes.len() != rank || places.is_empty() {
        return Ok(None);
    }
    let at = |d: usize| n.map.iter().position(|&axis| axis == d as i64).map(|k| places[k]);
    let axes: Vec<(usize, Option<Value>)> = (0..rank).map(|d| (d, at(d))).collect();
    if cx.b.ty(x.value).dims().is_none() {
        return Ok(None);
    }
    let Some(&part) = sliced_at(cx, x, sizes, &axes)?.first() else { return Ok(None) };
    collapsed(cx, part, &n.collapsed()).map(Some)
}

/// A gather of one window, of which extents are symbols.
pub(super) fn symbolic_window(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
    n: &DimensionNumbers,
    sizes: &[Dim],
) -> LoweredValues {
    let x = cx.operand(inst, 0)?;
    let rank = cx.b.ty(x.value).rank();
    let places = match places(cx, inst, n)? {
        Some(places) if sizes.len() == rank => places,
        _ => return refuse("several windows with extents that are symbols"),
    };
    let at = |d: usize| n.map.iter().position(|&axis| axis == d as i64).map(|k| places[k]);
    let axes: Vec<(usize, Option<Value>)> = (0..rank).map(|d| (d, at(d))).collect();
    let Some(&part) = windowed(cx, x, sizes, &axes)?.first() else { return refuse("no window") };
    Ok(smallvec![collapsed(cx, part, &n.collapsed())?])
}

/// A window of these extents at the places of axes that have one. Axes whose extents are symbols it has whole; along the others
/// it is at a place that is known, or one element.
fn windowed(
    cx: &mut ModuleLowering<'_>,
    x: Val,
    sizes: &[Dim],
    axes: &[(usize, Option<Value>)],
) -> LoweredValues {
    let shape = cx.b.ty(x.value).shape.clone();
    let known: Option<Vec<i64>> = sizes.iter().map(|d| d.known().map(|n| n as i64)).collect();
    if let (Some(sizes), true) = (known, shape.iter().all(|d| d.known().is_some())) {
        return sliced_at(cx, x, &sizes, axes);
    }
    let (mut start, mut limit, mut picked) = (vec![0; shape.len()], Vec::new(), Vec::new());
    for (&(d, at), &size) in axes.iter().zip(sizes) {
        let extent = shape[d];
        limit.push(match (extent, size) {
            // A window as long as its axis begins where that does.
            (extent, size) if extent == size => None,
            (Dim::Const(all), Dim::Const(size)) if size <= all => {
                let known = at.map(|v| cx.known.value(cx.emitter.b.func(), v));
                let known = match known {
                    None => Some(0),
                    Some(t) => t.and_then(|t| t.literals()).map(|l| l[0].to_i64()),
                };
                match (known, at) {
                    (Some(place), _) => {
                        start[d] = place.clamp(0, (all - size) as i64);
                        Some(start[d] + size as i64)
                    }
                    (None, Some(at)) if size == 1 => {
                        picked.push((d, all, at));
                        None
                    }
                    _ => return refuse("a window at a place that is not known, beside symbols"),
                }
            }
            _ => return refuse("part of an axis whose extent is a symbol"),
        });
    }
    let found = super::extents::sliced(cx, x, &start, &limit, &vec![1; shape.len()])?;
    let Some(&part) = found.first() else { return refuse("no window") };
    let mut part = part;
    for (axis, extent, at) in picked {
        part = selected(cx, part, (axis, extent), at)?;
    }
    Ok(smallvec![part])
}

/// A slice of known extents.
fn sliced_at(
    cx: &mut ModuleLowering<'_>,
    x: Val,
    sizes: &[i64],
    axes: &[(usize, Option<Value>)],
) -> LoweredValues {
    let dtype = axes.iter().find_map(|(_, v)| *v).map_or(DType::I32, |v| cx.b.ty(v).dtype);
    let zero = cx.b.literal(&TensorType::scalar(dtype), Literal::zero(dtype));
    let zero = cx.b.materialize(zero);
    let mut args = vec![cx.b.materialize(x.value)];
    args.extend(axes.iter().map(|(_, at)| at.unwrap_or(zero)));
    let attrs = Attrs::none().with_ints("sizes", sizes.iter().copied());
    Ok(smallvec![Val { value: cx.emit(Op::DynamicSlice, &args, attrs)?, ..x }])
}

/// One element of an axis, which stays with an extent of 1: the sum of that element and of zeros. A slice would need all
/// extents to be known.
fn selected(
    cx: &mut ModuleLowering<'_>,
    x: Val,
    (axis, extent): (usize, u64),
    at: Value,
) -> Result<Val, Unlowered> {
    let ty = cx.b.ty(x.value).clone();
    let of_places = ty.with_dtype(DType::I64);
    let at = cx.storage(at, DType::I64)?;
    let least = cx.literal_like(at, Literal::zero(DType::I64));
    let most = cx.literal_like(at, Literal::from_i64(DType::I64, extent as i64 - 1));
    let at = cx.op(Op::Clamp, &[least, at, most])?;
    let at =
        cx.emit_as(Op::BroadcastInDim, &[at], Attrs::none().with_ints("dims", []), &of_places)?;
    let one = sum_where(cx, x.value, at, axis)?;
    let mut shape = ty.shape.clone();
    shape[axis] = Dim::Const(1);
    let ty = TensorType::new(ty.dtype, shape);
    Ok(Val { value: cx.emit_as(Op::Reshape, &[one], Attrs::none(), &ty)?, ..x })
}

/// A gather of one element of an axis at each place, where extents of the other axes are symbols and all are batching
/// dimensions: sums of that element and of zeros. `None` for other gathers, and for known extents.
pub(super) fn picked_each(
    cx: &mut ModuleLowering<'_>,
    x: Val,
    at: Value,
    (n, sizes): (&DimensionNumbers, &[i64]),
) -> Result<Option<Val>, Unlowered> {
    let (ty, places) = (cx.b.ty(x.value).clone(), cx.b.ty(at).clone());
    let open = |ty: &TensorType| ty.dims().is_none();
    let [axis] = n.map[..] else { return Ok(None) };
    let rank = ty.rank();
    let whole = n.batching.len() + 1 == rank && n.collapsed().len() == rank;
    let Some(Dim::Const(extent)) = ty.shape.get(axis as usize).copied() else { return Ok(None) };
    if !(open(&ty) || open(&places)) || !whole || sizes.iter().any(|&n| n != 1) {
        return Ok(None);
    }
    // The places without the last axis, which has one component, and then the axis that is picked from.
    let outer = places.rank() - 1;
    let shape = places.shape[..outer].iter().copied().chain([Dim::Const(extent)]);
    let all = TensorType::new(ty.dtype, shape);
    let along = |d: i64| {
        let k = n.batching.iter().position(|&b| b == d);
        k.map_or(outer as i64, |k| n.index_axis(k))
    };
    let mut order: Vec<i64> = (0..rank as i64).collect();
    order.sort_by_key(|&d| along(d));
    let to: Vec<i64> = order.iter().map(|&d| along(d)).collect();
    let full = cx.b.materialize(x.value);
    let turned = cx.emit(Op::Transpose, &[full], Attrs::none().with_ints("perm", order))?;
    let dims = Attrs::none().with_ints("dims", to);
    let values = cx.emit_as(Op::BroadcastInDim, &[turned], dims, &all)?;
    let flat = TensorType::new(places.dtype, places.shape[..outer].iter().copied());
    let at = cx.emit_as(Op::Reshape, &[at], Attrs::none(), &flat)?;
    let at = cx.storage(at, DType::I64)?;
    let least = cx.literal_like(at, Literal::zero(DType::I64));
    let most = cx.literal_like(at, Literal::from_i64(DType::I64, extent as i64 - 1));
    let at = cx.op(Op::Clamp, &[least, at, most])?;
    let wide = all.with_dtype(DType::I64);
    let dims = Attrs::none().with_ints("dims", 0..outer as i64);
    let at = cx.emit_as(Op::BroadcastInDim, &[at], dims, &wide)?;
    let value = sum_where(cx, values, at, outer)?;
    Ok(Some(Val { value, ..x }))
}

/// The sum along an axis of the elements whose place is this one, and of zeros.
fn sum_where(
    cx: &mut ModuleLowering<'_>,
    x: Value,
    at: Value,
    axis: usize,
) -> Result<Value, Unlowered> {
    let ty = cx.b.ty(x).clone();
    let attrs = Attrs::none().with_int("axis", axis as i64);
    let places = cx.emit_as(Op::Iota, &[], attrs, &ty.with_dtype(DType::I64))?;
    let here = cx.op(Op::Eq, &[places, at])?;
    let nothing = cx.literal_like(x, Literal::zero(ty.dtype));
    let kept = cx.op(Op::SelectN, &[here, nothing, x])?;
    let op = if ty.dtype == DType::Bool { Op::ReduceOr } else { Op::ReduceSum };
    cx.emit(op, &[kept], Attrs::none().with_ints("axes", [axis as i64]))
}

//! Changes of shape, sources, and slices at indices that are operands.

use super::attributes::{entry, find, list, list_or, need_list, need_number};
use super::context::{LoweredValues, ModuleLowering, Val, written_type};
use super::extents;
use crate::emit::element::ElementType;
use crate::emit::refusal::{Unlowered, refuse};
use crate::text::tree::{Attribute, Instruction};
use adfuse_ir::{Attr as IrAttr, Attrs, DType, Dim, Literal, Op, TensorType, Value};
use smallvec::smallvec;

/// One view of the first operand whose result type is written.
fn written(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
    op: Op,
    attrs: Attrs,
) -> LoweredValues {
    let x = cx.operand(inst, 0)?;
    let value = match written_type(inst, 0)?.is_dynamic() {
        true => {
            let full = cx.b.materialize(x.value);
            cx.emit(op, &[full], attrs)?
        }
        false => {
            let (_, ty) = cx.result_type(inst, 0)?;
            cx.emit_as(op, &[x.value], attrs, &ty)?
        }
    };
    Ok(smallvec![Val { value, ..x }])
}

pub(crate) fn broadcast_in_dim(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
) -> LoweredValues {
    let dims = need_list(inst, &["dims", "broadcast_dimensions"])?;
    let x = cx.operand(inst, 0)?;
    let (_, ty) = extents::target(cx, inst, 1)?;
    if let Some(l) = cx.b.func().literal(x.value).filter(|l| l.dtype() == ty.dtype) {
        return Ok(smallvec![Val { value: cx.b.literal(&ty, l), ..x }]);
    }
    if cx.b.ty(x.value) == &ty && dims.iter().enumerate().all(|(k, &d)| k as i64 == d) {
        return Ok(smallvec![x]);
    }
    // The IR wants ascending axes: others are transposed first.
    let mut order: Vec<usize> = (0..dims.len()).collect();
    order.sort_by_key(|&k| dims[k]);
    let mut value = x.value;
    if order.iter().enumerate().any(|(k, &o)| k != o) {
        let perm = order.iter().map(|&k| k as i64);
        value = cx.emit(Op::Transpose, &[value], Attrs::none().with_ints("perm", perm))?;
    }
    let attrs = Attrs::none().with_ints("dims", order.iter().map(|&k| dims[k]));
    Ok(smallvec![Val { value: cx.emit_as(Op::BroadcastInDim, &[value], attrs, &ty)?, ..x }])
}

pub(crate) fn reshape(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let x = cx.operand(inst, 0)?;
    let (_, ty) = extents::target(cx, inst, 1)?;
    match cx.b.func().literal(x.value) {
        Some(l) if l.dtype() == ty.dtype && ty.elements() == cx.b.ty(x.value).elements() => {
            Ok(smallvec![Val { value: cx.b.literal(&ty, l), ..x }])
        }
        _ => {
            let value = cx.emit_as(Op::Reshape, &[x.value], Attrs::none(), &ty)?;
            Ok(smallvec![Val { value, ..x }])
        }
    }
}

pub(crate) fn transpose(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let perm = need_list(inst, &["dims", "permutation"])?;
    written(cx, inst, Op::Transpose, Attrs::none().with_ints("perm", perm))
}

pub(crate) fn reverse(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let axes = need_list(inst, &["dims", "dimensions"])?;
    written(cx, inst, Op::Rev, Attrs::none().with_ints("axes", axes))
}

pub(crate) fn concatenate(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let axis = need_number(inst, &["dim", "dimension"])?;
    let args = cx.operands(inst)?;
    let values: Vec<Value> = args.iter().map(|a| a.value).collect();
    let Some(first) = args.first() else { return refuse("no operands") };
    let value = cx.emit(Op::Concatenate, &values, Attrs::none().with_int("axis", axis))?;
    Ok(smallvec![Val { value, ..*first }])
}

/// Start, limit and stride of each axis, from `[0:4:2, 1:3]` or from three lists.
pub(crate) fn slice(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let (mut start, mut limit, mut stride) = (Vec::new(), Vec::new(), Vec::new());
    match inst.words.first() {
        Some(Attribute::List(ranges)) => {
            for range in ranges {
                let Attribute::Range(ends) = range else {
                    return refuse("a slice that is no range");
                };
                let n = |k: usize, default: i64| match ends.get(k) {
                    Some(text) => super::attributes::number(&Attribute::Number(text)),
                    None => Ok(default),
                };
                start.push(n(0, 0)?);
                limit.push(n(1, 0)?);
                stride.push(n(2, 1)?);
            }
        }
        _ => {
            start = need_list(inst, &["start_indices"])?;
            limit = need_list(inst, &["limit_indices"])?;
            stride = list_or(inst, &["strides"], start.len(), 1)?;
        }
    }
    let x = cx.operand(inst, 0)?;
    let limit = limit.into_iter().map(Some).collect::<Vec<_>>();
    extents::sliced(cx, x, &start, &limit, &stride)
}

/// The numbers of an operand that is a constant.
pub(crate) fn constant_list(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
    k: usize,
) -> Result<Vec<i64>, Unlowered> {
    let v = cx.operand(inst, k)?;
    let known = cx.known.value(cx.emitter.b.func(), v.value);
    match known.and_then(|t| t.literals()) {
        Some(all) => Ok(all.iter().map(|l| l.to_i64()).collect()),
        None => refuse(format!("operand {k} that is no constant")),
    }
}

pub(crate) fn dynamic_pad(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let mut list = |k: usize| constant_list(cx, inst, k);
    let (low, high, interior) = (list(2)?, list(3)?, list(4)?);
    padded(cx, inst, low, high, interior)
}

fn known_place(d: Option<Dim>) -> Option<i64> {
    d.and_then(Dim::known).and_then(|n| i64::try_from(n).ok())
}

/// A slice whose bounds are operands that are known, or the extents of axes.
pub(crate) fn real_dynamic_slice(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
) -> LoweredValues {
    let stride = constant_list(cx, inst, 3)?;
    let x = cx.operand(inst, 0)?;
    let places: Vec<Option<i64>> =
        extents::said(cx, inst, 1)?.into_iter().map(known_place).collect();
    let Some(start) = places.iter().copied().collect::<Option<Vec<i64>>>() else {
        return super::gather_window::slice_at(cx, inst, x, &places, &stride);
    };
    let limit = extents::limits(cx, inst, x, 2)?;
    extents::sliced(cx, x, &start, &limit, &stride)
}

pub(crate) fn pad(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let low = need_list(inst, &["low", "edge_padding_low"])?;
    let high = need_list(inst, &["high", "edge_padding_high"])?;
    let interior = need_list(inst, &["interior", "interior_padding"])?;
    padded(cx, inst, low, high, interior)
}

fn padded(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
    low: Vec<i64>,
    high: Vec<i64>,
    interior: Vec<i64>,
) -> LoweredValues {
    let (x, fill) = (cx.operand(inst, 0)?, cx.operand(inst, 1)?);
    let attrs =
        Attrs::none().with_ints("low", low).with_ints("high", high).with_ints("interior", interior);
    let x_full = cx.b.materialize(x.value);
    Ok(smallvec![Val { value: cx.emit(Op::Pad, &[x_full, fill.value], attrs)?, ..x }])
}

pub(crate) fn iota(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let axis = need_number(inst, &["dim", "iota_dimension"])?;
    let (element, ty) = extents::target(cx, inst, 0)?;
    let value = cx.emit_as(Op::Iota, &[], Attrs::none().with_int("axis", axis), &ty)?;
    let value = crate::emit::integers::wrap(cx, element, value)?;
    Ok(smallvec![Val { element, value }])
}

/// Start indices: integers of any type.
fn starts(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
    from: usize,
) -> Result<Vec<Value>, Unlowered> {
    let args = cx.operands(inst)?;
    if args.len() < from || args[from..].iter().any(|a| !a.element.is_int()) {
        return refuse("start indices that are no integers");
    }
    // Constants have one type: what is beyond it is beyond every axis.
    let constant = |l: Literal| {
        let place = l.to_i64().clamp(i64::from(i32::MIN), i64::from(i32::MAX));
        Literal::from_i64(DType::I32, place)
    };
    let scalar = TensorType::scalar(DType::I32);
    Ok(args[from..]
        .iter()
        .map(|a| match cx.b.func().literal(a.value) {
            Some(l) => cx.b.literal(&scalar, constant(l)),
            None => a.value,
        })
        .collect())
}

pub(crate) fn dynamic_slice(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let sizes = need_list(inst, &["sizes", "slice_sizes"])?;
    let x = cx.operand(inst, 0)?;
    let mut args = vec![cx.b.materialize(x.value)];
    args.extend(starts(cx, inst, 1)?);
    let value = cx.emit(Op::DynamicSlice, &args, Attrs::none().with_ints("sizes", sizes))?;
    Ok(smallvec![Val { value, ..x }])
}

pub(crate) fn dynamic_update_slice(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
) -> LoweredValues {
    let (x, update) = (cx.operand(inst, 0)?, cx.operand(inst, 1)?);
    let mut args = vec![cx.b.materialize(x.value), cx.b.materialize(update.value)];
    args.extend(starts(cx, inst, 2)?);
    Ok(smallvec![Val { value: cx.op(Op::DynamicUpdateSlice, &args)?, ..x }])
}

/// The extent of an axis, which is known.
pub(crate) fn dimension_size(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let x = cx.operand(inst, 0)?;
    let axis = need_number(inst, &["dim", "dimension"])?;
    let (element, ty) = cx.result_type(inst, 0)?;
    let Some(&extent) = usize::try_from(axis).ok().and_then(|k| cx.b.ty(x.value).shape.get(k))
    else {
        return refuse(format!("axis {axis}"));
    };
    let n = match extent {
        Dim::Const(n) => n,
        Dim::Sym(s) => {
            let cx = &mut *cx;
            let value = crate::known::counted(&mut cx.emitter, &mut cx.known, s)?;
            let wide = Val { element: ElementType::Int { bits: 64, signed: true }, value };
            return Ok(smallvec![super::elementwise::convert_to(cx, wide, element)?]);
        }
    };
    Ok(smallvec![Val { element, value: cx.b.literal(&ty, element.of_bits(n)) }])
}

/// The axes of a batch and those that are summed over, of both operands; the first has this rank.
pub(super) fn dot_axes(
    rank: usize,
    inst: &Instruction<'_>,
) -> Result<(AxisPair, AxisPair), Unlowered> {
    if inst.op == "stablehlo.dot" {
        // The last axis of the first operand against the first of the second.
        return Ok(((Vec::new(), Vec::new()), (vec![rank as i64 - 1], vec![0])));
    }
    let pair = |names: &[&str]| match find(inst, names) {
        None => Ok((Vec::new(), Vec::new())),
        Some(Attribute::Several(two)) if two.len() == 2 => Ok((list(&two[0])?, list(&two[1])?)),
        Some(_) => refuse(format!("`{}` that is not a pair of lists", names[0])),
    };
    let Some(numbers) = inst.attr("dot_dimension_numbers") else {
        return Ok((pair(&["batching_dims"])?, pair(&["contracting_dims"])?));
    };
    let both = |lhs: &str, rhs: &str| Ok((entry(numbers, lhs)?, entry(numbers, rhs)?));
    Ok((
        both("lhs_batching_dimensions", "rhs_batching_dimensions")?,
        both("lhs_contracting_dimensions", "rhs_contracting_dimensions")?,
    ))
}

type AxisPair = (Vec<i64>, Vec<i64>);

/// Products of two tensors, summed over the axes that are contracted.
pub(crate) fn dot(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let (x, y) = (cx.operand(inst, 0)?, cx.operand(inst, 1)?);
    let (batch, contract) = dot_axes(cx.b.ty(x.value).rank(), inst)?;
    let written = written_type(inst, 0)?;
    let element = cx.element_of(written)?;
    let attrs = Attrs::none()
        .with("batch", IrAttr::Pair(batch.0.into(), batch.1.into()))
        .with("contract", IrAttr::Pair(contract.0.into(), contract.1.into()));
    if element == ElementType::Bool {
        let (x, y) = (cx.storage(x.value, DType::I32)?, cx.storage(y.value, DType::I32)?);
        let (x, y) = (cx.b.materialize(x), cx.b.materialize(y));
        let sum = cx.emit(Op::DotGeneral, &[x, y], attrs)?;
        return Ok(smallvec![Val { element, value: cx.storage(sum, DType::Bool)? }]);
    }
    // Operands of a narrower type are summed in that of the result.
    let x = super::elementwise::convert_to(cx, x, element)?.value;
    let y = super::elementwise::convert_to(cx, y, element)?.value;
    let (x, y) = (cx.b.materialize(x), cx.b.materialize(y));
    let value = cx.emit_written(inst, Op::DotGeneral, &[x, y], attrs)?;
    Ok(smallvec![Val { element, value: crate::emit::integers::wrap(cx, element, value)? }])
}

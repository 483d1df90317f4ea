//! Ops that move elements by places that are known, and what gives shapes.

use super::{
    Cx, I64, LoweredValue, LoweredValues, OnnxOperation, Unlowered, Val, Vals, axis_of,
    broadcast_shape, refuse,
};
use adfuse_ir::{Attrs, Dim, Literal, Op, Shape};
use smallvec::smallvec;

/// Axes that an attribute gives, or in later versions an input.
pub(crate) fn axes(
    cx: Cx<'_, '_>,
    n: &OnnxOperation<'_>,
    input: usize,
    rank: usize,
) -> Result<Option<Vec<usize>>, Unlowered> {
    let given = match (n.ints("axes"), n.optional(input)) {
        (Some(all), _) => all.to_vec(),
        (None, Some(v)) => cx.ints(v)?,
        (None, None) => return Ok(None),
    };
    let mut axes = given.into_iter().map(|k| axis_of(k, rank)).collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    let before = axes.len();
    axes.dedup();
    if axes.len() < before {
        return refuse("an axis twice");
    }
    Ok(Some(axes))
}

/// A shape that a value gives; -1 stands for what is left of these extents.
fn wanted_shape(
    cx: Cx<'_, '_>,
    wanted: Val,
    from: &[Dim],
    allows_zero: bool,
) -> Result<Shape, Unlowered> {
    let mut shape = Shape::new();
    let mut rest = None;
    for (k, e) in cx.shape_elements(wanted)?.into_iter().enumerate() {
        shape.push(match e {
            Err(d) => d,
            Ok(-1) if rest.is_none() => {
                rest = Some(k);
                Dim::Const(1)
            }
            Ok(0) if !allows_zero => match from.get(k) {
                Some(&d) => d,
                None => return refuse("an extent of an axis that is not there"),
            },
            Ok(n) => match u64::try_from(n) {
                Ok(n) => Dim::Const(n),
                Err(_) => return refuse(format!("an extent of {n}")),
            },
        });
    }
    let Some(rest) = rest else { return Ok(shape) };
    // Equal symbols leave each other out; what is left must be a number, or one symbol.
    let mut symbols: Vec<Dim> = from.iter().copied().filter(|d| d.known().is_none()).collect();
    for d in shape.iter().filter(|d| d.known().is_none()) {
        match symbols.iter().position(|s| s == d) {
            Some(k) => drop(symbols.remove(k)),
            None => return refuse(format!("the extent {d} must be given: --dim {d}=EXTENT")),
        }
    }
    let product =
        |all: &[Dim]| all.iter().filter_map(|d| d.known()).try_fold(1u64, |a, n| a.checked_mul(n));
    let (Some(all), Some(named)) = (product(from), product(&shape)) else {
        return refuse("too many elements");
    };
    let left = all.checked_div(named).unwrap_or(0);
    shape[rest] = match (symbols.as_slice(), left) {
        ([], n) => Dim::Const(n),
        ([d], 1) => *d,
        ([d, ..], _) => return refuse(format!("the extent {d} must be given: --dim {d}=EXTENT")),
    };
    Ok(shape)
}

pub(crate) fn reshape<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let from = cx.shape(x);
    let wanted = match n.ints("shape") {
        Some(all) => cx.int_list(all)?,
        None => n.input(1)?,
    };
    n.ignore(&["consumed_inputs"]);
    let shape = wanted_shape(cx, wanted, &from, n.flag("allowzero", false))?;
    Ok(smallvec![cx.reshape(x, &shape)?])
}

pub(crate) fn flatten<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let shape = cx.shape(x);
    let axis = match n.int("axis", 1) {
        k if k == shape.len() as i64 => shape.len(),
        k => axis_of(k, shape.len().max(1))?,
    };
    let (rows, columns) = shape.split_at(axis);
    let merged = |part: &[Dim]| match part {
        [d] => Ok(*d),
        _ => {
            part.iter().try_fold(1u64, |a, &d| Ok(a.saturating_mul(cx.extent(d)?))).map(Dim::Const)
        }
    };
    let to = [merged(rows)?, merged(columns)?];
    Ok(smallvec![cx.reshape(x, &to)?])
}

pub(crate) fn transpose<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let rank = cx.rank(x);
    let perm = match n.ints("perm") {
        Some(all) => all.iter().map(|&k| axis_of(k, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).rev().collect(),
    };
    Ok(smallvec![cx.transpose(x, &perm)?])
}

pub(crate) fn squeeze<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let mut x = n.input(0)?;
    let shape = cx.shape(x);
    let axes = match axes(cx, n, 1, shape.len())? {
        Some(axes) => axes,
        None => (0..shape.len()).filter(|&k| shape[k] == Dim::Const(1)).collect(),
    };
    for &axis in axes.iter().rev() {
        x = cx.squeeze(x, axis)?;
    }
    Ok(smallvec![x])
}

pub(crate) fn unsqueeze<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let mut x = n.input(0)?;
    let count = match (n.ints("axes"), n.optional(1)) {
        (Some(all), _) => all.len(),
        (None, Some(v)) => cx.ints(v)?.len(),
        _ => return refuse("without axes"),
    };
    for axis in axes(cx, n, 1, cx.rank(x) + count)?.unwrap_or_default() {
        x = cx.unsqueeze(x, axis)?;
    }
    Ok(smallvec![x])
}

pub(crate) fn expand<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let wanted: Shape = known_shape(cx, n.input(1)?)?;
    let shape = broadcast_shape(&[cx.shape(x), wanted])?;
    Ok(smallvec![cx.expand(x, &shape)?])
}

/// A shape that a value gives, whole.
pub(crate) fn known_shape(cx: Cx<'_, '_>, wanted: Val) -> Result<Shape, Unlowered> {
    let all = cx.shape_elements(wanted)?.into_iter().map(|e| match e {
        Err(d) => Ok(d),
        Ok(n) => match u64::try_from(n) {
            Ok(n) => Ok(Dim::Const(n)),
            Err(_) => refuse(format!("an extent of {n}")),
        },
    });
    all.collect()
}

pub(crate) fn concat<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let all = n.all()?;
    let Some(&first) = all.first() else { return refuse("no inputs") };
    let axis = axis_of(n.int("axis", 1), cx.rank(first))?;
    Ok(smallvec![cx.concat(&all, axis)?])
}

pub(crate) fn split<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let axis = axis_of(n.int("axis", 0), cx.rank(x))?;
    let extent = cx.extent(cx.shape(x)[axis])? as i64;
    let outputs = n.proto.outputs.len() as i64;
    let sizes = match (n.ints("split"), n.optional(1)) {
        (Some(all), _) => all.to_vec(),
        (None, Some(v)) => cx.ints(v)?,
        (None, None) => {
            let parts = n.int("num_outputs", outputs);
            if parts != outputs || parts == 0 {
                return refuse("other outputs than parts");
            }
            let size = extent / parts + i64::from(extent % parts != 0);
            (0..parts).map(|k| (extent - k * size).clamp(0, size)).collect()
        }
    };
    if sizes.iter().any(|&s| s < 0)
        || sizes.iter().try_fold(0i64, |a, &s| a.checked_add(s)) != Some(extent)
    {
        return refuse(format!("parts of {sizes:?} of {extent} elements"));
    }
    let (mut from, mut parts) = (0, Vals::new());
    for size in sizes {
        parts.push(cx.slice(x, axis, from, from + size as u64)?);
        from += size as u64;
    }
    Ok(parts)
}

/// Where a slice of one axis begins, how many elements it has and how far apart they are.
fn slice_of(extent: i64, from: i64, to: i64, step: i64) -> (i64, i64) {
    if extent == 0 {
        return (0, 0);
    }
    let place = |k: i64| if k < 0 { k.saturating_add(extent) } else { k };
    let (from, to) = match step > 0 {
        true => (place(from).clamp(0, extent), place(to).clamp(0, extent)),
        false => (place(from).clamp(0, extent - 1), place(to).clamp(-1, extent - 1)),
    };
    let span = if step > 0 { to - from } else { from - to };
    let size = step.unsigned_abs().min(i64::MAX as u64) as i64;
    (from, if span <= 0 { 0 } else { (span - 1) / size + 1 })
}

pub(crate) fn slice<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let shape = cx.shape(x);
    let (starts, ends, axes, steps) = if n.version < 10 {
        let all = |name| n.ints(name).map(<[i64]>::to_vec);
        (all("starts").unwrap_or_default(), all("ends").unwrap_or_default(), all("axes"), None)
    } else {
        let (starts, ends) = (cx.ints(n.input(1)?)?, cx.ints(n.input(2)?)?);
        let axes = n.optional(3).map(|v| cx.ints(v)).transpose()?;
        (starts, ends, axes, n.optional(4).map(|v| cx.ints(v)).transpose()?)
    };
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()].iter().any(|&k| k != starts.len()) {
        return refuse("lists of several lengths");
    }
    let rank = shape.len();
    let mut start = vec![0i64; rank];
    let mut counts: Vec<Option<i64>> = vec![None; rank];
    let mut stride = vec![1i64; rank];
    for (k, &axis) in axes.iter().enumerate() {
        let axis = axis_of(axis, rank)?;
        let whole = starts[k] == 0 && ends[k] >= i64::from(i32::MAX) && steps[k] == 1;
        if whole {
            continue;
        }
        let extent = cx.extent(shape[axis])? as i64;
        if steps[k] == 0 {
            return refuse("a step of 0");
        }
        let (from, count) = slice_of(extent, starts[k], ends[k], steps[k]);
        (start[axis], counts[axis], stride[axis]) = (from, Some(count), steps[k]);
    }
    if counts.iter().all(Option::is_none) {
        return Ok(smallvec![x]);
    }
    Ok(smallvec![strided(cx, x, &start, &counts, &stride)?])
}

/// This many elements of each axis, from one on, this far apart; all where nothing is said.
fn strided(
    cx: Cx<'_, '_>,
    x: Val,
    start: &[i64],
    counts: &[Option<i64>],
    stride: &[i64],
) -> LoweredValue {
    let (mut low, mut limit, mut step, mut turned) = (vec![], vec![], vec![], vec![]);
    let shape = cx.shape(x);
    if shape.iter().any(|d| d.known().is_none()) && stride.iter().all(|&s| s == 1) {
        let (mut before, mut behind) = (vec![0; shape.len()], vec![0; shape.len()]);
        for (k, &d) in shape.iter().enumerate() {
            if let Some(count) = counts[k] {
                (before[k], behind[k]) = (start[k], cx.extent(d)? as i64 - start[k] - count);
            }
        }
        return cx.cut(x, &before, &behind);
    }
    for (k, &d) in shape.iter().enumerate() {
        let Some(count) = counts[k] else {
            low.push(0);
            limit.push(cx.extent(d)? as i64);
            step.push(1);
            continue;
        };
        let reach = (count - 1).max(0).saturating_mul(stride[k].saturating_abs());
        if count == 0 {
            low.push(0);
            limit.push(0);
            step.push(1);
        } else if stride[k] > 0 {
            low.push(start[k]);
            limit.push(start[k] + reach + 1);
            step.push(stride[k]);
        } else {
            turned.push(k as i64);
            low.push(start[k] - reach);
            limit.push(start[k] + 1);
            step.push(stride[k].saturating_neg());
        }
    }
    // A stride beyond the axis takes one element.
    let extents = limit.iter().zip(&low).map(|(l, s)| (l - s).max(1));
    let step: Vec<i64> = step.iter().zip(extents).map(|(&s, n)| s.min(n)).collect();
    let attrs =
        Attrs::none().with_ints("start", low).with_ints("limit", limit).with_ints("stride", step);
    let full = cx.b.materialize(x.value);
    let mut value = cx.emit(Op::Slice, &[full], attrs)?;
    if !turned.is_empty() {
        value = cx.emit(Op::Rev, &[value], Attrs::none().with_ints("axes", turned))?;
    }
    Ok(Val { value, ..x })
}

pub(crate) fn tile<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let counts = cx.ints(n.input(1)?)?;
    if counts.len() != cx.rank(x) || counts.iter().any(|&c| c < 0) {
        return refuse(format!("{counts:?} times {} axes", cx.rank(x)));
    }
    let full = cx.b.materialize(x.value);
    let value = cx.emit(Op::Tile, &[full], Attrs::none().with_ints("counts", counts))?;
    Ok(smallvec![Val { value, ..x }])
}

/// Numbers of elements before and behind each axis.
fn pads(
    cx: Cx<'_, '_>,
    n: &OnnxOperation<'_>,
    rank: usize,
) -> Result<(Vec<i64>, Vec<i64>), Unlowered> {
    let all = match n.ints("pads") {
        Some(all) => all.to_vec(),
        None => cx.ints(n.input(1)?)?,
    };
    let axes = match n.optional(3) {
        Some(v) => cx.ints(v)?.into_iter().map(|k| axis_of(k, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).collect::<Vec<_>>(),
    };
    if all.len() != 2 * axes.len() {
        return refuse(format!("{} numbers for {} axes", all.len(), axes.len()));
    }
    let (mut low, mut high) = (vec![0; rank], vec![0; rank]);
    for (k, &axis) in axes.iter().enumerate() {
        (low[axis], high[axis]) = (all[k], all[axes.len() + k]);
    }
    Ok((low, high))
}

pub(crate) fn pad<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let (low, high) = pads(cx, n, cx.rank(x))?;
    let mode = n.text("mode", "constant");
    if mode == "constant" {
        let value = n.float("value", 0.0);
        let with = match n.optional(2) {
            Some(v) => {
                let v = cx.convert(v, x.element)?;
                cx.reshape(v, &[])?
            }
            None => {
                let l = Literal::from_f64(x.element.storage(), value);
                cx.filled(x.element, &[], l)
            }
        };
        let full = cx.b.materialize(x.value);
        let attrs = Attrs::none()
            .with_ints("interior", vec![0; low.len()])
            .with_ints("low", low)
            .with_ints("high", high);
        let value = cx.emit(Op::Pad, &[full, with.value], attrs)?;
        return Ok(smallvec![Val { value, ..x }]);
    }
    let mut padded = x;
    for axis in 0..low.len() {
        if (low[axis], high[axis]) != (0, 0) {
            let extent = cx.extent(cx.shape(padded)[axis])? as i64;
            let places = padded_places(mode, extent, (low[axis], high[axis]))?;
            padded = super::indirect::take_places(cx, padded, axis, &places)?;
        }
    }
    Ok(smallvec![padded])
}

/// Where each element of a padded axis comes from.
fn padded_places(mode: &str, extent: i64, (low, high): (i64, i64)) -> Result<Vec<i64>, Unlowered> {
    const MOST: i64 = 1 << 20;
    let range = low.checked_neg().zip(extent.checked_add(high));
    let Some((from, to)) = range.filter(|&(a, b)| extent > 0 && a.abs() < MOST && b.abs() < MOST)
    else {
        return refuse(format!("{low} and {high} elements around {extent}"));
    };
    let place = |k: i64| match mode {
        "edge" => Ok(k.clamp(0, extent - 1)),
        "wrap" => Ok(k.rem_euclid(extent)),
        "reflect" if extent == 1 => Ok(0),
        "reflect" => {
            let period = 2 * (extent - 1);
            let k = k.rem_euclid(period);
            Ok(k.min(period - k))
        }
        other => refuse(format!("the mode `{other}`")),
    };
    (from..to).map(place).collect()
}

/// Blocks of channels become blocks of places, or the reverse.
pub(crate) fn depth_to_space<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, block) = (n.input(0)?, n.int("blocksize", 1).max(1) as u64);
    let dims = cx.extents(x)?;
    let [batch, channels, h, w] = dims[..] else { return refuse("other than four axes") };
    let Some(square) = block.checked_mul(block).filter(|s| channels.is_multiple_of(*s)) else {
        return refuse(format!("blocks of {block} in {channels} channels"));
    };
    let c = channels / square;
    let (split, perm) = match n.text("mode", "DCR") {
        "DCR" => ([batch, block, block, c, h, w], [0, 3, 4, 1, 5, 2]),
        "CRD" => ([batch, c, block, block, h, w], [0, 1, 4, 2, 5, 3]),
        other => return refuse(format!("the mode `{other}`")),
    };
    let y = cx.reshape_to(x, &split)?;
    let y = cx.transpose(y, &perm)?;
    Ok(smallvec![cx.reshape_to(y, &[batch, c, h.saturating_mul(block), w.saturating_mul(block)])?])
}

pub(crate) fn space_to_depth<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, block) = (n.input(0)?, n.int("blocksize", 1).max(1) as u64);
    let dims = cx.extents(x)?;
    let [batch, c, h, w] = dims[..] else { return refuse("other than four axes") };
    if !h.is_multiple_of(block) || !w.is_multiple_of(block) {
        return refuse(format!("blocks of {block} in {h} times {w}"));
    }
    let split = [batch, c, h / block, block, w / block, block];
    let y = cx.reshape_to(x, &split)?;
    let y = match n.text("mode", "DCR") {
        "DCR" => cx.transpose(y, &[0, 3, 5, 1, 2, 4])?,
        "CRD" => cx.transpose(y, &[0, 1, 3, 5, 2, 4])?,
        other => return refuse(format!("the mode `{other}`")),
    };
    Ok(smallvec![cx.reshape_to(
        y,
        &[batch, c.saturating_mul(block).saturating_mul(block), h / block, w / block]
    )?])
}

/// The middle of each axis, with zeros around where there is not enough.
pub(crate) fn center_crop_pad<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let mut x = n.input(0)?;
    let rank = cx.rank(x);
    let axes = match n.ints("axes") {
        Some(all) => all.iter().map(|&k| axis_of(k, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).collect(),
    };
    let wanted = cx.ints(n.input(1)?)?;
    for (&axis, &to) in axes.iter().zip(&wanted) {
        let from = cx.extent(cx.shape(x)[axis])? as i64;
        if to > from {
            let (mut low, mut high) = (vec![0; rank], vec![0; rank]);
            low[axis] = (to - from) / 2;
            high[axis] = to - from - low[axis];
            x = cx.pad(x, Literal::zero(x.element.storage()), &low, &high)?;
        } else if to < from && to >= 0 {
            let first = ((from - to) / 2) as u64;
            x = cx.slice(x, axis, first, first + to as u64)?;
        }
    }
    Ok(smallvec![x])
}

/// The first elements of each line of an axis in reverse, as many as a list says for each batch.
pub(crate) fn reverse_sequence<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, lengths) = (n.input(0)?, n.input(1)?);
    let rank = cx.rank(x);
    let time = axis_of(n.int("time_axis", 0), rank)?;
    let batch = axis_of(n.int("batch_axis", 1), rank)?;
    let shape = cx.shape(x);
    let at = cx.iota(I64, &shape, time)?;
    let lengths = cx.convert(lengths, I64)?;
    let lengths = cx.broadcast_in(lengths, &shape, &[batch as i64])?;
    let last = cx.with(Op::Sub, lengths, 1.0)?;
    let turned = cx.sub(last, at)?;
    let inside = cx.map(Op::Lt, &[at, lengths])?;
    let places = cx.select(inside, turned, at)?;
    Ok(smallvec![cx.take_along(x, places, time)?])
}

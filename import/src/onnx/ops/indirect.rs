//! Reading and writing at places that are computed.

use super::{
    Cx, ElementType, I64, LoweredValue, LoweredValues, OnnxOperation, Unlowered, Val, axis_of,
    refuse,
};
use crate::emit::integers::{ordered, wrap};
use adfuse_ir::{Attr, Attrs, DType, Dim, Op, Shape};
use smallvec::smallvec;

/// Places along an axis of this extent, with those below 0 counted from its end.
fn from_start(cx: Cx<'_, '_>, at: Val, extent: Dim) -> LoweredValue {
    let at = cx.convert(at, I64)?;
    let extent = cx.extent_value(extent)?;
    let zero = cx.number(at, 0.0);
    let below = cx.map(Op::Lt, &[at, zero])?;
    let moved = cx.add(at, extent)?;
    cx.select(below, moved, at)
}

/// The slices at places of an axis; the axes of the places stand where that was.
pub(crate) fn take(cx: Cx<'_, '_>, x: Val, at: Val, axis: usize) -> LoweredValue {
    let shape = cx.shape(x);
    if axis >= shape.len() {
        return refuse(format!("axis {axis} of {}", shape.len()));
    }
    if let (0, Some(k), Some(n)) = (cx.rank(at), cx.known_int(at), shape[axis].known()) {
        let place = if k < 0 { k.saturating_add(n as i64) } else { k };
        let whole = shape.iter().all(|d| d.known().is_some());
        if let Some(place) = u64::try_from(place).ok().filter(|&p| whole && p < n) {
            return cx.index_axis(x, axis, place);
        }
    }
    let at = from_start(cx, at, shape[axis])?;
    let rank = cx.rank(at);
    let index = cx.unsqueeze(at, rank)?;
    let mut sizes = Vec::new();
    for (k, &d) in shape.iter().enumerate() {
        sizes.push(if k == axis { 1 } else { cx.extent(d)? as i64 });
    }
    let before = 0..axis;
    let behind = axis + rank..shape.len() - 1 + rank;
    let attrs = Attrs::none()
        .with_ints("offset_dims", before.chain(behind).map(|d| d as i64))
        .with_ints("collapsed", [axis as i64])
        .with_ints("start_map", [axis as i64])
        .with_ints("sizes", sizes)
        .with("mode", Attr::Word("clip"));
    let full = cx.b.materialize(x.value);
    let index = cx.b.materialize(index.value);
    Ok(Val { value: cx.emit(Op::Gather, &[full, index], attrs)?, ..x })
}

/// The elements at known places of an axis.
pub(crate) fn take_places(cx: Cx<'_, '_>, x: Val, axis: usize, places: &[i64]) -> LoweredValue {
    let shape = cx.shape(x);
    if places.iter().enumerate().all(|(k, &p)| k as i64 == p)
        && shape[axis] == Dim::Const(places.len() as u64)
    {
        return Ok(x);
    }
    let at = cx.int_list(places)?;
    take(cx, x, at, axis)
}

pub(crate) fn gather<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let axis = axis_of(n.int("axis", 0), cx.rank(x))?;
    Ok(smallvec![take(cx, x, n.input(1)?, axis)?])
}

/// The other axes of places may be shorter than those of the value.
fn cut_to(cx: Cx<'_, '_>, x: Val, like: Val, axis: usize) -> LoweredValue {
    let (mut x, shape, wanted) = (x, cx.shape(x), cx.shape(like));
    for (k, (&d, &to)) in shape.iter().zip(&wanted).enumerate() {
        if k != axis && d != to {
            x = cx.slice(x, k, 0, cx.extent(to)?)?;
        }
    }
    Ok(x)
}

pub(crate) fn gather_elements<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, at) = (n.input(0)?, n.input(1)?);
    let axis = axis_of(n.int("axis", 0), cx.rank(x))?;
    let at = from_start(cx, at, cx.shape(x)[axis])?;
    let x = cut_to(cx, x, at, axis)?;
    Ok(smallvec![cx.take_along(x, at, axis)?])
}

/// Index vectors of the axes behind a batch, counted from the start of each, with those of the batch before them.
fn index_vectors(cx: Cx<'_, '_>, x: Val, at: Val, batch: usize) -> LoweredValue {
    let (shape, places) = (cx.shape(x), cx.shape(at));
    let Some((&last, outer)) = places.split_last() else { return refuse("places without an axis") };
    let length = cx.extent(last)? as usize;
    if batch + length > shape.len() || batch > outer.len() {
        return refuse(format!("places of {length} axes behind {batch}"));
    }
    let known: Option<Vec<f64>> =
        shape[batch..batch + length].iter().map(|d| d.known().map(|n| n as f64)).collect();
    let Some(known) = known else { return refuse("places along an axis of no known extent") };
    let at = cx.convert(at, I64)?;
    let extents = cx.numbers(I64, &[length as u64], &known)?;
    let zero = cx.number(at, 0.0);
    let below = cx.map(Op::Lt, &[at, zero])?;
    let moved = cx.add(at, extents)?;
    let at = cx.select(below, moved, at)?;
    let mut one: Shape = places.clone();
    one[places.len() - 1] = Dim::Const(1);
    let mut parts = Vec::new();
    for d in 0..batch {
        parts.push(cx.iota(I64, &one, d)?);
    }
    parts.push(at);
    cx.concat(&parts, places.len() - 1)
}

pub(crate) fn gather_nd<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, at) = (n.input(0)?, n.input(1)?);
    let batch = n.int("batch_dims", 0).clamp(0, 16) as usize;
    let at = index_vectors(cx, x, at, batch)?;
    let (shape, places) = (cx.shape(x), cx.shape(at));
    let length = cx.extent(places[places.len() - 1])? as usize;
    let mut sizes = Vec::new();
    for (k, &d) in shape.iter().enumerate() {
        sizes.push(if k < length { 1 } else { cx.extent(d)? as i64 });
    }
    let first = places.len() as i64 - 1;
    let attrs = Attrs::none()
        .with_ints("offset_dims", first..first + (shape.len() - length) as i64)
        .with_ints("collapsed", 0..length as i64)
        .with_ints("start_map", 0..length as i64)
        .with_ints("sizes", sizes)
        .with("mode", Attr::Word("clip"));
    let full = cx.b.materialize(x.value);
    let at = cx.b.materialize(at.value);
    Ok(smallvec![Val { value: cx.emit(Op::Gather, &[full, at], attrs)?, ..x }])
}

/// Writes updates, or folds them with what is there, at index vectors; windows are the last axes of updates.
fn write(
    cx: Cx<'_, '_>,
    n: &OnnxOperation<'_>,
    (x, at, updates): (Val, Val, Val),
    window: usize,
) -> LoweredValue {
    let rank = cx.rank(x);
    let length = (rank - window) as i64;
    let Some(batch) = cx.rank(updates).checked_sub(window) else {
        return refuse("updates of fewer axes than their windows");
    };
    let attrs = Attrs::none()
        .with_ints("window_dims", (batch..batch + window).map(|d| d as i64))
        .with_ints("inserted", 0..length)
        .with_ints("start_map", 0..length)
        .with("mode", Attr::Word("drop"));
    let op = match n.text("reduction", "none") {
        "none" => Op::Scatter,
        "add" => Op::ScatterAdd,
        "max" => Op::ScatterMax,
        "min" => Op::ScatterMin,
        "mul" => return multiplied(cx, (x, at, updates), attrs),
        other => return refuse(format!("the reduction `{other}`")),
    };
    let (full, news) = (cx.b.materialize(x.value), cx.b.materialize(updates.value));
    let at = cx.b.materialize(at.value);
    if x.element == ElementType::Bool {
        let (full, news) = (cx.storage(full, DType::U8)?, cx.storage(news, DType::U8)?);
        let value = cx.emit(op, &[full, at, news], attrs)?;
        return Ok(Val { value: cx.storage(value, DType::Bool)?, ..x });
    }
    let turned = matches!(op, Op::ScatterMax | Op::ScatterMin);
    let (mut full, mut news) = (full, news);
    if turned {
        (full, news) = (ordered(cx, x.element, full)?, ordered(cx, x.element, news)?);
    }
    let mut value = cx.emit(op, &[full, at, news], attrs)?;
    if turned {
        value = ordered(cx, x.element, value)?;
    }
    Ok(Val { value: wrap(cx, x.element, value)?, ..x })
}

/// Products go over the updates in a loop: several may fall on one place.
fn multiplied(cx: Cx<'_, '_>, (x, at, updates): (Val, Val, Val), attrs: Attrs) -> LoweredValue {
    let places = cx.extents(at)?;
    let Some((&length, outer)) = places.split_last() else { return refuse("no places") };
    let steps: u64 = outer.iter().product();
    let dims = cx.extents(updates)?;
    let Some(window) = dims.get(outer.len()..).map(<[u64]>::to_vec) else {
        return refuse("updates of fewer axes than their places");
    };
    let rows = cx.reshape_to(at, &[steps, length])?;
    let flat: Vec<u64> = std::iter::once(steps).chain(window.iter().copied()).collect();
    let news = cx.reshape_to(updates, &flat)?;
    let full = cx.b.materialize(x.value);
    let ty = cx.b.ty(full).clone();
    let rows = cx.b.materialize(rows.value);
    let news = cx.b.materialize(news.value);
    let body = cx.b.open_region();
    let carried = Val { value: cx.b.param(ty.clone(), None), ..x };
    let row = Val {
        element: I64,
        value: cx.b.param(adfuse_ir::TensorType::of(DType::I64, &[length]), None),
    };
    let new = adfuse_ir::TensorType::of(x.element.storage(), &window);
    let new = Val { value: cx.b.param(new, None), ..x };
    let next = multiplied_step(cx, carried, row, new, &attrs);
    let results: Vec<adfuse_ir::Value> = next.iter().map(|v| v.value).collect();
    cx.b.close_region(&results);
    next?;
    let attrs = Attrs::none().with_int("carry", 1);
    let value = cx.emit_all(Op::Scan, &[full, rows, news], attrs, Some(&[ty]), &[body])?[0];
    Ok(Val { value, ..x })
}

fn multiplied_step(cx: Cx<'_, '_>, x: Val, row: Val, new: Val, attrs: &Attrs) -> LoweredValue {
    let (shape, window) = (cx.extents(x)?, cx.extents(new)?);
    let Some(length) = shape.len().checked_sub(window.len()) else {
        return refuse("windows of more axes than there are");
    };
    let row = cx.unsqueeze(row, 0)?;
    let one: Vec<u64> = std::iter::once(1).chain(window.iter().copied()).collect();
    let new = cx.reshape_to(new, &one)?;
    let mut sizes: Vec<i64> = vec![1; length];
    sizes.extend(window.iter().map(|&n| n as i64));
    let reads = Attrs::none()
        .with_ints("offset_dims", 1..=window.len() as i64)
        .with_ints("collapsed", 0..length as i64)
        .with_ints("start_map", 0..length as i64)
        .with_ints("sizes", sizes)
        .with("mode", Attr::Word("zero"));
    let old = Val { value: cx.emit(Op::Gather, &[x.value, row.value], reads)?, ..x };
    let product = cx.mul(old, new)?;
    let writes =
        attrs.clone().setting("window_dims", Attr::Ints((1..=window.len() as i64).collect()));
    Ok(Val { value: cx.emit(Op::Scatter, &[x.value, row.value, product.value], writes)?, ..x })
}

pub(crate) fn scatter_elements<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, at, updates) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let axis = axis_of(n.int("axis", 0), cx.rank(x))?;
    let at = from_start(cx, at, cx.shape(x)[axis])?;
    let at = cx.full_places(at, axis)?;
    Ok(smallvec![write(cx, n, (x, at, updates), 0)?])
}

pub(crate) fn scatter_nd<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, at, updates) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let at = index_vectors(cx, x, at, 0)?;
    let places = cx.shape(at);
    let length = cx.extent(places[places.len() - 1])? as usize;
    Ok(smallvec![write(cx, n, (x, at, updates), cx.rank(x) - length)?])
}

/// Updates written into a cache from a place of each batch on; a circular one goes on at its start.
pub(crate) fn tensor_scatter<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, updates) = (n.input(0)?, n.input(1)?);
    let axis = axis_of(n.int("axis", -2), cx.rank(x))?;
    let circular = match n.text("mode", "linear") {
        "linear" => false,
        "circular" => true,
        other => return refuse(format!("the mode `{other}`")),
    };
    let shape = cx.shape(updates);
    let mut at = cx.iota(I64, &shape, axis)?;
    if let Some(first) = n.optional(2) {
        let first = cx.convert(first, I64)?;
        let first = cx.broadcast_in(first, &shape, &[0])?;
        at = cx.add(at, first)?;
    }
    if circular {
        let extent = cx.extent(cx.shape(x)[axis])?;
        at = cx.with(Op::Rem, at, extent as f64)?;
    }
    let at = cx.full_places(at, axis)?;
    Ok(smallvec![write(cx, n, (x, at, updates), 0)?])
}

pub(crate) fn one_hot<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (at, depth, values) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let depth = match cx.floats(depth)?[..] {
        [d] if d >= 0.0 => Dim::Const(d as u64),
        _ => return refuse("other than one number of classes"),
    };
    let axis = axis_of(n.int("axis", -1), cx.rank(at) + 1)?;
    let at = cx.convert(at, I64)?;
    let at = from_start(cx, at, depth)?;
    let at = cx.unsqueeze(at, axis)?;
    let mut shape = cx.shape(at);
    shape[axis] = depth;
    let classes = cx.iota(I64, &shape, axis)?;
    let there = cx.map(Op::Eq, &[classes, at])?;
    let (off, on) = (cx.index_axis(values, 0, 0)?, cx.index_axis(values, 0, 1)?);
    Ok(smallvec![cx.select(there, on, off)?])
}

pub(crate) fn top_k<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let axis = axis_of(n.int("axis", -1), cx.rank(x))?;
    let (largest, _) = (n.flag("largest", true), n.flag("sorted", true));
    let said = n.int("k", 0);
    let count = n.optional(1).map_or(Ok(said), |k| cx.int(k))?;
    let extent = cx.extent(cx.shape(x)[axis])? as i64;
    if !(0..=extent).contains(&count) {
        return refuse(format!("{count} of {extent} elements"));
    }
    let full = cx.b.materialize(x.value);
    let full = ordered(cx, x.element, full)?;
    let attrs = Attrs::none()
        .with_int("axis", axis as i64)
        .with("descending", Attr::Bool(largest))
        .with_ints("count", [count]);
    let places = cx.emit(Op::Argsort, &[full], attrs)?;
    let places = Val { element: I64, value: cx.storage(places, DType::I64)? };
    Ok(smallvec![cx.take_along(x, places, axis)?, places])
}

/// The axis that a node names; without one, the only axis of the elements in a row.
fn axis_or_row(cx: Cx<'_, '_>, n: &OnnxOperation<'_>, x: Val) -> Result<(Val, usize), Unlowered> {
    if n.has("axis") {
        return Ok((x, axis_of(n.int("axis", 0), cx.rank(x))?));
    }
    let count = cx.extents(x)?.iter().product();
    Ok((cx.reshape_to(x, &[count])?, 0))
}

/// The elements that fulfil a condition which is known when the model is imported.
pub(crate) fn compress<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let wanted = cx.ints(n.input(1)?)?;
    let (x, axis) = axis_or_row(cx, n, n.input(0)?)?;
    let places: Vec<i64> =
        wanted.iter().enumerate().filter(|(_, w)| **w != 0).map(|(k, _)| k as i64).collect();
    Ok(smallvec![take_places(cx, x, axis, &places)?])
}

/// The places of elements other than 0, which must be known when the model is imported.
pub(crate) fn non_zero<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let (dims, all) = (cx.extents(x)?, cx.floats(x)?);
    let found: Vec<usize> =
        all.iter().enumerate().filter(|(_, v)| **v != 0.0).map(|(k, _)| k).collect();
    let mut places = Vec::new();
    for axis in 0..dims.len() {
        let inner: u64 = dims[axis + 1..].iter().product::<u64>().max(1);
        places.extend(found.iter().map(|&k| (k as u64 / inner % dims[axis]) as f64));
    }
    Ok(smallvec![cx.numbers(I64, &[dims.len() as u64, found.len() as u64], &places)?])
}

/// Different slices of an axis, which must be known when the model is imported; with their first places, the place of
/// each one's slice among them, and how often each occurs.
pub(crate) fn unique<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, axis) = axis_or_row(cx, n, n.input(0)?)?;
    let (dims, all) = (cx.extents(x)?, cx.floats(x)?);
    let inner: usize = dims[axis + 1..].iter().product::<u64>() as usize;
    let extent = dims[axis] as usize;
    const MOST: usize = 1 << 24;
    // Slices may have no elements.
    if extent.saturating_mul(all.len().max(extent)) > MOST {
        return refuse(format!("{extent} slices of {} elements in all", all.len()));
    }
    let slice = |k: usize| -> Vec<f64> {
        let place = |j: usize| j / inner.max(1) % extent.max(1) == k;
        all.iter().enumerate().filter(|(j, _)| place(*j)).map(|(_, &v)| v).collect()
    };
    let slices: Vec<Vec<f64>> = (0..extent).map(slice).collect();
    let mut firsts: Vec<usize> = Vec::new();
    for k in 0..extent {
        if !firsts.iter().any(|&f| slices[f] == slices[k]) {
            firsts.push(k);
        }
    }
    if n.flag("sorted", true) {
        let order = |a: &usize, b: &usize| {
            let pairs = slices[*a].iter().zip(&slices[*b]).map(|(x, y)| x.total_cmp(y));
            pairs.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        };
        firsts.sort_by(order);
    }
    let of: Vec<f64> = slices
        .iter()
        .map(|s| firsts.iter().position(|&f| slices[f] == *s).unwrap_or(0) as f64)
        .collect();
    let counts: Vec<f64> =
        (0..firsts.len()).map(|k| of.iter().filter(|&&p| p == k as f64).count() as f64).collect();
    let places: Vec<i64> = firsts.iter().map(|&f| f as i64).collect();
    let y = take_places(cx, x, axis, &places)?;
    let first: Vec<f64> = places.iter().map(|&p| p as f64).collect();
    let count = firsts.len() as u64;
    Ok(smallvec![
        y,
        cx.numbers(I64, &[count], &first)?,
        cx.numbers(I64, &[extent as u64], &of)?,
        cx.numbers(I64, &[count], &counts)?
    ])
}

/// Columns of the last axis.
pub(crate) fn array_features<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, at) = (n.input(0)?, n.input(1)?);
    let count = cx.extents(at)?.iter().product();
    let at = cx.reshape_to(at, &[count])?;
    let axis = axis_of(-1, cx.rank(x))?;
    Ok(smallvec![take(cx, x, at, axis)?])
}

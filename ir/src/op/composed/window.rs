//! Windows, and what is folded over them: `windows`, `reduce_window_*`, `select_and_scatter_add`.

use super::{PADDING, POSITIVE, check_list, per_axis};
use crate::attrs::{Attr0, AttrKind, AttrSpec, Attrs, Ints, maybe, need};
use crate::builder::Builder;
use crate::dtype::{DType, DTypeSet};
use crate::entity::Value;
use crate::infer::{InferCx, InferError, checked_axes};
use crate::literal::Literal;
use crate::op::Op;
use crate::op::def::{Monoid, RuleCx};
use crate::types::{Dim, TensorType};
use smallvec::{SmallVec, smallvec};

type Results = SmallVec<[Value; 1]>;

/// Schema of `windows`.
pub(in crate::op) const WINDOWS: &[AttrSpec] = &[
    need("axes", AttrKind::Ints),
    need("sizes", AttrKind::Ints),
    maybe("strides", AttrKind::Ints, Attr0::NoInts),
    maybe("dilation", AttrKind::Ints, Attr0::NoInts),
];

/// Schema of `reduce_window_*`: an entry for every axis.
pub(in crate::op) const POOL: &[AttrSpec] = &[
    need("window", AttrKind::Ints),
    maybe("strides", AttrKind::Ints, Attr0::NoInts),
    maybe("low", AttrKind::Ints, Attr0::NoInts),
    maybe("high", AttrKind::Ints, Attr0::NoInts),
    maybe("base_dilation", AttrKind::Ints, Attr0::NoInts),
    maybe("window_dilation", AttrKind::Ints, Attr0::NoInts),
];

/// Schema of `select_and_scatter_add`: an entry for every axis.
pub(in crate::op) const SELECT: &[AttrSpec] = &[
    need("window", AttrKind::Ints),
    maybe("strides", AttrKind::Ints, Attr0::NoInts),
    maybe("low", AttrKind::Ints, Attr0::NoInts),
    maybe("high", AttrKind::Ints, Attr0::NoInts),
    need("select", AttrKind::Word(&["ge", "le"])),
];

pub(in crate::op) fn check_windows(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    let rank = cx.require(0, DTypeSet::Any)?.rank();
    let axes = checked_axes("axes", cx.attrs.ints("axes"), rank)?.len();
    if cx.attrs.ints("sizes").len() != axes {
        return Err(InferError::attr(format!("`sizes` must have {axes} entries")));
    }
    ["sizes", "strides", "dilation"].iter().try_for_each(|n| check_list(cx, n, axes, POSITIVE))
}

pub(in crate::op) fn windows(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
    let axes = cx.attrs.ints("axes");
    let spread = |name| per_axis(cx.attrs, name, axes.len(), 1);
    smallvec![slide(
        b,
        cx.args[0],
        axes,
        cx.attrs.ints("sizes"),
        &spread("strides"),
        &spread("dilation")
    )]
}

/// The windows along axes: an axis of steps for each behind the axes that are there.
pub(super) fn slide(
    b: &mut Builder,
    x: Value,
    axes: &[i64],
    sizes: &[i64],
    strides: &[i64],
    dilation: &[i64],
) -> Value {
    let dims = b.ty(x).dims().filter(|_| are_apart(sizes, strides, dilation));
    if let Some(dims) = dims {
        return side_by_side(b, x, (axes, sizes), &dims);
    }
    let mut ty = b.ty(x).clone();
    let rank = ty.rank() as i64;
    ty.shape.extend(sizes.iter().map(|&n| Dim::Const(n as u64)));
    let repeated = b.op_as(Op::BroadcastInDim, &[x], Attrs::none().with_ints("dims", 0..rank), &ty);
    let attrs = Attrs::none()
        .with_ints("axes", axes.iter().copied())
        .with_ints("along", (0..axes.len() as i64).map(|k| rank + k))
        .with_ints("strides", strides.iter().copied())
        .with_ints("dilation", dilation.iter().copied());
    b.op_with(Op::Skew, &[repeated], attrs)
}

/// Whether no two windows have an element in common, and none is left out between them.
fn are_apart(sizes: &[i64], strides: &[i64], dilation: &[i64]) -> bool {
    sizes == strides && dilation.iter().all(|&d| d == 1)
}

/// The elements of an axis that windows side by side have, of a size where they walk along it.
fn covered(extent: u64, size: Option<u64>) -> u64 {
    size.map_or(extent, |n| extent / n * n)
}

/// Windows that lie side by side: each axis becomes one of places and one of steps, with no element read twice, so
/// that what is transposed of them needs no sum.
fn side_by_side(b: &mut Builder, x: Value, (axes, sizes): (&[i64], &[i64]), dims: &[u64]) -> Value {
    let rank = dims.len();
    let steps = |d: usize| axes.iter().position(|&a| a as usize == d).map(|k| sizes[k] as u64);
    let whole = |d: usize| covered(dims[d], steps(d));
    let mut x = x;
    if (0..rank).any(|d| whole(d) != dims[d]) {
        let attrs = Attrs::none()
            .with_ints("start", dims.iter().map(|_| 0))
            .with_ints("limit", (0..rank).map(|d| whole(d) as i64))
            .with_ints("stride", dims.iter().map(|_| 1));
        x = b.op_with(Op::Slice, &[x], attrs);
    }
    // Where the axis of places and that of steps of each axis are, before steps move behind all places.
    let (mut split, mut places, mut behind) =
        (TensorType::new(b.ty(x).dtype, []), Ints::new(), Vec::new());
    for (d, &n) in dims.iter().enumerate() {
        places.push(split.rank() as i64);
        split.shape.push(Dim::Const(n / steps(d).unwrap_or(1)));
        if let Some(n) = steps(d) {
            behind.push((d, split.rank() as i64));
            split.shape.push(Dim::Const(n));
        }
    }
    let x = b.op_as(Op::Reshape, &[x], Attrs::none(), &split);
    let step = |d: &i64| behind.iter().find(|(axis, _)| *axis == *d as usize).map(|(_, at)| *at);
    places.extend(axes.iter().filter_map(step));
    b.op_with(Op::Transpose, &[x], Attrs::none().with("perm", crate::attrs::Attr::Ints(places)))
}

/// The elements of windows that lie side by side in their places, and zeros where no window is.
fn back_in_place(
    b: &mut Builder,
    windows: Value,
    (axes, sizes): (&[i64], &[i64]),
    dims: &[u64],
) -> Value {
    let ty = b.ty(windows).clone();
    let rank = dims.len();
    let steps = |d: usize| axes.iter().position(|&a| a as usize == d);
    // Each axis of places with that of its steps behind it.
    let perm = (0..rank).flat_map(|d| [Some(d), steps(d).map(|k| rank + k)]).flatten();
    let perm: Ints = perm.map(|d| d as i64).collect();
    let turned = Attrs::none().with("perm", crate::attrs::Attr::Ints(perm));
    let turned = b.op_with(Op::Transpose, &[windows], turned);
    let whole = |d: usize| covered(dims[d], steps(d).map(|k| sizes[k] as u64));
    let joined = TensorType::new(ty.dtype, (0..rank).map(|d| Dim::Const(whole(d))));
    let joined = b.op_as(Op::Reshape, &[turned], Attrs::none(), &joined);
    let none: Ints = (0..rank).map(|_| 0).collect();
    let rest: Ints = (0..rank).map(|d| (dims[d] - whole(d)) as i64).collect();
    padded(b, joined, Literal::zero(ty.dtype), (&none, &rest, &none))
}

/// A value with constants around and between its elements.
pub(super) fn padded(
    b: &mut Builder,
    x: Value,
    around: Literal,
    (low, high, interior): (&[i64], &[i64], &[i64]),
) -> Value {
    if low.iter().chain(high).chain(interior).all(|&n| n == 0) {
        return x;
    }
    let fill = b.literal(&TensorType::scalar(around.dtype()), around);
    let attrs = Attrs::none()
        .with_ints("low", low.iter().copied())
        .with_ints("high", high.iter().copied())
        .with_ints("interior", interior.iter().copied());
    b.op_with(Op::Pad, &[x, fill], attrs)
}

fn check_lists(cx: &InferCx<'_>, k: usize, schema: &[AttrSpec]) -> Result<(), InferError> {
    let rank = cx.require(k, DTypeSet::Number)?.rank();
    if cx.attrs.ints("window").len() != rank {
        return Err(InferError::attr(format!("`window` must have {rank} entries")));
    }
    let lists = schema.iter().filter(|s| s.kind == AttrKind::Ints);
    lists.map(|s| s.name).try_for_each(|name| {
        let range = if matches!(name, "low" | "high") { PADDING } else { POSITIVE };
        check_list(cx, name, rank, range)
    })
}

pub(in crate::op) fn check_pool(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    check_lists(cx, 0, POOL)
}

pub(in crate::op) fn pool_sum(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
    smallvec![pool(b, cx, Monoid::Sum, Op::ReduceSum)]
}

pub(in crate::op) fn pool_max(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
    smallvec![pool(b, cx, Monoid::Max, Op::ReduceMax)]
}

pub(in crate::op) fn pool_min(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
    smallvec![pool(b, cx, Monoid::Min, Op::ReduceMin)]
}

/// Where windows lie: the axes that have any, with their sizes, strides and dilation.
struct Walk {
    axes: Ints,
    sizes: Ints,
    strides: Ints,
    dilation: Ints,
}

impl Walk {
    fn of(attrs: &Attrs, rank: usize) -> Walk {
        let all = |name| per_axis(attrs, name, rank, 1);
        let (window, strides) = (all("window"), all("strides"));
        let dilation = all("window_dilation");
        let moves = |d: &usize| window[*d] != 1 || strides[*d] != 1;
        let axes: Vec<usize> = (0..rank).filter(moves).collect();
        let pick = |list: &[i64]| axes.iter().map(|&d| list[d]).collect();
        Walk {
            sizes: pick(&window),
            strides: pick(&strides),
            dilation: pick(&dilation),
            axes: axes.iter().map(|&d| d as i64).collect(),
        }
    }

    fn slide(&self, b: &mut Builder, x: Value) -> Value {
        slide(b, x, &self.axes, &self.sizes, &self.strides, &self.dilation)
    }

    /// The axes that walk inside windows, where the operand has `rank` axes.
    fn along(&self, rank: usize) -> impl Iterator<Item = i64> {
        rank as i64..(rank + self.axes.len()) as i64
    }
}

/// Windows of the padded operand, folded.
fn pool(b: &mut Builder, cx: &RuleCx<'_>, monoid: Monoid, fold: Op) -> Value {
    let (ty, rank) = (&cx.types[0], cx.types[0].rank());
    let list = |name, default| per_axis(cx.attrs, name, rank, default);
    let interior: Ints = list("base_dilation", 1).iter().map(|d| d - 1).collect();
    let empty = monoid.empty(ty.dtype);
    let x = padded(b, cx.args[0], empty, (&list("low", 0), &list("high", 0), &interior));
    let walk = Walk::of(cx.attrs, rank);
    if walk.axes.is_empty() {
        return x;
    }
    let slid = walk.slide(b, x);
    b.op_with(fold, &[slid], Attrs::none().with_ints("axes", walk.along(rank)))
}

pub(in crate::op) fn check_select(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    check_lists(cx, 1, SELECT)?;
    let (source, operand) = (cx.require(0, DTypeSet::Number)?, cx.arg(1)?);
    if source.dtype != operand.dtype || source.rank() != operand.rank() {
        let m =
            format!("the source is {source}, the operand {operand}: they differ in type or rank");
        return Err(InferError::dtype(m));
    }
    if operand.dims().is_none() {
        let m = format!("`select_and_scatter_add` needs constant extents, found {operand}");
        return Err(InferError::shape(m));
    }
    Ok(())
}

/// Each element of the source goes to the first extremum of its window of the operand.
pub(in crate::op) fn select_and_scatter_add(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
    let (ty, rank) = (cx.types[1].clone(), cx.types[1].rank());
    let list = |name| per_axis(cx.attrs, name, rank, 0);
    let (low, high, none) = (list("low"), list("high"), per_axis(&Attrs::none(), "", rank, 0));
    let (monoid, first) = match cx.attrs.word("select") {
        "le" => (Monoid::Min, Op::Argmin),
        _ => (Monoid::Max, Op::Argmax),
    };
    let x = padded(b, cx.args[1], monoid.empty(ty.dtype), (&low, &high, &none));
    let extents = b.extents(&b.ty(x).clone());
    let walk = Walk::of(cx.attrs, rank);
    if walk.axes.is_empty() {
        let back: [Ints; 2] = [&low, &high].map(|l| l.iter().map(|n| -n).collect());
        return smallvec![padded(
            b,
            cx.args[0],
            Literal::zero(ty.dtype),
            (&back[0], &back[1], &none)
        )];
    }
    let slid = walk.slide(b, x);
    if b.error().is_some() {
        return smallvec![slid];
    }
    let slid_ty = b.ty(slid).clone();
    let places = TensorType::new(ty.dtype, slid_ty.shape[..rank].iter().copied());
    if cx.types[0] != places {
        b.refuse(format!("the source is {}, the windows are {places}", cx.types[0]));
        return smallvec![cx.args[1]];
    }
    let steps: i64 = walk.sizes.iter().product();
    let mut flat = places.clone();
    flat.shape.push(Dim::Const(steps as u64));
    let last = Attrs::none().with_int("axis", rank as i64);
    let in_a_row = b.op_as(Op::Reshape, &[slid], Attrs::none(), &flat);
    let best = b.op_with(first, &[in_a_row], last.clone());
    let over = |b: &mut Builder, v: Value| {
        let to = flat.with_dtype(b.ty(v).dtype);
        b.op_as(Op::BroadcastInDim, &[v], Attrs::none().with_ints("dims", 0..rank as i64), &to)
    };
    let best = over(b, best);
    let step = b.op_as(Op::Iota, &[], last, &flat.with_dtype(DType::I32));
    let hit = b.op(Op::Eq, &[step, best]);
    let source = over(b, cx.args[0]);
    let zero = b.literal(&flat, Literal::zero(ty.dtype));
    let given = b.op(Op::SelectN, &[hit, zero, source]);
    let given = b.op_as(Op::Reshape, &[given], Attrs::none(), &slid_ty);
    let sum = match are_apart(&walk.sizes, &walk.strides, &walk.dilation) {
        // Every element is in one window at most: the sum is that of the element and zeros.
        true => {
            let put = back_in_place(b, given, (&walk.axes, &walk.sizes), &extents);
            let zero = b.literal(&b.ty(put).clone(), Literal::zero(ty.dtype));
            b.op(Op::Add, &[put, zero])
        }
        false => sum_of_windows(b, given, &walk, &extents),
    };
    let back: [Ints; 2] = [&low, &high].map(|l| l.iter().map(|n| -n).collect());
    smallvec![padded(b, sum, Literal::zero(ty.dtype), (&back[0], &back[1], &none))]
}

/// The sum of the steps of windows at the places where they were read.
fn sum_of_windows(b: &mut Builder, given: Value, walk: &Walk, extents: &[u64]) -> Value {
    let ty = b.ty(given).clone();
    let rank = extents.len();
    let nothing = b.literal(&TensorType::scalar(ty.dtype), Literal::zero(ty.dtype));
    let attrs = Attrs::none()
        .with("axes", crate::attrs::Attr::Ints(walk.axes.clone()))
        .with_ints("along", walk.along(rank))
        .with("strides", crate::attrs::Attr::Ints(walk.strides.clone()))
        .with("dilation", crate::attrs::Attr::Ints(walk.dilation.clone()))
        .with_ints("extents", walk.axes.iter().map(|&d| extents[d as usize] as i64));
    let put = b.op_with(Op::Unskew, &[given, nothing], attrs);
    b.op_with(Op::ReduceSum, &[put], Attrs::none().with_ints("axes", walk.along(rank)))
}

//! `conv_general_dilated`: windows of the padded operand, contracted with the kernel.
//!
//! With windows as a view and their products as a contraction, both gradients follow: that of the kernel contracts
//! the same windows with the cotangent, that of the operand contracts the cotangent with the kernel and adds up where
//! windows overlap.
//!
//! After something that does not fit, values under construction have no meaning, nor a rank to rely on.

use super::window::{padded, slide};
use super::{PADDING, POSITIVE, check_list, per_axis};
use crate::attrs::{Attr, Attr0, AttrKind, AttrSpec, Attrs, Ints, maybe};
use crate::builder::Builder;
use crate::dtype::DTypeSet;
use crate::entity::Value;
use crate::infer::{InferCx, InferError, checked_axes, known_dim};
use crate::literal::Literal;
use crate::op::Op;
use crate::op::def::RuleCx;
use crate::types::Dim;
use smallvec::{SmallVec, smallvec};

/// Schema of `conv_general_dilated`. Lists have an entry for each spatial axis; `lhs_spec` names the axes of batch,
/// feature and space, `rhs_spec` those of output feature, input feature and space, `out_spec` as `lhs_spec`.
pub(in crate::op) const CONVOLUTION: &[AttrSpec] = &[
    maybe("strides", AttrKind::Ints, Attr0::NoInts),
    maybe("low", AttrKind::Ints, Attr0::NoInts),
    maybe("high", AttrKind::Ints, Attr0::NoInts),
    maybe("lhs_dilation", AttrKind::Ints, Attr0::NoInts),
    maybe("rhs_dilation", AttrKind::Ints, Attr0::NoInts),
    maybe("lhs_spec", AttrKind::Ints, Attr0::NoInts),
    maybe("rhs_spec", AttrKind::Ints, Attr0::NoInts),
    maybe("out_spec", AttrKind::Ints, Attr0::NoInts),
    maybe("feature_group_count", AttrKind::Int, Attr0::One),
    maybe("batch_group_count", AttrKind::Int, Attr0::One),
];

/// The axes in the order of a spec; as they stand where it is empty.
fn spec(attrs: &Attrs, name: &str, rank: usize) -> Ints {
    match attrs.ints(name) {
        [] => (0..rank as i64).collect(),
        list => list.iter().copied().collect(),
    }
}

fn groups(attrs: &Attrs) -> (u64, u64) {
    (attrs.int("feature_group_count") as u64, attrs.int("batch_group_count") as u64)
}

pub(in crate::op) fn check_convolution(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    let x = cx.require(0, DTypeSet::Number)?.clone();
    let w = cx.require(1, DTypeSet::Number)?.clone();
    let rank = x.rank();
    if x.dtype != w.dtype {
        return Err(InferError::dtype(format!("operands differ in type: {x} and {w}")));
    }
    if rank < 2 || w.rank() != rank {
        let m = format!("operands must have one rank of at least 2: found {x} and {w}");
        return Err(InferError::shape(m));
    }
    for name in ["strides", "lhs_dilation", "rhs_dilation"] {
        check_list(cx, name, rank - 2, POSITIVE)?;
    }
    for name in ["low", "high"] {
        check_list(cx, name, rank - 2, PADDING)?;
    }
    for name in ["lhs_spec", "rhs_spec", "out_spec"] {
        if checked_axes(name, &spec(cx.attrs, name, rank), rank)?.len() != rank {
            return Err(InferError::attr(format!("`{name}` must name all {rank} axes")));
        }
    }
    for name in ["feature_group_count", "batch_group_count"] {
        if cx.attrs.int(name) < 1 {
            return Err(InferError::attr(format!("`{name}` must be at least 1")));
        }
    }
    let (features, batches) = groups(cx.attrs);
    if features > 1 && batches > 1 {
        return Err(InferError::attr("groups of features and of batches exclude each other"));
    }
    let (lhs, rhs) = (spec(cx.attrs, "lhs_spec", rank), spec(cx.attrs, "rhs_spec", rank));
    let (batch, feature) = (x.shape[lhs[0] as usize], x.shape[lhs[1] as usize]);
    let (out, inner) = (w.shape[rhs[0] as usize], w.shape[rhs[1] as usize]);
    let divides = |what: &str, n: Dim, by: u64| match by {
        1 => Ok(()),
        by if (known_dim(what, n)? as u64).is_multiple_of(by) => Ok(()),
        by => Err(InferError::shape(format!("{what} {n} is not a multiple of {by} groups"))),
    };
    divides("the batch", batch, batches)?;
    divides("the number of input features", feature, features)?;
    divides("the number of output features", out, features.max(batches))?;
    let fits = match features {
        1 => feature == inner,
        g => known_dim("a group", feature)? as u64 / g == known_dim("a group", inner)? as u64,
    };
    if !fits {
        let m = format!("{feature} input features in {features} groups, the kernel takes {inner}");
        return Err(InferError::shape(m));
    }
    rhs[2..].iter().try_for_each(|&d| match known_dim("the kernel", w.shape[d as usize])? {
        0 => Err(InferError::shape(format!("axis {d} of the kernel {w} is empty"))),
        _ => Ok(()),
    })
}

fn transposed(b: &mut Builder, v: Value, perm: Ints) -> Value {
    if perm.iter().enumerate().all(|(k, &d)| k as i64 == d) {
        return v;
    }
    b.op_with(Op::Transpose, &[v], Attrs::none().with("perm", Attr::Ints(perm)))
}

/// An axis as one of groups and one of what a group has of it.
fn grouped(b: &mut Builder, v: Value, axis: usize, groups: u64) -> Value {
    let mut ty = b.ty(v).clone();
    let n = ty.shape[axis].known().unwrap_or(0);
    ty.shape[axis] = Dim::Const(n / groups);
    ty.shape.insert(axis, Dim::Const(groups));
    b.op_as(Op::Reshape, &[v], Attrs::none(), &ty)
}

pub(in crate::op) fn convolution(b: &mut Builder, cx: &RuleCx<'_>) -> SmallVec<[Value; 1]> {
    let rank = cx.types[0].rank();
    let space = rank - 2;
    let list = |name, default| per_axis(cx.attrs, name, space, default);
    let padding = |list: Ints| -> Ints { [0, 0].into_iter().chain(list).collect() };
    let (features, batches) = groups(cx.attrs);

    // Batch, features, space; then the windows' steps.
    let x = transposed(b, cx.args[0], spec(cx.attrs, "lhs_spec", rank));
    let interior = list("lhs_dilation", 1).iter().map(|d| d - 1).collect();
    let around = (&*padding(list("low", 0)), &*padding(list("high", 0)), &*padding(interior));
    let x = padded(b, x, Literal::zero(cx.types[0].dtype), around);
    let w = transposed(b, cx.args[1], spec(cx.attrs, "rhs_spec", rank));
    let sizes: Ints = b.ty(w).shape[2..].iter().map(|d| d.known().unwrap_or(0) as i64).collect();
    let axes: Ints = (2..rank as i64).collect();
    let mut x = slide(b, x, &axes, &sizes, &list("strides", 1), &list("rhs_dilation", 1));
    let mut w = w;
    if b.error().is_some() {
        return smallvec![x];
    }

    // An axis of groups goes in front of the batch, or of the features, and of the kernel's output features.
    let of_groups = features > 1 || batches > 1;
    if of_groups {
        x = grouped(b, x, usize::from(features > 1), features.max(batches));
        w = grouped(b, w, 0, features.max(batches));
    }
    let shift = i64::from(of_groups);
    let group = if features > 1 { 1 } else { 0 };
    let x_axis = |d: i64| d + if of_groups && d >= group { 1 } else { 0 };
    let contract_x: Ints =
        std::iter::once(1).chain(rank as i64..(rank + space) as i64).map(x_axis).collect();
    let contract_w: Ints = (1..rank as i64).map(|d| d + shift).collect();
    let batch = |d: i64| -> Ints { (0..shift).map(|_| d).collect() };
    let attrs = |first: (Ints, Ints), second: (Ints, Ints)| {
        Attrs::none()
            .with("batch", Attr::Pair(first.0, second.0))
            .with("contract", Attr::Pair(first.1, second.1))
    };
    // The features come where the result wants them: last, or before everything else.
    let out = spec(cx.attrs, "out_spec", rank);
    let features_last = out[1] == rank as i64 - 1;
    let (of_x, of_w) = ((batch(group), contract_x), (batch(0), contract_w));
    let sums = if features_last {
        b.op_with(Op::DotGeneral, &[x, w], attrs(of_x, of_w))
    } else {
        b.op_with(Op::DotGeneral, &[w, x], attrs(of_w, of_x))
    };
    // Where batch, output feature and space are in the sums; groups are in front, and come beside the features.
    let n = rank as i64 + shift;
    let (at_batch, at_feature, at_space) =
        if features_last { (shift, n - 1, shift + 1) } else { (shift + 1, shift, shift + 2) };
    let order = std::iter::once(at_batch)
        .chain((0..shift).map(|_| 0))
        .chain(std::iter::once(at_feature))
        .chain((0..space as i64).map(|k| at_space + k));
    let order: Ints = order.collect();
    let sums = transposed(b, sums, order);
    let mut ty = b.ty(sums).clone();
    if of_groups {
        let per_group = ty.shape.remove(2).known().unwrap_or(0);
        ty.shape[1] = Dim::Const(per_group * features.max(batches));
    }
    let sums = if of_groups { b.op_as(Op::Reshape, &[sums], Attrs::none(), &ty) } else { sums };
    let mut back: Ints = out.clone();
    for (k, &d) in out.iter().enumerate() {
        back[d as usize] = k as i64;
    }
    smallvec![transposed(b, sums, back)]
}

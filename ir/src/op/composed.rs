//! Ops that are short for others: their instructions as a function, and the types that follow from it.

use super::Op;
use super::def::{Body, Compose, Composition, RuleCx};
use crate::attrs::{Attrs, Ints};
use crate::builder::Builder;
use crate::diag::{At, Diagnostic, Kind};
use crate::function::Function;
use crate::infer::{InferCx, InferError, Types};
use crate::types::TensorType;
use smallvec::SmallVec;

mod convolution;
mod quantize;
mod running;
mod sorted;
mod tile;
mod window;

pub(super) use convolution::{CONVOLUTION, check_convolution, convolution};
pub(super) use quantize::{PER_AXIS, check_dequantize, check_quantize, dequantize, quantize};
pub(super) use running::{
    RUNNING, check_float_running, check_running, cumlogsumexp, cummax, cummin, cumprod, doubled,
    shifted,
};
pub(super) use sorted::{
    SORT, TOP_K, check_sort, check_sort_key_val, check_top_k, in_order, sort, sort_key_val, top_k,
};
pub(super) use tile::{TILE, check_tile, tile};
pub(super) use window::{
    POOL, SELECT, WINDOWS, check_pool, check_select, check_windows, pool_max, pool_min, pool_sum,
    select_and_scatter_add, windows,
};

/// The instructions that an op is short for, as a function of its operands.
///
/// # Errors
/// If they do not fit the operands, which verified instructions do not have; or `op` is not composed.
pub fn composition(op: Op, args: &[TensorType], attrs: &Attrs) -> Result<Function, Diagnostic> {
    let Body::Composed(compose) = op.def().body else {
        let m = format!("`{op}` is not composed of others");
        return Err(Diagnostic::new(At::default(), Kind::Internal, m));
    };
    composed_of(op, compose, args, attrs)
}

fn composed_of(
    op: Op,
    compose: Compose,
    args: &[TensorType],
    attrs: &Attrs,
) -> Result<Function, Diagnostic> {
    let mut b = Builder::new(op.name());
    let values: SmallVec<[_; 4]> = args.iter().map(|t| b.param(t.clone(), None)).collect();
    let cx = RuleCx { args: &values, results: &[], attrs, types: args };
    let results = compose(&mut b, &cx);
    b.set_results(&results);
    b.finish()
}

/// The instructions of an op that may be a step of its own, as a function of its operands.
///
/// # Errors
/// For extents that are not known; or `op` has no such composition.
pub fn composition_of_step(
    op: Op,
    which: Composition,
    args: &[TensorType],
    attrs: &Attrs,
) -> Result<Function, Diagnostic> {
    let Body::Step(body) = op.def().body else {
        let m = format!("`{op}` is no step of its own");
        return Err(Diagnostic::new(At::default(), Kind::Internal, m));
    };
    composed_of(op, body.composition(which), args, attrs)
}

/// The result types of an op that is composed of others.
pub(super) fn composed_types(op: Op, cx: &InferCx<'_>) -> Result<Types, InferError> {
    let args: Vec<TensorType> =
        (0..cx.arity()).map(|k| cx.arg(k).cloned()).collect::<Result<_, _>>()?;
    let f = composition(op, &args, cx.attrs)
        .map_err(|d| InferError::shape(format!("does not fit: {}", d.message)))?;
    Ok(f.result_types().into_iter().collect())
}

/// One entry of a list attribute for each of this many axes, `default` where the list is empty.
fn per_axis(attrs: &Attrs, name: &str, axes: usize, default: i64) -> Ints {
    match attrs.ints(name) {
        [] => (0..axes).map(|_| default).collect(),
        list => list.iter().copied().collect(),
    }
}

/// Entries per axis that are checked: as many as axes, each in `least..=most`.
fn check_list(
    cx: &InferCx<'_>,
    name: &str,
    axes: usize,
    (least, most): (i64, i64),
) -> Result<(), InferError> {
    let list = cx.attrs.ints(name);
    if !list.is_empty() && list.len() != axes {
        let m = format!("`{name}` must have {axes} entries or none, found {}", list.len());
        return Err(InferError::attr(m));
    }
    match list.iter().find(|v| !(least..=most).contains(*v)) {
        Some(v) => Err(InferError::attr(format!("`{name}`: {v} is not in {least}..={most}"))),
        None => Ok(()),
    }
}

/// The greatest extent, padding, stride or dilation of a window.
const LARGEST: i64 = 1 << 40;
/// A padding: negative ones cut.
const PADDING: (i64, i64) = (-LARGEST, LARGEST);
/// A stride, dilation or extent.
const POSITIVE: (i64, i64) = (1, LARGEST);

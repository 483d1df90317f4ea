//! `tile`: a value repeated along its axes.

use super::check_list;
use crate::attrs::{AttrKind, AttrSpec, Attrs, need};
use crate::builder::Builder;
use crate::dtype::DTypeSet;
use crate::entity::Value;
use crate::infer::{InferCx, InferError, known_dim};
use crate::op::Op;
use crate::op::def::RuleCx;
use crate::types::{Dim, TensorType};
use smallvec::{SmallVec, smallvec};

/// Schema of `tile`.
pub(in crate::op) const TILE: &[AttrSpec] = &[need("counts", AttrKind::Ints)];

pub(in crate::op) fn check_tile(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    let x = cx.require(0, DTypeSet::Any)?;
    let counts = cx.attrs.ints("counts");
    if counts.len() != x.rank() {
        return Err(InferError::attr(format!("`counts` must have {} entries", x.rank())));
    }
    check_list(cx, "counts", x.rank(), (0, super::LARGEST))?;
    for (&n, &count) in x.shape.iter().zip(counts) {
        if count != 1 {
            let n = known_dim("`tile`", n)?;
            n.checked_mul(count).filter(|&n| n <= super::LARGEST).ok_or_else(|| {
                InferError::attr(format!("`counts`: {count} times {n} is too long an axis"))
            })?;
        }
    }
    Ok(())
}

/// A repetition is an axis before the one that it repeats, merged with it.
pub(in crate::op) fn tile(b: &mut Builder, cx: &RuleCx<'_>) -> SmallVec<[Value; 1]> {
    let x = &cx.types[0];
    let (mut apart, mut dims) = (TensorType::new(x.dtype, []), Vec::new());
    let mut whole = TensorType::new(x.dtype, []);
    for (&n, &count) in x.shape.iter().zip(cx.attrs.ints("counts")) {
        if count != 1 {
            apart.shape.push(Dim::Const(count as u64));
        }
        dims.push(apart.rank() as i64);
        apart.shape.push(n);
        whole.shape.push(match (n, count) {
            (n, 1) => n,
            (n, count) => Dim::Const(n.known().unwrap_or(0) * count as u64),
        });
    }
    let spread =
        b.op_as(Op::BroadcastInDim, cx.args, Attrs::none().with_ints("dims", dims), &apart);
    smallvec![b.op_as(Op::Reshape, &[spread], Attrs::none(), &whole)]
}

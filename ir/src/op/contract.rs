//! `dot_general`: inference and transposition.

use super::Op;
use super::def::{RuleCx, Tangents};
use crate::attrs::{Attr, Attrs, Ints};
use crate::builder::Builder;
use crate::dtype::DTypeSet;
use crate::entity::Value;
use crate::infer::{InferCx, InferError, Types, checked_axes};
use crate::types::{Shape, TensorType};
use smallvec::{SmallVec, smallvec};

/// The axes of one operand by role, each in order.
struct Roles {
    batch: Ints,
    contract: Ints,
    free: Ints,
}

impl Roles {
    fn of(batch: &[i64], contract: &[i64], rank: usize) -> Roles {
        let free = (0..rank as i64).filter(|d| !batch.contains(d) && !contract.contains(d));
        Roles {
            batch: batch.iter().copied().collect(),
            contract: contract.iter().copied().collect(),
            free: free.collect(),
        }
    }

    fn both(attrs: &Attrs, ranks: [usize; 2]) -> [Roles; 2] {
        let (batch, contract) = (attrs.pair("batch"), attrs.pair("contract"));
        [Roles::of(batch.0, contract.0, ranks[0]), Roles::of(batch.1, contract.1, ranks[1])]
    }
}

pub(super) fn infer_dot(cx: &mut InferCx<'_>) -> Result<Types, InferError> {
    let x = cx.require(0, DTypeSet::Number)?.clone();
    let y = cx.require(1, DTypeSet::Number)?.clone();
    if x.dtype != y.dtype {
        return Err(InferError::dtype(format!("operands differ in type: {x} and {y}")));
    }
    let (batch, contract) = (cx.attrs.pair("batch"), cx.attrs.pair("contract"));
    for (name, (a, b)) in [("batch", batch), ("contract", contract)] {
        if a.len() != b.len() {
            let m = format!("`{name}` pairs axes: found {} and {}", a.len(), b.len());
            return Err(InferError::attr(m));
        }
        for (&a, &b) in a.iter().zip(b) {
            let (i, j) =
                (checked_axes(name, &[a], x.rank())?[0], checked_axes(name, &[b], y.rank())?[0]);
            if x.shape[i] != y.shape[j] {
                let m = format!(
                    "`{name}`: axis {a} of {x} is {}, axis {b} of {y} is {}",
                    x.shape[i], y.shape[j]
                );
                return Err(InferError::shape(m));
            }
        }
    }
    let all = |batch: &[i64], contract: &[i64]| -> Ints {
        batch.iter().chain(contract).copied().collect()
    };
    checked_axes("batch and contract", &all(batch.0, contract.0), x.rank())?;
    checked_axes("batch and contract", &all(batch.1, contract.1), y.rank())?;
    let [rx, ry] = Roles::both(cx.attrs, [x.rank(), y.rank()]);
    let mut shape: Shape = rx.batch.iter().map(|&d| x.shape[d as usize]).collect();
    shape.extend(rx.free.iter().map(|&d| x.shape[d as usize]));
    shape.extend(ry.free.iter().map(|&d| y.shape[d as usize]));
    let mut out = TensorType { dtype: x.dtype, shape };
    if let Some([declared]) = cx.declared_all() {
        // Accumulating into a wider type of the same kind is allowed where it is written.
        let kind = |t: crate::DType| (t.is_float(), t.is_int());
        let wider = declared.dtype.bytes() > x.dtype.bytes();
        if declared.dtype != x.dtype && wider && kind(declared.dtype) == kind(x.dtype) {
            out.dtype = declared.dtype;
        }
    }
    Ok(smallvec![out])
}

/// The cotangent contracted with the other operand, its axes put back in the operand's order.
pub(super) fn transpose_dot(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    linear: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let Some(ct) = cts[0] else { return smallvec![None, None] };
    (0..2).map(|k| linear[k].then(|| transpose_operand(b, cx, k, ct))).collect()
}

/// Operand `k`'s cotangent. The operands keep their sides (`x_ct = ct · yᵀ`, `y_ct = xᵀ · ct`) unless the result has
/// operand `k`'s axes in their order only on the others, as where the weight of `x · wᵀ` is differentiated: `w_ct = ctᵀ · x`.
fn transpose_operand(b: &mut Builder, cx: &RuleCx<'_>, k: usize, ct: Value) -> Value {
    let roles = Roles::both(cx.attrs, [cx.types[0].rank(), cx.types[1].rank()]);
    let (mine, theirs) = (&roles[k], &roles[1 - k]);
    let batch = mine.batch.len() as i64;
    // The result's axes: batch, free of operand 0, free of operand 1.
    let first_free = roles[0].free.len() as i64;
    let contracted: Ints = match k {
        0 => (batch + first_free..batch + first_free + theirs.free.len() as i64).collect(),
        _ => (batch..batch + first_free).collect(),
    };
    let of_ct = ((0..batch).collect::<Ints>(), contracted);
    let of_other = (theirs.batch.clone(), theirs.free.clone());
    // A cotangent of a wider type meets the operand in that type and narrows at the end.
    let wide = b.ty(ct).dtype;
    let mut other = cx.args[1 - k];
    if b.ty(other).dtype != wide {
        let ty = cx.types[1 - k].with_dtype(wide);
        other = b.op_as(Op::ConvertElementType, &[other], Attrs::none(), &ty);
    }
    // The result's axes as operand `k` numbers them: batch; then its free ones, which the cotangent has, and its
    // contracted ones, which the other operand has, in the order of the axes that they are paired with.
    let mut pairs: SmallVec<[(i64, i64); 4]> =
        theirs.contract.iter().copied().zip(mine.contract.iter().copied()).collect();
    pairs.sort_unstable();
    let paired = || pairs.iter().map(|&(_, m)| m);
    let axes = |ct_first: bool| -> Ints {
        let (batch, free) = (mine.batch.iter().copied(), mine.free.iter().copied());
        match ct_first {
            true => batch.chain(free).chain(paired()).collect(),
            false => batch.chain(paired()).chain(free).collect(),
        }
    };
    let in_order = |axes: &Ints| axes.iter().enumerate().all(|(i, &d)| i as i64 == d);
    let ct_first = match k {
        0 => in_order(&axes(true)) || !in_order(&axes(false)),
        _ => !in_order(&axes(false)) && in_order(&axes(true)),
    };
    let (left, right) = if ct_first { (of_ct, of_other) } else { (of_other, of_ct) };
    let operands = if ct_first { [ct, other] } else { [other, ct] };
    let attrs = Attrs::none()
        .with("batch", Attr::Pair(left.0, right.0))
        .with("contract", Attr::Pair(left.1, right.1));
    let mut v = b.op_with(Op::DotGeneral, &operands, attrs);
    let now = axes(ct_first);
    if !in_order(&now) {
        let place = |d| now.iter().position(|&n| n == d).unwrap_or(0) as i64;
        let perm: Ints = (0..now.len() as i64).map(place).collect();
        v = b.op_with(Op::Transpose, &[v], Attrs::none().with("perm", Attr::Ints(perm)));
    }
    if wide != cx.types[k].dtype {
        v = b.op_as(Op::ConvertElementType, &[v], Attrs::none(), &cx.types[k]);
    }
    v
}

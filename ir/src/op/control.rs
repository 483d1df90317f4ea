//! Control flow and effects: inference. Regions and callees are checked by the verifier.

use super::def::{Bounds, LoopRow};
use super::loop_roles::LoopRoles;
use crate::Kind;
use crate::attrs::{Attr0, AttrKind, AttrSpec, maybe, need};
use crate::dtype::{DType, DTypeSet};
use crate::infer::{InferCx, InferError, Types};
use crate::types::{Dim, TensorType};
use smallvec::smallvec;

const COUNT: AttrKind = AttrKind::Within(0, i32::MAX as i64);
const LENGTH: AttrSpec = maybe("length", AttrKind::Within(0, 1 << 46), Attr0::Nought);

/// How `scan` is written.
pub(super) const SCAN_ROW: LoopRow =
    LoopRow { bounds: Bounds::Length, stacks: true, returns: false };
/// How `fori` is written.
pub(super) const FORI_ROW: LoopRow =
    LoopRow { bounds: Bounds::Range, stacks: false, returns: false };
/// How `adjoint` is written.
pub(super) const ADJOINT_ROW: LoopRow =
    LoopRow { bounds: Bounds::Either, stacks: true, returns: true };

/// Attributes of `scan`.
pub(super) const SCAN: &[AttrSpec] = &[
    need("carry", COUNT),
    LENGTH,
    maybe("reverse", AttrKind::Bool, Attr0::False),
    maybe("unroll", AttrKind::Within(1, 1 << 16), Attr0::One),
];

/// Attributes of `adjoint`.
pub(super) const ADJOINT: &[AttrSpec] = &[
    maybe("counted", AttrKind::Bool, Attr0::False),
    maybe("carry", COUNT, Attr0::Nought),
    maybe("up", COUNT, Attr0::Nought),
    maybe("xs", COUNT, Attr0::Nought),
    maybe("ys", COUNT, Attr0::Nought),
    LENGTH,
    maybe("reverse", AttrKind::Bool, Attr0::False),
    maybe("checkpoints", COUNT, Attr0::Nought),
];

/// Attributes of `while`.
pub(super) const WHILE: &[AttrSpec] =
    &[maybe("max_trips", AttrKind::Within(0, i64::MAX), Attr0::Nought)];

type Inferred = Result<Types, InferError>;

fn written(cx: &InferCx<'_>) -> Inferred {
    match cx.declared_all() {
        Some(types) => Ok(types.iter().cloned().collect()),
        None => {
            Err(InferError::new(Kind::Arity, "the result types must be written, as `: f32[2]`"))
        }
    }
}

pub(super) fn infer_cond(cx: &mut InferCx<'_>) -> Inferred {
    cx.demand(0, &TensorType::scalar(DType::Bool))?;
    written(cx)
}

pub(super) fn infer_switch(cx: &mut InferCx<'_>) -> Inferred {
    let index = cx.require(0, DTypeSet::Int)?;
    if index.rank() != 0 {
        return Err(InferError::shape(format!("operand 0: expected a scalar, found {index}")));
    }
    written(cx)
}

/// A `while`: its operands have the types of its results.
pub(super) fn infer_while(cx: &mut InferCx<'_>) -> Inferred {
    let types = written(cx)?;
    carried(cx, 0, cx.arity(), &types)?;
    Ok(types)
}

/// `count` operands from `first` on have the types of the first results.
fn carried(
    cx: &mut InferCx<'_>,
    first: usize,
    count: usize,
    types: &[TensorType],
) -> Result<(), InferError> {
    if types.len() < count {
        let m = format!("{count} values are carried, {} result types are written", types.len());
        return Err(InferError::new(Kind::Arity, m));
    }
    for (k, ty) in types[..count].iter().enumerate() {
        cx.demand(first + k, ty)?;
    }
    Ok(())
}

/// A loop of a known number of steps: carries have the types of results, and whatever is scanned or stacked has the
/// same first extent.
fn infer_loop(cx: &mut InferCx<'_>, row: LoopRow) -> Inferred {
    let types = written(cx)?;
    let roles = LoopRoles::by(row, cx.attrs, cx.arity(), types.len()).ok_or_else(|| {
        let m = format!(
            "{} operands and {} results do not fit the numbers in the attributes",
            cx.arity(),
            types.len()
        );
        InferError::new(Kind::Arity, m)
    })?;
    match roles.lead {
        0 => {}
        1 => cx.demand(0, &TensorType::scalar(DType::I64))?,
        _ => {
            let known = cx.known(0).or(cx.known(1)).cloned();
            let ty = known.unwrap_or(TensorType::scalar(DType::I64));
            for k in 0..2 {
                cx.demand(k, &ty)?;
                let ty = cx.require(k, DTypeSet::Int)?;
                if ty.rank() != 0 {
                    let m = format!("operand {k}: expected a scalar, found {ty}");
                    return Err(InferError::shape(m));
                }
            }
        }
    }
    carried(cx, roles.lead, roles.carry + roles.up, &types)?;
    let mut length: Option<Dim> = match cx.attrs.int("length") {
        0 => None,
        n => Some(Dim::Const(n as u64)),
    };
    let mut same = |what: String, ty: &TensorType| {
        let Some(&first) = ty.shape.first() else {
            return Err(InferError::shape(format!("{what}: expected a first axis, found {ty}")));
        };
        match length {
            Some(n) if n != first => {
                Err(InferError::shape(format!("{what}: expected {n} steps, found {ty}")))
            }
            _ => {
                length = Some(first);
                Ok(())
            }
        }
    };
    for k in roles.xs_args().chain(roles.ws_args()) {
        same(format!("operand {k}"), cx.arg(k)?)?;
    }
    for k in roles.ys_results().chain(roles.zs_results()) {
        same(format!("the result {k}"), &types[k])?;
    }
    if roles.lead > 0 && (length.is_some() || roles.reverse) {
        let m = "a loop whose number of steps is an operand scans and stacks nothing";
        return Err(InferError::attr(m));
    }
    Ok(types)
}

pub(super) fn infer_scan_loop(cx: &mut InferCx<'_>) -> Inferred {
    infer_loop(cx, SCAN_ROW)
}

pub(super) fn infer_fori(cx: &mut InferCx<'_>) -> Inferred {
    infer_loop(cx, FORI_ROW)
}

pub(super) fn infer_adjoint(cx: &mut InferCx<'_>) -> Inferred {
    infer_loop(cx, ADJOINT_ROW)
}

pub(super) fn infer_call(cx: &mut InferCx<'_>) -> Inferred {
    written(cx)
}

pub(super) fn infer_start(_: &mut InferCx<'_>) -> Inferred {
    Ok(smallvec![TensorType::token()])
}

pub(super) fn infer_print(cx: &mut InferCx<'_>) -> Inferred {
    cx.demand(0, &TensorType::token())?;
    cx.require(1, DTypeSet::Any)?;
    Ok(smallvec![TensorType::token()])
}

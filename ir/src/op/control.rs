//! Control flow and effects: inference. Regions and callees are checked by the verifier.

use crate::Kind;
use crate::dtype::{DType, DTypeSet};
use crate::infer::{InferCx, InferError, Types};
use crate::types::TensorType;
use smallvec::smallvec;

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

//! Sources: constants, coordinates and counter-based random bits.

use super::def::Place;
use crate::dtype::{DType, DTypeSet};
use crate::infer::{InferCx, InferError, Types};
use crate::scalar::S;
use crate::types::TensorType;
use smallvec::smallvec;

type Inferred = Result<Types, InferError>;

fn within(ty: &TensorType, set: DTypeSet) -> Result<(), InferError> {
    if set.contains(ty.dtype) {
        return Ok(());
    }
    Err(InferError::dtype(format!("the result must be of {set}, found {ty}")))
}

pub(super) fn infer_constant(cx: &mut InferCx<'_>) -> Inferred {
    let ty = cx.declared()?;
    within(ty, DTypeSet::Any)?;
    let values = cx.attrs.literals("values");
    if ty.elements() != Some(values.len() as u64) {
        return Err(InferError::shape(format!("{} values for {ty}", values.len())));
    }
    if let Some(v) = values.iter().find(|v| v.dtype() != ty.dtype) {
        return Err(InferError::dtype(format!("value {v:?} in {ty}")));
    }
    Ok(smallvec![ty.clone()])
}

pub(super) fn infer_iota(cx: &mut InferCx<'_>) -> Inferred {
    let ty = cx.declared()?;
    within(ty, DTypeSet::Number)?;
    cx.axis("axis", ty.rank())?;
    Ok(smallvec![ty.clone()])
}

pub(super) fn iota<'r>(place: Place<'r>, _: &[S<'r>], dtype: DType) -> S<'r> {
    place.along.convert(dtype)
}

pub(super) fn infer_rng(cx: &mut InferCx<'_>) -> Inferred {
    let ty = cx.declared()?;
    within(ty, DTypeSet::Only(DType::U32))?;
    cx.demand(0, &TensorType::scalar(DType::I64))?;
    cx.demand(1, &TensorType::scalar(DType::I64))?;
    Ok(smallvec![ty.clone()])
}

/// Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC'11).
///
/// Key: the seed's low and high words. Counter: low and high words of position / 4, then of the
/// offset. The element at a position is word position % 4 of its block.
pub(super) fn philox<'r>(place: Place<'r>, operands: &[S<'r>], _: DType) -> S<'r> {
    let low = |x: S<'r>| x.convert(DType::U32);
    let high = |x: S<'r>| x.shr_l(32i64).convert(DType::U32);
    let (seed, offset) = (operands[0], operands[1]);
    let block = place.linear.shr_l(2i64);
    let mut key = [low(seed), high(seed)];
    let mut c = [low(block), high(block), low(offset), high(offset)];
    for round in 0..10 {
        if round > 0 {
            key = [key[0] + key[0].int(0x9E37_79B9), key[1] + key[1].int(0xBB67_AE85)];
        }
        let m0 = c[0].int(0xD251_1F53);
        let m1 = c[2].int(0xCD9E_8D57);
        c = [c[2].mulhi(m1) ^ c[1] ^ key[0], c[2] * m1, c[0].mulhi(m0) ^ c[3] ^ key[1], c[0] * m0];
    }
    let word = low(place.linear) & place.linear.convert(DType::U32).int(3);
    let pair = |k: i64, a: S<'r>, rest: S<'r>| word.eq(k).select(a, rest);
    pair(0, c[0], pair(1, c[1], pair(2, c[2], c[3])))
}

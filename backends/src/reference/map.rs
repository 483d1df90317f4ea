//! Elementwise ops and generated sources: one scalar program, run over chunks of lanes.

use super::{EvalTensor, reserve};
use crate::runtime::array::out_of_memory;
use adfuse_ir::scalar::{LANES, Lanes, ScalarProgram, eval_lanes, expand};
use adfuse_ir::{At, Attrs, DType, Diagnostic, Kind, Op, TensorType};

/// An elementwise op.
pub(super) fn map(
    op: Op,
    args: &[&EvalTensor],
    attrs: &Attrs,
    ty: &TensorType,
) -> Result<EvalTensor, Diagnostic> {
    let dtypes: Vec<DType> = args.iter().map(|t| t.dtype).collect();
    let program = op.scalar_program(&dtypes, ty.dtype, attrs).ok_or_else(no_program)?;
    lanes(&program, ty, &mut |start, n, params| {
        for (lane, t) in params.iter_mut().zip(args) {
            lane[..n].copy_from_slice(&t.bits[start..start + n]);
        }
    })
}

/// A source whose elements follow from their place and scalar operands.
pub(super) fn source(
    op: Op,
    args: &[&EvalTensor],
    attrs: &Attrs,
    ty: &TensorType,
) -> Result<EvalTensor, Diagnostic> {
    let dtypes: Vec<DType> = args.iter().map(|t| t.dtype).collect();
    let program = op.source_program(&dtypes, ty.dtype).ok_or_else(no_program)?;
    let dims = ty.dims().unwrap_or_default();
    let axis = usize::try_from(attrs.int("axis")).unwrap_or(0);
    let inner: u64 = dims.iter().skip(axis + 1).product::<u64>().max(1);
    let extent = dims.get(axis).copied().unwrap_or(1).max(1);
    lanes(&program, ty, &mut |start, n, params| {
        let (places, rest) = params.split_at_mut(1);
        for (k, (linear, along)) in places[0].iter_mut().zip(&mut rest[0]).take(n).enumerate() {
            *linear = (start + k) as u64;
            *along = *linear / inner % extent;
        }
        for (lane, t) in params[2..].iter_mut().zip(args) {
            lane[..n].fill(t.bits[0]);
        }
    })
}

fn no_program() -> Diagnostic {
    Diagnostic::new(At::default(), Kind::Internal, "the op has no scalar program")
}

/// Runs a program over all elements of `ty`; `load` fills the parameters from an element on.
fn lanes(
    program: &ScalarProgram,
    ty: &TensorType,
    load: &mut dyn FnMut(usize, usize, &mut [Lanes]),
) -> Result<EvalTensor, Diagnostic> {
    let total = ty.elements().ok_or_else(|| out_of_memory(u64::MAX))?;
    let mut outputs = outputs(program, total, &mut |start, n, params| {
        load(start, n, params);
        Ok(())
    })?;
    EvalTensor::build(ty, |bits| {
        bits.append(&mut outputs[0]);
        Ok(())
    })
}

/// Fills the parameters for `n` elements from one on.
pub(super) type LoadLanes<'a> =
    &'a mut dyn FnMut(usize, usize, &mut [Lanes]) -> Result<(), Diagnostic>;

/// The outputs of a program, each for `total` elements.
pub(super) fn outputs(
    program: &ScalarProgram,
    total: u64,
    load: LoadLanes<'_>,
) -> Result<Vec<Vec<u64>>, Diagnostic> {
    let program = expand(program);
    let mut params = vec![[0; LANES]; program.params.len()];
    let mut regs = Vec::new();
    let mut outputs = Vec::new();
    for _ in &program.outputs {
        outputs.push(reserve(total)?);
    }
    let total = total as usize;
    let mut start = 0;
    while start < total {
        let n = LANES.min(total - start);
        load(start, n, &mut params)?;
        for (out, lane) in outputs.iter_mut().zip(eval_lanes(&program, &params, n, &mut regs)) {
            out.extend_from_slice(&lane[..n]);
        }
        start += n;
    }
    Ok(outputs)
}

//! Extents, index maps and scalar programs that the schedule's passes make.

use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Operand, Param, Piece, Stage};
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::{Recorder, ScalarProgram};
use adfuse_ir::{At, DType, Diagnostic, Kind};
use smallvec::SmallVec;

pub(crate) fn identity(d: DType) -> ScalarProgram {
    Recorder::record_any(&[d], |x| x[0])
}

pub(crate) fn axes(n: usize) -> SmallVec<[IndexExpr; 4]> {
    (0..n).map(IndexExpr::axis).collect()
}

pub(crate) fn load(b: Buffer, index: SmallVec<[IndexExpr; 4]>) -> Param {
    let piece = Piece { from: Operand::Buffer(b), index, guards: SmallVec::new() };
    Param::Load(SmallVec::from_iter([piece]))
}

/// The buffers that parameters are loaded from.
pub(crate) fn loaded(params: &[Param]) -> Vec<Buffer> {
    let pieces = params.iter().flat_map(|param| match param {
        Param::Load(pieces) => pieces.as_slice(),
        _ => &[],
    });
    let from = |piece: &Piece| match piece.from {
        Operand::Buffer(b) => Some(b),
        Operand::Literal(_) => None,
    };
    pieces.filter_map(from).collect()
}

/// Whether folds in any order have the same bits.
pub(crate) fn free(monoid: Monoid, dtype: DType) -> bool {
    !(dtype.is_float() && matches!(monoid, Monoid::Sum | Monoid::Prod))
}

pub(crate) fn internal(message: &str) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::Internal, message)
}

/// The stage with these of its outputs alone.
pub(crate) fn only(stage: &Stage, outputs: &[usize]) -> Stage {
    let mut part = stage.clone();
    part.program.outputs = outputs.iter().map(|&k| stage.program.outputs[k]).collect();
    part.sinks = outputs.iter().map(|&k| stage.sinks[k].clone()).collect();
    part
}

/// The type of an output of a stage.
pub(crate) fn output_type(stage: &Stage, k: usize) -> DType {
    stage.program.insts[stage.program.outputs[k]].dtype
}

//! Operands of products that are no elements of a buffer: a sweep computes them into an array first.

use super::codegen::affine_form::affine;
use super::codegen::loop_ir::{ArraySlots, Sweep, SweepOutput, SweepRole};
use super::gemm::dots::OperandSide;
use super::kernel::compile::CompileContext;
use super::machine_code::SweepId;
use super::point_tasks::TaskCount;
use super::shape::checked_volume;
use super::workers::WorkerSet;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Extents, Feed, Operand, Param, Program};
use adfuse_ir::scalar::{Prim, SInst, SOp};
use adfuse_ir::{DType, Diagnostic};
use smallvec::SmallVec;

/// An operand that a sweep computes into an array: batch, then the free axes and the depth, one after the other.
pub(super) struct ComputedOperand {
    pub(super) sweep: SweepId,
    pub(super) at: u64,
    pub(super) count: i64,
    /// Elements from one place of the free axes to the next, and of the depth.
    pub(super) steps: [i64; 2],
}

/// Elements of an array that one task computes, at least a few microseconds of work.
const ELEMENTS: i64 = 1 << 14;

/// Which axes of an array come last, so that elements along them are neighbours.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DenseAxes {
    Depth,
    Free,
}

impl DenseAxes {
    /// Those of an operand that is computed. Rows are read along the depth. Columns are packed, as well from either order, so a sweep
    /// computes them along the axes along which it reads neighbours, and gathers nothing: the free axes, if only those have neighbours.
    pub(super) fn of(
        program: &Program,
        side: OperandSide,
        (feed, groups): (&Feed, [&Extents; 3]),
    ) -> DenseAxes {
        if side == OperandSide::Left {
            return DenseAxes::Depth;
        }
        let count = groups.iter().map(|g| g.len()).sum();
        let extents: SmallVec<[i64; 8]> = groups.into_iter().flatten().copied().collect();
        let depth = groups[0].len() + groups[1].len();
        let [mut along_free, mut along_depth] = [false; 2];
        for param in &feed.params {
            let Param::Load(pieces) = param else { continue };
            for piece in pieces {
                let Operand::Buffer(b) = piece.from else { continue };
                let Some((_, steps)) = affine(&piece.index, &program.buffers[b], count) else {
                    continue;
                };
                let near = |axes: std::ops::Range<usize>| {
                    let last = axes.rev().find(|&a| extents[a] != 1);
                    last.is_some_and(|a| steps[a].unsigned_abs() == 1)
                };
                along_free |= near(groups[0].len()..depth);
                along_depth |= near(depth..count);
            }
        }
        if along_free && !along_depth { DenseAxes::Free } else { DenseAxes::Depth }
    }
}

impl ComputedOperand {
    /// Computes the array, whose elements have this many bytes.
    pub(super) fn compute(&self, worker_set: &mut WorkerSet<'_>, bytes: u64) {
        let tasks = TaskCount::of((self.count + ELEMENTS - 1) / ELEMENTS, ELEMENTS);
        worker_set.each(tasks, |code, worker, k| {
            let at = worker.all(self.at);
            worker.set(0, at, 0, bytes);
            let end = ((k + 1) * ELEMENTS).min(self.count);
            worker.sweep(code, self.sweep, k * ELEMENTS, end);
        });
    }
}

impl CompileContext<'_> {
    /// An operand of this type in an array of its own.
    pub(super) fn computed_operand(
        &mut self,
        feed: &Feed,
        groups: [&Extents; 3],
        (to, dense): (DType, DenseAxes),
    ) -> Result<ComputedOperand, Diagnostic> {
        let [batch, free, depth] = groups;
        let (inner, order) = match dense {
            DenseAxes::Depth => ([checked_volume(depth)?, 1], [batch, free, depth]),
            DenseAxes::Free => ([1, checked_volume(free)?], [batch, depth, free]),
        };
        let extents: Extents = order.into_iter().flatten().copied().collect();
        let turned = (dense == DenseAxes::Free).then(|| feed.at(&coordinates(groups)));
        let params = &turned.as_ref().unwrap_or(feed).params;
        let count = checked_volume(&extents)?;
        let at = self.shared.take(count, to.bytes())?;
        let mut body = feed.program.clone();
        if let Some(out) = body.outputs.first_mut()
            && body.insts[*out].dtype != to
        {
            let args = SmallVec::from_iter([*out]);
            *out = body.insts.push(SInst { op: SOp::Prim(Prim::Convert), args, dtype: to });
        }
        self.slots = self.slots.max(1);
        let sweep = self.sweep(&Sweep {
            program: self.program,
            domain: extents.len(),
            extents,
            params,
            body: &body,
            puts: vec![SweepOutput::Place(0)],
            slots: ArraySlots::default(),
            target: None,
            part: SweepRole::Operand,
        })?;
        Ok(ComputedOperand { sweep, at, count, steps: inner })
    }
}

/// The coordinates of an operand's batch, free axes and depth among those of an array with the depth before the free axes.
fn coordinates([batch, free, depth]: [&Extents; 3]) -> Vec<IndexExpr> {
    let [first, second] = [batch.len() + depth.len(), batch.len()];
    let of = |first: usize, axes: &Extents| (first..first + axes.len()).map(IndexExpr::axis);
    of(0, batch).chain(of(first, free)).chain(of(second, depth)).collect()
}

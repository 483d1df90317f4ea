//! Bundles: kernels that share nothing, as one list of tasks for the workers.
//!
//! A task is ranges of points of one kernel or of several, and as long as a task of a kernel by itself. So kernels that
//! are too short for a second thread are shared by threads where there are many of them, and those that are
//! short even together run on the caller's thread.

use super::CompiledKernel;
use super::compile::CompileContext;
use crate::cpu::machine_code::Code;
use crate::cpu::point_tasks::{FEWEST, TaskCount};
use crate::cpu::sweep_call::SweepCall;
use crate::cpu::workers::{Worker, WorkerSet};
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::Bundle;
use std::ops::Range;

/// A bundle, made.
pub(in crate::cpu) struct CompiledBundle {
    kernels: Vec<CompiledKernel>,
    pieces: Vec<BundlePiece>,
    /// Which pieces each task has.
    tasks: Vec<Range<usize>>,
}

/// Points of a kernel.
#[derive(Clone, Copy)]
struct BundlePiece {
    kernel: usize,
    from: i64,
    to: i64,
}

impl CompileContext<'_> {
    /// Makes a bundle.
    pub(in crate::cpu) fn bundle(&mut self, bundle: &Bundle) -> Result<CompiledBundle, Diagnostic> {
        let mut kernels = Vec::with_capacity(bundle.kernels.len());
        for kernel in &bundle.kernels {
            // A worker is in one kernel at a time.
            self.own.free();
            kernels.push(self.kernel(kernel, None)?);
        }
        let mut pieces = Vec::new();
        for (k, kernel) in kernels.iter().enumerate() {
            let mut from = 0;
            let task = kernel.tasks.shortest();
            while from < kernel.tasks.points {
                let to = from.saturating_add(task).min(kernel.tasks.points);
                pieces.push(BundlePiece { kernel: k, from, to });
                from = to;
            }
        }
        let work = |p: &BundlePiece| (p.to - p.from).saturating_mul(kernels[p.kernel].tasks.work);
        let part = |p: &BundlePiece| work(p) as f64 / FEWEST as f64;
        let tasks = filled(&pieces.iter().map(part).collect::<Vec<_>>());
        self.note_bundle(tasks.len());
        Ok(CompiledBundle { kernels, pieces, tasks })
    }
}

/// Ranges of consecutive pieces that fill a task each; of every piece the part of a task that it is.
fn filled(parts: &[f64]) -> Vec<Range<usize>> {
    let mut tasks = Vec::new();
    let (mut from, mut sum) = (0, 0.0);
    for (k, part) in parts.iter().enumerate() {
        sum += part;
        if sum >= 1.0 {
            tasks.push(from..k + 1);
            (from, sum) = (k + 1, 0.0);
        }
    }
    if from < parts.len() {
        tasks.push(from..parts.len());
    }
    tasks
}

impl CompiledBundle {
    /// Runs it by one worker if it is one task; whether it has.
    pub(in crate::cpu) fn run_alone(&self, code: &Code, worker: &mut Worker) -> bool {
        let alone = self.tasks.len() <= 1;
        if alone {
            self.pieces.iter().for_each(|p| {
                self.kernels[p.kernel].points(code, worker, p.from, p.to);
            });
        }
        alone
    }

    /// The calls that it is for the caller's worker, of this many, which are appended; `None` where others have tasks too, or it is more
    /// than calls.
    pub(in crate::cpu) fn calls(&self, threads: usize, calls: &mut Vec<SweepCall>) -> Option<()> {
        if self.tasks.len() > 1 && threads > 1 {
            return None;
        }
        self.pieces.iter().try_for_each(|p| self.kernels[p.kernel].calls_of(p.from, p.to, calls))
    }

    /// Runs it.
    pub(in crate::cpu) fn run(&self, worker_set: &mut WorkerSet<'_>) {
        let tasks = TaskCount { count: self.tasks.len() as i64, work: FEWEST };
        worker_set.each(tasks, |code, worker, n| {
            for piece in &self.pieces[self.tasks[n as usize].clone()] {
                self.kernels[piece.kernel].points(code, worker, piece.from, piece.to);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::filled;

    #[test]
    fn short_kernels_fill_tasks_together() {
        assert_eq!(filled(&[]), vec![]);
        assert_eq!(filled(&[0.25, 0.25, 0.25]), vec![0..3]);
        assert_eq!(filled(&[0.5, 0.5, 1.0, 1.0, 0.1, 0.2]), vec![0..2, 2..3, 3..4, 4..6]);
        assert_eq!(filled(&[0.1, 1.0, 0.9, 0.1]), vec![0..2, 2..4]);
    }
}

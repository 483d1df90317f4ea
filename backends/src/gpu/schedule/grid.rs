//! How a launch is shared by threads: threads of a block, and blocks of a multiprocessor.

use super::text::{DecisionLine, Line, Reader, Writer};
use crate::gpu::target::{GpuTarget, WARP};
use adfuse_ir::Diagnostic;

/// Threads of a block by default.
pub(crate) const THREADS: i64 = 256;

/// Threads of a multiprocessor that hide the latency of memory, while each has registers enough for what a body
/// holds.
const HIDING: i64 = 512;

/// The threads of a launch's blocks, and how many blocks share the registers of a multiprocessor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grid {
    /// Threads of a block.
    pub(crate) threads: i64,
    /// Blocks that a multiprocessor shall have at a time.
    pub(crate) resident: u32,
}

impl Default for Grid {
    fn default() -> Grid {
        Grid::of(THREADS)
    }
}

impl Grid {
    /// Blocks of this many threads, as many at a time as hide the latency of memory.
    pub(crate) fn of(threads: i64) -> Grid {
        Grid { threads, resident: u32::try_from(HIDING / threads.max(1)).unwrap_or(1).max(1) }
    }

    /// Blocks that have this many threads together.
    pub(crate) fn blocks(self, threads: i64) -> i64 {
        (threads - 1) / self.threads + 1
    }

    /// What a field of a line says.
    pub(crate) fn of_line(line: &Line<'_>) -> Result<Grid, Diagnostic> {
        let resident = u32::try_from(line.int("resident")?).unwrap_or(u32::MAX);
        Ok(Grid { threads: line.int("threads")?, resident })
    }

    /// Errs for blocks that a target does not have.
    pub(crate) fn check(self, target: &GpuTarget) -> Result<(), String> {
        let Grid { threads, resident } = self;
        if threads < 1 || threads % WARP != 0 || threads > target.block_threads.into() {
            let most = target.block_threads;
            return Err(format!(
                "blocks have whole warps and at most {most} threads, not {threads}"
            ));
        }
        resident_fits(resident, threads, target)
    }
}

/// Errs unless this many blocks share a multiprocessor, with a few registers for each thread.
pub(crate) fn resident_fits(resident: u32, threads: i64, target: &GpuTarget) -> Result<(), String> {
    let all = target.allocated_threads(threads).saturating_mul(resident.into());
    if resident == 0 || resident > target.resident_blocks || all > target.resident_threads.into() {
        return Err(format!(
            "a multiprocessor does not have {resident} blocks of {threads} threads"
        ));
    }
    Ok(())
}

impl DecisionLine for Grid {
    fn write(&self, to: &mut Writer) {
        to.line("grid", &[("threads", &self.threads), ("resident", &self.resident)]);
    }

    fn read(from: &mut Reader<'_>) -> Result<Grid, Diagnostic> {
        Grid::of_line(&from.line("grid", &["threads", "resident"])?)
    }
}

//! Whether a step's launches have read an element before they write it, so that results may take the place of operands
//! ([`in_place`](adfuse_ir::kernel::in_place)).

use crate::gpu::launches::{Arg, Launch, StepCode};
use crate::gpu::schedule::program::{Scheduled, StepSchedule};
use crate::gpu::schedule::rows::ScheduledRows;
use adfuse_ir::kernel::{Buffer, Kernel, Operand, Param, Sink, Stage, Step};

/// Whether what is read at a coordinate is read before anything is written there, and not again: by one launch of one
/// stage, by one of rows, or by a bundle of kernels of one stage each.
pub(super) fn reads_first(step: &Step, scheduled: &StepSchedule, code: &StepCode) -> bool {
    match step {
        Step::Kernel(k) => {
            code.launches.len() == 1 && k.stages.len() == 1 || by_rows(step, scheduled, code)
        }
        Step::Contract(c) => code.launches.len() == 1 && c.members.len() == 1,
        // Each kernel, of which none is empty, is then one piece of one launch.
        Step::Bundle(b) => {
            let one = |k: &Kernel| k.stages.len() == 1 && !k.domain.contains(&0);
            code.pieces == b.kernels.len() && b.kernels.iter().all(one)
        }
        _ => false,
    }
}

/// The same of a kernel of rows whose first launch alone reads what the step reads. The threads of a row have the same
/// elements in all stages, so each reads its own before it writes them; rows that are prefetched are the team's own.
fn by_rows(step: &Step, scheduled: &StepSchedule, code: &StepCode) -> bool {
    let Some(Scheduled::Rows(rows)) = scheduled.works.first() else { return false };
    let read: Vec<Buffer> = step.reads().collect();
    let reads = |arg: Arg| matches!(arg, Arg::Buffer(b) if read.contains(&b));
    let later = code.launches.iter().skip(1).flat_map(Launch::given);
    !later.into_iter().any(reads) && stages_read_first(rows, step)
}

/// Whether no stage reads a buffer behind one that stores a result of the step, and none that every thread computes
/// stores one: another thread may read later.
fn stages_read_first(rows: &ScheduledRows, step: &Step) -> bool {
    let written: Vec<Buffer> = step.writes().collect();
    let stores = |s: &Stage| {
        let of = |k: &Sink| matches!(k, Sink::Store { buffer, .. } if written.contains(buffer));
        s.sinks.iter().any(of)
    };
    let loads = |s: &Stage| {
        let of = |(k, p): (usize, &Param)| match p {
            Param::Load(pieces) => {
                let from = |o: Operand| matches!(o, Operand::Buffer(_));
                s.program.reads_param(k) && pieces.iter().any(|piece| from(piece.from))
            }
            _ => false,
        };
        s.params.iter().enumerate().any(of)
    };
    let stages = &rows.layout.kernel.stages;
    let first = stages.iter().position(stores).unwrap_or(stages.len());
    let shared = |s: &Stage| !stores(s) || rows.layout.is_shared(s) && !s.axes.is_empty();
    stages.iter().all(shared) && !stages.iter().skip(first + 1).any(loads)
}

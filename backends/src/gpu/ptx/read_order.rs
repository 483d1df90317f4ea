//! Whether a step's launches have read an element before they write it, so that results may take the place of operands
//! ([`in_place`](adfuse_ir::kernel::in_place)).

use crate::gpu::launches::{Arg, Launch, StepCode};
use crate::gpu::schedule::program::StepSchedule;
use crate::gpu::schedule::rows::ScheduledRows;
use crate::gpu::schedule::scheduled::Scheduled;
use crate::gpu::schedule::shape::loaded;
use adfuse_ir::kernel::{Buffer, Kernel, Sink, Stage, Step};

/// Whether what is read at a coordinate is read before anything is written there, and not again: by one launch of one
/// stage, by one of rows, or by a bundle of kernels of one stage each.
pub(super) fn reads_first(step: &Step, scheduled: &StepSchedule, code: &StepCode) -> bool {
    match step {
        Step::Kernel(k) => {
            code.launches.len() == 1 && k.stages.len() == 1 || by_rows(k, scheduled, code)
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

/// The same of a kernel of rows whose first launch alone reads what its stages read; what follows folds reads nothing
/// whose place is taken. The threads of a row have the same elements in all stages, so each reads its own before it writes
/// them; rows that are prefetched are the team's own.
fn by_rows(kernel: &Kernel, scheduled: &StepSchedule, code: &StepCode) -> bool {
    let Some(Scheduled::Rows(rows)) = scheduled.works.first() else { return false };
    let read: Vec<Buffer> = kernel.stages.iter().flat_map(|stage| loaded(&stage.params)).collect();
    let reads = |arg: Arg| matches!(arg, Arg::Buffer(b) if read.contains(&b));
    let mut later = code.launches.iter().skip(1).flat_map(Launch::given);
    !later.any(reads) && stages_read_first(rows, kernel)
}

/// Whether no stage reads a buffer behind one that stores a result of the step, and none that every thread computes
/// stores one: another thread may read later.
fn stages_read_first(rows: &ScheduledRows, kernel: &Kernel) -> bool {
    let written: Vec<Buffer> = kernel.writes().collect();
    let stores = |s: &Stage| {
        let of = |k: &Sink| matches!(k, Sink::Store { buffer, .. } if written.contains(buffer));
        s.sinks.iter().any(of)
    };
    let stages = &rows.layout.kernel.stages;
    let first = stages.iter().position(stores).unwrap_or(stages.len());
    let shared = |s: &Stage| !stores(s) || rows.layout.is_shared(s) && !s.axes.is_empty();
    stages.iter().all(shared) && stages.iter().skip(first + 1).all(|s| loaded(&s.params).is_empty())
}

//! Names of a program's steps.

use adfuse::ir::kernel::{Buffer, Extents, Program, Step};

/// The extents that a step runs over: the points of a kernel, the results of contractions, the elements
/// of a sort.
pub(super) fn domains(program: &Program, step: &Step) -> Vec<Extents> {
    let join = |parts: &[&Extents]| parts.iter().flat_map(|e| e.iter().copied()).collect();
    match step {
        Step::Kernel(k) => vec![k.domain.clone()],
        Step::Bundle(b) => b.kernels.iter().map(|k| k.domain.clone()).collect(),
        Step::Contract(c) => {
            c.members.iter().map(|m| join(&[&m.batch, &m.rows, &m.cols])).collect()
        }
        // The weighed values, or the cotangents of queries.
        Step::Attend(a) => {
            a.outputs.iter().take(1).map(|&b| program.buffers[b].dims.clone()).collect()
        }
        Step::Scatter(s) => vec![s.domain.clone()],
        Step::Argsort(s) => vec![program.buffers[s.from].dims.clone()],
        Step::Exchange(e) => vec![program.buffers[e.to].dims.clone()],
        Step::Library(_) | Step::Transfer(_) | Step::Print(_) | Step::Loop(_) | Step::Branch(_) => {
            Vec::new()
        }
    }
}

/// The names of buffers, with `%`.
pub(super) fn names(program: &Program, buffers: impl Iterator<Item = Buffer>) -> Vec<String> {
    buffers.map(|b| format!("%{}", program.buffers[b].name)).collect()
}

//! Concatenations in the programs of loops and branches: parts that nothing else reads are stored where they end, and nothing is copied.
//!
//! The gates of a recurrent layer are parts of one array on the way back. Their kernel stores each of them for itself, and another one copied
//! them side by side at each step. The result must be memory that is there all the time, as that of an output of such a program is.

use super::legal::LegalProgram;
use crate::runtime::arena_layout::ArenaLayout;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{
    Buffer, BufferData, Extents, Kernel, Operand, Param, Program, Role, Sink, Stage, Step, Storage,
};
use adfuse_ir::scalar::SOp;

/// A part of a concatenation: what is copied, and where its first element along the axis goes.
type ConcatPart = (Buffer, i64);

/// Makes steps of a program in a step store parts of concatenations where these go, and leaves these out.
pub(super) fn store_parts(legal: &mut LegalProgram, layout: &ArenaLayout) {
    let program = &legal.low.program;
    // Temporaries may be in outputs that are not written yet.
    if program.buffers.keys().any(|b| layout.in_donor[b].is_some()) {
        return;
    }
    for n in (0..program.steps.len()).rev() {
        let program = &legal.low.program;
        let Step::Kernel(kernel) = &program.steps[n] else { continue };
        let Some((out, axis, parts)) = concatenation(kernel, program) else { continue };
        let before = &program.steps[..n];
        let free = !before.iter().any(|step| step.reads().chain(step.writes()).any(|b| b == out));
        // No step names what accumulated products begin with.
        let starts = |(part, _): &ConcatPart| {
            legal.accumulated.iter().any(|one| one.start == Operand::Buffer(*part))
        };
        let free = free && !parts.iter().any(starts);
        let mut changed = program.clone();
        changed.steps.remove(n);
        let all = free && parts.iter().all(|part| redirect(&mut changed, n, *part, (out, axis)));
        if !all {
            continue;
        }
        legal.low.program = changed;
        legal.low.origin.remove(n);
        legal.blocks.remove(n);
        legal.accumulated.iter_mut().filter(|one| one.step > n).for_each(|one| one.step -= 1);
    }
}

/// The result of a kernel that only copies temporaries side by side, the axis along which these follow each other, and where each begins.
fn concatenation(kernel: &Kernel, program: &Program) -> Option<(Buffer, usize, Vec<ConcatPart>)> {
    let [stage] = kernel.stages.as_slice() else { return None };
    let ([Param::Load(pieces)], [Sink::Store { buffer: out, index }]) =
        (stage.params.as_slice(), stage.sinks.as_slice())
    else {
        return None;
    };
    let outputs = &stage.program.outputs;
    let passes = outputs.len() == 1 && stage.program.insts[outputs[0]].op == SOp::Param(0);
    let data = &program.buffers[*out];
    let whole = index.iter().enumerate().all(|(k, e)| *e == IndexExpr::axis(k));
    let given = data.role == Role::Output && data.storage == Storage::Plain;
    if !passes || !whole || !given || !stage.axes.is_empty() || kernel.domain != data.dims {
        return None;
    }
    (0..data.dims.len()).find_map(|axis| {
        let mut parts = Vec::with_capacity(pieces.len());
        let mut begin = 0;
        for piece in pieces {
            let Operand::Buffer(b) = piece.from else { return None };
            let part = &program.buffers[b];
            let moved = |k: usize| if k == axis { -begin } else { 0 };
            let at = |(k, e): (usize, &IndexExpr)| *e == IndexExpr::axis(k).plus(moved(k));
            let own = part.role == Role::Temp && part.storage == Storage::Plain;
            if !own || !piece.index.iter().enumerate().all(at) || other_extents(part, data, axis) {
                return None;
            }
            parts.push((b, begin));
            begin += part.dims[axis];
        }
        // Where parts follow each other and fill the result, each element is read from the only part that has it.
        (begin == data.dims[axis] && parts.len() > 1).then_some((*out, axis, parts))
    })
}

/// Whether a part's extents differ from the result's along other axes, or its elements are of another type.
fn other_extents(part: &BufferData, whole: &BufferData, axis: usize) -> bool {
    let others = |dims: &Extents| {
        dims.iter().enumerate().filter(|(k, _)| *k != axis).map(|(_, n)| *n).collect::<Extents>()
    };
    part.dtype != whole.dtype
        || part.dims.len() != whole.dims.len()
        || others(&part.dims) != others(&whole.dims)
}

/// Stores a part in the result, if one of the first steps stores it and nothing reads it. Whether it did.
fn redirect(
    program: &mut Program,
    first: usize,
    (part, begin): ConcatPart,
    (out, axis): (Buffer, usize),
) -> bool {
    let mut mentioned = 0;
    let mut stored = false;
    for (n, step) in program.steps.iter_mut().enumerate() {
        mentioned += step.mentions(part);
        let kernels = match step {
            Step::Kernel(kernel) => std::slice::from_mut(kernel),
            Step::Bundle(bundle) => bundle.kernels.as_mut_slice(),
            _ => continue,
        };
        let stages = kernels.iter_mut().flat_map(|kernel| &mut kernel.stages);
        for sink in stages.flat_map(|stage: &mut Stage| &mut stage.sinks) {
            let Sink::Store { buffer, index } = sink else { continue };
            if *buffer == part && n < first {
                *buffer = out;
                index[axis] = index[axis].clone().plus(begin);
                stored = true;
            }
        }
    }
    stored && mentioned == 1
}

//! Layouts of what a loop reads at every step: matrices that vectors are multiplied by are copied before the loop, with the
//! elements of neighbouring sums side by side, where the program has them apart.
//!
//! The way back over a product with weights multiplies by the transposed ones, and a vector of sums would gather
//! each of its operands at every step. So do forward products with weights that are stored by outputs; where there are several rows, they are
//! transposed by the product at every step. A copy is made once, in the scratch memory of the loop's step.

use crate::runtime::legalize::{Legalized, plain};
use adfuse_ir::Diagnostic;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{
    Block, BlockInput, Buffer, Feed, Kernel, LoopTrips, Member, Operand, Param, Piece, Program,
    Role, Step, Storage, is_small_line, unrolled, verify, volume,
};
use smallvec::SmallVec;

/// The most bytes of a matrix that is copied: larger ones are read from memory that is further away, and few of their lines at a time.
const MOST: u64 = 256 << 10;

/// The most rows that such a matrix is multiplied by: beside more, packing it at each step takes little.
const ROWS: i64 = 128;

/// What a loop reads and writes has at least this many times the bytes of a matrix that is copied for several rows, so that copies lift the
/// peak of a program by little.
const SHARE: u64 = 16;

/// The fewest steps of a loop for which a matrix is copied.
const STEPS: u64 = 8;

/// How the steps of a block read an input.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum InputReads {
    #[default]
    Nothing,
    /// Neighbouring sums read along this axis, which is not the last, and in no other way.
    Along(usize),
    Otherwise,
}

impl InputReads {
    fn and(self, other: InputReads) -> InputReads {
        match (self, other) {
            (InputReads::Nothing, one) | (one, InputReads::Nothing) => one,
            (a, b) if a == b => a,
            _ => InputReads::Otherwise,
        }
    }
}

/// Copies such matrices before the loops of a program, in temporaries of these loops' steps.
///
/// # Errors
/// None: a program that reads a copy is as correct as one that reads what was copied.
pub(super) fn copy_matrices(low: &mut Legalized) -> Result<(), Diagnostic> {
    if !low.program.steps.iter().any(|step| matches!(step, Step::Loop(_))) {
        return Ok(());
    }
    let steps = std::mem::take(&mut low.program.steps);
    let origins = std::mem::take(&mut low.origin);
    for (mut step, origin) in steps.into_iter().zip(origins) {
        let moved = moved_bytes(&low.program, &step);
        if let Step::Loop(l) = &mut step
            && !matches!(l.trips, LoopTrips::Known(n) if n < STEPS)
        {
            let back = l.back.as_mut().map(|back| &mut back.step);
            for block in [Some(&mut l.step), back].into_iter().flatten() {
                copy_for(block, low, (origin, moved))?;
            }
        }
        low.program.steps.push(step);
        low.origin.push(origin);
    }
    Ok(())
}

/// The bytes of what a step reads and writes in the program around it.
fn moved_bytes(program: &Program, step: &Step) -> u64 {
    let all = step.reads().chain(step.writes());
    all.fold(0, |bytes, b| bytes.saturating_add(program.buffers[b].bytes()))
}

/// Copies what a block reads of such matrices, and makes it read the copies.
fn copy_for(
    block: &mut Block,
    low: &mut Legalized,
    (origin, moved): (usize, u64),
) -> Result<(), Diagnostic> {
    let chosen: Vec<(usize, Buffer, Buffer, usize)> = block
        .bindings()
        .enumerate()
        .filter_map(|(k, (b, input))| {
            let BlockInput::Whole(from) = input else { return None };
            let large = low.program.buffers[from].bytes() > moved / SHARE;
            let axis = axis_of_sums(&block.program, b, if large { 1 } else { ROWS })?;
            Some((k, b, from, axis))
        })
        .collect();
    if chosen.is_empty() {
        return Ok(());
    }
    let mut program = block.program.clone().into_inner();
    for (k, b, from, axis) in chosen {
        let outer = &low.program.buffers[from];
        let mut copy = plain(outer, Role::Temp);
        copy.name = format!("{}.copy{}", outer.name, low.program.buffers.len());
        moved_last(&mut copy.dims, axis);
        moved_last(&mut program.buffers[b].dims, axis);
        let index: SmallVec<[IndexExpr; 4]> = (0..copy.dims.len()).map(IndexExpr::axis).collect();
        let mut reads = index.clone();
        if let Some(last) = reads.pop() {
            reads.insert(axis, last);
        }
        let (dtype, dims) = (copy.dtype, copy.dims.clone());
        let name = format!("copy of %{}", outer.name);
        let to = low.program.buffers.push(copy);
        low.temps.push((to, Some(origin)));
        let mut kernel = Kernel::copying(name, from, to, (dtype, &dims));
        for stage in &mut kernel.stages {
            stage
                .params
                .iter_mut()
                .for_each(|p| each_piece(p, &mut |piece| piece.index = reads.clone()));
        }
        low.program.steps.push(Step::Kernel(kernel));
        low.origin.push(origin);
        block.inputs[k] = BlockInput::Whole(to);
        for step in &mut program.steps {
            let Step::Contract(contract) = step else { continue };
            let feeds = contract.members.iter_mut().flat_map(|m| [&mut m.lhs, &mut m.rhs]);
            feeds.flat_map(|feed| &mut feed.params).for_each(|param| {
                each_piece(param, &mut |piece| {
                    if piece.from == Operand::Buffer(b) {
                        moved_last(&mut piece.index, axis);
                    }
                });
            });
        }
    }
    let accepted = verify(program).map_err(|mut all| all.swap_remove(0))?;
    block.program = accepted;
    Ok(())
}

/// Moves an entry behind the others.
fn moved_last<T>(all: &mut SmallVec<[T; 4]>, axis: usize) {
    let one = all.remove(axis);
    all.push(one);
}

fn each_piece(param: &mut Param, f: &mut dyn FnMut(&mut Piece)) {
    if let Param::Load(pieces) = param {
        pieces.iter_mut().for_each(f);
    }
}

/// The axis of an input along which neighbouring sums of products read it, if all that reads it are products of at most this many rows, and
/// that axis is not the last.
fn axis_of_sums(program: &Program, b: Buffer, most: i64) -> Option<usize> {
    let data = &program.buffers[b];
    let small = data.storage == Storage::Plain && data.strides.is_none() && data.bytes() <= MOST;
    if !small || !data.dtype.is_float() || program.outputs.contains(&b) {
        return None;
    }
    let mut reads = InputReads::Nothing;
    for step in program.steps.iter().filter(|step| step.reads().any(|read| read == b)) {
        reads = reads.and(match step {
            Step::Contract(c) => c.members.iter().fold(InputReads::Nothing, |all, member| {
                let then = member.then.params.iter().map(|param| param_reads(param, b, None));
                let sides = [(&member.lhs, true), (&member.rhs, false)];
                let feeds = sides.map(|(feed, left)| feed_reads((feed, b), member, left, most));
                then.chain(feeds).fold(all, InputReads::and)
            }),
            _ => InputReads::Otherwise,
        });
    }
    match reads {
        InputReads::Along(axis) => Some(axis),
        InputReads::Nothing | InputReads::Otherwise => None,
    }
}

/// How an operand reads a buffer.
fn feed_reads((feed, b): (&Feed, Buffer), member: &Member, left: bool, most: i64) -> InputReads {
    let (own, other) =
        if left { (&member.rows, &member.cols) } else { (&member.cols, &member.rows) };
    let line = other.iter().all(|&n| n == 1) && is_small_line(member);
    let rows = volume(other);
    let matrix = !left && (2..=most).contains(&rows) && unrolled("", member).is_none();
    let last = own.iter().rposition(|&n| n > 1).filter(|_| line || matrix);
    let axis = last.map(|last| (member.batch.len() + last, feed_axes(member, own.len())));
    feed.params
        .iter()
        .map(|param| param_reads(param, b, axis))
        .fold(InputReads::Nothing, InputReads::and)
}

fn feed_axes(member: &Member, own: usize) -> usize {
    member.batch.len() + own + member.depth.len()
}

/// How a parameter reads a buffer: along which of its axes it goes with one of its coordinates, of which there is this number.
fn param_reads(param: &Param, b: Buffer, axis: Option<(usize, usize)>) -> InputReads {
    let Param::Load(pieces) = param else { return InputReads::Nothing };
    let reads = |piece: &Piece| {
        if piece.from != Operand::Buffer(b) {
            return InputReads::Nothing;
        }
        let along = |(axis, axes): (usize, usize)| {
            let steps: Option<SmallVec<[i128; 4]>> =
                piece.index.iter().map(|e| Some(e.factors(axes)?[axis])).collect();
            let steps = steps?;
            let at = steps.iter().position(|&step| step != 0)?;
            let others = steps.iter().filter(|&&step| step != 0).count() > 1;
            (steps[at] == 1 && !others && at + 1 < steps.len()).then_some(at)
        };
        axis.filter(|_| pieces.len() == 1)
            .and_then(along)
            .map_or(InputReads::Otherwise, InputReads::Along)
    };
    pieces.iter().map(reads).fold(InputReads::Nothing, InputReads::and)
}

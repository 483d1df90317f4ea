//! Where the elements of operands are, and where sums go: buffers as matrices, and windows of them.

use super::code::{affine, affine_of};
use super::crew::Worker;
use super::gemm::{Axis, Forms, GUARDS, Window, merged_axes};
use super::shape::volume;
use adfuse_ir::DType;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Extents, Feed, Operand, Param, Program, Sink, Stage, Storage};
use adfuse_ir::scalar::{SOp, ScalarProgram};
use cranelift_entity::EntityRef;

/// A buffer as matrices: steps from one batch to the next, and along two axes.
pub(super) struct View {
    pub(super) buffer: usize,
    pub(super) first: i64,
    pub(super) steps: [i64; 3],
}

/// A buffer of which an operand is windows.
pub(super) struct Windows {
    pub(super) buffer: usize,
    pub(super) window: Window,
    /// Whether elements are read more than once.
    pub(super) overlaps: bool,
}

impl View {
    /// Where the matrix of a batch begins.
    pub(super) fn start(&self, worker: &Worker, batch: i64, bytes: u64) -> *mut u8 {
        let first = self.first.wrapping_add(batch.wrapping_mul(self.steps[0]));
        let offset = first.wrapping_mul(bytes as i64) as isize;
        worker.table[self.buffer].wrapping_offset(offset)
    }
}

/// The only parameter of a program that gives what it is given.
fn passes(program: &ScalarProgram, params: &[Param]) -> bool {
    let out = program.outputs.first().map(|&v| program.insts[v].op);
    params.len() == 1 && program.outputs.len() == 1 && out == Some(SOp::Param(0))
}

/// An operand that is an element of a buffer, as it is.
pub(super) fn read(
    program: &Program,
    feed: &Feed,
    groups: [&Extents; 3],
    sum: DType,
) -> Option<View> {
    let [Param::Load(pieces)] = feed.params.as_slice() else { return None };
    let [piece] = pieces.as_slice() else { return None };
    let Operand::Buffer(b) = piece.from else { return None };
    let plain = passes(&feed.program, &feed.params) && piece.guards.is_empty();
    plain.then(|| view(program, b, &piece.index, groups, sum)).flatten()
}

/// Sums that are stored as they are.
pub(super) fn stored(
    program: &Program,
    then: &Stage,
    groups: [&Extents; 3],
    sum: DType,
) -> Option<View> {
    let [Sink::Store { buffer, index }] = then.sinks.as_slice() else { return None };
    let plain = then.params == [Param::Sum] && passes(&then.program, &then.params);
    plain.then(|| view(program, *buffer, index, groups, sum)).flatten()
}

/// The elements at an index as matrices, over three groups of axes that each are one.
fn view(
    program: &Program,
    b: Buffer,
    index: &[IndexExpr],
    groups: [&Extents; 3],
    sum: DType,
) -> Option<View> {
    let data = &program.buffers[b];
    if data.dtype != sum || data.storage != Storage::Plain || !sum.is_float() {
        return None;
    }
    let axes = groups.iter().map(|g| g.len()).sum();
    let (first, all) = affine(index, data, axes)?;
    let mut steps = [0; 3];
    let mut rest = all.as_slice();
    for (step, extents) in steps.iter_mut().zip(groups) {
        let (mine, others) = rest.split_at_checked(extents.len())?;
        *step = merged(mine, extents)?;
        rest = others;
    }
    Some(View { buffer: b.index(), first, steps })
}

/// The step of axes as one; `None` where they are not one, or the step is not above 0.
fn merged(steps: &[i64], extents: &[i64]) -> Option<i64> {
    let long = || steps.iter().zip(extents).filter(|(_, n)| **n != 1);
    let fits = long().zip(long().skip(1)).all(|((a, _), (b, n))| b.checked_mul(*n) == Some(*a));
    match long().next_back() {
        // Nothing is stepped over.
        None => Some(1),
        Some((&step, _)) => (fits && step > 0).then_some(step),
    }
}

/// An operand that is an element of a buffer at affine places, or 0 where an affine guard does not hold.
pub(super) fn windows(
    program: &Program,
    feed: &Feed,
    groups: [&Extents; 3],
    sum: DType,
) -> Option<Windows> {
    let [Param::Load(pieces)] = feed.params.as_slice() else { return None };
    let piece = match pieces.as_slice() {
        [piece] if piece.guards.is_empty() => piece,
        [piece, rest] => match rest.from {
            Operand::Literal(l) if l.bits() == 0 && rest.guards.is_empty() => piece,
            _ => return None,
        },
        _ => return None,
    };
    let Operand::Buffer(b) = piece.from else { return None };
    let data = &program.buffers[b];
    let plain = data.dtype == sum && data.storage == Storage::Plain && sum.is_float();
    if !plain || !passes(&feed.program, &feed.params) || piece.guards.len() > GUARDS {
        return None;
    }
    let axes = groups.iter().map(|g| g.len()).sum();
    let mut forms = vec![affine(&piece.index, data, axes)?];
    for guard in &piece.guards {
        forms.push(affine_of(&guard.expr, axes)?);
    }
    let at = |of: &dyn Fn(usize) -> i64| -> Forms {
        std::array::from_fn(|k| if k < forms.len() { of(k) } else { 0 })
    };
    let mut next = 0;
    let mut group = |extents: &Extents| {
        let first = next;
        next += extents.len();
        let axes = extents.iter().zip(first..);
        merged_axes(axes.map(|(&extent, a)| Axis { extent, steps: at(&|k| forms[k].1[a]) }))
    };
    let [batch, free, depth] = [group(groups[0])?, group(groups[1])?, group(groups[2])?];
    let guards = piece.guards.iter().map(|g| g.range.clone()).collect();
    let elements = i64::try_from(data.bytes() / sum.bytes()).ok()?;
    let window = Window { first: at(&|k| forms[k].0), batch, free, depth, guards, elements };
    let all = groups.iter().try_fold(1i64, |n, g| n.checked_mul(volume(g).ok()?))?;
    let overlaps = all > volume(&data.dims).ok()?;
    Some(Windows { buffer: b.index(), window, overlaps })
}

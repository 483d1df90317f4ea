//! Contractions: operands as matrices, their product, and what follows it.

use super::code::{Put, Slots, Sweep, SweepId, affine};
use super::crew::{Crew, Worker};
use super::gemm::{Gemm, Matrix, canonical};
use super::kernel::{Made, Making};
use super::shape::volume;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{
    Buffer, Extents, Feed, Kernel, Member, Operand, Param, Program, Sink, Stage, Storage,
};
use adfuse_ir::scalar::{Prim, SInst, SOp, ScalarProgram};
use adfuse_ir::{DType, Diagnostic};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

/// Places of an operand that one task computes.
const TASK: i64 = 1 << 16;

/// What rows or columns of a piece of a product are a multiple of.
const GRAIN: i64 = 16;

/// A contraction, made.
pub(super) struct MadeMember {
    /// Batch, rows, columns, depth.
    size: [i64; 4],
    operands: Option<[Source; 2]>,
    sum: DType,
    to: Target,
}

/// Where the elements of an operand are.
enum Source {
    Packed(Packed),
    View(View),
}

/// Where the sums go.
enum Target {
    /// Into an array, from which what follows takes them.
    Sums(u64, Made),
    /// To where they are stored.
    View(View),
}

/// A buffer as matrices: steps from one batch to the next, and along two axes.
struct View {
    buffer: usize,
    first: i64,
    steps: [i64; 3],
}

/// An operand that is computed into an array: batch, free, depth.
struct Packed {
    sweep: SweepId,
    at: u64,
    count: i64,
}

impl Making<'_> {
    pub(super) fn member(&mut self, m: &Member) -> Result<MadeMember, Diagnostic> {
        let result = m.result();
        let results = volume(&result)?;
        // Extents of the operands of an empty result may be too large to walk.
        let mut size = [0; 4];
        let operands = match results {
            0 => None,
            _ => {
                for (n, extents) in size.iter_mut().zip([&m.batch, &m.rows, &m.cols, &m.depth]) {
                    *n = volume(extents)?;
                }
                let [lhs, rhs] = m.feeds();
                let mut operand = |feed: &Feed, extents, free| match read(
                    self.program,
                    feed,
                    [&m.batch, free, &m.depth],
                    m.sum,
                ) {
                    Some(view) => Ok(Source::View(view)),
                    None => self.operand(feed, extents, m.sum).map(Source::Packed),
                };
                Some([operand(lhs.1, lhs.2, &m.rows)?, operand(rhs.1, rhs.2, &m.cols)?])
            }
        };
        let view = stored(self.program, &m.then, [&m.batch, &m.rows, &m.cols], m.sum);
        if let Some(view) = view {
            return Ok(MadeMember { size, operands, sum: m.sum, to: Target::View(view) });
        }
        let sums = self.shared.take(results, m.sum.bytes())?;
        let kernel = Kernel { domain: result, stages: vec![m.then.clone()], ..Kernel::default() };
        let then = self.kernel(&kernel, Some((sums, m.sum)))?;
        Ok(MadeMember { size, operands, sum: m.sum, to: Target::Sums(sums, then) })
    }

    fn operand(&mut self, feed: &Feed, extents: Extents, to: DType) -> Result<Packed, Diagnostic> {
        let count = volume(&extents)?;
        let at = self.shared.take(count, to.bytes())?;
        let mut body = feed.program.clone();
        if let Some(out) = body.outputs.first_mut()
            && body.insts[*out].dtype != to
        {
            let args = SmallVec::from_iter([*out]);
            *out = body.insts.push(SInst { op: SOp::Prim(Prim::Convert), args, dtype: to });
        }
        self.slots = self.slots.max(1);
        let sweep = self.maker.sweep(&Sweep {
            program: self.program,
            domain: extents.len(),
            extents,
            params: &feed.params,
            body: &body,
            puts: vec![Put::Place(0)],
            slots: Slots::default(),
            target: None,
        })?;
        Ok(Packed { sweep, at, count })
    }
}

/// The only parameter of a program that gives what it is given.
fn passes(program: &ScalarProgram, params: &[Param]) -> bool {
    let out = program.outputs.first().map(|&v| program.insts[v].op);
    params.len() == 1 && program.outputs.len() == 1 && out == Some(SOp::Param(0))
}

/// An operand that is an element of a buffer, as it is.
fn read(program: &Program, feed: &Feed, groups: [&Extents; 3], sum: DType) -> Option<View> {
    let [Param::Load(pieces)] = feed.params.as_slice() else { return None };
    let [piece] = pieces.as_slice() else { return None };
    let Operand::Buffer(b) = piece.from else { return None };
    let plain = passes(&feed.program, &feed.params) && piece.guards.is_empty();
    plain.then(|| view(program, b, &piece.index, groups, sum)).flatten()
}

/// Sums that are stored as they are.
fn stored(program: &Program, then: &Stage, groups: [&Extents; 3], sum: DType) -> Option<View> {
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

impl View {
    /// Where the matrix of a batch begins.
    fn start(&self, worker: &Worker, batch: i64, bytes: u64) -> *mut u8 {
        let first = self.first.wrapping_add(batch.wrapping_mul(self.steps[0]));
        let offset = first.wrapping_mul(bytes as i64) as isize;
        worker.table[self.buffer].wrapping_offset(offset)
    }
}

impl MadeMember {
    pub(super) fn run(&self, crew: &mut Crew<'_>, gemm: &dyn Gemm) {
        if let Some(operands) = &self.operands {
            let bytes = self.sum.bytes();
            for operand in operands {
                let Source::Packed(packed) = operand else { continue };
                crew.each((packed.count + TASK - 1) / TASK, |code, worker, k| {
                    let at = worker.all(packed.at);
                    worker.set(0, at, 0, bytes);
                    let end = ((k + 1) * TASK).min(packed.count);
                    worker.sweep(code, packed.sweep, k * TASK, end);
                });
            }
            self.products(crew, operands, gemm);
        }
        if let Target::Sums(_, then) = &self.to {
            then.run(crew);
        }
    }

    fn products(&self, crew: &mut Crew<'_>, [lhs, rhs]: &[Source; 2], gemm: &dyn Gemm) {
        let [batch, rows, cols, depth] = self.size;
        let bytes = self.sum.bytes();
        // Every result is a sum of its own, so that how they are shared out changes no bit.
        let pieces = if batch < crew.workers.len() as i64 { crew.workers.len() as i64 } else { 1 };
        let longer = rows.max(cols);
        let length = ((longer + pieces - 1) / pieces + GRAIN - 1) / GRAIN * GRAIN;
        let pieces = (longer + length - 1) / length;
        crew.each(batch * pieces, |_, worker, k| {
            let (b, from) = (k / pieces, k % pieces * length);
            let count = length.min(longer - from);
            let (row, m, column, n) = match rows >= cols {
                true => (from, count, 0, cols),
                false => (0, rows, from, count),
            };
            let of = |source: &Source, free: i64, skipped: i64| match source {
                Source::Packed(p) => {
                    let first = (b * free + skipped) * depth;
                    (worker.all(p.at).wrapping_add((first as u64 * bytes) as usize), depth, 1)
                }
                Source::View(v) => {
                    let at = v.start(worker, b, bytes);
                    let skip = skipped.wrapping_mul(v.steps[1]).wrapping_mul(bytes as i64);
                    (at.wrapping_offset(skip as isize), v.steps[1], v.steps[2])
                }
            };
            let (x, y) = (of(lhs, rows, row), of(rhs, cols, column));
            let to = match &self.to {
                Target::Sums(at, _) => (worker.all(*at), cols, 1, b * rows * cols),
                Target::View(v) => {
                    let at = v.start(worker, b, bytes);
                    (at, v.steps[1], v.steps[2], 0)
                }
            };
            let first = to.3 + row * to.1 + column * to.2;
            let at = to.0.wrapping_offset((first * bytes as i64) as isize);
            let out = Matrix { at, row: to.1 as isize, column: to.2 as isize };
            let x = Matrix { at: x.0, row: x.1 as isize, column: x.2 as isize };
            let y = Matrix { at: y.0, row: y.2 as isize, column: y.1 as isize };
            let size = [m, n, depth].map(|n| n as usize);
            // SAFETY: operands are computed in full, or elements of buffers that the verifier has
            // proven to be there; the sums of these rows and columns are this task's alone.
            #[allow(unsafe_code)]
            unsafe {
                gemm.product(self.sum, size, x, y, out);
                if let Target::View(_) = &self.to {
                    canonical(self.sum, [size[0], size[1]], out);
                }
            }
        });
    }
}

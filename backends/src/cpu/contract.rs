//! Contractions: operands as matrices, their product piece by piece, and what follows each piece while
//! it is in the cache.

use super::code::{Code, Part, Put, Slots, Sweep, SweepId, affine};
use super::crew::{Crew, Worker};
use super::gemm::{Gemm, Matrix, best, canonical};
use super::kernel::{Cuts, Made, Making};
use super::shape::{gcd, volume};
use crate::reference::order::CONTRACT_CHUNK;
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

/// Bytes of the sums of a piece, at most: what fits the second cache beside the operands.
const PIECE: i64 = 256 << 10;

/// Columns of a piece, unless there are few rows.
const COLUMNS: i64 = 256;

/// Bytes of the columns of a chunk, at most, where pieces have whole lines because what follows the sums
/// walks memory along them: packed for each piece, they fit the second cache beside the sums.
const PACKED: i64 = 512 << 10;

/// What rows and columns of pieces are a multiple of.
const GRAIN: i64 = 64;

/// Products of a task, about, where there are as many.
const PRODUCTS: i64 = 1 << 24;

/// A contraction, made.
pub(super) struct MadeMember {
    /// Batch, rows, columns, depth.
    size: [i64; 4],
    operands: Option<[Source; 2]>,
    sum: DType,
    to: Target,
    cut: Cut,
    /// What multiplies, and what each worker has for it.
    gemm: &'static dyn Gemm,
    room: u64,
}

/// How the result is cut. Rows are those of all batches, one after the other.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Rows and columns of a task.
    task: [i64; 2],
    /// Rows of a piece: what is multiplied at once, of one batch.
    rows: i64,
}

/// Where the elements of an operand are.
enum Source {
    Packed(Packed),
    View(View),
}

/// Where the sums go.
enum Target {
    /// Those of a piece into an array of the worker, from which what follows takes them.
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
        let (to, cuts) = match view {
            Some(view) => (Target::View(view), Cuts { grain: Some(1), lines: Some(0) }),
            None => {
                let stages = vec![m.then.clone()];
                let then = self
                    .kernel(&Kernel { domain: result, stages, ..Kernel::default() }, Some(m.sum))?;
                let cuts = then.cuts;
                (Target::Sums(0, then), cuts)
            }
        };
        let bytes = m.sum.bytes();
        let followed = matches!(to, Target::Sums(..));
        let cut = Cut::new(size, cuts, followed, bytes as i64);
        let to = match to {
            Target::Sums(_, then) => {
                Target::Sums(self.own.take(cut.rows.saturating_mul(cut.task[1]), bytes)?, then)
            }
            to => to,
        };
        let gemm = best();
        let most = [cut.rows, cut.task[1], size[3]].map(|n| usize::try_from(n).unwrap_or(0));
        let room = i64::try_from(gemm.room(m.sum, most)).unwrap_or(i64::MAX);
        let room = self.own.take(room, 1)?;
        Ok(MadeMember { size, operands, sum: m.sum, to, cut, gemm, room })
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
        let sweep = self.sweep(&Sweep {
            program: self.program,
            domain: extents.len(),
            extents,
            params: &feed.params,
            body: &body,
            puts: vec![Put::Place(0)],
            slots: Slots::default(),
            target: None,
            part: Part::Operand,
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

impl Cut {
    /// Pieces that fit the cache, and tasks of as many as are worth waking a thread. They depend on the
    /// extents alone; since every result is a sum of its own, they change no bit.
    fn new([batch, rows, cols, depth]: [i64; 4], cuts: Cuts, followed: bool, bytes: i64) -> Cut {
        let all = batch.saturating_mul(rows).max(1);
        let grained = |n: i64| (n / GRAIN * GRAIN).max(GRAIN);
        let cols = cols.max(1);
        // What follows sees lines of all columns, unless it may see parts of them.
        let parts = cuts.lines.is_some_and(|l| l % cols == 0);
        let most = (PIECE / bytes.max(1)).max(1);
        let mut width = cols;
        let chunk = depth.clamp(1, CONTRACT_CHUNK as i64);
        let packed = cols.saturating_mul(chunk).saturating_mul(bytes);
        let whole = followed && packed <= PACKED && cols.saturating_mul(GRAIN) <= most;
        if parts && !whole && cols > 2 * COLUMNS {
            width = COLUMNS.max(grained(most / rows.max(1))).min(cols);
        }
        let mut height = grained(most / width).min(rows.max(1));
        let work = |a: i64, b: i64| a.saturating_mul(b).saturating_mul(depth.max(1));
        while parts && width > GRAIN && work(width, height) > PRODUCTS {
            width = grained(width / 2);
        }
        while height > GRAIN && work(width, height) > PRODUCTS {
            height = grained(height / 2);
        }
        // Short batches go together.
        let together = (PRODUCTS / 16 / work(width, height).max(1)).max(1);
        let task = height.saturating_mul(together).min(all);
        let task = match cuts.grain {
            None => all,
            Some(grain) => {
                let rows = grain / gcd(grain, cols);
                (task.saturating_add(rows - 1) / rows).saturating_mul(rows)
            }
        };
        Cut { task: [task.max(1), width], rows: height }
    }
}

/// A range of rows of one batch, and of columns.
struct Place {
    batch: i64,
    rows: [i64; 2],
    cols: [i64; 2],
}

impl MadeMember {
    pub(super) fn run(&self, crew: &mut Crew<'_>) {
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
            let [batch, rows, cols, _] = self.size;
            let (all, [height, width]) = (batch * rows, self.cut.task);
            let across = (cols + width - 1) / width;
            crew.each((all + height - 1) / height * across, |code, worker, k| {
                let (from, left) = (k / across * height, k % across * width);
                let cols = [left, (left + width).min(cols)];
                let mut row = from;
                while row < (from + height).min(all) {
                    let batch = row / rows;
                    let end = (row + self.cut.rows).min(from + height).min((batch + 1) * rows);
                    let rows = [row - batch * rows, end - batch * rows];
                    self.piece(code, worker, operands, Place { batch, rows, cols });
                    row = end;
                }
            });
        }
        if let Target::Sums(_, then) = &self.to {
            then.finish(crew);
        }
    }

    /// Multiplies a piece, and does what follows.
    fn piece(&self, code: &Code, worker: &mut Worker, [lhs, rhs]: &[Source; 2], p: Place) {
        let [_, rows, cols, depth] = self.size;
        let bytes = self.sum.bytes();
        let of = |source: &Source, free: i64, skipped: i64| match source {
            Source::Packed(packed) => {
                let first = (p.batch * free + skipped) * depth;
                (worker.all(packed.at).wrapping_add((first as u64 * bytes) as usize), depth, 1)
            }
            Source::View(v) => {
                let at = v.start(worker, p.batch, bytes);
                let skip = skipped.wrapping_mul(v.steps[1]).wrapping_mul(bytes as i64);
                (at.wrapping_offset(skip as isize), v.steps[1], v.steps[2])
            }
        };
        let (x, y) = (of(lhs, rows, p.rows[0]), of(rhs, cols, p.cols[0]));
        let [m, n] = [p.rows[1] - p.rows[0], p.cols[1] - p.cols[0]];
        let out = match &self.to {
            Target::Sums(at, _) => Matrix { at: worker.at(*at), row: n as isize, column: 1 },
            Target::View(v) => {
                let first = p.rows[0] * v.steps[1] + p.cols[0] * v.steps[2];
                let at = v.start(worker, p.batch, bytes);
                let at = at.wrapping_offset((first * bytes as i64) as isize);
                Matrix { at, row: v.steps[1] as isize, column: v.steps[2] as isize }
            }
        };
        let x = Matrix { at: x.0, row: x.1 as isize, column: x.2 as isize };
        let y = Matrix { at: y.0, row: y.2 as isize, column: y.1 as isize };
        let size = [m, n, depth].map(|n| n as usize);
        // SAFETY: operands are computed in full, or elements of buffers that the verifier has proven to
        // be there; the sums of these rows and columns are this task's alone, and an array of the worker
        // has room for a piece, and another as much as was asked for.
        #[allow(unsafe_code)]
        unsafe {
            self.gemm.product(self.sum, size, x, y, out, worker.at(self.room));
            if let Target::View(_) = &self.to {
                canonical(self.sum, [size[0], size[1]], out);
            }
        }
        let Target::Sums(at, then) = &self.to else { return };
        let at = worker.at(*at);
        let first = (p.batch * rows + p.rows[0]) * cols;
        if n == cols {
            then.sums(worker, at, first, bytes);
            return then.points(code, worker, first, first + m * n);
        }
        for i in 0..m {
            let first = first + i * cols + p.cols[0];
            let at = at.wrapping_add((i * n) as usize * bytes as usize);
            then.sums(worker, at, first, bytes);
            then.points(code, worker, first, first + n);
        }
    }
}

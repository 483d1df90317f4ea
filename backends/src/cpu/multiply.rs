//! Runs contractions: products piece by piece, and the epilogue of each piece while it is in the cache.

use super::contract::{CompiledMember, MemberOperands, Multiplier, OperandSource, SumTarget};
use super::gemm::{GemmArgs, GemmSide, MatrixView, TouchedNext, canonical, tiles};
use super::machine_code::Code;
use super::point_tasks::TaskCount;
use super::task_split::{TaskSplit, chunks_of};
use super::tiled_operand::{TiledOperand, pack_both};
use super::workers::{Worker, WorkerSet};
use crate::reference::order::CONTRACT_CHUNK;
use adfuse_ir::DType;

/// A range of rows of one batch, of columns and of the depth.
#[derive(Clone, Copy)]
pub(super) struct TaskRange {
    pub(super) batch: i64,
    pub(super) rows: [i64; 2],
    pub(super) cols: [i64; 2],
    /// All of it, or a chunk.
    pub(super) depth: [i64; 2],
}

/// Where the sums of a piece go.
pub(super) struct PieceTarget {
    pub(super) out: MatrixView,
    /// What is added to them.
    pub(super) added: Option<MatrixView>,
    /// What is touched at their places once they are there.
    pub(super) touched_next: TouchedNext,
}

impl PieceTarget {
    /// As they are.
    pub(super) fn of(out: MatrixView) -> PieceTarget {
        PieceTarget { out, added: None, touched_next: [None; 2] }
    }
}

impl CompiledMember {
    /// What multiplies.
    pub(super) fn generator(&self) -> &'static str {
        self.by.name(self.sum)
    }

    pub(super) fn run(&self, worker_set: &mut WorkerSet<'_>) {
        if let Some(onto) = &self.onto {
            return self.accumulate(onto, worker_set);
        }
        if let Some(operands) = &self.operands {
            match operands {
                MemberOperands::Tiles(all) => pack_both(all, worker_set),
                MemberOperands::Sources(all) => {
                    for operand in all {
                        let OperandSource::Packed(array) = operand else { continue };
                        array.compute(worker_set, self.sum.bytes());
                    }
                }
                MemberOperands::Lanes(product) => product.run((self.size, self.sum), worker_set),
            }
            self.multiply_all(worker_set, operands);
        }
        if let SumTarget::Sums(_, then) = &self.to {
            then.finish(worker_set);
        }
    }

    /// How tasks are divided among threads. Runs have the same number of them, but for those that find the others at work.
    fn split(&self, threads: i64) -> TaskSplit {
        let &(known, split) = self.split.get_or_init(|| (threads, self.tasks.split(threads)));
        if known == threads { split } else { self.tasks.split(threads) }
    }

    /// Multiplies by tasks, which are chunks of the depth too where there are fewer tasks than threads.
    fn multiply_all(&self, worker_set: &mut WorkerSet<'_>, operands: &MemberOperands) {
        let [batch, rows, cols, depth] = self.size;
        let threads = worker_set.threads() as i64;
        let cut = self.split(threads);
        let (all, [height, width]) = (batch * rows, cut.task);
        let across = (cols + width - 1) / width;
        let tasks = (all + height - 1) / height * across;
        // Of products side by side there are the sums.
        let deep = if matches!(operands, MemberOperands::Lanes(_)) { 1 } else { depth };
        let products = height.saturating_mul(width).saturating_mul(deep);
        // The pieces of a task, each of one batch.
        let pieces = |k: i64, each: &mut dyn FnMut(TaskRange)| {
            let (from, left) = (k / across * height, k % across * width);
            let cols = [left, (left + width).min(cols)];
            let mut row = from;
            while row < (from + height).min(all) {
                let batch = row / rows;
                let end = (row + cut.rows).min(from + height).min((batch + 1) * rows);
                let rows = [row - batch * rows, end - batch * rows];
                each(TaskRange { batch, rows, cols, depth: [0, depth] });
                row = end;
            }
        };
        let chunks = self.chunks.filter(|_| tasks < threads);
        if let (Some(at), MemberOperands::Sources(sources)) = (chunks, operands) {
            let count = chunks_of(depth);
            let chunked = TaskCount::of_products(tasks * count, products / count);
            worker_set.each(chunked, |_, worker, k| {
                let from = k % count * CONTRACT_CHUNK as i64;
                let depth = [from, (from + CONTRACT_CHUNK as i64).min(depth)];
                pieces(k / count, &mut |p| {
                    let out = self.chunk(worker, at, &p, k % count);
                    self.multiply(worker, sources, &TaskRange { depth, ..p }, PieceTarget::of(out));
                });
            });
        }
        worker_set.each(TaskCount::of_products(tasks, products), |code, worker, k| {
            pieces(k, &mut |p| self.piece(code, worker, (operands, chunks), p));
        });
    }

    /// Where the sums of a chunk of the depth are, those of a piece.
    fn chunk(&self, worker: &Worker, at: u64, p: &TaskRange, chunk: i64) -> MatrixView {
        let [batch, rows, cols, _] = self.size;
        let line = (chunk * batch + p.batch) * rows + p.rows[0];
        let first = (line * cols + p.cols[0]) as u64 * self.sum.bytes();
        MatrixView { at: worker.all(at + first), row: cols as isize, column: 1 }
    }

    /// Adds up the sums of this number of chunks, the first ones first, then other elements, if there are any.
    fn join_chunks(
        &self,
        worker: &Worker,
        (at, count): (u64, i64),
        p: &TaskRange,
        (out, other): (MatrixView, Option<MatrixView>),
    ) {
        let chunks = |k| self.chunk(worker, at, p, k);
        let size = [p.rows, p.cols].map(|[from, end]| (end - from) as usize);
        // SAFETY: the sums of chunks have been computed, by tasks that are done, and those of the piece are this task's alone.
        #[allow(unsafe_code)]
        unsafe {
            match self.sum {
                DType::F64 => add_up(size, (0..count).map(chunks), out, |a: f64, b| a + b),
                DType::F32 => add_up(size, (0..count).map(chunks), out, |a: f32, b| a + b),
                DType::I64 => add_up(size, (0..count).map(chunks), out, i64::wrapping_add),
                DType::I32 | DType::U32 => {
                    add_up(size, (0..count).map(chunks), out, i32::wrapping_add);
                }
                _ => add_up(size, (0..count).map(chunks), out, i8::wrapping_add),
            }
            let Some(other) = other else { return };
            let both = [out, other].into_iter();
            match self.sum {
                DType::F64 => add_up(size, both, out, |a: f64, b| a + b),
                _ => add_up(size, both, out, |a: f32, b| a + b),
            }
        }
    }

    /// Multiplies a piece, or adds up the sums of its chunks, and does what follows.
    fn piece(
        &self,
        code: &Code,
        worker: &mut Worker,
        (operands, chunks): (&MemberOperands, Option<u64>),
        p: TaskRange,
    ) {
        let [_, rows, cols, _] = self.size;
        let bytes = self.sum.bytes();
        let [m, n] = [p.rows[1] - p.rows[0], p.cols[1] - p.cols[0]];
        let first = (p.batch, [p.rows[0], p.cols[0]]);
        let out = match &self.to {
            SumTarget::Sums(at, _) => MatrixView { at: worker.at(*at), row: n as isize, column: 1 },
            SumTarget::View(v, _) => v.part(worker, bytes, first),
        };
        let other = match &self.to {
            SumTarget::View(_, Some(v)) => Some(v.part(worker, bytes, first)),
            _ => None,
        };
        match (operands, chunks) {
            (MemberOperands::Sources(_), Some(at)) => {
                self.join_chunks(worker, (at, chunks_of(self.size[3])), &p, (out, other));
            }
            (MemberOperands::Sources(sources), None) => {
                let mut next = [None; 2];
                for (next, view) in next.iter_mut().zip(&self.touched_next) {
                    *next = Some(view.part(worker, bytes, first));
                }
                self.multiply(
                    worker,
                    sources,
                    &p,
                    PieceTarget { out, added: other, touched_next: next },
                );
            }
            (MemberOperands::Tiles(tiles), _) => self.multiply_tiles(worker, tiles, &p, out),
            (MemberOperands::Lanes(all), _) => {
                self.join_chunks(worker, (all.sums, 1), &p, (out, None));
            }
        }
        let SumTarget::Sums(at, then) = &self.to else {
            // Tiles have done so as they stored the sums.
            if matches!(self.by, Multiplier::Matrices(gemm) if gemm.finishes()) && chunks.is_none()
            {
                return;
            }
            let size = [m, n].map(|n| n as usize);
            // SAFETY: these sums are this task's alone.
            #[allow(unsafe_code)]
            return unsafe { canonical(self.sum, size, out) };
        };
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

    /// The sums of a piece, of operands that are packed.
    fn multiply_tiles(
        &self,
        worker: &Worker,
        [left, right]: &[TiledOperand; 2],
        p: &TaskRange,
        out: MatrixView,
    ) {
        let range = [p.rows, p.cols].map(|r| r.map(|n| n as usize));
        let sides = [left, right].map(|o| o.tiles(worker, p.batch));
        let (depth, room) = (self.size[3] as usize, worker.at(self.room));
        // SAFETY: both operands have been packed, by tasks that are done, or are read where they are; the sums of these rows and columns
        // are this task's alone, and an array of the worker has the room that was asked for.
        #[allow(unsafe_code)]
        unsafe {
            left.kernel.product((range, depth), sides, (out, self.sum), room);
        }
    }

    /// The sums of a piece, of operands that are where a program has them, or have been computed.
    pub(super) fn multiply<'a>(
        &self,
        worker: &Worker,
        [lhs, rhs]: &'a [OperandSource; 2],
        p: &TaskRange,
        target: PieceTarget,
    ) {
        let PieceTarget { out, added, touched_next } = target;
        let [_, rows, cols, depth] = self.size;
        let bytes = self.sum.bytes();
        let of = |source: &'a OperandSource, free: i64, skipped: i64, left: bool| match source {
            OperandSource::Packed(packed) => {
                let [row, deep] = packed.steps;
                let first = p.batch * free * depth + skipped * row + p.depth[0] * deep;
                let at = worker.all(packed.at).wrapping_add((first as u64 * bytes) as usize);
                source.side(at, 0, left)
            }
            OperandSource::View(v) => {
                let at = v.start(worker, p.batch, bytes);
                let deep = p.depth[0].wrapping_mul(v.steps[1]);
                let skip = skipped.wrapping_mul(v.steps[0]).wrapping_add(deep);
                let skip = skip.wrapping_mul(bytes as i64);
                source.side(at.wrapping_offset(skip as isize), 0, left)
            }
            OperandSource::Windows(w) => {
                let at = worker.table[w.buffer];
                match source.side(at, p.batch, left) {
                    GemmSide::Window(placed) => {
                        GemmSide::Window(placed.from(skipped as usize, p.depth[0] as usize))
                    }
                    matrix => matrix,
                }
            }
        };
        let sides = [of(lhs, rows, p.rows[0], true), of(rhs, cols, p.cols[0], false)];
        let size = [p.rows, p.cols, p.depth].map(|[from, end]| (end - from) as usize);
        let room = worker.at(self.room);
        // SAFETY: operands are computed in full, or elements of buffers that the verifier has proven to
        // be there where guards hold; the sums of these rows and columns are this task's alone, and an
        // array of the worker has room for a piece, and another as much as was asked for.
        #[allow(unsafe_code)]
        unsafe {
            match (self.by, sides) {
                (Multiplier::Matrices(gemm), [GemmSide::Matrix(x), GemmSide::Matrix(y)]) => {
                    gemm.product(
                        self.sum,
                        size,
                        x,
                        y,
                        out,
                        GemmArgs { room, met: &self.met, added, touched_next },
                    );
                }
                // Matrices are multiplied by what copies, too.
                _ => tiles().windows(self.sum, size, sides, out, room),
            }
        }
    }
}

/// Adds up matrices in order.
///
/// # Safety
/// All have as many rows and columns of elements of type `T`, and nobody else uses `out`.
#[allow(unsafe_code)]
unsafe fn add_up<T: Copy>(
    [rows, cols]: [usize; 2],
    all: impl Iterator<Item = MatrixView> + Clone,
    out: MatrixView,
    plus: impl Fn(T, T) -> T,
) {
    for i in 0..rows {
        for (k, from) in all.clone().enumerate() {
            for j in 0..cols {
                // SAFETY: as the caller promises.
                unsafe {
                    let (to, x) = (out.place::<T>(i, j), *from.place::<T>(i, j));
                    *to = if k == 0 { x } else { plus(*to, x) };
                }
            }
        }
    }
}

//! Attention and its way back in their defined order. Scores are computed in tiles of at most [`BLOCK`] rows by [`BLOCK`] keys;
//! a worker keeps one tile at a time, of which the way back has two arrays: the weights, and the cotangents of the scores.
//! Products are those of contractions; exponentials are sweeps.
//!
//! Tasks are blocks of rows, and on the way back also blocks of keys or whole groups of heads. Each sum has its own order, so
//! no bit depends on which of these there are.
#![allow(unsafe_code)]

mod backward;
mod forward;
mod rows;

use super::codegen::loop_ir::{ArraySlots, Sweep, SweepOutput, SweepRole};
use super::gemm::{self, Gemm, GemmArgs, MatrixView, SubnormalState};
use super::kernel::compile::CompileContext;
use super::machine_code::{Code, SweepId};
use super::workers::{Worker, WorkerSet};
use crate::cpu::point_tasks::TaskCount;
use adfuse_ir::kernel::{Attend, Extents, Param};
use adfuse_ir::op::{ATTENTION_BLOCK, AttentionReach, AttentionShape};
use adfuse_ir::scalar::{Recorder, S};
use adfuse_ir::{At, DType, Diagnostic, Kind};
use cranelift_entity::EntityRef;
use rows::{ExtraRow, RowKernels, ScoreElement, ScoreTile, ShownKeys, found};
use smallvec::SmallVec;
use std::ops::Range;

/// Rows and keys of a tile.
const BLOCK: usize = ATTENTION_BLOCK as usize;
/// Multiply-adds of a task, at least.
const WORK: u64 = 1 << 20;

/// A compiled attention.
pub(super) struct CompiledAttention {
    backward: bool,
    reach: TileReach,
    dtype: DType,
    shape: TileShape,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    extra: Option<ExtraSteps>,
    exp: SweepId,
    log: SweepId,
    gemm: &'static dyn Gemm,
    met: SubnormalState,
    /// Of each worker.
    own: TileMemory,
}

/// Extents as numbers of elements in memory.
#[derive(Clone, Copy)]
struct TileShape {
    groups: usize,
    shared: usize,
    rows: usize,
    stream: usize,
    depth: usize,
    width: usize,
    /// Keys that a row sees beyond its own place.
    ahead: isize,
}

/// How far before and after its own place a line sees the lines of the other kind; `None` where it sees all.
#[derive(Clone, Copy)]
struct TileReach {
    before: Option<isize>,
    after: Option<isize>,
}

impl TileReach {
    fn of(reach: AttentionReach) -> TileReach {
        let limit = |n: u64| isize::try_from(n).unwrap_or(isize::MAX / 2);
        TileReach { before: reach.before.map(limit), after: reach.after.map(limit) }
    }

    /// Which of some lines a line of the other kind sees, whose place is `ahead` of its number.
    fn of_line(self, line: usize, ahead: isize, others: &Range<usize>) -> Range<usize> {
        let place = line as isize + ahead;
        let at = |n: isize| n.clamp(others.start as isize, others.end as isize) as usize;
        let from = self.before.map_or(others.start, |n| at(place - n));
        let to = self.after.map_or(others.end, |n| at(place + n + 1));
        from.min(to)..to
    }

    /// How many of `all` blocks of the lines of the other kind a block of lines sees, at most.
    fn blocks(self, all: usize) -> usize {
        let TileReach { before: Some(before), after: Some(after) } = self else { return all };
        all.min((before + after) as usize / BLOCK + 2)
    }
}

impl TileShape {
    fn row_blocks(&self) -> usize {
        self.rows.div_ceil(BLOCK)
    }

    fn key_blocks(&self) -> usize {
        self.stream.div_ceil(BLOCK)
    }

    fn keys(&self, block: usize) -> Range<usize> {
        block * BLOCK..self.stream.min((block + 1) * BLOCK)
    }

    fn rows(&self, block: usize) -> Range<usize> {
        block * BLOCK..self.rows.min((block + 1) * BLOCK)
    }
}

/// How a mask or a bias lies: elements from one head, row and key to the next.
struct ExtraSteps {
    mask: bool,
    /// Extents of heads, outermost first, with the elements from one to the next.
    heads: SmallVec<[(usize, usize); 4]>,
    row: usize,
    key: usize,
}

/// Offsets in a worker's memory.
struct TileMemory {
    /// Scores, then weights.
    scores: u64,
    /// Cotangents of weights, then of scores, on the way back.
    moved: u64,
    /// Products of a tile.
    part: u64,
    /// Forward: weighed values, and three numbers for each row.
    sums: u64,
    most: u64,
    scale: u64,
    total: u64,
    room: u64,
}

/// A tile, and what each of its rows sees of its keys.
struct HeadTile<T> {
    head: usize,
    rows: Range<usize>,
    keys: Range<usize>,
    shown: [ShownKeys; BLOCK],
    extra: [ExtraRow<T>; BLOCK],
}

impl<T> HeadTile<T> {
    /// Rows and keys.
    fn size(&self) -> [usize; 2] {
        [self.rows.len(), self.keys.len()]
    }

    /// The tile with its scores, row after row.
    fn scored<'a>(&'a self, scores: &'a mut [T]) -> ScoreTile<'a, T> {
        let [m, keys] = self.size();
        ScoreTile { scores, keys, shown: &self.shown[..m], extra: &self.extra[..m] }
    }
}

/// What a task works with: memory of the worker as slices.
struct TaskMemory<'a, T: 'static> {
    step: &'a CompiledAttention,
    code: &'a Code,
    worker: &'a mut Worker,
    kernels: RowKernels<T>,
}

impl CompileContext<'_> {
    pub(super) fn attend(&mut self, step: &Attend) -> Result<CompiledAttention, Diagnostic> {
        let program = self.program;
        let wrong = || Diagnostic::new(At::default(), Kind::Internal, "attention of other types");
        let types: Vec<_> = step.inputs.iter().filter_map(|&b| program.buffers[b].ty()).collect();
        let [q, k, v, ..] = types.as_slice() else { return Err(wrong()) };
        let found = AttentionShape::of(q, k, v).ok_or_else(wrong)?;
        let n = |n: u64| usize::try_from(n).map_err(|_| wrong());
        let shape = TileShape {
            groups: n(found.groups)?,
            shared: n(found.shared)?,
            rows: n(found.rows)?,
            stream: n(found.stream)?,
            depth: n(found.depth)?,
            width: n(found.width)?,
            ahead: found.ahead() as isize,
        };
        let dtype = q.dtype;
        let bytes = dtype.bytes();
        let (rows, keys) = (shape.rows.min(BLOCK) as i64, shape.stream.min(BLOCK) as i64);
        let wide = shape.width.max(if step.backward { shape.depth } else { 0 }) as i64;
        let gemm = gemm::best();
        let most = shape.width.max(shape.depth).max(BLOCK);
        let own = &mut *self.own;
        let backward = i64::from(step.backward);
        let own = TileMemory {
            scores: own.take(rows * keys, bytes)?,
            moved: own.take(backward * rows * keys, bytes)?,
            part: own.take(rows.max(keys).saturating_mul(wide), bytes)?,
            sums: own.take((1 - backward) * rows.saturating_mul(wide), bytes)?,
            most: own.take(rows, bytes)?,
            scale: own.take(rows, bytes)?,
            total: own.take(rows, bytes)?,
            room: own.take(gemm.room(dtype, [BLOCK, most, most]) as i64, 1)?,
        };
        let extra = match step.extra() {
            None => None,
            Some(b) => {
                let ty = program.buffers[b].ty().ok_or_else(wrong)?;
                let dims = ty.dims().ok_or_else(wrong)?;
                Some(ExtraSteps::of(ty.dtype == DType::Bool, &dims, q.dims().as_deref()))
            }
        };
        let exp = self.each(dtype, |x| x.exp(), 0, rows * keys.max(1))?;
        let log = self.each(dtype, |x| x.log(), 1, rows)?;
        Ok(CompiledAttention {
            backward: step.backward,
            reach: TileReach::of(step.reach.within(found)),
            dtype,
            shape,
            inputs: step.inputs.iter().map(|b| b.index()).collect(),
            outputs: step.outputs.iter().map(|b| b.index()).collect(),
            extra,
            exp,
            log,
            gemm,
            met: SubnormalState::default(),
            own,
        })
    }

    /// A sweep that applies a function to the elements of slot 0, and leaves the results in slot 1.
    fn each(
        &mut self,
        dtype: DType,
        f: impl for<'r> Fn(S<'r>) -> S<'r>,
        number: usize,
        elements: i64,
    ) -> Result<SweepId, Diagnostic> {
        self.slots = self.slots.max(2);
        let body = Recorder::record_any(&[dtype], |x| f(x[0]));
        let program = self.program;
        self.sweep(&Sweep {
            program,
            extents: Extents::from_iter([elements.max(1)]),
            domain: 1,
            params: &[Param::Sum],
            body: &body,
            puts: vec![SweepOutput::Place(1)],
            slots: ArraySlots { sums: Some((0, dtype)), ..ArraySlots::default() },
            target: None,
            part: SweepRole::Stage(number),
        })
    }
}

impl ExtraSteps {
    fn of(mask: bool, dims: &[u64], queries: Option<&[u64]>) -> ExtraSteps {
        let step = |d: usize| match dims[d] {
            1 => 0,
            _ => dims[d + 1..].iter().product::<u64>() as usize,
        };
        let rank = dims.len();
        let heads = queries.unwrap_or_default().iter().take(rank - 2).enumerate();
        let heads = heads.map(|(d, &n)| (n as usize, step(d))).collect();
        ExtraSteps { mask, heads, row: step(rank - 2), key: step(rank - 1) }
    }

    /// Where the elements of a head begin.
    fn head(&self, head: usize) -> usize {
        let (mut left, mut at) = (head, 0);
        for &(n, step) in self.heads.iter().rev() {
            at += left % n.max(1) * step;
            left /= n.max(1);
        }
        at
    }
}

impl CompiledAttention {
    /// What multiplies.
    pub(super) fn generator(&self) -> &'static str {
        self.gemm.name(self.dtype)
    }

    pub(super) fn run(&self, worker_set: &mut WorkerSet<'_>) {
        match self.dtype {
            DType::F64 => self.run_as::<f64>(worker_set),
            _ => self.run_as::<f32>(worker_set),
        }
    }

    fn run_as<T: ScoreElement>(&self, worker_set: &mut WorkerSet<'_>) {
        match self.backward {
            false => self.forward::<T>(worker_set),
            true => self.backward::<T>(worker_set),
        }
    }

    /// Runs numbered pieces of work, of `each` multiply-adds, in tasks that are worth one.
    fn pieces<T: ScoreElement>(
        &self,
        worker_set: &mut WorkerSet<'_>,
        (count, each): (usize, u64),
        piece: impl Fn(&mut TaskMemory<'_, T>, usize) + Sync,
    ) {
        let together = (WORK / each.max(1)).clamp(1, count.max(1) as u64) as usize;
        let products = each.saturating_mul(together as u64) as i64;
        let tasks = TaskCount::of_products(count.div_ceil(together) as i64, products);
        worker_set.each(tasks, |code, worker, task| {
            let kernels = found::<T>();
            let mut memory = TaskMemory { step: self, code, worker, kernels };
            let first = task as usize * together;
            (first..count.min(first + together)).for_each(|k| piece(&mut memory, k));
        });
    }

    /// Multiply-adds of a product of a tile, over all elements of keys and values.
    fn tile_work(&self) -> u64 {
        let s = &self.shape;
        let tile = s.rows.min(BLOCK) as u64 * s.stream.min(BLOCK) as u64;
        tile.saturating_mul((s.depth + s.width) as u64)
    }
}

impl<T: ScoreElement> TaskMemory<'_, T> {
    /// Elements of a buffer.
    fn buffer(&self, buffer: usize, first: usize) -> *mut T {
        self.worker.table[buffer].cast::<T>().wrapping_add(first)
    }

    /// Elements of the worker's own memory.
    ///
    /// # Safety
    /// There are as many, and no other slice of them is in use.
    unsafe fn own<'s>(&self, offset: u64, n: usize) -> &'s mut [T] {
        // SAFETY: as the caller promises; offsets are aligned to cache lines.
        unsafe { std::slice::from_raw_parts_mut(self.worker.at(offset).cast::<T>(), n) }
    }

    /// A product: `[rows, cols, depth]`.
    ///
    /// # Safety
    /// As of [`Gemm::product`].
    unsafe fn product(&self, size: [usize; 3], lhs: MatrixView, rhs: MatrixView, out: MatrixView) {
        if size[0] == 0 || size[1] == 0 {
            return;
        }
        let aid = GemmArgs::new(self.worker.at(self.step.own.room), &self.step.met);
        // SAFETY: as the caller promises; there is room for tiles and all of their depth.
        unsafe { self.step.gemm.product(self.step.dtype, size, lhs, rhs, out, aid) }
    }

    /// Applies a sweep to elements in place.
    fn each(&mut self, sweep: SweepId, at: *mut T, n: usize) {
        let bytes = size_of::<T>() as u64;
        self.worker.set(0, at.cast(), 0, bytes);
        self.worker.set(1, at.cast(), 0, bytes);
        self.worker.sweep(self.code, sweep, 0, n as i64);
    }

    /// The tile of these rows and keys of a head.
    fn tile(&self, head: usize, rows: Range<usize>, keys: Range<usize>) -> HeadTile<T> {
        let (shown, extra) = ([ShownKeys::default(); BLOCK], [ExtraRow::None; BLOCK]);
        let mut tile = HeadTile { head, rows, keys, shown, extra };
        self.shown(&mut tile);
        self.extra(&mut tile);
        tile
    }

    /// For each row which keys of the tile are within its reach.
    fn shown(&self, tile: &mut HeadTile<T>) {
        let (reach, keys) = (self.step.reach, &tile.keys);
        for (to, i) in tile.shown.iter_mut().zip(tile.rows.clone()) {
            let seen = reach.of_line(i, self.step.shape.ahead, keys);
            *to = ShownKeys { from: seen.start - keys.start, to: seen.end - keys.start };
        }
    }

    /// For each row its mask or bias at the keys of the tile.
    fn extra(&self, tile: &mut HeadTile<T>) {
        let Some(extra) = &self.step.extra else { return };
        let input = if self.step.backward { 6 } else { 3 };
        let buffer = self.worker.table[self.step.inputs[input]];
        let first = extra.head(tile.head) + tile.keys.start * extra.key;
        for (to, i) in tile.extra.iter_mut().zip(tile.rows.clone()) {
            let (at, step) = (first + i * extra.row, extra.key as isize);
            *to = match extra.mask {
                true => ExtraRow::Mask(buffer.wrapping_add(at), step),
                false => ExtraRow::Bias(buffer.cast::<T>().wrapping_add(at), step),
            };
        }
    }

    /// The rows of a block whose reach meets the whole block of keys that begins at this one.
    fn reaching(&self, rows: Range<usize>, key: usize) -> Range<usize> {
        let TileReach { before, after } = self.step.reach;
        let back = TileReach { before: after, after: before };
        let ahead = -self.step.shape.ahead;
        let first = back.of_line(key, ahead, &rows).start;
        let last = back.of_line(key + BLOCK - 1, ahead, &rows).end;
        first..last.max(first)
    }
}

/// A row-major matrix.
fn matrix<T>(at: *mut T, columns: usize) -> MatrixView {
    MatrixView { at: at.cast(), row: columns as isize, column: 1 }
}

//! Kernels: stages over batches of points, and folds of what the stages leave.
//!
//! A batch of points goes through a stage before it proceeds to the next stage. Points are independent, so this equals
//! one point after the other. A batch is small enough for its values to stay in the cache; a stage with more elements
//! at a single point is divided into pieces. Tasks are ranges of points that end at block boundaries of all folds over
//! the domain.

pub(crate) mod bundle;
pub(crate) mod compile;
mod domain_fold;

use super::element::fold_with;
use super::fold::{
    AbsorbPlaces, AbsorbValues, ArrayFold, BlockPartition, ElementArray, Extremum, FoldRuns,
    JoinParts, LineFold, TileScan,
};
use super::machine_code::{Code, SweepId};
use super::point_tasks::{PointTasks, TaskCount};
use super::sweep_call::SweepCall;
use super::workers::{OwnArray, Worker, WorkerSet};
use adfuse_ir::DType;
use adfuse_ir::kernel::Order;
use adfuse_ir::op::Monoid;

/// A kernel, made.
pub(super) struct CompiledKernel {
    tasks: PointTasks,
    batch: i64,
    stages: Vec<CompiledStage>,
    folds: Vec<DomainFold>,
    rows: Vec<OwnArray>,
    tiles: Vec<OwnArray>,
    /// The slot of the sums that it reads, if it follows any.
    sums: u32,
    /// Where it may be cut.
    pub(super) cuts: TaskGranularity,
}

/// Where the points of a kernel may be cut into tasks.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskGranularity {
    /// Tasks of consecutive points have a multiple of this many; `None` where one task has all.
    pub(super) grain: Option<i64>,
    /// Points may also be cut within lines of this length, or of one that divides it: what folds them goes
    /// column by column. 0 where any length will do, and `None` where none does.
    pub(super) lines: Option<i64>,
    /// Where lines are cut, places are multiples of this many.
    pub(super) bits: i64,
}

impl Default for TaskGranularity {
    /// Anywhere.
    fn default() -> TaskGranularity {
        TaskGranularity { grain: Some(1), lines: Some(0), bits: 1 }
    }
}

struct CompiledStage {
    sweep: SweepId,
    volume: i64,
    piece: i64,
    /// Arrays of values that it leaves.
    values: Vec<(OwnArray, FoldTarget)>,
    /// Folds of which it leaves parts.
    parts: Vec<(FoldParts, FoldTarget)>,
    scans: Vec<(usize, TileScanSpec)>,
    /// Tiles over this stage's places.
    tiles: Vec<usize>,
}

/// Where a sweep that folds leaves the parts.
#[derive(Clone, Copy)]
struct FoldParts {
    slot: u32,
    /// The slot of its lanes and where they are, where it has any.
    lanes: Option<(u32, u64)>,
}

struct TileScanSpec {
    monoid: Monoid,
    dtype: DType,
    extent: usize,
    inner: usize,
    reverse: bool,
    work: u64,
}

/// The destination of an array of values, or of parts.
enum FoldTarget {
    /// Folded at each point into a row.
    Reduce(Box<Reduce>),
    /// Folded over the domain.
    Fold(usize),
}

/// A fold at each point.
struct Reduce {
    monoid: Monoid,
    dtype: DType,
    row: usize,
    how: FoldKind,
}

/// How the values of a point become one.
enum FoldKind {
    /// The sweep leaves it in the row.
    Row,
    /// One line after the other.
    Lines(Order),
    /// Piece by piece of one line, whose place is asked for; the best value so far is kept.
    Place(u64),
    /// In parts that join when all are there. Rust makes them piece by piece where it has memory for the
    /// lanes of a block that is not done; the sweep does otherwise.
    Parts { by: BlockPartition, parts: u64, state: Option<u64>, rest: Option<RemainingFolds> },
    /// Whatever the runs say, of all values.
    All { runs: FoldRuns, work: u64 },
}

/// What folds after the first run: where the parts join, and where that works.
struct RemainingFolds {
    joined: u64,
    runs: FoldRuns,
    work: u64,
}

/// A fold over the domain.
struct DomainFold {
    monoid: Monoid,
    dtype: DType,
    /// Where values or parts are, of all workers.
    at: u64,
    count: usize,
    parted: Option<BlockPartition>,
    /// Places of each of the rows whose extremum is asked for: values are compared as they come, and none is kept.
    row: Option<usize>,
    /// Memory for the lanes of a block, where Rust makes the parts, or for the best value of a row.
    state: u64,
    /// Where the parts join; at `at` where there is nothing to join.
    joined: u64,
    /// What folds after that, and where it works.
    rest: Option<(FoldRuns, u64)>,
    /// Where the results are, and how many.
    out: u64,
    results: usize,
    then: SweepId,
    /// Whether what follows may be done in any pieces.
    free: bool,
    sum: u32,
    bytes: u64,
    result_bytes: u64,
}

/// Results of a fold that a task finishes.
const FINISHED: usize = 1 << 14;

impl CompiledKernel {
    /// Runs it.
    pub(super) fn run(&self, worker_set: &mut WorkerSet<'_>) {
        let threads = worker_set.threads() as i64;
        let (task, points) = (self.tasks.of_run(threads), self.tasks.points);
        worker_set.each(self.tasks.count(threads), |code, worker, k| {
            self.points(code, worker, k * task, ((k + 1) * task).min(points));
        });
        self.finish(worker_set);
    }

    /// Runs it by one worker if it is one task without folds over its points; whether it has. Small kernels in loops take less
    /// time than a lock.
    pub(super) fn run_alone(&self, code: &Code, worker: &mut Worker) -> bool {
        let alone = self.tasks.is_one() && self.folds.is_empty();
        if alone {
            self.points(code, worker, 0, self.tasks.points);
        }
        alone
    }

    /// The calls that it is for the caller's worker, of this many, which are appended; `None` where others have tasks too, or it is more
    /// than calls.
    pub(super) fn calls(&self, threads: usize, calls: &mut Vec<SweepCall>) -> Option<()> {
        let alone = (self.tasks.is_one() || threads == 1) && self.folds.is_empty();
        if alone { self.calls_of(0, self.tasks.points, calls) } else { None }
    }

    /// The calls that a range of its points is for a single worker, which are appended; `None` where a stage
    /// folds or scans what its function leaves, or goes through it piece by piece.
    fn calls_of(&self, from: i64, to: i64, calls: &mut Vec<SweepCall>) -> Option<()> {
        // Arrays have room for a batch, and stages follow each other batch by batch.
        let at_once = self.stages.len() == 1 && self.rows.is_empty() || to - from <= self.batch;
        for s in &self.stages {
            let plain = [s.values.len(), s.parts.len(), s.scans.len(), s.tiles.len()] == [0; 4];
            if !plain || !at_once || s.piece < s.volume {
                return None;
            }
            let arrays = self.rows.iter().map(|&row| (row, from)).collect();
            let (begin, end) = (from * s.volume, to * s.volume);
            calls.push(SweepCall { sweep: s.sweep, begin, end, arrays });
        }
        Some(())
    }

    /// Finishes its folds, when all points are done.
    pub(super) fn finish(&self, worker_set: &mut WorkerSet<'_>) {
        self.folds.iter().for_each(|fold| fold.finish(worker_set));
    }

    /// Puts the sums that it reads in their slot: those of the places from `first` on are at `at`.
    pub(super) fn sums(&self, worker: &mut Worker, at: *mut u8, first: i64, bytes: u64) {
        worker.set(self.sums, at, first, bytes);
    }

    /// Does a range of points.
    pub(super) fn points(&self, code: &Code, worker: &mut Worker, begin: i64, end: i64) {
        let mut from = begin;
        while from < end {
            let to = (from + self.batch).min(end);
            for r in &self.rows {
                let at = worker.at(r.offset);
                worker.set(r.slot, at, from, r.bytes);
            }
            for stage in &self.stages {
                self.stage(code, worker, stage, from, to);
            }
            from = to;
        }
    }

    fn stage(&self, code: &Code, worker: &mut Worker, s: &CompiledStage, from: i64, to: i64) {
        let (begin, end) = (from * s.volume, to * s.volume);
        for &t in &s.tiles {
            let t = self.tiles[t];
            let at = worker.at(t.offset);
            worker.set(t.slot, at, begin, t.bytes);
        }
        for (parts, what) in &s.parts {
            self.begin(worker, parts, what, from);
        }
        let piece = if s.piece < s.volume { s.piece } else { (end - begin).max(1) };
        let mut place = begin;
        while place < end {
            let until = (place + piece).min(end);
            for (local, _) in &s.values {
                let at = worker.at(local.offset);
                worker.set(local.slot, at, place, local.bytes);
            }
            worker.sweep(code, s.sweep, place, until);
            for (local, what) in &s.values {
                let values =
                    ElementArray { at: worker.at(local.offset), count: (until - place) as usize };
                match what {
                    FoldTarget::Fold(k) => self.folds[*k].absorb(worker, place, values),
                    FoldTarget::Reduce(r) => {
                        self.absorb(worker, r, (place - begin) as usize, values)
                    }
                }
            }
            place = until;
        }
        let points = (to - from) as usize;
        for (local, what) in &s.values {
            if let FoldTarget::Reduce(r) = what {
                let at = worker.at(local.offset);
                self.reduce(worker, ElementArray { at, count: s.volume as usize }, r, points);
            }
        }
        for (_, what) in &s.parts {
            if let FoldTarget::Reduce(r) = what {
                self.reduce(worker, ElementArray { at: worker.own, count: 0 }, r, points);
            }
        }
        for (t, scan) in s.scans.iter().filter(|_| begin < end) {
            let at = worker.at(self.tiles[*t].offset);
            let values = ElementArray { at, count: (end - begin) as usize };
            let TileScanSpec { monoid, dtype, extent, inner, reverse, work } = *scan;
            let work = worker.at(work);
            fold_with(monoid, dtype, TileScan { values, extent, inner, reverse, work });
        }
    }

    /// Says where the parts of the points from one on go.
    fn begin(&self, worker: &mut Worker, parts: &FoldParts, what: &FoldTarget, from: i64) {
        if let Some((slot, offset)) = parts.lanes {
            let at = worker.at(offset);
            worker.set(slot, at, 0, 0);
        }
        match what {
            FoldTarget::Fold(k) => {
                let at = worker.all(self.folds[*k].at);
                worker.set(parts.slot, at, 0, 0);
            }
            FoldTarget::Reduce(r) => {
                // Rows have slots of their own.
                if let FoldKind::Parts { by, parts: offset, .. } = &r.how {
                    let (at, each) = (worker.at(*offset), by.parts().unwrap_or(0) as u64);
                    worker.set(parts.slot, at, from, each * r.dtype.bytes());
                }
            }
        }
    }

    /// Takes a piece of a point's values, of those that are not kept until all are there.
    fn absorb(&self, worker: &Worker, r: &Reduce, begin: usize, values: ElementArray) {
        match &r.how {
            FoldKind::Place(best) => {
                let best = ElementArray { at: worker.at(*best), count: 1 };
                let out = ElementArray { at: worker.at(self.rows[r.row].offset), count: 1 };
                let max = r.monoid == Monoid::ArgMax;
                let taken = Extremum { max, values, first: begin, best, out };
                fold_with(r.monoid, r.dtype, taken);
            }
            FoldKind::Parts { by, parts, state: Some(state), .. } => {
                let parts = ElementArray { at: worker.at(*parts), count: by.parts().unwrap_or(0) };
                let state = worker.at(*state);
                fold_with(r.monoid, r.dtype, AbsorbValues { by: *by, begin, values, parts, state });
            }
            FoldKind::Row
            | FoldKind::Lines(_)
            | FoldKind::Parts { state: None, .. }
            | FoldKind::All { .. } => {}
        }
    }

    /// Folds what a batch has left for a row: parts, or values of each of the points.
    fn reduce(&self, worker: &Worker, each: ElementArray, r: &Reduce, points: usize) {
        let row = self.rows[r.row];
        let out = ElementArray { at: worker.at(row.offset), count: points };
        let empty = r.monoid.empty(r.dtype).bits();
        let n = each.count;
        let values = ElementArray { at: each.at, count: n * points };
        match &r.how {
            FoldKind::Lines(order) => {
                fold_with(r.monoid, r.dtype, LineFold { values, n, order: *order, empty, out });
            }
            FoldKind::Row | FoldKind::Place(_) => {}
            FoldKind::Parts { by, parts, rest, .. } => {
                // Those of the points follow each other.
                let each = by.outer * by.inner;
                let by = BlockPartition { outer: by.outer * points, ..*by };
                let parts = ElementArray { at: worker.at(*parts), count: by.parts().unwrap_or(0) };
                let at = rest.as_ref().map_or(out.at, |rest| worker.at(rest.joined));
                let all = ElementArray { at, count: by.outer * by.inner };
                let (outer, inner) = ([0, by.outer], [0, by.inner]);
                fold_with(
                    r.monoid,
                    r.dtype,
                    JoinParts { by, parts, empty, out: all, outer, inner },
                );
                let Some(RemainingFolds { runs, work, .. }) = rest else { return };
                // What is left of the points' runs, all of one point first: one array, unless its axes have to be interchanged.
                let (arrays, results) = if runs.ordered() { (1, points) } else { (points, 1) };
                for k in 0..arrays {
                    let at = |at: *mut u8, n: usize| at.wrapping_add(n * r.dtype.bytes() as usize);
                    let out = ElementArray { at: at(out.at, k), count: results };
                    let count = each * results;
                    let (values, work) =
                        (ElementArray { at: at(all.at, k * each), count }, worker.at(*work));
                    let whole = ArrayFold { values, runs, empty, places: None, work, out };
                    fold_with(r.monoid, r.dtype, whole);
                }
            }
            FoldKind::All { runs, work } => {
                let places = r.monoid.is_arg().then_some(r.monoid == Monoid::ArgMax);
                for k in 0..points {
                    let at = values.at.wrapping_add(k * n * r.dtype.bytes() as usize);
                    let out =
                        ElementArray { at: out.at.wrapping_add(k * row.bytes as usize), count: 1 };
                    let (values, work) = (ElementArray { at, count: n }, worker.at(*work));
                    fold_with(
                        r.monoid,
                        r.dtype,
                        ArrayFold { values, runs, empty, places, work, out },
                    );
                }
            }
        }
    }
}

impl DomainFold {
    fn absorb(&self, worker: &Worker, begin: i64, values: ElementArray) {
        let begin = begin as usize;
        let state = worker.at(self.state);
        if let Some(size) = self.row {
            let max = self.monoid == Monoid::ArgMax;
            let out = ElementArray { at: worker.all(self.out), count: self.results };
            let taken = AbsorbPlaces { max, size, begin, values, best: state, out };
            return fold_with(self.monoid, self.dtype, taken);
        }
        match self.parted {
            Some(by) => {
                let parts = ElementArray { at: worker.all(self.at), count: self.count };
                fold_with(
                    self.monoid,
                    self.dtype,
                    AbsorbValues { by, begin, values, parts, state },
                );
            }
            None => {
                let to = worker.all(self.at).wrapping_add(begin * self.bytes as usize);
                // SAFETY: there is room for the values of all places, and these are this task's alone.
                #[allow(unsafe_code)]
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        values.at,
                        to,
                        values.count * self.bytes as usize,
                    );
                }
            }
        }
    }

    /// Joins what the tasks have left, and goes on with the results.
    fn finish(&self, worker_set: &mut WorkerSet<'_>) {
        let empty = self.monoid.empty(self.dtype).bits();
        if let Some(by) = self.parted.filter(|_| self.joined != self.at) {
            // Tasks have columns of a line, or lines.
            let columns = by.inner.div_ceil(FINISHED).max(1);
            let lines = (FINISHED / by.inner.max(1)).max(1);
            let tasks = by.outer.div_ceil(lines) * columns;
            worker_set.each(TaskCount::of(tasks as i64, FINISHED as i64), |_, worker, k| {
                let (o, j) = (k as usize / columns * lines, k as usize % columns * FINISHED);
                let parts = ElementArray { at: worker.all(self.at), count: self.count };
                let out = ElementArray { at: worker.all(self.joined), count: by.outer * by.inner };
                let outer = [o, (o + lines).min(by.outer)];
                let inner = [j, (j + FINISHED).min(by.inner)];
                let join = JoinParts { by, parts, empty, out, outer, inner };
                fold_with(self.monoid, self.dtype, join);
            });
        }
        if let Some((runs, work)) = &self.rest {
            worker_set.each(TaskCount::ONE, |_, worker, _| {
                let count = self.parted.map_or(self.count, |by| by.outer * by.inner);
                let values = ElementArray { at: worker.all(self.joined), count };
                let places = self.monoid.is_arg().then_some(self.monoid == Monoid::ArgMax);
                let out = ElementArray { at: worker.all(self.out), count: self.results };
                let work = worker.all(*work);
                let whole = ArrayFold { values, runs, empty, places, work, out };
                fold_with(self.monoid, self.dtype, whole);
            });
        }
        let all = self.results as i64;
        let task = if self.free { FINISHED as i64 } else { all.max(1) };
        worker_set.each(TaskCount::of((all + task - 1) / task, task), |code, worker, k| {
            let at = worker.all(self.out);
            worker.set(self.sum, at, 0, self.result_bytes);
            worker.sweep(code, self.then, k * task, ((k + 1) * task).min(all));
        });
    }
}

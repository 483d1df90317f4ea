//! Kernels: stages over batches of points, and folds over what they leave.
//!
//! A batch of points goes through a stage before it goes on to the next, which is the same as one point
//! after the other, since points are independent. So that what is kept stays in the cache, a batch has
//! few places; a stage with more places than that at one point is cut into pieces. Tasks are ranges of
//! points that are cut where the blocks of all folds over the domain end.

mod make;

pub(super) use make::Making;

use super::code::{Code, SweepId};
use super::crew::{Crew, Worker};
use super::element::fold_with;
use super::fold::{Absorb, Blocks, Join, Lines, Many, Parted, Scan, Whole};
use adfuse_ir::DType;
use adfuse_ir::kernel::{Extents, Order, Run};
use adfuse_ir::op::Monoid;

/// A kernel, made.
pub(super) struct Made {
    points: i64,
    batch: i64,
    task: i64,
    stages: Vec<MadeStage>,
    folds: Vec<Fold>,
    rows: Vec<Local>,
    tiles: Vec<Local>,
    sums: Option<(u32, u64)>,
}

/// An array of a worker.
#[derive(Clone, Copy)]
struct Local {
    slot: u32,
    offset: u64,
    bytes: u64,
}

struct MadeStage {
    sweep: SweepId,
    volume: i64,
    piece: i64,
    values: Vec<(Local, What)>,
    scans: Vec<(usize, ScanOf)>,
    /// Tiles over this stage's places.
    tiles: Vec<usize>,
}

struct ScanOf {
    monoid: Monoid,
    dtype: DType,
    extent: usize,
    inner: usize,
    reverse: bool,
}

/// What becomes of an array of values.
enum What {
    /// Folded at each point into a row, in one order or in whatever the runs say.
    Reduce {
        monoid: Monoid,
        dtype: DType,
        row: usize,
        order: Option<Order>,
        parts: u64,
        general: General,
    },
    /// Folded over the domain.
    Fold(usize),
}

struct General {
    extents: Extents,
    runs: Vec<Run>,
}

/// A fold over the domain.
struct Fold {
    monoid: Monoid,
    dtype: DType,
    /// Where values or parts are, of all workers.
    at: u64,
    count: usize,
    parted: Option<Parted>,
    state: u64,
    general: General,
    /// Results after all runs.
    results: usize,
    out: u64,
    then: SweepId,
    remaining: i64,
    sum: u32,
    bytes: u64,
    result_bytes: u64,
}

impl Made {
    /// Runs it.
    pub(super) fn run(&self, crew: &mut Crew<'_>) {
        let tasks = (self.points + self.task - 1) / self.task;
        crew.each(tasks, |code, worker, k| {
            let end = ((k + 1) * self.task).min(self.points);
            self.points(code, worker, k * self.task, end);
        });
        for fold in &self.folds {
            crew.each(1, |code, worker, _| fold.finish(code, worker));
        }
    }

    fn points(&self, code: &Code, worker: &mut Worker, begin: i64, end: i64) {
        if let Some((slot, at)) = self.sums {
            let at = worker.all(at);
            worker.set(slot, at, 0, 1);
        }
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

    fn stage(&self, code: &Code, worker: &mut Worker, s: &MadeStage, from: i64, to: i64) {
        let (begin, end) = (from * s.volume, to * s.volume);
        for &t in &s.tiles {
            let t = self.tiles[t];
            let at = worker.at(t.offset);
            worker.set(t.slot, at, begin, t.bytes);
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
                let count = (until - place) as usize;
                let values = Many { at: worker.at(local.offset), count };
                match what {
                    What::Fold(k) => self.folds[*k].absorb(worker, place, values),
                    What::Reduce { monoid, dtype, order: Some(order), parts, .. }
                        if s.piece < s.volume =>
                    {
                        let block = order.block() as usize;
                        let first = (place - begin) as usize / block;
                        let at = worker.at(*parts).wrapping_add(first * local.bytes as usize);
                        let parts = Many { at, count: count.div_ceil(block) };
                        fold_with(*monoid, *dtype, Blocks { values, order: *order, parts });
                    }
                    What::Reduce { .. } => {}
                }
            }
            place = until;
        }
        for (local, what) in &s.values {
            if let What::Reduce { .. } = what {
                self.reduce(worker, s, *local, what, (to - from) as usize);
            }
        }
        for (t, scan) in &s.scans {
            let at = worker.at(self.tiles[*t].offset);
            let values = Many { at, count: (end - begin) as usize };
            let ScanOf { monoid, dtype, extent, inner, reverse } = *scan;
            fold_with(monoid, dtype, Scan { values, extent, inner, reverse });
        }
    }

    /// Folds what a batch has left for a row.
    fn reduce(&self, worker: &Worker, s: &MadeStage, local: Local, what: &What, points: usize) {
        let What::Reduce { monoid, dtype, row, order, parts, general } = what else { return };
        let n = s.volume as usize;
        let out = Many { at: worker.at(self.rows[*row].offset), count: points };
        let empty = monoid.empty(*dtype).bits();
        let values = Many { at: worker.at(local.offset), count: n * points };
        match order {
            Some(order) if s.piece < s.volume => {
                let blocks = n.div_ceil(order.block() as usize);
                let by = Parted { outer: 1, size: n, inner: 1, order: *order, blocks };
                let parts = Many { at: worker.at(*parts), count: blocks };
                fold_with(*monoid, *dtype, Join { by, parts, empty });
                let one = Many { count: 1, ..parts };
                let order = Order::Chain;
                fold_with(*monoid, *dtype, Lines { values: one, n: 1, order, empty, out });
            }
            Some(order) => {
                fold_with(*monoid, *dtype, Lines { values, n, order: *order, empty, out });
            }
            None => {
                let places = monoid.is_arg().then_some(*monoid == Monoid::ArgMax);
                let bytes = self.rows[*row].bytes as usize;
                for k in 0..points {
                    let at = values.at.wrapping_add(k * n * local.bytes as usize);
                    let out = Many { at: out.at.wrapping_add(k * bytes), count: 1 };
                    let values = Many { at, count: n };
                    let (extents, runs) = (&general.extents[..], &general.runs[..]);
                    fold_with(*monoid, *dtype, Whole { values, extents, runs, empty, places, out });
                }
            }
        }
    }
}

impl Fold {
    fn absorb(&self, worker: &Worker, begin: i64, values: Many) {
        let begin = begin as usize;
        match self.parted {
            Some(by) => {
                let parts = Many { at: worker.all(self.at), count: self.count };
                let state = worker.at(self.state);
                fold_with(self.monoid, self.dtype, Absorb { by, begin, values, parts, state });
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
    fn finish(&self, code: &Code, worker: &mut Worker) {
        let empty = self.monoid.empty(self.dtype).bits();
        let parts = Many { at: worker.all(self.at), count: self.count };
        let mut values = parts;
        if let Some(by) = self.parted {
            fold_with(self.monoid, self.dtype, Join { by, parts, empty });
            values.count = by.outer * by.inner;
        }
        if self.out != self.at || self.parted.is_none() {
            let places = self.monoid.is_arg().then_some(self.monoid == Monoid::ArgMax);
            let out = Many { at: worker.all(self.out), count: self.results };
            let (extents, runs) = (&self.general.extents[..], &self.general.runs[..]);
            fold_with(self.monoid, self.dtype, Whole { values, extents, runs, empty, places, out });
        }
        let at = worker.all(self.out);
        worker.set(self.sum, at, 0, self.result_bytes);
        worker.sweep(code, self.then, 0, self.remaining);
    }
}

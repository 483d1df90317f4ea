//! Scatters: a sweep computes updates and their indices, which are then applied to the result.
//!
//! All threads do both, one round of updates at a time. Each thread applies the updates whose index is in its range of
//! the result, in the order of the updates. So every sum has its defined order, whatever the number of threads.
#![allow(unsafe_code)]

use super::codegen::loop_ir::{ArraySlots, Sweep, SweepOutput, SweepRole};
use super::kernel::compile::CompileContext;
use super::machine_code::SweepId;
use super::point_tasks::TaskCount;
use super::shape::checked_volume;
use super::workers::{Worker, WorkerSet};
use crate::runtime::strides::dense as is_dense;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::facts::PassKind;
use adfuse_ir::kernel::{BufferData, Operand, Param, Piece, Scatter};
use adfuse_ir::op::Update;
use adfuse_ir::scalar::Recorder;
use adfuse_ir::{DType, Diagnostic};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;
use std::ops::Range;

/// Updates that a task computes.
const PIECE: i64 = 4096;

/// Updates that are computed before they are added, where there are several threads: they look at all
/// of them, and stay in the cache.
const ROUND: i64 = 16 * PIECE;

/// Elements that a task begins or finishes with.
const ELEMENTS: i64 = 1 << 16;

/// A scatter, made.
pub(super) struct CompiledScatter {
    updates: SweepId,
    count: i64,
    /// Of all workers: the updates of a round, and their places.
    values: u64,
    places: u64,
    /// Puts what the sums begin with where they add up.
    begin: SweepId,
    elements: i64,
    sums: ScatterSums,
    wide: DType,
    update: Update,
}

/// Where the sums add up.
enum ScatterSums {
    /// In the buffer that they are for.
    There(usize),
    /// In an array of all workers, since the buffer is of another type or has its elements elsewhere; the
    /// sweep puts them where they go.
    Beside(u64, SweepId),
}

impl CompileContext<'_> {
    pub(super) fn scatter(&mut self, step: &Scatter) -> Result<CompiledScatter, Diagnostic> {
        let program = self.program;
        let data = &program.buffers[step.out];
        let wide = data.dtype.compute();
        let elements = checked_volume(&data.dims)?;
        let rank = data.dims.len();
        let count = checked_volume(&step.domain)?;
        let values = self.shared.take(count.min(ROUND), wide.bytes())?;
        let places = self.shared.take(count.min(ROUND), 8)?;
        self.slots = self.slots.max(2);
        let index: SmallVec<[IndexExpr; 4]> = (0..rank).map(IndexExpr::axis).collect();
        let whole = |params, body, puts, slots, part| Sweep {
            program,
            extents: data.dims.clone(),
            domain: rank,
            params,
            body,
            puts,
            slots,
            target: None,
            part,
        };
        let at = match step.from {
            Operand::Buffer(_) => index.clone(),
            Operand::Literal(_) => SmallVec::new(),
        };
        let piece = Piece { from: step.from, index: at, guards: SmallVec::new() };
        let params = [Param::Load(SmallVec::from_iter([piece]))];
        let body = Recorder::record_any(&[data.dtype], |x| x[0].convert(wide));
        let there = wide == data.dtype && is_dense(data);
        let put = if there { SweepOutput::Store(step.out, &index) } else { SweepOutput::Place(0) };
        let begin =
            self.sweep(&whole(&params, &body, vec![put], ArraySlots::default(), SweepRole::Begin))?;
        let sums = match there {
            true => ScatterSums::There(step.out.index()),
            false => {
                let body = Recorder::record_any(&[wide], |x| x[0].convert(data.dtype));
                let slots = ArraySlots { sums: Some((0, wide)), ..ArraySlots::default() };
                let puts = vec![SweepOutput::Store(step.out, &index)];
                let finish =
                    self.sweep(&whole(&[Param::Sum], &body, puts, slots, SweepRole::Finish))?;
                ScatterSums::Beside(self.shared.take(elements, wide.bytes())?, finish)
            }
        };
        // The place of an update is one among the sums, which are row-major.
        let mut dense = self.program.clone();
        dense.buffers[step.out] = BufferData { strides: None, ..data.clone() };
        let updates = self.sweep(&Sweep {
            program: &dense,
            extents: step.domain.clone(),
            domain: step.domain.len(),
            params: &step.params,
            body: &step.program,
            puts: vec![SweepOutput::Place(0)],
            slots: ArraySlots::default(),
            target: Some((step.out, &step.index, &step.guards, 1)),
            part: SweepRole::Updates,
        })?;
        let update = step.update;
        self.note_pass(PassKind::Update, count);
        Ok(CompiledScatter { updates, count, values, places, begin, elements, sums, wide, update })
    }
}

impl CompiledScatter {
    pub(super) fn run(&self, worker_set: &mut WorkerSet<'_>) {
        self.all(worker_set, self.begin);
        let threads = worker_set.workers.len() as i64;
        let round = if threads > 1 { ROUND } else { PIECE };
        let range = (self.elements + threads - 1) / threads;
        let mut from = 0;
        while from < self.count {
            let to = (from + round).min(self.count);
            let pieces = TaskCount::of((to - from + PIECE - 1) / PIECE, PIECE);
            worker_set.each(pieces, |code, worker, k| {
                let (values, places) = (worker.all(self.values), worker.all(self.places));
                worker.set(0, values, from, self.wide.bytes());
                worker.set(1, places, from, 8);
                let first = from + k * PIECE;
                worker.sweep(code, self.updates, first, (first + PIECE).min(to));
            });
            worker_set.each(TaskCount::of(threads, (to - from) / threads), |_, worker, k| {
                let end = ((k + 1) * range).min(self.elements);
                self.add(worker, (to - from) as usize, (k * range).min(end)..end);
            });
            from = to;
        }
        if let ScatterSums::Beside(_, finish) = self.sums {
            self.all(worker_set, finish);
        }
    }

    /// Runs a sweep over all sums.
    fn all(&self, worker_set: &mut WorkerSet<'_>, sweep: SweepId) {
        let tasks = TaskCount::of((self.elements + ELEMENTS - 1) / ELEMENTS, ELEMENTS);
        worker_set.each(tasks, |code, worker, k| {
            let sums = self.sums(worker);
            worker.set(0, sums, 0, self.wide.bytes());
            worker.sweep(code, sweep, k * ELEMENTS, ((k + 1) * ELEMENTS).min(self.elements));
        });
    }

    /// Where the sums add up.
    fn sums(&self, worker: &Worker) -> *mut u8 {
        match &self.sums {
            ScatterSums::There(buffer) => worker.table[*buffer],
            ScatterSums::Beside(at, _) => worker.all(*at),
        }
    }

    /// Joins the updates of a round whose place is in this range.
    fn add(&self, worker: &Worker, n: usize, range: Range<i64>) {
        match self.wide {
            DType::F64 => self.updated::<f64>(worker, n, range),
            DType::F32 => self.updated::<f32>(worker, n, range),
            DType::I64 => self.updated::<i64>(worker, n, range),
            DType::I32 => self.updated::<i32>(worker, n, range),
            DType::U32 => self.updated::<u32>(worker, n, range),
            DType::I8 => self.updated::<i8>(worker, n, range),
            _ => self.updated::<u8>(worker, n, range),
        }
    }

    fn updated<T: ScatterElement>(&self, worker: &Worker, n: usize, range: Range<i64>) {
        match self.update {
            Update::Add => self.added(worker, n, range, T::sum),
            Update::Max => self.added(worker, n, range, T::larger),
            Update::Min => self.added(worker, n, range, T::smaller),
            Update::Set => self.added(worker, n, range, |_, x: T| x),
        }
    }

    fn added<T: Copy>(
        &self,
        worker: &Worker,
        n: usize,
        range: Range<i64>,
        add: impl Fn(T, T) -> T,
    ) {
        let length = (range.end - range.start) as usize;
        // SAFETY: the sweep has left this many updates and places for all workers, which nobody writes
        // meanwhile; there are sums for all elements, those of the range are this task's alone, and
        // callers' slices have been aligned.
        let (values, places, sums) = unsafe {
            let first = self.sums(worker).cast::<T>().wrapping_offset(range.start as isize);
            (
                std::slice::from_raw_parts(worker.all(self.values).cast::<T>(), n),
                std::slice::from_raw_parts(worker.all(self.places).cast::<i64>(), n),
                std::slice::from_raw_parts_mut(first, length),
            )
        };
        for (&place, &x) in places.iter().zip(values) {
            // Of a place before the range, the difference is too large.
            let within = place.wrapping_sub(range.start) as usize;
            if let Some(sum) = sums.get_mut(within) {
                *sum = add(*sum, x);
            }
        }
    }
}

/// What updates do with two elements of a type.
trait ScatterElement: Copy {
    fn sum(self, other: Self) -> Self;
    fn larger(self, other: Self) -> Self;
    fn smaller(self, other: Self) -> Self;
}

macro_rules! floats {
    ($($t:ty),*) => {$(
        impl ScatterElement for $t {
            fn sum(self, other: $t) -> $t {
                // A buffer holds no NaN but the canonical one.
                let sum = self + other;
                if sum.is_nan() { <$t>::NAN } else { sum }
            }

            fn larger(self, other: $t) -> $t {
                if self.is_nan() || other.is_nan() {
                    return <$t>::NAN;
                }
                // Of zeros the positive one.
                let first = self > other || self == other && self.is_sign_positive();
                if first { self } else { other }
            }

            fn smaller(self, other: $t) -> $t {
                if self.is_nan() || other.is_nan() {
                    return <$t>::NAN;
                }
                let first = self < other || self == other && self.is_sign_negative();
                if first { self } else { other }
            }
        }
    )*};
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl ScatterElement for $t {
            fn sum(self, other: $t) -> $t {
                self.wrapping_add(other)
            }

            fn larger(self, other: $t) -> $t {
                self.max(other)
            }

            fn smaller(self, other: $t) -> $t {
                self.min(other)
            }
        }
    )*};
}

floats!(f32, f64);
integers!(i64, i32, u32, i8, u8);

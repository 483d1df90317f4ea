//! Scatters: updates and their places are computed by a sweep, and added one after the other.
#![allow(unsafe_code)]

use super::code::{Part, Put, Slots, Sweep, SweepId, dense as is_dense};
use super::crew::{Crew, Worker};
use super::kernel::Making;
use super::shape::volume;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{BufferData, Operand, Param, Piece, Scatter};
use adfuse_ir::scalar::Recorder;
use adfuse_ir::{DType, Diagnostic};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

/// Updates that are computed at a time.
const PIECE: i64 = 4096;

/// A scatter, made.
pub(super) struct MadeScatter {
    updates: SweepId,
    count: i64,
    /// Of each worker: the updates, and their places.
    values: u64,
    places: u64,
    /// Puts what the sums begin with where they add up.
    begin: SweepId,
    elements: i64,
    sums: Sums,
    wide: DType,
}

/// Where the sums add up.
enum Sums {
    /// In the buffer that they are for.
    There(usize),
    /// In an array of all workers, since the buffer is of another type or has its elements elsewhere; the
    /// sweep puts them where they go.
    Beside(u64, SweepId),
}

impl Making<'_> {
    pub(super) fn scatter(&mut self, step: &Scatter) -> Result<MadeScatter, Diagnostic> {
        let program = self.program;
        let data = &program.buffers[step.out];
        let wide = data.dtype.compute();
        let elements = volume(&data.dims)?;
        let rank = data.dims.len();
        let values = self.own.take(PIECE, wide.bytes())?;
        let places = self.own.take(PIECE, 8)?;
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
        let put = if there { Put::Store(step.out, &index) } else { Put::Place(0) };
        let begin = self.sweep(&whole(&params, &body, vec![put], Slots::default(), Part::Begin))?;
        let sums = match there {
            true => Sums::There(step.out.index()),
            false => {
                let body = Recorder::record_any(&[wide], |x| x[0].convert(data.dtype));
                let slots = Slots { sums: Some((0, wide)), ..Slots::default() };
                let puts = vec![Put::Store(step.out, &index)];
                let finish = self.sweep(&whole(&[Param::Sum], &body, puts, slots, Part::Finish))?;
                Sums::Beside(self.shared.take(elements, wide.bytes())?, finish)
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
            puts: vec![Put::Place(0)],
            slots: Slots::default(),
            target: Some((step.out, &step.index, &step.guards, 1)),
            part: Part::Updates,
        })?;
        let count = volume(&step.domain)?;
        Ok(MadeScatter { updates, count, values, places, begin, elements, sums, wide })
    }
}

impl MadeScatter {
    pub(super) fn run(&self, crew: &mut Crew<'_>) {
        crew.each(1, |code, worker, _| {
            let bytes = self.wide.bytes();
            let sums = match &self.sums {
                Sums::There(buffer) => worker.table[*buffer],
                Sums::Beside(at, _) => worker.all(*at),
            };
            worker.set(0, sums, 0, bytes);
            worker.sweep(code, self.begin, 0, self.elements);
            let mut from = 0;
            while from < self.count {
                let to = (from + PIECE).min(self.count);
                let (values, places) = (worker.at(self.values), worker.at(self.places));
                worker.set(0, values, from, bytes);
                worker.set(1, places, from, 8);
                worker.sweep(code, self.updates, from, to);
                self.add(worker, sums, (to - from) as usize);
                from = to;
            }
            if let Sums::Beside(_, finish) = &self.sums {
                worker.set(0, sums, 0, bytes);
                worker.sweep(code, *finish, 0, self.elements);
            }
        });
    }

    fn add(&self, worker: &Worker, sums: *mut u8, n: usize) {
        // A buffer holds no NaN but the canonical one.
        let single = |a: f32, b: f32| if (a + b).is_nan() { f32::NAN } else { a + b };
        let double = |a: f64, b: f64| if (a + b).is_nan() { f64::NAN } else { a + b };
        match self.wide {
            DType::F64 => self.added(worker, sums, n, double),
            DType::F32 => self.added(worker, sums, n, single),
            DType::I64 => self.added(worker, sums, n, i64::wrapping_add),
            DType::I32 | DType::U32 => self.added(worker, sums, n, i32::wrapping_add),
            _ => self.added(worker, sums, n, i8::wrapping_add),
        }
    }

    fn added<T: Copy>(&self, worker: &Worker, sums: *mut u8, n: usize, add: impl Fn(T, T) -> T) {
        // SAFETY: the sweep has left so many updates and places in this worker's memory; there are sums
        // for all elements, which this task alone uses, and callers' slices have been aligned.
        let (values, places, sums) = unsafe {
            (
                std::slice::from_raw_parts(worker.at(self.values).cast::<T>(), n),
                std::slice::from_raw_parts(worker.at(self.places).cast::<i64>(), n),
                std::slice::from_raw_parts_mut(sums.cast::<T>(), self.elements as usize),
            )
        };
        for (&place, &x) in places.iter().zip(values) {
            if let Some(sum) = usize::try_from(place).ok().and_then(|p| sums.get_mut(p)) {
                *sum = add(*sum, x);
            }
        }
    }
}

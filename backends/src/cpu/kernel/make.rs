//! From kernels to what runs: sweeps of their stages, memory for what they keep, and where they are cut.

use super::{Fold, General, Local, Made, MadeStage, ScanOf, What};
use crate::cpu::code::{Maker, Put, Slots, Sweep, SweepId, affine, row_major};
use crate::cpu::fold::{Parted, STATE};
use crate::cpu::memory::{Room, too_much};
use crate::cpu::shape::{covers, granule, parted, volume};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{
    Buffer, Extents, Kernel, Order, Param, Program, Run, Sink, Stage, Storage,
};
use adfuse_ir::op::Monoid;
use adfuse_ir::{DType, Diagnostic};
use cranelift_entity::EntityRef;

/// Places that a batch has, about: what fits the first cache, and whole blocks of every order.
const BATCH: i64 = 4096;

/// Places that a batch has where nothing is kept.
const LONG_BATCH: i64 = 1 << 16;

/// Primitives that a task has, about: below, waking another thread takes longer than the work.
const WORK: i64 = 1 << 20;

/// What reading and storing an element takes, in primitives.
const ACCESS: i64 = 6;

/// Where code and memory for kernels come from.
pub(in crate::cpu) struct Making<'a> {
    pub(in crate::cpu) maker: &'a mut Maker,
    pub(in crate::cpu) program: &'a Program,
    /// Of all workers.
    pub(in crate::cpu) shared: &'a mut Room,
    /// Of each worker.
    pub(in crate::cpu) own: &'a mut Room,
    /// The most slots any step has.
    pub(in crate::cpu) slots: u32,
}

impl Making<'_> {
    /// Makes a kernel. `sums` is where the sums are that its one stage reads, if it follows any.
    pub(in crate::cpu) fn kernel(
        &mut self,
        kernel: &Kernel,
        sums: Option<(u64, DType)>,
    ) -> Result<Made, Diagnostic> {
        let points = volume(&kernel.domain)?;
        let volumes: Vec<i64> =
            kernel.stages.iter().map(|s| volume(&s.axes)).collect::<Result<_, _>>()?;
        let most = volumes.iter().copied().max().unwrap_or(1).max(1);
        let local = kernel.stages.len() > 1
            || kernel
                .stages
                .iter()
                .flat_map(|s| &s.sinks)
                .any(|s| !matches!(s, Sink::Store { .. }));
        let room = if local { BATCH } else { LONG_BATCH };
        let batch = (room / most).clamp(1, points.max(1));
        let mut next = 0;
        let mut slot = || {
            next += 1;
            next - 1
        };
        let mut rows = Vec::new();
        for d in kernel.rows.values() {
            let offset = self.own.take(batch, d.bytes())?;
            rows.push(Local { slot: slot(), offset, bytes: d.bytes() });
        }
        let mut tiles = Vec::new();
        for t in kernel.tiles.values() {
            let places = volume(&t.dims)?.saturating_mul(batch);
            let offset = self.own.take(places, t.dtype.bytes())?;
            tiles.push(Local { slot: slot(), offset, bytes: t.dtype.bytes() });
        }
        let sums = sums.map(|(at, d)| (slot(), at, d));
        let slots = Slots {
            rows: rows.iter().map(|l| l.slot).collect(),
            tiles: tiles.iter().map(|l| l.slot).collect(),
            sums: sums.map(|(s, _, d)| (s, d)),
        };
        let mut made = Made {
            points,
            batch,
            task: 1,
            stages: Vec::new(),
            folds: Vec::new(),
            rows,
            tiles,
            sums: sums.map(|(s, at, _)| (s, at)),
        };
        for (stage, &volume) in kernel.stages.iter().zip(&volumes) {
            let stage = self.stage(kernel, stage, volume, &slots, &mut made, &mut slot)?;
            made.stages.push(stage);
        }
        self.slots = self.slots.max(next);
        made.task = self.task(kernel, &made, &volumes);
        Ok(made)
    }

    /// Points of a task.
    fn task(&self, kernel: &Kernel, made: &Made, volumes: &[i64]) -> i64 {
        let mut grain = Some(1);
        for (stage, &volume) in kernel.stages.iter().zip(volumes) {
            for sink in &stage.sinks {
                if let Sink::Store { buffer, index } = sink {
                    grain =
                        grain.and_then(|g| self.bytes(kernel, stage, *buffer, index, g, volume));
                }
            }
        }
        for (stage, &volume) in made.stages.iter().zip(volumes) {
            for (_, what) in &stage.values {
                if let What::Fold(k) = what
                    && let Some(by) = made.folds[*k].parted
                {
                    grain = grain.and_then(|g| granule(g, &by, volume));
                }
            }
        }
        let Some(grain) = grain else { return made.points.max(1) };
        let work = |(s, &v): (&MadeStage, &i64)| {
            v.max(1).saturating_mul(self.maker.size(s.sweep).saturating_add(ACCESS))
        };
        let work = made.stages.iter().zip(volumes).map(work).fold(0, i64::saturating_add);
        let wanted = (WORK / work.max(1)).max(1);
        (wanted - 1) / grain * grain + grain
    }

    /// The least number of points, a multiple of `grain`, after which no byte is shared that a store
    /// writes; `None` where there is none.
    fn bytes(
        &self,
        kernel: &Kernel,
        stage: &Stage,
        buffer: Buffer,
        index: &[IndexExpr],
        grain: i64,
        volume: i64,
    ) -> Option<i64> {
        let data = &self.program.buffers[buffer];
        if !matches!(data.storage, Storage::Packed(bits) if bits < 8) {
            return Some(grain);
        }
        let extents: Extents = kernel.domain.iter().chain(&stage.axes).copied().collect();
        let (first, steps) = affine(index, data, extents.len())?;
        let in_order = steps.iter().zip(row_major(&extents)).zip(&extents);
        let in_order = in_order.into_iter().all(|((a, b), n)| *a == b || *n == 1);
        // As a run of blocks of a word, each of 32 elements or more.
        let word = Parted { outer: 1, size: 64, inner: 1, order: Order::Chain, blocks: 2 };
        (in_order && first == 0).then(|| granule(grain, &word, volume)).flatten()
    }

    fn stage(
        &mut self,
        kernel: &Kernel,
        stage: &Stage,
        places: i64,
        slots: &Slots,
        made: &mut Made,
        slot: &mut dyn FnMut() -> u32,
    ) -> Result<MadeStage, Diagnostic> {
        let extents: Extents = kernel.domain.iter().chain(&stage.axes).copied().collect();
        // Folds that are not in the order of the places need all of them.
        let whole = stage.sinks.iter().any(|s| match s {
            Sink::Reduce { monoid, runs, .. } => {
                places > 1 && (monoid.is_arg() || covers(runs, &stage.axes).is_none())
            }
            _ => false,
        });
        let piece = if whole || places <= BATCH { places.max(1) } else { BATCH };
        let held = made.batch.saturating_mul(places).max(1).min(piece.saturating_mul(made.batch));
        let mut found = MadeStage {
            sweep: SweepId::default(),
            volume: places,
            piece,
            values: Vec::new(),
            scans: Vec::new(),
            tiles: Vec::new(),
        };
        let mut puts = Vec::new();
        for (sink, &v) in stage.sinks.iter().zip(&stage.program.outputs) {
            let dtype = stage.program.insts[v].dtype;
            let bytes = dtype.bytes();
            puts.push(match sink {
                Sink::Store { buffer, index } => Put::Store(*buffer, index),
                Sink::Leave(r) => Put::Point(made.rows[r.index()].slot),
                Sink::Keep(t) => {
                    found.tiles.push(t.index());
                    Put::Place(made.tiles[t.index()].slot)
                }
                Sink::Scan { monoid, axis, reverse, into } => {
                    let axis = usize::from(*axis);
                    let extent = stage.axes[axis] as usize;
                    let inner = volume(&stage.axes[axis + 1..])? as usize;
                    let (monoid, reverse) = (*monoid, *reverse);
                    let of = ScanOf { monoid, dtype, extent, inner, reverse };
                    found.scans.push((into.index(), of));
                    found.tiles.push(into.index());
                    Put::Place(made.tiles[into.index()].slot)
                }
                Sink::Reduce { monoid, runs, into } => {
                    let order = covers(runs, &stage.axes).filter(|_| !monoid.is_arg());
                    let local = Local { slot: slot(), offset: self.own.take(held, bytes)?, bytes };
                    let blocks = order.map_or(0, |o| places / o.block() as i64 + 1);
                    let parts = self.own.take(if piece < places { blocks } else { 0 }, bytes)?;
                    let general = General { extents: stage.axes.clone(), runs: runs.to_vec() };
                    let row = into.index();
                    let monoid = *monoid;
                    found
                        .values
                        .push((local, What::Reduce { monoid, dtype, row, order, parts, general }));
                    Put::Place(local.slot)
                }
                Sink::Fold { monoid, runs, then } => {
                    let fold = self.fold(&extents, *monoid, dtype, runs, then, slot)?;
                    let local = Local { slot: slot(), offset: self.own.take(held, bytes)?, bytes };
                    found.values.push((local, What::Fold(made.folds.len())));
                    made.folds.push(fold);
                    Put::Place(local.slot)
                }
            });
        }
        // Tiles that are read are over the same places.
        for param in &stage.params {
            if let Param::Tile(t) = param {
                found.tiles.push(t.index());
            }
        }
        found.sweep = self.maker.sweep(&Sweep {
            program: self.program,
            extents,
            domain: kernel.domain.len(),
            params: &stage.params,
            body: &stage.program,
            puts,
            slots: slots.clone(),
            target: None,
        })?;
        Ok(found)
    }

    fn fold(
        &mut self,
        extents: &Extents,
        monoid: Monoid,
        dtype: DType,
        runs: &[Run],
        then: &Stage,
        slot: &mut dyn FnMut() -> u32,
    ) -> Result<Fold, Diagnostic> {
        let mut remaining = extents.clone();
        for &a in runs.iter().flat_map(|r| &r.axes) {
            remaining[usize::from(a)] = 1;
        }
        let places = volume(extents)?;
        let results = volume(&remaining)?;
        let parted = if monoid.is_arg() { None } else { parted(runs, extents)? };
        let count = match &parted {
            Some(by) => by.parts().ok_or_else(|| too_much(u64::MAX))? as i64,
            None => places,
        };
        let at = self.shared.take(count, dtype.bytes())?;
        let result = monoid.result(dtype).unwrap_or(dtype);
        let separate = parted.is_none() || runs.len() > 1;
        let out = match separate {
            true => self.shared.take(results, result.bytes())?,
            false => at,
        };
        let state = self.own.take(STATE as i64, 1)?;
        let sum = slot();
        let mut puts = Vec::new();
        for sink in &then.sinks {
            if let Sink::Store { buffer, index } = sink {
                puts.push(Put::Store(*buffer, index));
            }
        }
        let slots = Slots { sums: Some((sum, result)), ..Slots::default() };
        let sweep = Sweep {
            program: self.program,
            extents: remaining.clone(),
            domain: remaining.len(),
            params: &then.params,
            body: &then.program,
            puts,
            slots,
            target: None,
        };
        let then = self.maker.sweep(&sweep)?;
        // Of what is left after the first run, where there are parts.
        let (extents, runs) = match &parted {
            Some(_) => {
                let mut left = extents.clone();
                let first = runs.first().map(|r| r.axes.clone()).unwrap_or_default();
                first.iter().for_each(|&a| left[usize::from(a)] = 1);
                (left, runs.get(1..).unwrap_or_default().to_vec())
            }
            None => (extents.clone(), runs.to_vec()),
        };
        Ok(Fold {
            monoid,
            dtype,
            at,
            count: count as usize,
            parted,
            state,
            general: General { extents, runs },
            results: results as usize,
            out,
            then,
            remaining: results,
            sum,
            bytes: dtype.bytes(),
            result_bytes: result.bytes(),
        })
    }
}

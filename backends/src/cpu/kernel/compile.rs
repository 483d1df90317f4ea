//! Compiles kernels: a sweep for each stage, memory for rows, tiles and folds, and the split into tasks.

use super::{
    CompiledKernel, CompiledStage, FoldKind, FoldParts, FoldTarget, OwnArray, Reduce,
    RemainingFolds, TaskGranularity, TileScanSpec,
};
use crate::cpu::codegen::affine_form::affine;
use crate::cpu::codegen::loop_ir::{ArraySlots, Sweep, SweepOutput, SweepRole};
use crate::cpu::fold::{BlockPartition, FoldRuns, STATE};
use crate::cpu::host_services::HostServices;
use crate::cpu::machine_code;
use crate::cpu::machine_code::{SweepCompiler, SweepId};
use crate::cpu::point_tasks::{PointTasks, time_of};
use crate::cpu::shape::{
    ACCESS, CodeFold, checked_volume, covers, gcd, granule, in_code, left, of_rows, parted,
};
use crate::cpu::strict_scans::scan_room;
use crate::cpu::sweep_facts::FactCollector;
use crate::reference::order::LANES;
use crate::runtime::host_memory::{OffsetAllocator, too_much};
use crate::runtime::strides::row_major;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{
    Buffer, Extents, Kernel, Order, Param, Program, Run, Sink, Stage, Storage,
};
use adfuse_ir::op::Monoid;
use adfuse_ir::{DType, Diagnostic};
use cranelift_entity::EntityRef;

/// About the elements of a batch, and of a piece of a stage that has more of them at one point: a multiple of the blocks of both fold
/// orders. Each batch and each piece calls a function, some 25 ns, which longer ones save. One array of 4096 values fits the first-level
/// cache, and all of a batch together the second-level cache.
const BATCH: i64 = 4096;

/// The elements of a batch of a kernel that keeps no rows or tiles.
const LONG_BATCH: i64 = 1 << 16;

/// Tasks begin at multiples of this many elements of a packed array, so that no two write to one word of it.
const WORD: i64 = 64;

/// Where kernels get code and memory from while they are compiled.
pub(in crate::cpu) struct CompileContext<'a> {
    /// Compiles sweeps; `None` if only the memory is asked for.
    pub(in crate::cpu) compiler: Option<&'a mut SweepCompiler>,
    /// Notes what is made of a step; `None` if nobody asks.
    pub(in crate::cpu) facts: Option<&'a mut FactCollector>,
    pub(in crate::cpu) program: &'a Program,
    /// Memory that all workers share.
    pub(in crate::cpu) shared: &'a mut OffsetAllocator,
    /// Memory of each worker.
    pub(in crate::cpu) own: &'a mut OffsetAllocator,
    /// The most slots any step has.
    pub(in crate::cpu) slots: u32,
    /// What is outside of the program; `None` if only the memory is asked for.
    pub(in crate::cpu) host: Option<HostServices<'a>>,
}

/// What the sinks of a stage have in common.
struct SinkScope<'a> {
    /// Of the stage.
    axes: &'a Extents,
    /// Of the domain and the stage.
    extents: &'a Extents,
    /// Whether its folds over the domain give a value for each of a few rows: see [`of_rows`].
    kept: bool,
    /// Elements that a batch holds of a value.
    held: i64,
}

impl CompileContext<'_> {
    /// Makes a kernel. `sums` is the type of the sums that its one stage reads, if it follows any.
    pub(in crate::cpu) fn kernel(
        &mut self,
        kernel: &Kernel,
        sums: Option<DType>,
    ) -> Result<CompiledKernel, Diagnostic> {
        let points = checked_volume(&kernel.domain)?;
        let volumes: Vec<i64> =
            kernel.stages.iter().map(|s| checked_volume(&s.axes)).collect::<Result<_, _>>()?;
        let most = volumes.iter().copied().max().unwrap_or(1).max(1);
        let folding = kernel.stages.iter().map(|s| in_code(kernel, s));
        let folding: Vec<Vec<Option<CodeFold>>> = folding.collect::<Result<_, _>>()?;
        let sinks = kernel.stages.iter().flat_map(|s| &s.sinks).zip(folding.iter().flatten());
        let mut kept = sinks.filter(|(s, f)| f.is_none() && !matches!(s, Sink::Store { .. }));
        let local = kernel.stages.len() > 1 || kept.next().is_some();
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
            rows.push(OwnArray { slot: slot(), offset, bytes: d.bytes() });
        }
        let mut tiles = Vec::new();
        for t in kernel.tiles.values() {
            let places = checked_volume(&t.dims)?.saturating_mul(batch);
            let offset = self.own.take(places, t.dtype.bytes())?;
            tiles.push(OwnArray { slot: slot(), offset, bytes: t.dtype.bytes() });
        }
        let sums = sums.map(|d| (slot(), d));
        let slots = ArraySlots {
            rows: rows.iter().map(|l| l.slot).collect(),
            tiles: tiles.iter().map(|l| l.slot).collect(),
            sums,
        };
        let mut made = CompiledKernel {
            tasks: PointTasks { points, work: 1, time: 1, grain: None },
            batch,
            stages: Vec::new(),
            folds: Vec::new(),
            rows,
            tiles,
            sums: sums.map_or(0, |(s, _)| s),
            cuts: TaskGranularity::default(),
        };
        for (stage, folding) in kernel.stages.iter().zip(&folding) {
            let stage = self.stage(kernel, stage, folding, &slots, &mut made, &mut slot)?;
            made.stages.push(stage);
        }
        self.slots = self.slots.max(next);
        for (stage, &volume) in made.stages.iter().zip(&volumes) {
            let count = |all: i64, part: i64| all.saturating_add(part - 1) / part;
            let runs = count(points, batch).saturating_mul(count(volume, stage.piece));
            self.note_runs(stage.sweep, runs);
        }
        made.cuts = self.cuts(kernel, &made, &volumes);
        let [work, time] = self.work(&made, &volumes);
        made.tasks = PointTasks { points, work, time, grain: made.cuts.grain };
        self.note_tasks(&made.tasks, sums.is_some());
        Ok(made)
    }

    /// The primitives of a point, and how long they take.
    fn work(&self, made: &CompiledKernel, volumes: &[i64]) -> [i64; 2] {
        let all = made.stages.iter().zip(volumes).fold([0i64; 2], |all, (stage, &volume)| {
            let work = self.size(stage.sweep).saturating_add(ACCESS);
            let each = [work, time_of(work)].map(|n| volume.max(1).saturating_mul(n));
            [0, 1].map(|k| all[k].saturating_add(each[k]))
        });
        all.map(|n| n.max(1))
    }

    /// Where tasks may be cut: between the words of what is packed, and the blocks of folds.
    fn cuts(&self, kernel: &Kernel, made: &CompiledKernel, volumes: &[i64]) -> TaskGranularity {
        let mut cuts = TaskGranularity::default();
        for (stage, &volume) in kernel.stages.iter().zip(volumes) {
            for sink in &stage.sinks {
                if let Sink::Store { buffer, index } = sink {
                    let before = cuts.grain;
                    cuts.grain =
                        before.and_then(|g| self.bytes(kernel, stage, *buffer, index, g, volume));
                    if cuts.grain != before {
                        cuts.bits = WORD;
                    }
                }
            }
        }
        for (stage, &volume) in made.stages.iter().zip(volumes) {
            let parts = stage.parts.iter().map(|(_, what)| what);
            for what in stage.values.iter().map(|(_, what)| what).chain(parts) {
                let FoldTarget::Fold(k) = what else { continue };
                if let Some(row) = made.folds[*k].row {
                    let by = BlockPartition::rows(made.folds[*k].results, row);
                    cuts.grain = cuts.grain.and_then(|g| granule(g, &by, volume));
                    cuts.lines = None;
                }
                if let Some(by) = made.folds[*k].parted {
                    cuts.grain = cuts.grain.and_then(|g| granule(g, &by, volume));
                    let columns = (by.order == Order::Chain && volume == 1)
                        .then_some(i64::try_from(by.inner).unwrap_or(1));
                    cuts.lines = cuts.lines.zip(columns).map(|(a, b)| gcd(a, b));
                }
            }
        }
        cuts
    }

    /// The smallest multiple of `grain` points such that tasks of that size write to no common byte; `None` if there is
    /// none.
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
        // The last axes of which the order is that of the elements; others step over whole words.
        let mut run = 1i64;
        let mut others = false;
        for ((&step, place), &n) in steps.iter().zip(row_major(&extents)).zip(&extents).rev() {
            if n == 1 {
                continue;
            }
            others |= step != place;
            match others {
                false => run = run.saturating_mul(n),
                true if step % WORD != 0 => return None,
                true => {}
            }
        }
        // As a run of blocks of a word, each of 32 elements or more.
        let word = BlockPartition { outer: 1, size: 64, inner: 1, order: Order::Chain, blocks: 2 };
        let whole = first == 0 && (!others || run % WORD == 0);
        whole.then(|| granule(grain, &word, volume)).flatten()
    }

    fn stage(
        &mut self,
        kernel: &Kernel,
        stage: &Stage,
        folding: &[Option<CodeFold>],
        slots: &ArraySlots,
        made: &mut CompiledKernel,
        slot: &mut dyn FnMut() -> u32,
    ) -> Result<CompiledStage, Diagnostic> {
        let extents: Extents = kernel.domain.iter().chain(&stage.axes).copied().collect();
        let places = checked_volume(&stage.axes)?;
        let kept = of_rows(kernel, stage)?;
        // Folds that do not go piece by piece need all places.
        let mut whole = false;
        for sink in &stage.sinks {
            if let Sink::Reduce { monoid, runs, .. } = sink {
                whole |= match monoid.is_arg() {
                    true => covers(runs, &stage.axes).is_none(),
                    false => parted(runs, &stage.axes)?.is_none(),
                };
            }
        }
        let piece = if whole || places <= BATCH { places.max(1) } else { BATCH };
        let held = made.batch.saturating_mul(places).max(1).min(piece.saturating_mul(made.batch));
        let mut found = CompiledStage {
            sweep: SweepId::default(),
            volume: places,
            piece,
            values: Vec::new(),
            parts: Vec::new(),
            scans: Vec::new(),
            tiles: Vec::new(),
        };
        self.note_folds(kernel, stage, folding)?;
        let mut puts = Vec::new();
        let scope = SinkScope { axes: &stage.axes, extents: &extents, kept, held };
        let outputs = stage.sinks.iter().zip(&stage.program.outputs);
        for ((sink, &v), folding) in outputs.zip(folding) {
            let sink = (sink, stage.program.insts[v].dtype);
            puts.push(self.sink(&scope, sink, folding.as_ref(), (&mut found, made), slot)?);
        }
        if found.values.is_empty() {
            found.piece = places.max(1);
        }
        // Tiles that are read are over the same places.
        for param in &stage.params {
            if let Param::Tile(t) = param {
                found.tiles.push(t.index());
            }
        }
        found.sweep = self.sweep(&Sweep {
            program: self.program,
            extents,
            domain: kernel.domain.len(),
            params: &stage.params,
            body: &stage.program,
            puts,
            slots: slots.clone(),
            target: None,
            part: match slots.sums {
                None => SweepRole::Stage(made.stages.len()),
                Some(_) => SweepRole::Then,
            },
        })?;
        Ok(found)
    }

    /// Where a value of a stage goes: a sink, and the type of its value. Memory that it needs is taken, and what
    /// is done with it after the sweep is noted in the stage.
    fn sink<'s>(
        &mut self,
        scope: &SinkScope<'_>,
        (sink, dtype): (&'s Sink, DType),
        folding: Option<&CodeFold>,
        (found, made): (&mut CompiledStage, &mut CompiledKernel),
        slot: &mut dyn FnMut() -> u32,
    ) -> Result<SweepOutput<'s>, Diagnostic> {
        let SinkScope { axes, extents, kept, held } = *scope;
        let (places, bytes) = (found.volume, dtype.bytes());
        Ok(match sink {
            Sink::Store { buffer, index } => SweepOutput::Store(*buffer, index),
            Sink::Leave(r) => SweepOutput::Point(made.rows[r.index()].slot),
            Sink::Keep(t) => {
                found.tiles.push(t.index());
                SweepOutput::Place(made.tiles[t.index()].slot)
            }
            Sink::Scan { monoid, axis, reverse, into } => {
                let axis = usize::from(*axis);
                let extent = axes[axis] as usize;
                let inner = checked_volume(&axes[axis + 1..])? as usize;
                let (monoid, reverse) = (*monoid, *reverse);
                let room = if places > 0 { scan_room(extent) as i64 } else { 0 };
                let work = self.own.take(room, bytes)?;
                let of = TileScanSpec { monoid, dtype, extent, inner, reverse, work };
                found.scans.push((into.index(), of));
                found.tiles.push(into.index());
                SweepOutput::Place(made.tiles[into.index()].slot)
            }
            Sink::Reduce { monoid, runs, into } if let Some(folding) = folding => {
                let row = into.index();
                let (how, to) = match folding.by.parts() {
                    Some(1) => (FoldKind::Row, made.rows[row].slot),
                    _ => (self.parts(dtype, runs, axes, (folding.by, made.batch), None)?, slot()),
                };
                let (parts, put) = self.put(*monoid, dtype, folding, to, slot)?;
                let reduce = Reduce { monoid: *monoid, dtype, row, how };
                found.parts.push((parts, FoldTarget::Reduce(Box::new(reduce))));
                put
            }
            Sink::Fold { monoid, runs, then } if let Some(folding) = folding => {
                let fold = self.domain_fold(extents, kept, (*monoid, dtype), runs, then, slot)?;
                let (parts, put) = self.put(*monoid, dtype, folding, slot(), slot)?;
                found.parts.push((parts, FoldTarget::Fold(made.folds.len())));
                made.folds.push(fold);
                put
            }
            Sink::Reduce { monoid, runs, into } => {
                let local = OwnArray { slot: slot(), offset: self.own.take(held, bytes)?, bytes };
                let how = self.how(*monoid, dtype, runs, axes, found.piece < places)?;
                let (row, monoid) = (into.index(), *monoid);
                let reduce = Reduce { monoid, dtype, row, how };
                found.values.push((local, FoldTarget::Reduce(Box::new(reduce))));
                SweepOutput::Place(local.slot)
            }
            Sink::Fold { monoid, runs, then } => {
                let fold = self.domain_fold(extents, kept, (*monoid, dtype), runs, then, slot)?;
                let local = OwnArray { slot: slot(), offset: self.own.take(held, bytes)?, bytes };
                found.values.push((local, FoldTarget::Fold(made.folds.len())));
                made.folds.push(fold);
                SweepOutput::Place(local.slot)
            }
        })
    }

    /// Where a sweep that folds leaves the parts.
    fn put(
        &mut self,
        monoid: Monoid,
        dtype: DType,
        folding: &CodeFold,
        parts: u32,
        slot: &mut dyn FnMut() -> u32,
    ) -> Result<(FoldParts, SweepOutput<'static>), Diagnostic> {
        let order = folding.by.order;
        let lanes = match order {
            Order::Lane => Some((slot(), self.own.take(LANES as i64, dtype.bytes())?)),
            Order::Chain => None,
        };
        let axes = folding.axes;
        let slots = lanes.map_or(0, |(slot, _)| slot);
        let fold = machine_code::FoldOutput { monoid, order, axes, parts, lanes: slots };
        Ok((FoldParts { slot: parts, lanes }, SweepOutput::Fold(fold)))
    }

    /// How the parts of each of these points are joined to one value.
    fn parts(
        &mut self,
        dtype: DType,
        runs: &[Run],
        axes: &Extents,
        (by, points): (BlockPartition, i64),
        state: Option<u64>,
    ) -> Result<FoldKind, Diagnostic> {
        let many = |n: Option<usize>| {
            let n = n.and_then(|n| i64::try_from(n).ok()).and_then(|n| n.checked_mul(points));
            n.ok_or_else(|| too_much(u64::MAX))
        };
        let parts = self.own.take(many(by.parts())?, dtype.bytes())?;
        let mut rest = None;
        if runs.len() > 1 {
            let all = many(by.outer.checked_mul(by.inner))?;
            let joined = self.own.take(all, dtype.bytes())?;
            let runs = FoldRuns::new(&left(axes, runs), &runs[1..]);
            let work = self.own.take(runs.room(all), dtype.bytes())?;
            rest = Some(RemainingFolds { joined, runs, work });
        }
        Ok(FoldKind::Parts { by, parts, state, rest })
    }

    /// How the values of a point are folded to one.
    fn how(
        &mut self,
        monoid: Monoid,
        dtype: DType,
        runs: &[Run],
        axes: &Extents,
        pieces: bool,
    ) -> Result<FoldKind, Diagnostic> {
        let places = checked_volume(axes)?;
        let line = covers(runs, axes);
        match (line, monoid.is_arg()) {
            (Some(_), true) if pieces => {
                return Ok(FoldKind::Place(self.own.take(1, dtype.bytes())?));
            }
            (Some(order), false) if !pieces => return Ok(FoldKind::Lines(order)),
            _ => {}
        }
        if pieces && let Some(by) = parted(runs, axes)? {
            let state = self.own.take(STATE as i64, 1)?;
            return self.parts(dtype, runs, axes, (by, 1), Some(state));
        }
        let runs = FoldRuns::new(axes, runs);
        let work = self.own.take(runs.room(places), dtype.bytes())?;
        Ok(FoldKind::All { runs, work })
    }
}

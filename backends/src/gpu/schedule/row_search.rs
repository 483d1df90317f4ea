//! The choices of a kernel of rows: teams, what each keeps where, and what is prefetched, so that registers and shared
//! memory suffice.

use super::column_folds::ColumnFold;
use super::cooperative_row::{LARGE, Team};
use super::inline::{data_sources, defs};
use super::row_decision::{RowDecision, RowWalk};
use super::row_residency::{
    Life, RowFrame, RowLayout, parts_bytes, read_tiles, unchanging, walked,
};
use super::row_unroll::unrolls;
use super::scalar_form::written;
use super::shape::{internal, output_type};
use super::tree_fold::Tree;
use crate::gpu::target::GpuTarget;
use adfuse_ir::kernel::{Kernel, Param, Program, Sink, Stage, Tile, volume};
use adfuse_ir::scalar::{SInst, SOp, ScalarProgram};
use adfuse_ir::{DType, Diagnostic, Fp};

/// Registers for addresses, counters and what else a body holds.
const OTHERS: i64 = 24;
/// Registers for what is read of one row.
const ROW: i64 = 64;
/// Instructions of a stage that are written once for each element of a thread.
const TEXT: i64 = 8000;
/// A tile that takes at most the first number of instructions is computed again rather than give up prefetching
/// rows; one that takes at most the second, only where the tiles do not fit otherwise.
const CHEAP: [usize; 2] = [12, 30];
/// Points that are numbered in 32 bits with a sign, and some more for the grid.
const MOST_POINTS: i64 = 1 << 30;
/// Threads of a block for which registers are counted, at least: two blocks of fewer share them.
const COUNTED_THREADS: i64 = 256;

/// What a decision is tried with.
#[derive(Clone)]
struct Attempt<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    team: Team,
    walk: RowWalk,
    /// The axes of the domain along which a team walks.
    walked: Vec<usize>,
    /// Registers of a thread for partial results of columns.
    columns: i64,
    /// Bytes of shared memory of a block.
    room: i64,
    target: &'a GpuTarget,
    fp: Fp,
}

impl RowDecision {
    /// The first of these that fits: rows that are prefetched, without and with cheap tiles that are computed again;
    /// rows that are not prefetched, with as few tiles computed again as shared memory needs.
    pub(crate) fn of(
        program: &Program,
        kernel: &Kernel,
        columns: Option<&ColumnFold>,
        (target, fp): (&GpuTarget, Fp),
    ) -> Result<RowDecision, Diagnostic> {
        let team = Team::of(program, kernel, fp);
        let parts = parts_bytes(kernel, team, fp);
        let shared = i64::from(target.shared);
        let words = |(stage, k): (&Stage, usize)| match &stage.sinks[k] {
            Sink::Fold { .. } => {
                team.cells(volume(&stage.axes)) * ((output_type(stage, k).bytes() as i64 + 3) / 4)
            }
            _ => 0,
        };
        let every = kernel.stages.iter().flat_map(|s| (0..s.sinks.len()).map(move |k| (s, k)));
        let accumulated = every.map(words).sum();
        let walk = match columns {
            Some(c) => RowWalk::Chain(c.chain),
            None if team.block() >= LARGE && volume(&kernel.domain) < MOST_POINTS => {
                RowWalk::Stride
            }
            None => RowWalk::One,
        };
        // Two blocks of few threads at least share a multiprocessor.
        let room = if team.block() < LARGE { shared / 2 } else { shared } - parts;
        let walked = walked(kernel, columns);
        let (columns, all) = (accumulated, shared - parts);
        let attempt = Attempt { program, kernel, team, walk, walked, columns, room, target, fp };
        attempt.prefetching().transpose().unwrap_or_else(|| attempt.alone(all))
    }
}

impl Attempt<'_> {
    /// A decision that prefetches rows, or keeps one row of a block without.
    fn prefetching(&self) -> Result<Option<RowDecision>, Diagnostic> {
        let stored = read_tiles(self.kernel);
        let cheap = |most: usize| -> Vec<Tile> {
            stored.iter().copied().filter(|&t| self.cost(t) <= most).collect()
        };
        let [cheap, dearer] = CHEAP.map(cheap);
        if self.walk != RowWalk::One {
            for recomputed in [&Vec::new(), &cheap] {
                for copies in [2, 1] {
                    if let Some(found) = self.decide(recomputed, copies)? {
                        return Ok(Some(found));
                    }
                }
            }
        }
        if self.walk == RowWalk::Stride {
            // One row of a block, which is all that is kept of it.
            let alone = Attempt { walk: RowWalk::One, ..self.clone() };
            if let Some(found) = alone.decide(&[], 0)? {
                return Ok(Some(found));
            }
            for copies in [2, 1] {
                if let Some(found) = self.decide(&dearer, copies)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// A decision that prefetches none: what does not fit this much shared memory is computed again, the cheapest
    /// first.
    fn alone(mut self, room: i64) -> Result<RowDecision, Diagnostic> {
        if self.walk == RowWalk::Stride {
            self.walk = RowWalk::One;
        }
        self.room = room;
        let mut stored = read_tiles(self.kernel);
        let (_, data) = data_sources(self.kernel);
        let mut recomputed = Vec::new();
        loop {
            let mut found = self.decide(&recomputed, 0)?;
            while found.is_none() && self.team.teams > 1 && recomputed.len() + 1 > stored.len() {
                self.team.teams /= 2;
                found = self.decide(&recomputed, 0)?;
            }
            if let Some(found) = found {
                return Ok(found);
            }
            let free = stored.iter().copied().filter(|t| !data.contains(t));
            let Some(cheapest) = free.min_by_key(|&t| self.cost(t)) else {
                return Err(internal("what a row keeps outgrows shared memory"));
            };
            stored.retain(|&t| t != cheapest);
            recomputed.push(cheapest);
        }
    }

    /// What computing a tile again takes: instructions, and more for what is loaded.
    fn cost(&self, t: Tile) -> usize {
        let Some((s, k)) = defs(self.kernel).tiles[t] else { return 0 };
        let stage = &self.kernel.stages[s];
        let output = stage.program.outputs[k];
        let mut only = stage.program.clone();
        only.outputs = [output].into_iter().collect();
        let only = written(&only, self.fp);
        let loads = stage.params.iter().enumerate();
        let loads = loads.filter(|(k, p)| matches!(p, Param::Load(_)) && only.reads_param(*k));
        let computes = |i: &SInst| !matches!(i.op, SOp::Const(_) | SOp::Param(_));
        only.insts.values().filter(|i| computes(i)).count() + loads.count() * 200
    }

    /// A decision with these tiles computed again and this many rows prefetched, where it fits.
    fn decide(&self, recomputed: &[Tile], copies: i64) -> Result<Option<RowDecision>, Diagnostic> {
        let team = self.team;
        let frame =
            RowFrame::new(self.program, self.kernel, (team, &self.walked), recomputed, copies)?;
        if copies > 0 && frame.arrays.is_empty() {
            return Ok(None);
        }
        let kernel = &frame.kernel;
        let written: Vec<ScalarProgram> =
            kernel.stages.iter().map(|s| written(&s.program, self.fp)).collect();
        let small =
            kernel.stages.iter().zip(&written).all(|(s, p)| {
                team.cells(volume(&s.axes)).saturating_mul(p.insts.len() as i64) <= TEXT
            });
        let most = written.iter().map(pressure).max().unwrap_or(0);
        let target = self.target;
        let of_thread = i64::from(target.thread_registers);
        let unit = i64::from(target.register_unit);
        let block = target.allocated_threads(team.block());
        let limit = (i64::from(target.registers) / block.max(COUNTED_THREADS)).min(of_thread);
        let limit = limit / unit * unit;
        // Elements that are far apart have addresses of their own, and neighbours are computed together.
        let apart = if team.block() > LARGE { OTHERS / 2 } else { 0 };
        let mut used = OTHERS + apart + self.columns + most;
        let mut held: Vec<&Life> = Vec::new();
        for life in frame.lives.iter().filter(|_| small) {
            held.push(life);
            if used + peak(&held, kernel.stages.len()) > limit {
                held.pop();
            }
        }
        let registers: Vec<Tile> = held.iter().map(|l| l.tile).collect();
        used += peak(&held, kernel.stages.len());
        let bytes = frame.placed(&registers, copies).bytes;
        if bytes.saturating_mul(team.teams) > self.room {
            return Ok(None);
        }
        let resident = self.resident(used, limit, bytes);
        let limit = target.registers_of(block * resident).min(of_thread);
        let mut hoisted: Vec<(usize, usize)> = Vec::new();
        for (s, k) in unchanging(kernel, team, self.walk, &self.walked) {
            let param = &kernel.stages[s].params[k];
            let axes = &kernel.stages[s].axes;
            // What two stages load alike is loaded once.
            let known = hoisted.iter().any(|&(other, n)| {
                kernel.stages[other].params[n] == *param && kernel.stages[other].axes == *axes
            });
            let size = kernel.stages[s].program.params[k].bytes().max(4) as i64 / 4;
            let words = if known { 0 } else { team.cells(volume(axes)) * size };
            // Some are left for what is read of each row.
            if used + words + ROW <= limit {
                used += words;
                hoisted.push((s, k));
            }
        }
        let mut decision = RowDecision {
            team,
            walk: self.walk,
            copies,
            recomputed: recomputed.to_vec(),
            registers,
            hoisted,
            resident: resident as u32,
            unrolls: Vec::new(),
            tree: Tree::default(),
        };
        let layout = RowLayout::new(frame, &decision);
        decision.unrolls = unrolls(&layout, limit - used, self.fp);
        Ok(Some(decision))
    }

    /// Blocks that fit a multiprocessor, where a thread holds this much in registers and a team this many bytes.
    fn resident(&self, used: i64, limit: i64, bytes: i64) -> i64 {
        let (target, team) = (self.target, self.team);
        let unit = i64::from(target.register_unit);
        let block = target.allocated_threads(team.block());
        // What the assembler takes beside that, more where much is held.
        let beside = used / 4 + (used - 96).max(0) / 4;
        let wanted = (used + beside).max(64).min(limit.max(64));
        let registers = i64::from(target.registers) / (block * ((wanted + unit - 1) / unit * unit));
        let by_threads = i64::from(target.resident_threads) / block;
        // Of the shared memory of a multiprocessor each block takes what is reserved for it, and as much again for
        // parts.
        let reserved = i64::from(target.reserved_shared);
        let all = i64::from(target.shared) + reserved;
        let by_shared = all / (bytes * team.teams + 2 * reserved);
        let most = i64::from(target.resident_blocks);
        registers.min(by_threads).min(by_shared).clamp(1, most)
    }
}

/// The most registers that tiles take at once: those that a stage makes take the place of those it reads last.
fn peak(held: &[&Life], stages: usize) -> i64 {
    let at = |s: usize| {
        let before = held.iter().filter(|l| l.from < s && s <= l.until).map(|l| l.words);
        let after = held.iter().filter(|l| l.from <= s && s < l.until).map(|l| l.words);
        before.sum::<i64>().max(after.sum())
    };
    (0..stages).map(at).max().unwrap_or(0)
}

/// The most values that a program needs at once.
fn pressure(program: &ScalarProgram) -> i64 {
    let mut last: Vec<usize> = vec![0; program.insts.len()];
    for (v, inst) in program.insts.iter() {
        inst.args.iter().for_each(|a| last[a.as_u32() as usize] = v.as_u32() as usize);
    }
    program.outputs.iter().for_each(|o| last[o.as_u32() as usize] = usize::MAX);
    let words = |dtype: DType| if dtype.bytes() == 8 { 2 } else { 1 };
    let (mut now, mut most) = (0i64, 0i64);
    for (v, inst) in program.insts.iter() {
        let v = v.as_u32() as usize;
        if matches!(inst.op, SOp::Const(_)) {
            continue;
        }
        now += if last[v] > v { words(inst.dtype) } else { 0 };
        most = most.max(now);
        for (k, a) in inst.args.iter().enumerate() {
            let ends = last[a.as_u32() as usize] == v && !inst.args[..k].contains(a);
            let from = &program.insts[*a];
            if ends && !matches!(from.op, SOp::Const(_)) {
                now -= words(from.dtype);
            }
        }
    }
    most
}

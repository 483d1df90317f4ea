//! What a thread keeps of its rows from stage to stage, and where: in registers, in shared memory, as it was
//! copied there ahead, or nowhere, to be computed again.

use super::async_copy::{Array, arrays};
use super::column_folds::Columns;
use super::cooperative_row::{Has, Piece, Team};
use super::inline::{Inliner, Source, data_sources, defs};
use super::scalar_form::written;
use super::shape::{internal, output_type, volume};
use crate::gpu::target::Target;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Kernel, Operand, Param, Program, Sink, Stage, Tile};
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::{SInst, SOp, ScalarProgram};
use adfuse_ir::{DType, Diagnostic, Fp};
use cranelift_entity::SecondaryMap;

/// Registers of a multiprocessor.
const REGISTERS: i64 = 65536;
/// Registers for addresses, counters and what else a body holds.
const OTHERS: i64 = 24;
/// Registers for what is read of one row.
const ROW: i64 = 64;
/// Instructions of a stage that are written once for each element of a thread.
const TEXT: i64 = 8000;
/// A tile that takes at most the first number of instructions is computed again rather than give up copying rows
/// ahead; one that takes at most the second, only where the tiles do not fit otherwise.
const CHEAP: [usize; 2] = [12, 30];
/// Threads of a block of which few fit a multiprocessor.
const LARGE: i64 = 512;

/// Where a thread has its elements of a tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    Registers,
    /// In the team's shared memory, this many bytes from its first.
    Shared(i64),
    /// It is an array that is copied ahead.
    Ahead(usize),
}

/// Which rows a team has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turns {
    /// One.
    One,
    /// A chain of this many consecutive rows, along the columns that are folded.
    Chain(i64),
    /// Rows a grid apart: each block takes one of as many rows as there are blocks.
    Stride,
}

/// How a kernel of rows is run.
pub(crate) struct Layout {
    /// The kernel, without tiles that are computed again.
    pub(crate) kernel: Kernel,
    pub(crate) team: Team,
    pub(crate) turns: Turns,
    pub(crate) holds: SecondaryMap<Tile, Option<Hold>>,
    pub(crate) arrays: Vec<Array>,
    /// For each stage and parameter the array that it reads.
    pub(crate) reads: Vec<Vec<Option<usize>>>,
    /// How many rows of the arrays there is room for: while one is read another may be on its way.
    pub(crate) copies: i64,
    /// Bytes of one row of all arrays.
    pub(crate) ahead: i64,
    /// Bytes of shared memory of a team.
    pub(crate) bytes: i64,
    /// Loads, by stage and parameter, that give the same for each row of a chain: they are done once.
    pub(crate) once: Vec<(usize, usize)>,
    /// Registers of a thread that are left for loads under way.
    pub(crate) spare: i64,
    /// Blocks that fit a multiprocessor.
    pub(crate) resident: u32,
}

/// What a layout is tried with.
#[derive(Clone)]
struct Attempt<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    team: Team,
    turns: Turns,
    /// The axes of the domain along which a team walks.
    walked: Vec<usize>,
    /// Registers of a thread for partial results of columns.
    columns: i64,
    /// Bytes of shared memory of a block.
    room: i64,
    /// Bytes of a multiprocessor.
    all: i64,
    fp: Fp,
}

impl Layout {
    pub(crate) fn of(
        program: &Program,
        kernel: &Kernel,
        columns: Option<&Columns>,
        (target, fp): (Target, Fp),
    ) -> Result<Layout, Diagnostic> {
        let mut team = Team::of(kernel, fp);
        let parts = |s: &Stage| {
            let blocks = (volume(&s.axes) + team.piece - 1) / team.piece;
            s.sinks.iter().filter(|k| matches!(k, Sink::Reduce { .. })).count() as i64
                * ((blocks * 8 + 15) / 16 * 16)
        };
        let parts = match team.warps() {
            1 => 0,
            _ => kernel.stages.iter().map(parts).sum(),
        };
        let shared = i64::from(target.shared());
        let words = |(stage, k): (&Stage, usize)| match &stage.sinks[k] {
            Sink::Fold { .. } => {
                team.cells(volume(&stage.axes)) * ((output_type(stage, k).bytes() as i64 + 3) / 4)
            }
            _ => 0,
        };
        let every = kernel.stages.iter().flat_map(|s| (0..s.sinks.len()).map(move |k| (s, k)));
        let accumulated = every.map(words).sum();
        let walks = match columns {
            Some(c) => Turns::Chain(c.chain),
            None if team.block() >= LARGE && volume(&kernel.domain) < 1 << 30 => Turns::Stride,
            None => Turns::One,
        };
        // Two blocks of few threads at least share a multiprocessor.
        let room = if team.block() < LARGE { shared / 2 } else { shared } - parts;
        let walked = match columns {
            Some(c) => c.axes.clone(),
            None => (0..kernel.domain.len()).collect(),
        };
        let mut attempt = Attempt {
            walked,
            program,
            kernel,
            team,
            turns: walks,
            columns: accumulated,
            room,
            all: shared + 1024,
            fp,
        };
        let mut stored = read_tiles(kernel);
        let cheap = |most: usize| -> Vec<Tile> {
            stored.iter().copied().filter(|&t| attempt.cost(t) <= most).collect()
        };
        let [cheap, dearer] = CHEAP.map(cheap);
        if walks != Turns::One {
            for again in [&Vec::new(), &cheap] {
                for copies in [2, 1] {
                    if let Some(found) = attempt.layout(again, copies)? {
                        return Ok(found);
                    }
                }
            }
        }
        if walks == Turns::Stride {
            // One row of a block, which is all that is kept of it.
            let alone = Attempt { turns: Turns::One, ..attempt.clone() };
            if let Some(found) = alone.layout(&[], 0)? {
                return Ok(found);
            }
            for copies in [2, 1] {
                if let Some(found) = attempt.layout(&dearer, copies)? {
                    return Ok(found);
                }
            }
        }
        if walks == Turns::Stride {
            attempt.turns = Turns::One;
        }
        attempt.room = shared - parts;
        // What does not fit is computed again, the cheapest first.
        let (_, data) = data_sources(kernel);
        let mut again = Vec::new();
        loop {
            let mut found = attempt.layout(&again, 0)?;
            while found.is_none() && team.teams > 1 && again.len() + 1 > stored.len() {
                team.teams /= 2;
                attempt.team = team;
                found = attempt.layout(&again, 0)?;
            }
            if let Some(found) = found {
                return Ok(found);
            }
            let free = stored.iter().copied().filter(|t| !data.contains(t));
            let Some(cheapest) = free.min_by_key(|&t| attempt.cost(t)) else {
                return Err(internal("what a row keeps outgrows shared memory"));
            };
            stored.retain(|&t| t != cheapest);
            again.push(cheapest);
        }
    }
}

/// The tiles that some stage reads.
fn read_tiles(kernel: &Kernel) -> Vec<Tile> {
    let read = |t: Tile| kernel.stages.iter().any(|s| s.params.contains(&Param::Tile(t)));
    kernel.tiles.keys().filter(|&t| read(t)).collect()
}

impl Attempt<'_> {
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

    /// The kernel with some of its tiles computed again.
    fn inlined(&self, again: &[Tile]) -> Result<Kernel, Diagnostic> {
        let kernel = self.kernel;
        let defs = defs(kernel);
        let (mut rows, mut tiles) = (SecondaryMap::new(), SecondaryMap::new());
        kernel.rows.keys().for_each(|r| rows[r] = Source::Kept);
        kernel.tiles.keys().filter(|t| !again.contains(t)).for_each(|t| tiles[t] = Source::Kept);
        let inliner = Inliner { kernel, defs: &defs, rows: &rows, tiles: &tiles };
        let mut own = kernel.clone();
        for (s, stage) in own.stages.iter_mut().enumerate() {
            let all: Vec<(usize, usize)> = (0..stage.sinks.len()).map(|k| (s, k)).collect();
            let Some(inlined) = inliner.stage(&all) else {
                return Err(internal("data that chooses places is not kept"));
            };
            (stage.params, stage.program) = (inlined.params, inlined.program);
        }
        Ok(own)
    }

    /// The loads of elements that do not change along a chain.
    fn same(&self, kernel: &Kernel) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        let Turns::Chain(_) = self.turns else { return found };
        for (s, stage) in kernel.stages.iter().enumerate() {
            let whole = self.team.pieces(volume(&stage.axes)).iter().all(|p| p.has == Has::All);
            for (k, param) in stage.params.iter().enumerate() {
                let Param::Load(pieces) = param else { continue };
                let fixed = |e: &IndexExpr| {
                    let mut data = false;
                    crate::gpu::schedule::index::data_of(e, &mut |_| data = true);
                    !data && self.walked.iter().all(|&a| !e.shares(&IndexExpr::axis(a)))
                };
                let fixed = matches!(pieces.as_slice(), [piece] if piece.guards.is_empty()
                    && matches!(piece.from, Operand::Buffer(_))
                    && piece.index.iter().all(fixed));
                if fixed && whole && !stage.axes.is_empty() && stage.program.reads_param(k) {
                    found.push((s, k));
                }
            }
        }
        found
    }

    /// A layout with these tiles computed again and this many rows ahead, where it fits.
    fn layout(&self, again: &[Tile], copies: i64) -> Result<Option<Layout>, Diagnostic> {
        let kernel = self.inlined(again)?;
        let (mut arrays, reads) = match copies {
            0 => (Vec::new(), kernel.stages.iter().map(|s| vec![None; s.params.len()]).collect()),
            _ => arrays(self.program, &kernel, self.team, &self.walked),
        };
        if copies > 0 && arrays.is_empty() {
            return Ok(None);
        }
        let mut holds = SecondaryMap::new();
        let defs = defs(&kernel);
        let mut lives: Vec<Life> = Vec::new();
        for t in read_tiles(&kernel) {
            let Some((from, k)) = defs.tiles[t] else { continue };
            let until = kernel.stages.iter().rposition(|s| s.params.contains(&Param::Tile(t)));
            let until = until.unwrap_or(from);
            let stage = &kernel.stages[from];
            if stage.axes.is_empty() {
                // Every thread has computed it.
                continue;
            }
            if let Some(a) = copied(stage, k, &reads[from]) {
                holds[t] = Some(Hold::Ahead(a));
                arrays[a].last = arrays[a].last.max(until);
                continue;
            }
            let cells = self.team.cells(volume(&stage.axes));
            lives.push(Life { tile: t, from, until, words: words(&kernel, t, cells) });
        }
        let written: Vec<ScalarProgram> =
            kernel.stages.iter().map(|s| written(&s.program, self.fp)).collect();
        let small = kernel.stages.iter().zip(&written).all(|(s, p)| {
            self.team.cells(volume(&s.axes)).saturating_mul(p.insts.len() as i64) <= TEXT
        });
        let most = written.iter().map(pressure).max().unwrap_or(0);
        // Registers are given to groups of four warps.
        let block = (self.team.block() + 127) / 128 * 128;
        let limit = (REGISTERS / block.max(256)).min(255) / 8 * 8;
        // Elements that are far apart have addresses of their own.
        let apart = if self.team.width == 1 && self.team.block() > LARGE { OTHERS / 2 } else { 0 };
        let mut used = OTHERS + apart + self.columns + most;
        let mut held: Vec<&Life> = Vec::new();
        for life in lives.iter().filter(|_| small) {
            held.push(life);
            if used + peak(&held, kernel.stages.len()) > limit {
                held.pop();
            }
        }
        held.iter().for_each(|l| holds[l.tile] = Some(Hold::Registers));
        used += peak(&held, kernel.stages.len());
        let mut ahead = 0;
        for a in &mut arrays {
            a.offset = ahead;
            ahead += (a.bytes() + 15) / 16 * 16;
        }
        let mut bytes = ahead * copies;
        lives.retain(|l| holds[l.tile].is_none());
        lives.sort_by_key(|l| (l.from, l.tile));
        let mut taken: Vec<(i64, [i64; 2], usize)> = Vec::new();
        for life in &lives {
            let tile = &kernel.tiles[life.tile];
            let form = [volume(&tile.dims), tile.dtype.bytes() as i64];
            let size = (form[0].saturating_mul(form[1]) + 15) / 16 * 16;
            // A thread reads the place of what was there before it writes there.
            let place = taken.iter().position(|t| t.1 == form && t.2 <= life.from);
            let over =
                |a: &Array| copies == 1 && [volume(&a.axes), a.size] == form && a.last <= life.from;
            let at = if let Some(k) = place {
                taken[k].2 = life.until;
                taken[k].0
            } else if let Some(a) = arrays.iter_mut().find(|a| over(a)) {
                a.last = life.until;
                a.offset
            } else {
                taken.push((bytes, form, life.until));
                bytes = bytes.saturating_add(size);
                bytes - size
            };
            holds[life.tile] = Some(Hold::Shared(at));
        }
        if bytes.saturating_mul(self.team.teams) > self.room {
            return Ok(None);
        }
        // What the assembler takes beside that, more where much is held.
        let beside = used / 4 + (used - 96).max(0) / 4;
        let wanted = (used + beside).max(64).min(limit.max(64));
        let resident = (REGISTERS / (block * ((wanted + 7) / 8 * 8))).min(2048 / block);
        let by_shared = self.all / (bytes * self.team.teams + 2048);
        let resident = resident.min(by_shared).clamp(1, 32);
        let limit = (REGISTERS / (block * resident) / 8 * 8).min(255);
        let mut once: Vec<(usize, usize)> = Vec::new();
        for (s, k) in self.same(&kernel) {
            let param = &kernel.stages[s].params[k];
            let axes = &kernel.stages[s].axes;
            // What two stages load alike is loaded once.
            let known = once.iter().any(|&(other, n)| {
                kernel.stages[other].params[n] == *param && kernel.stages[other].axes == *axes
            });
            let size = kernel.stages[s].program.params[k].bytes().max(4) as i64 / 4;
            let words = if known { 0 } else { self.team.cells(volume(axes)) * size };
            // Some are left for what is read of each row.
            if used + words + ROW <= limit {
                used += words;
                once.push((s, k));
            }
        }
        let (spare, resident) = (limit - used, resident as u32);
        Ok(Some(Layout {
            kernel,
            team: self.team,
            turns: self.turns,
            holds,
            arrays,
            reads,
            once,
            copies,
            ahead,
            bytes,
            spare,
            resident,
        }))
    }
}

/// A tile that is kept, from the stage that makes it until the last that reads it.
struct Life {
    tile: Tile,
    from: usize,
    until: usize,
    /// Registers for all elements of a thread.
    words: i64,
}

/// The array that an output of a stage is, as it was read.
fn copied(stage: &Stage, k: usize, reads: &[Option<usize>]) -> Option<usize> {
    match stage.program.insts[stage.program.outputs[k]].op {
        SOp::Param(p) => reads[p as usize],
        _ => None,
    }
}

fn words(kernel: &Kernel, t: Tile, cells: i64) -> i64 {
    match kernel.tiles[t].dtype {
        // A bit each.
        DType::Bool => (cells + 31) / 32,
        d if d.bytes() == 2 => (cells + 1) / 2,
        d => cells * (d.bytes() as i64).max(4) / 4,
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

/// The pieces of a stage's rows that a warp takes.
pub(crate) fn pieces(team: Team, stage: &Stage) -> Vec<Piece> {
    team.pieces(volume(&stage.axes))
}

/// One fold of a stage over its elements.
pub(crate) struct Reduction {
    pub(crate) monoid: Monoid,
    pub(crate) dtype: DType,
    pub(crate) into: adfuse_ir::kernel::Row,
}

//! Row residency: where the elements of a row are between the stages of a kernel. Registers, shared memory, the arrays
//! that were prefetched, or nowhere, to be computed again.

use super::async_copy::{RowArray, arrays};
use super::column_folds::ColumnFold;
use super::cooperative_row::{Has, Piece, Team};
use super::inline::{Inliner, Source, defs};
use super::row_decision::{RowDecision, RowWalk, StageUnroll};
use super::shape::{free, internal, output_type};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Kernel, Operand, Param, Program, Row, Sink, Stage, Tile, volume};
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::{Prim, SOp};
use adfuse_ir::{DType, Diagnostic, Fp};
use cranelift_entity::SecondaryMap;

/// Where a thread has its elements of a tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Residency {
    Registers,
    /// In the team's shared memory, this many bytes from its first.
    Shared(i64),
    /// It is an array that is prefetched.
    Prefetched(usize),
}

/// A kernel of rows as a decision lays it out.
pub(crate) struct RowLayout {
    /// The kernel, without tiles that are computed again.
    pub(crate) kernel: Kernel,
    pub(crate) team: Team,
    pub(crate) walk: RowWalk,
    pub(crate) residency: SecondaryMap<Tile, Option<Residency>>,
    pub(crate) arrays: Vec<RowArray>,
    /// For each stage and parameter the array that it reads.
    pub(crate) reads: Vec<Vec<Option<usize>>>,
    /// How many rows of the arrays there is room for: while one is read another may be on its way.
    pub(crate) copies: i64,
    /// Bytes of one row of all arrays.
    pub(crate) ahead: i64,
    /// Bytes of shared memory of a team.
    pub(crate) bytes: i64,
    /// Loads, by stage and parameter, that are done once for all rows of a chain.
    pub(crate) hoisted: Vec<(usize, usize)>,
    /// Blocks that a multiprocessor shall have at a time.
    pub(crate) resident: u32,
    pub(crate) unrolls: Vec<StageUnroll>,
}

/// The axes of the domain along which a team walks.
pub(crate) fn walked(kernel: &Kernel, columns: Option<&ColumnFold>) -> Vec<usize> {
    match columns {
        Some(c) => c.axes.clone(),
        None => (0..kernel.domain.len()).collect(),
    }
}

/// The tiles that some stage reads.
pub(crate) fn read_tiles(kernel: &Kernel) -> Vec<Tile> {
    let read = |t: Tile| kernel.stages.iter().any(|s| s.params.contains(&Param::Tile(t)));
    kernel.tiles.keys().filter(|&t| read(t)).collect()
}

/// A tile that is kept, from the stage that makes it until the last that reads it.
pub(crate) struct Life {
    pub(crate) tile: Tile,
    pub(crate) from: usize,
    pub(crate) until: usize,
    /// Registers for all elements of a thread.
    pub(crate) words: i64,
}

/// A kernel some of whose tiles are computed again: what it prefetches, and what it keeps.
pub(crate) struct RowFrame {
    pub(crate) kernel: Kernel,
    pub(crate) arrays: Vec<RowArray>,
    pub(crate) reads: Vec<Vec<Option<usize>>>,
    /// Tiles that are arrays as they were prefetched.
    prefetched: Vec<(Tile, usize)>,
    /// Tiles that are kept otherwise.
    pub(crate) lives: Vec<Life>,
    /// Neighbours that threads read and write together, of the last of which a row may have some alone.
    width: i64,
}

/// Where tiles and arrays are in shared memory.
pub(crate) struct RowPlacement {
    residency: SecondaryMap<Tile, Option<Residency>>,
    arrays: Vec<RowArray>,
    ahead: i64,
    pub(crate) bytes: i64,
}

impl RowFrame {
    pub(crate) fn new(
        program: &Program,
        given: &Kernel,
        (team, walked): (Team, &[usize]),
        recomputed: &[Tile],
        copies: i64,
    ) -> Result<RowFrame, Diagnostic> {
        let kernel = inlined(given, recomputed)?;
        let (mut arrays, reads) = match copies {
            0 => (Vec::new(), kernel.stages.iter().map(|s| vec![None; s.params.len()]).collect()),
            _ => arrays(program, &kernel, team, walked),
        };
        let mut prefetched = Vec::new();
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
                prefetched.push((t, a));
                arrays[a].last = arrays[a].last.max(until);
                continue;
            }
            let cells = team.cells(volume(&stage.axes));
            lives.push(Life { tile: t, from, until, words: words(&kernel, t, cells) });
        }
        Ok(RowFrame { kernel, arrays, reads, prefetched, lives, width: team.width })
    }

    /// Places what is not in registers.
    pub(crate) fn placed(&self, registers: &[Tile], copies: i64) -> RowPlacement {
        let (kernel, mut arrays) = (&self.kernel, self.arrays.clone());
        let mut residency = SecondaryMap::new();
        self.prefetched.iter().for_each(|&(t, a)| residency[t] = Some(Residency::Prefetched(a)));
        registers.iter().for_each(|&t| residency[t] = Some(Residency::Registers));
        let room = |n: i64, size: i64| {
            let bytes = ((n + self.width - 1) / self.width * self.width).saturating_mul(size);
            bytes.saturating_add(15) / 16 * 16
        };
        let mut ahead = 0;
        for a in &mut arrays {
            a.offset = ahead;
            ahead += room(volume(&a.axes), a.size);
        }
        let mut bytes = ahead * copies;
        let mut lives: Vec<&Life> =
            self.lives.iter().filter(|l| residency[l.tile].is_none()).collect();
        lives.sort_by_key(|l| (l.from, l.tile));
        let mut taken: Vec<(i64, [i64; 2], usize)> = Vec::new();
        for life in lives {
            let tile = &kernel.tiles[life.tile];
            let form = [volume(&tile.dims), tile.dtype.bytes() as i64];
            let size = room(form[0], form[1]);
            // A thread reads the place of what was there before it writes there.
            let place = taken.iter().position(|t| t.1 == form && t.2 <= life.from);
            let over = |a: &RowArray| {
                copies == 1 && [volume(&a.axes), a.size] == form && a.last <= life.from
            };
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
            residency[life.tile] = Some(Residency::Shared(at));
        }
        RowPlacement { residency, arrays, ahead, bytes }
    }
}

impl RowLayout {
    /// What a decision lays out, of a kernel as it is when some tiles are computed again.
    pub(crate) fn new(frame: RowFrame, decision: &RowDecision) -> RowLayout {
        let RowPlacement { residency, arrays, ahead, bytes } =
            frame.placed(&decision.registers, decision.copies);
        RowLayout {
            kernel: frame.kernel,
            team: decision.team,
            walk: decision.walk,
            residency,
            arrays,
            reads: frame.reads,
            copies: decision.copies,
            ahead,
            bytes,
            hoisted: decision.hoisted.clone(),
            resident: decision.resident,
            unrolls: decision.unrolls.clone(),
        }
    }

    /// Whether a stage has elements in registers, or folds columns there: its text has a part for each element.
    pub(crate) fn has_registers(&self, stage: &Stage) -> bool {
        let in_registers = |t: &Tile| self.residency[*t] == Some(Residency::Registers);
        let writes = stage.sinks.iter().any(|s| match s {
            Sink::Keep(t) => in_registers(t),
            Sink::Fold { .. } => true,
            _ => false,
        });
        writes
            || stage.params.iter().any(|p| match p {
                Param::Tile(t) => in_registers(t),
                _ => false,
            })
    }

    /// Whether threads share the elements of a stage, and not each computes all that there is.
    pub(crate) fn is_shared(&self, stage: &Stage) -> bool {
        !stage.axes.is_empty() || stage.sinks.iter().any(|s| matches!(s, Sink::Reduce { .. }))
    }
}

/// Bytes of shared memory for what the warps of a team leave for each other.
pub(crate) fn parts_bytes(kernel: &Kernel, team: Team, fp: Fp) -> i64 {
    let parts = |s: &Stage| {
        let of = |fold: &Reduction| parts_of_fold(team, volume(&s.axes), fold, fp);
        reductions(s, team.width).iter().map(of).sum::<i64>()
    };
    match team.warps() {
        1 => 0,
        _ => kernel.stages.iter().map(parts).sum(),
    }
}

/// Bytes of shared memory that a fold of `n` elements takes: eight for each part, or all elements.
pub(crate) fn parts_of_fold(team: Team, n: i64, fold: &Reduction, fp: Fp) -> i64 {
    let bytes = match fold.in_lanes(team, fp) {
        true => n * fold.word(),
        false => (n + team.piece - 1) / team.piece * 8,
    };
    (bytes + 15) / 16 * 16
}

/// The kernel with some of its tiles computed again.
fn inlined(kernel: &Kernel, recomputed: &[Tile]) -> Result<Kernel, Diagnostic> {
    let defs = defs(kernel);
    let (mut rows, mut tiles) = (SecondaryMap::new(), SecondaryMap::new());
    kernel.rows.keys().for_each(|r| rows[r] = Source::Kept);
    kernel.tiles.keys().filter(|t| !recomputed.contains(t)).for_each(|t| tiles[t] = Source::Kept);
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
pub(crate) fn unchanging(
    kernel: &Kernel,
    team: Team,
    walk: RowWalk,
    walked: &[usize],
) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let RowWalk::Chain(_) = walk else { return found };
    for (s, stage) in kernel.stages.iter().enumerate() {
        let whole = team.pieces(volume(&stage.axes)).iter().all(|p| p.has == Has::All);
        for (k, param) in stage.params.iter().enumerate() {
            let Param::Load(pieces) = param else { continue };
            let fixed = |e: &IndexExpr| {
                let mut data = false;
                crate::gpu::schedule::index::data_of(e, &mut |_| data = true);
                !data && walked.iter().all(|&a| !e.shares(&IndexExpr::axis(a)))
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

/// The pieces of a stage's rows that a warp takes.
pub(crate) fn pieces(team: Team, stage: &Stage) -> Vec<Piece> {
    team.pieces(volume(&stage.axes))
}

/// One fold of a stage over its elements.
pub(crate) struct Reduction {
    pub(crate) monoid: Monoid,
    pub(crate) dtype: DType,
    pub(crate) into: Row,
    /// Elements of this type of 16 bits are folded two at a time, and widened at the end.
    pub(crate) pairs: Option<DType>,
}

impl Reduction {
    /// Whether elements are folded once all warps of a team have left theirs: the order goes over the lanes of all.
    pub(crate) fn in_lanes(&self, team: Team, fp: Fp) -> bool {
        team.splits_block(fp) && !free(self.monoid, self.dtype)
    }

    /// Bytes of an element in shared memory: whole words.
    pub(crate) fn word(&self) -> i64 {
        (self.dtype.bytes() as i64).max(4)
    }
}

/// The folds of a stage over its elements, of which a thread has `width` neighbours.
pub(crate) fn reductions(stage: &Stage, width: i64) -> Vec<Reduction> {
    let of = |k: usize| match &stage.sinks[k] {
        Sink::Reduce { monoid, into, .. } => {
            let extreme = matches!(monoid, Monoid::Max | Monoid::Min) && width > 1;
            let pairs = widened(stage, k).filter(|_| extreme);
            Some(Reduction { monoid: *monoid, dtype: output_type(stage, k), into: *into, pairs })
        }
        _ => None,
    };
    (0..stage.sinks.len()).filter_map(of).collect()
}

/// The type of 16 bits from which an output is widened to `f32`.
fn widened(stage: &Stage, k: usize) -> Option<DType> {
    let program = &stage.program;
    let output = &program.insts[program.outputs[k]];
    let from = program.source(output);
    let widens = output.op == SOp::Prim(Prim::Convert) && output.dtype == DType::F32;
    (widens && from.is_narrow_float()).then_some(from)
}

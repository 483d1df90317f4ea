//! Products whose operands are windows of arrays, such as convolutions and both of their gradients: tiles of sums along each axis,
//! and boxes of the operands in shared memory, where windows share elements. Elements are those of `f32`, or words of two 16-bit
//! floats ([`super::box_word`]).

use super::box_word::BoxWord;
use super::grid::{Grid, resident_fits};
use super::laid_out::LaidOut;
use super::mma_unit::Unit;
use super::scalar_form::written;
use super::staged_box::{BoxOperand, OWN, StagedBox};
use super::text::{DecisionLine, Line, Reader, Writer, listed, number, pair, wrong};
use super::tiling::Combine;
use crate::gpu::target::{GpuTarget, WARP};
use adfuse_ir::kernel::{Extents, Member, Program, Sink, volume};
use adfuse_ir::op::Monoid;
use adfuse_ir::{DType, Diagnostic, Fp};
use smallvec::SmallVec;

/// Lines of an operand that lanes of a warp have next to each other, and places along the depth.
pub(crate) const NEAR: i64 = 8;
pub(crate) const DEEP: i64 = 4;
/// Instructions after a sum beyond which the text outgrows what it saves: each thread has it for all of its sums.
const MOST_EPILOGUE: usize = 32;
/// Sums of a thread, at most: operands need registers too.
pub(crate) const MOST_SUMS: i64 = 128;
/// Pieces of 8 places of the depth in a step, at most: each has text of its own.
pub(crate) const MOST_PIECES: i64 = 24;

/// Words of the boxes of a step, at most: shared memory has fewer.
const MOST_WORDS: i64 = 1 << 16;

/// Elements of a tile along some axes.
pub(crate) type Sides = SmallVec<[i64; 4]>;

/// A product with windows.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct WindowForm {
    /// What multiplies: tensor cores.
    pub(crate) unit: Unit,
    pub(crate) operands: [BoxOperand; 2],
    /// Extents of the depth, counted in words.
    pub(crate) depth: Extents,
    /// The operand that a kernel lays out as words before.
    pub(crate) laid_out: Option<LaidOut>,
}

/// How elements of an operand come from its boxes to the units that multiply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BoxPath {
    /// As they were copied: each is rounded wherever it is read.
    Copied,
    /// What is computed of each, rounded, takes its place in shared memory once it is there.
    Staged,
}

impl BoxPath {
    pub(crate) const ALL: [BoxPath; 2] = [BoxPath::Copied, BoxPath::Staged];

    /// Whether an operand may take it: what is computed is computed once, and words of elements that lie apart are joined once.
    /// Words of neighbours are taken as they are.
    pub(crate) fn is_of(self, operand: &BoxOperand) -> bool {
        let joined = matches!(operand.word, BoxWord::Apart(_));
        match self {
            BoxPath::Staged => {
                operand.computed.is_some() || joined || operand.word == BoxWord::Single
            }
            BoxPath::Copied => operand.computed.is_none() && !joined,
        }
    }

    /// The word for it in the text of a schedule.
    fn name(self) -> &'static str {
        match self {
            BoxPath::Copied => "copied",
            BoxPath::Staged => "staged",
        }
    }
}

/// The choices of a product with windows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WindowTile {
    /// Elements of a tile along each axis of the rows, the columns and the depth.
    pub(crate) sides: [Sides; 3],
    /// Warps along rows and columns.
    pub(crate) warps: [i64; 2],
    /// Blocks that a multiprocessor shall have at a time.
    pub(crate) resident: u32,
    /// How the operands come.
    pub(crate) paths: [BoxPath; 2],
    /// Steps in shared memory at a time.
    pub(crate) stages: i64,
    /// Steps from the one that is multiplied to the one whose elements are computed in shared memory meanwhile: 1, or 0 where all
    /// are computed before.
    pub(crate) ahead: i64,
    /// Parts of the depth, each by blocks of its own.
    pub(crate) parts: i64,
    pub(crate) combine: Combine,
}

/// Where everything lies that a decision tiles.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WindowTiling {
    pub(crate) boxes: [StagedBox; 2],
    /// The axis of rows, columns and depth along which the lanes of a warp are next to each other.
    pub(crate) lanes: [usize; 3],
    /// Tiles along each axis of rows, columns and depth.
    pub(crate) tiles: [Sides; 3],
    /// Groups of neighbouring lanes along each axis of a tile.
    pub(crate) groups: [Sides; 3],
    /// Steps of the whole depth, and of a part.
    pub(crate) steps: i64,
    pub(crate) per: i64,
    /// Groups of rows and columns of a warp.
    pub(crate) each: [i64; 2],
    pub(crate) threads: i64,
}

impl WindowForm {
    /// The form of a product whose operands are boxes of arrays, windows of at least one; `None` for others, and in modes that
    /// do not round operands. Of 16-bit floats arrays whose depth is several axes are boxes too, such as images in the gradient of
    /// a filter of one element.
    pub(crate) fn of(program: &Program, m: &Member, fp: Fp) -> Option<WindowForm> {
        let all = [&m.batch, &m.rows, &m.cols, &m.depth];
        let unit = Unit::of(m, fp);
        if unit == Unit::Fma || all.into_iter().any(|n| volume(n) == 0) {
            return None;
        }
        if written(&m.then.program, fp).insts.len() > MOST_EPILOGUE {
            return None;
        }
        if unit == Unit::Tf32 {
            let [lhs, rhs] = [0, 1].map(|side| BoxOperand::of(program, m, side, (unit, None)));
            let (operands, depth) = ([lhs?, rhs?], m.depth.clone());
            let form = WindowForm { unit, operands, depth, laid_out: None };
            return form.has_windows().then_some(form);
        }
        let axes = 0..m.depth.len();
        let found = axes.filter_map(|axis| WindowForm::of_words(program, m, (unit, axis)));
        // The fewest words are the fewest zeros. Neighbours need not be joined.
        let joined = |form: &WindowForm| {
            form.operands.iter().filter(|x| matches!(x.word, BoxWord::Apart(_))).count()
        };
        found.min_by_key(|form| (volume(&form.depth), form.laid_out.is_some(), joined(form)))
    }

    /// The form of a product of 16-bit floats whose words have neighbours along an axis of the depth.
    fn of_words(program: &Program, m: &Member, (unit, axis): (Unit, usize)) -> Option<WindowForm> {
        if m.depth[axis] < 2 {
            return None;
        }
        let mut laid_out = None;
        let operands = [0, 1].map(|side| {
            let as_it_lies = BoxOperand::of(program, m, side, (unit, Some(axis)));
            as_it_lies.or_else(|| {
                let layout = LaidOut { side, axis };
                laid_out = Some(layout);
                layout.operand(program, m)
            })
        });
        let mut depth = m.depth.clone();
        depth[axis] = (depth[axis] + 1) / 2;
        let [Some(lhs), Some(rhs)] = operands else { return None };
        let form = WindowForm { unit, operands: [lhs, rhs], depth, laid_out };
        let is_divided = laid_out.is_none() && form.operands.iter().any(BoxOperand::is_divided);
        (form.has_windows() || is_divided).then_some(form)
    }

    fn has_windows(&self) -> bool {
        self.operands.iter().any(BoxOperand::has_windows)
    }
}

/// The coordinates of place `n` among these extents.
pub(crate) fn place(mut n: i64, extents: &[i64]) -> Sides {
    let mut at: Sides = extents.iter().map(|_| 0).collect();
    for (k, &extent) in extents.iter().enumerate().rev() {
        at[k] = n % extent;
        n /= extent;
    }
    at
}

/// Whether each warp's groups are those of the first, further on along each axis: then they are constants apart.
fn are_alike(groups: &[i64], each: i64) -> bool {
    let warps = volume(groups) / each.max(1);
    (0..warps).all(|warp| {
        let from = place(warp * each, groups);
        (0..each).all(|k| {
            let apart = place(k, groups);
            let sum: Sides = from.iter().zip(&apart).map(|(a, b)| a + b).collect();
            place(warp * each + k, groups) == sum
        })
    })
}

impl BoxOperand {
    /// Whether words begin at the same of two elements in each tile, warp and lane, so that it follows from their groups.
    fn begins_alike(&self, sides: &Sides, (groups, each): (&Sides, i64), lane: usize) -> bool {
        let (Some(line), BoxWord::Sliding) = (self.dims.last(), self.word) else { return true };
        let warps = volume(groups) / each.max(1);
        line.factors[OWN].iter().enumerate().filter(|(_, f)| *f % 2 != 0).all(|(a, _)| {
            let is_cut = sides[a] < self.extents[OWN][a] && sides[a] % 2 != 0;
            let warps = (0..warps).all(|warp| place(warp * each, groups)[a] % 2 == 0);
            a != lane && !is_cut && warps
        })
    }
}

/// The axes along which lanes are next to each other: of rows and columns the last ones with whole groups, which lie nearest in
/// what is stored; of the depth the one where a warp reads operands in the fewest turns. And the boxes, with room for that.
fn lane_axes(
    form: &WindowForm,
    boxes: &[StagedBox; 2],
    sides: &[Sides; 3],
) -> Option<([usize; 3], [StagedBox; 2])> {
    let last = |k: usize| sides[k].iter().rposition(|n| n % NEAR == 0);
    let own = [last(0)?, last(1)?];
    let deep = sides[2].iter().enumerate().filter(|(_, n)| **n % DEEP == 0).map(|(axis, _)| axis);
    let found = deep.map(|deep| {
        let mut turns = 0;
        let padded = [0, 1].map(|side| {
            let (lanes, operand) = ([own[side], deep], &form.operands[side]);
            let padded = boxes[side].clone().padded(operand, lanes);
            turns += padded.turns(operand, lanes);
            padded
        });
        (turns, deep, padded)
    });
    let (_, deep, padded) = found.min_by_key(|(turns, ..)| *turns)?;
    Some(([own[0], own[1], deep], padded))
}

impl WindowTiling {
    /// Where a tile has everything.
    ///
    /// # Errors
    /// Why there are no such tiles.
    pub(crate) fn new(form: &WindowForm, m: &Member, tile: &WindowTile) -> Result<Self, String> {
        let extents = [&m.rows, &m.cols, &form.depth];
        for (sides, extents) in tile.sides.iter().zip(extents) {
            if sides.len() != extents.len() || sides.iter().any(|&n| !(1..=1 << 12).contains(&n)) {
                return Err(format!("{} is no tile of {}", listed(sides), listed(extents)));
            }
        }
        let boxes = [0, 1]
            .map(|side| StagedBox::new(&form.operands[side], &tile.sides[side], &tile.sides[2]));
        let words = boxes.iter().map(StagedBox::words).fold(0, i64::saturating_add);
        let most = tile.sides.iter().map(volume).max().unwrap_or(0);
        if words > MOST_WORDS || most > MOST_WORDS {
            return Err(format!("boxes of {words} words are more than shared memory has"));
        }
        let (lanes, boxes) = lane_axes(form, &boxes, &tile.sides).ok_or_else(|| {
            format!("lanes need {NEAR} rows and columns and {DEEP} places of the depth of an axis")
        })?;
        let least = |k: usize| form.operands[k].word.least_unit();
        if (0..2).any(|k| boxes[k].unit < least(k)) {
            return Err("lines of a box have no whole copies".to_owned());
        }
        let [rows, cols, depth] = [0, 1, 2].map(|k| {
            let mut groups = tile.sides[k].clone();
            groups[lanes[k]] /= if k == 2 { DEEP } else { NEAR };
            groups
        });
        let groups = [rows, cols, depth];
        let past = |a: usize| form.depth[a] % tile.sides[2][a] != 0;
        let ends = |a: usize| form.operands.iter().any(|operand| operand.ends(a));
        if (0..form.depth.len()).any(|a| past(a) && !ends(a)) || volume(&groups[2]) % 2 != 0 {
            return Err(format!("steps of {} do not divide the depth", listed(&tile.sides[2])));
        }
        let each = [0, 1].map(|k| volume(&groups[k]) / tile.warps[k].max(1));
        let whole = (0..2).all(|k| {
            tile.warps[k] > 0
                && each[k] * tile.warps[k] == volume(&groups[k])
                && are_alike(&groups[k], each[k])
                && form.operands[k].begins_alike(&tile.sides[k], (&groups[k], each[k]), lanes[k])
        });
        if !whole || each[0] == 0 || each[0] % 2 != 0 || each[1] == 0 {
            let sums = tile.sides[..2].iter().map(listed).collect::<Vec<_>>();
            return Err(format!("{} warps do not share {}", pair(tile.warps), sums.join(" by ")));
        }
        let tiles = [0, 1, 2].map(|k| {
            let along = extents[k].iter().zip(&tile.sides[k]);
            along.map(|(n, side)| (n + side - 1) / side).collect::<Sides>()
        });
        let steps = volume(&tiles[2]);
        let per = (steps + tile.parts - 1) / tile.parts.max(1);
        let threads = tile.warps[0] * tile.warps[1] * WARP;
        Ok(WindowTiling { boxes, lanes, tiles, groups, steps, per, each, threads })
    }

    /// With this many parts of the depth.
    pub(crate) fn split(mut self, parts: i64) -> WindowTiling {
        self.per = (self.steps + parts - 1) / parts.max(1);
        self
    }

    /// Bytes of a stage of shared memory.
    pub(crate) fn stage(&self) -> i64 {
        4 * (self.boxes[0].words() + self.boxes[1].words())
    }

    /// Pieces of 8 places of the depth in a step.
    pub(crate) fn pieces(&self) -> i64 {
        volume(&self.groups[2]) / 2
    }

    /// Sums of a thread.
    pub(crate) fn sums(&self) -> i64 {
        self.each[0] * self.each[1] * 2
    }

    /// Blocks that tiles have, of all of the batch, without parts of the depth.
    pub(crate) fn blocks(&self, m: &Member) -> i64 {
        volume(m.batch.iter().chain(&self.tiles[0]).chain(&self.tiles[1]))
    }
}

impl WindowTile {
    /// Whether an operand is staged.
    pub(crate) fn stages_any(&self) -> bool {
        self.paths.contains(&BoxPath::Staged)
    }

    /// Where everything lies, for tiles that a target has.
    ///
    /// # Errors
    /// Why it has no such tiles.
    pub(crate) fn fits(
        &self,
        form: &WindowForm,
        m: &Member,
        target: &GpuTarget,
    ) -> Result<WindowTiling, String> {
        let fits = |k: usize| self.paths[k].is_of(&form.operands[k]);
        if !fits(0) || !fits(1) {
            return Err("an operand that is computed or joined is staged, and one of words is not"
                .to_owned());
        }
        let made = WindowTiling::new(form, m, self)?;
        self.check(&made, target)?;
        Ok(made)
    }

    /// Errs for tiles that a target does not have, where everything lies so.
    pub(crate) fn check(&self, made: &WindowTiling, target: &GpuTarget) -> Result<(), String> {
        let WindowTile { stages, parts, resident, ahead, .. } = *self;
        if ahead > 1 || ahead == 1 && (stages < 3 || !self.stages_any()) {
            return Err(format!("of {stages} stages none is computed {ahead} steps ahead"));
        }
        if !(2..=8).contains(&stages) || !(1..=made.steps).contains(&parts) {
            return Err(format!(
                "there are no {stages} stages and {parts} parts of {} steps",
                made.steps
            ));
        }
        if (parts - 1) * made.per >= made.steps {
            return Err(format!("{} steps are not split into {parts} parts", made.steps));
        }
        if made.sums() > MOST_SUMS || made.pieces() > MOST_PIECES {
            let (sums, pieces) = (made.sums(), made.pieces());
            return Err(format!(
                "{sums} sums of a thread and {pieces} pieces of a step are too many"
            ));
        }
        let (bytes, most) = (stages * made.stage(), i64::from(target.shared));
        if bytes > most {
            return Err(format!("{bytes} bytes of shared memory are more than {most}"));
        }
        self.combine.grid.check(target)?;
        Grid { threads: made.threads, resident }.check(target)?;
        resident_fits(resident, made.threads, target)
    }

    /// Whether results of parts are few enough to be in memory.
    pub(crate) fn most_parts(m: &Member) -> i64 {
        const MOST_PARTIAL_BYTES: i64 = 64 << 20;
        let sums = volume(&m.result()).saturating_mul(4);
        (MOST_PARTIAL_BYTES / sums.max(1)).max(1)
    }
}

/// Whether a sink adds up the rows of a product, in an order that the mode leaves free.
pub(crate) fn is_row_sum(m: &Member, sink: &Sink) -> bool {
    let Sink::Fold { monoid: Monoid::Sum, runs, then } = sink else { return false };
    let mut axes: Vec<usize> =
        runs.iter().flat_map(|run| run.axes.iter().map(|&a| usize::from(a))).collect();
    axes.sort_unstable();
    let first = m.batch.len() + m.rows.len();
    let typed = then.program.params.first() == Some(&DType::F32);
    typed && volume(&m.batch) == 1 && axes.into_iter().eq(first..first + m.cols.len())
}

/// How an operand comes, as a line says it.
fn path(line: &Line<'_>, key: &str) -> Result<BoxPath, Diagnostic> {
    let (word, span) = line.word(key)?;
    let found = BoxPath::ALL.into_iter().find(|path| path.name() == word);
    found.ok_or_else(|| wrong(span, format!("`{word}` is neither `copied` nor `staged`")))
}

impl DecisionLine for WindowTile {
    fn write(&self, to: &mut Writer) {
        let [rows, cols, depth] = [0, 1, 2].map(|k| listed(&self.sides[k]));
        let warps = pair(self.warps);
        to.line(
            "tile",
            &[
                ("rows", &rows),
                ("cols", &cols),
                ("depth", &depth),
                ("warps", &warps),
                ("resident", &self.resident),
            ],
        );
        let [lhs, rhs] = self.paths.map(BoxPath::name);
        to.line("operands", &[("lhs", &lhs), ("rhs", &rhs)]);
        to.line("pipeline", &[("stages", &self.stages), ("ahead", &self.ahead)]);
        self.combine.write(self.parts, to);
    }

    fn read(from: &mut Reader<'_>) -> Result<WindowTile, Diagnostic> {
        let line = from.line("tile", &["rows", "cols", "depth", "warps", "resident"])?;
        let sides = |line: &Line<'_>, key: &str| {
            let all = line.list(key)?.into_iter().map(|(n, span)| number(n, span));
            all.collect::<Result<Sides, Diagnostic>>()
        };
        let sides = [sides(&line, "rows")?, sides(&line, "cols")?, sides(&line, "depth")?];
        let warps = line.pair("warps")?;
        let resident = u32::try_from(line.int("resident")?).unwrap_or(u32::MAX);
        let line = from.line("operands", &["lhs", "rhs"])?;
        let paths = [path(&line, "lhs")?, path(&line, "rhs")?];
        let line = from.line("pipeline", &["stages", "ahead"])?;
        let (stages, ahead) = (line.int("stages")?, line.int("ahead")?);
        let (parts, combine) = Combine::read(from)?;
        Ok(WindowTile { sides, warps, resident, paths, stages, ahead, parts, combine })
    }
}

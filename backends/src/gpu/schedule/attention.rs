//! Attention: the passes that it takes, and the tile of each.
//!
//! The way there is one pass, a block of threads for some rows of a head. The way back is two, which compute the weights
//! again: one for cotangents of keys and values, where a block has some keys and goes over all rows, and one for cotangents of
//! queries, where it has some rows and goes over the keys. So every sum has one owner and one order.
//!
//! Of 16-bit floats either warps multiply (`mma.sync`), or warpgroups (`wgmma`), for which the copy engine brings tiles. These
//! steps round weights to the type of the operands, so strict mode has none of them.
//! Of `f32` each thread multiplies and adds for itself, in the order that defines attention. The mode `fast` has no such step.

use super::capabilities::ATTENTION;
use super::grid::Grid;
use super::mapped_operand::LINE;
use super::score_operand::ScoreOperand;
use super::shape::internal;
use super::text::{DecisionLine, Reader, Writer, wrong};
use super::warpgroup_tile::{BARRIERS, GROUP, TALL};
use crate::gpu::target::{GpuTarget, WARP};
use adfuse_ir::kernel::{Attend, Program};
use adfuse_ir::op::AttentionShape;
use adfuse_ir::{At, DType, Diagnostic, Fp, Kind};
use smallvec::SmallVec;
use std::fmt;

/// Rows of what matrix units multiply at a time, and elements of the depth.
pub(crate) const UNIT: i64 = 16;
/// Bytes after each line of a tile, so that eight lines lie in different banks.
const PAD: i64 = 16;
/// Bytes of an element.
const SIZE: i64 = 2;

/// What a pass computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AttentionPass {
    /// Weighed values, and the logarithms of sums.
    Values,
    /// Cotangents of keys and values.
    Keys,
    /// Cotangents of keys alone, and of values alone, where a thread has no registers for both.
    KeyCotangents,
    ValueCotangents,
    /// Cotangents of queries, and of scores where they are wanted.
    Queries,
}

impl AttentionPass {
    const ALL: [(AttentionPass, &'static str); 5] = [
        (AttentionPass::Values, "values"),
        (AttentionPass::Keys, "keys"),
        (AttentionPass::KeyCotangents, "dk"),
        (AttentionPass::ValueCotangents, "dv"),
        (AttentionPass::Queries, "queries"),
    ];

    /// Whether a block owns keys, and goes over rows.
    pub(crate) fn owns_keys(self) -> bool {
        !matches!(self, AttentionPass::Values | AttentionPass::Queries)
    }

    /// Whether it computes cotangents of keys, and of values.
    pub(crate) fn of_keys(self) -> [bool; 2] {
        match self {
            AttentionPass::Keys => [true, true],
            AttentionPass::KeyCotangents => [true, false],
            AttentionPass::ValueCotangents => [false, true],
            AttentionPass::Values | AttentionPass::Queries => [false, false],
        }
    }
}

impl fmt::Display for AttentionPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = AttentionPass::ALL.iter().find(|(pass, _)| pass == self);
        f.write_str(found.map_or("", |(_, name)| name))
    }
}

/// What multiplies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AttentionUnit {
    /// Threads, by fused multiply-adds in the defined order.
    Thread,
    /// Warps, with operands in registers; all threads copy.
    Warp,
    /// Warpgroups, with operands in shared memory. One more warpgroup asks the copy engine for tiles.
    Warpgroup,
}

impl AttentionUnit {
    const ALL: [(AttentionUnit, &'static str); 3] = [
        (AttentionUnit::Thread, "thread"),
        (AttentionUnit::Warp, "warp"),
        (AttentionUnit::Warpgroup, "warpgroup"),
    ];
}

impl fmt::Display for AttentionUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = AttentionUnit::ALL.iter().find(|(unit, _)| unit == self);
        f.write_str(found.map_or("", |(_, name)| name))
    }
}

/// The tile of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AttentionTile {
    pub(crate) pass: AttentionPass,
    pub(crate) unit: AttentionUnit,
    /// Lines that a block owns: keys where it computes cotangents of keys, rows elsewhere.
    pub(crate) own: i64,
    /// Lines of the others that it goes over at a time.
    pub(crate) step: i64,
    /// Warps that multiply.
    pub(crate) warps: i64,
    /// Tiles of the others in shared memory at a time.
    pub(crate) stages: i64,
    /// Blocks that share a multiprocessor.
    pub(crate) resident: u32,
}

impl AttentionTile {
    /// 16-line tiles of a warp, of the lines that the block owns.
    pub(crate) fn tall(&self) -> i64 {
        self.own / self.warps / UNIT
    }

    pub(crate) fn grid(&self) -> Grid {
        let copies = match self.unit {
            AttentionUnit::Thread | AttentionUnit::Warp => 0,
            AttentionUnit::Warpgroup => GROUP,
        };
        Grid { threads: self.warps * WARP + copies, resident: self.resident }
    }

    /// Warpgroups that multiply.
    pub(crate) fn groups(&self) -> i64 {
        self.warps * WARP / GROUP
    }

    /// Registers of a thread that asks for copies and of one that multiplies, where warpgroups do: those that a block begins
    /// with are divided among them.
    pub(crate) fn group_registers(&self, target: &GpuTarget) -> [i64; 2] {
        let Grid { threads, resident } = self.grid();
        let each = target.registers_of(threads * i64::from(resident)).min(MOST_REGISTERS);
        let left = each * threads - FEW_REGISTERS * GROUP;
        let unit = i64::from(target.register_unit);
        let many = left / (self.groups() * GROUP) / unit * unit;
        [FEW_REGISTERS, many.min(MOST_REGISTERS)]
    }
}

/// Registers of a thread that asks for copies, and the most of one that multiplies.
const FEW_REGISTERS: i64 = 24;
const MOST_REGISTERS: i64 = 240;
/// The same where warps multiply: operands, places, and what is known of lines.
const WARP_REGISTERS: i64 = 60;
/// Registers of a thread beside sums and scores where warpgroups multiply: places, barriers, and what is known of lines.
const OTHER_REGISTERS: i64 = 20;

/// The tiles of all passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AttentionDecision {
    pub(crate) tiles: SmallVec<[AttentionTile; 2]>,
}

/// The columns of scores that a line sees: line `i` those from `i + low` to `i + high`, where there are limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ColumnSpan {
    pub(crate) low: Option<i64>,
    pub(crate) high: Option<i64>,
}

/// Attention as numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AttentionForm {
    pub(crate) step: Attend,
    pub(crate) dtype: DType,
    pub(crate) heads: i64,
    /// Heads that share keys.
    pub(crate) shared: i64,
    pub(crate) rows: i64,
    pub(crate) stream: i64,
    pub(crate) depth: i64,
    pub(crate) width: i64,
    /// Keys before and after its own place that a row sees, where that hides any.
    limits: [Option<i64>; 2],
    pub(crate) extra: Option<ScoreOperand>,
    /// Whether operands may move from turn to turn of a loop, which tensor maps do not.
    pub(crate) moves: bool,
}

/// Attention with the decisions for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ScheduledAttention {
    pub(crate) form: AttentionForm,
    pub(crate) decision: AttentionDecision,
}

/// Whether there is a step for attention of these extents and this type, in a mode.
pub(crate) fn has_step(shape: AttentionShape, dtype: DType, fp: Fp) -> bool {
    let small = |n: u64| n < 1 << 28;
    let heads = shape.groups.saturating_mul(shape.shared);
    let is_known = dtype == DType::F32 || fp != Fp::Strict && dtype.is_narrow_float();
    is_known
        && ATTENTION.has(fp, dtype, shape.depth, shape.width)
        && small(shape.rows)
        && small(shape.stream)
        && small(heads)
}

impl AttentionForm {
    /// # Errors
    /// [`Kind::Unsupported`] where there is no step for it.
    pub(crate) fn of(
        program: &Program,
        step: &Attend,
        (fp, moves): (Fp, bool),
    ) -> Result<AttentionForm, Diagnostic> {
        let ty = |k: usize| program.buffers.get(*step.inputs.get(k)?)?.ty();
        let (Some(q), Some(k), Some(v)) = (ty(0), ty(1), ty(2)) else {
            return Err(internal("attention has no operands"));
        };
        let shape = AttentionShape::of(&q, &k, &v).filter(|&shape| has_step(shape, q.dtype, fp));
        let Some(shape) = shape else {
            let m = format!("`{}` of {q} has no step on a GPU in {}", step.op(), fp.name());
            return Err(Diagnostic::new(At::default(), Kind::Unsupported, m));
        };
        let int = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let heads = program.buffers[step.inputs[0]].dims.clone();
        let extra = step.extra().map(|b| ScoreOperand::of(program, b, &heads));
        let reach = step.reach.within(shape);
        Ok(AttentionForm {
            step: step.clone(),
            dtype: q.dtype,
            heads: int(shape.groups.saturating_mul(shape.shared)),
            shared: int(shape.shared.max(1)),
            rows: int(shape.rows),
            stream: int(shape.stream),
            depth: int(shape.depth),
            width: int(shape.width),
            limits: [reach.before, reach.after].map(|n| n.map(int)),
            extra,
            moves,
        })
    }

    /// Whether it is computed in the order that defines attention.
    pub(crate) fn is_defined(&self) -> bool {
        self.dtype == DType::F32
    }

    /// Which lines of the other kind a line that the block owns sees, by their places; of rows where it `owns_keys`.
    pub(crate) fn span(&self, owns_keys: bool) -> ColumnSpan {
        let ahead = self.stream - self.rows;
        let [before, after] = self.limits;
        match owns_keys {
            false => ColumnSpan { low: before.map(|n| ahead - n), high: after.map(|n| ahead + n) },
            true => ColumnSpan { low: after.map(|n| -ahead - n), high: before.map(|n| n - ahead) },
        }
    }

    /// Whether places hide keys.
    pub(crate) fn is_limited(&self) -> bool {
        self.limits != [None; 2]
    }

    /// Who owns the lines of a pass, heads or groups of heads, and how many lines each has.
    pub(crate) fn owners(&self, pass: AttentionPass) -> (i64, i64) {
        match pass.owns_keys() {
            false => (self.heads, self.rows),
            true => (self.heads / self.shared, self.stream),
        }
    }

    /// Whether there is anything to compute: rows, or keys that get cotangents.
    pub(crate) fn has_work(&self) -> bool {
        self.heads > 0 && (self.rows > 0 || self.step.backward && self.stream > 0)
    }

    /// Whether cotangents of scores are wanted.
    pub(crate) fn has_bias_grad(&self) -> bool {
        self.step.backward && self.step.outputs.len() > 3
    }

    /// Lines of shared memory: whole units of the depth.
    pub(crate) fn padded(n: i64) -> i64 {
        (n + UNIT - 1) / UNIT * UNIT
    }

    /// Bytes from one line of a tile to the next.
    pub(crate) fn pitch(n: i64) -> i64 {
        AttentionForm::padded(n) * SIZE + PAD
    }

    /// Bytes of a tile as the copy engine lays it out: panels of lines of [`LINE`] bytes.
    pub(crate) fn panel_bytes(lines: i64, elements: i64) -> i64 {
        let across = LINE / SIZE;
        (elements + across - 1) / across * lines * LINE
    }

    /// Bytes of shared memory of a pass: what a block owns, and stages of what it goes over.
    pub(crate) fn shared_bytes(&self, tile: &AttentionTile) -> i64 {
        let lines = |lines: i64, elements: i64| match tile.unit {
            AttentionUnit::Warpgroup => AttentionForm::panel_bytes(lines, elements),
            AttentionUnit::Warp | AttentionUnit::Thread => lines * AttentionForm::pitch(elements),
        };
        if tile.unit == AttentionUnit::Thread {
            return self.float_tiles(tile).bytes;
        }
        let both = |n: i64| lines(n, self.depth) + lines(n, self.width);
        // The rows of a stage have two numbers each.
        let (own, stage) = match tile.pass {
            AttentionPass::Values => (lines(tile.own, self.depth), both(tile.step)),
            AttentionPass::Queries => (both(tile.own), both(tile.step)),
            // Warps have the values of their keys in any case.
            AttentionPass::ValueCotangents if tile.unit == AttentionUnit::Warpgroup => {
                (lines(tile.own, self.depth), both(tile.step) + 8 * tile.step)
            }
            _ => (both(tile.own), both(tile.step) + 8 * tile.step),
        };
        let barriers = match tile.unit {
            AttentionUnit::Thread | AttentionUnit::Warp => 0,
            AttentionUnit::Warpgroup => (2 * tile.stages + 1) * BARRIERS,
        };
        own + tile.stages * stage + barriers
    }

    /// Registers of a thread for sums and scores.
    fn sums(&self, tile: &AttentionTile) -> i64 {
        let (deep, wide) = (AttentionForm::padded(self.depth), AttentionForm::padded(self.width));
        let each = match tile.pass {
            AttentionPass::Values => wide + tile.step,
            AttentionPass::Keys => deep + wide + 2 * tile.step,
            AttentionPass::KeyCotangents => deep + 2 * tile.step,
            AttentionPass::ValueCotangents => wide + tile.step,
            AttentionPass::Queries => deep + 2 * tile.step,
        };
        match tile.unit {
            AttentionUnit::Thread => self.thread_sums(tile),
            AttentionUnit::Warp => {
                // Two tiles of lines have the places of a mask or a bias twice.
                let places = if self.extra.is_some() { 20 * (tile.tall() - 1) } else { 0 };
                // Beside these a window has the places where each line's begins.
                let has_both = self.extra.is_some() && self.limits[0].is_some();
                let ends = if has_both { 12 * tile.tall() } else { 0 };
                tile.tall() * each / 2 + WARP_REGISTERS + places + ends
            }
            AttentionUnit::Warpgroup => {
                // Rounded numbers wait in registers while warpgroups multiply them.
                let rounded = match tile.pass {
                    AttentionPass::Keys => tile.step,
                    _ => tile.step / 2,
                };
                let hidden = self.extra_registers(tile) + self.reach_registers(tile);
                (each + rounded) / 2 + OTHER_REGISTERS + hidden
            }
        }
    }

    /// Registers of a thread for a mask or a bias and for the stores of its cotangents, as tiles without spills say.
    fn extra_registers(&self, tile: &AttentionTile) -> i64 {
        match (&self.extra, tile.pass) {
            (None, _) => 0,
            (Some(_), AttentionPass::Values) => 48,
            (Some(_), AttentionPass::Queries) => 72,
            (Some(_), _) => 24 + tile.step / 2,
        }
    }

    /// Registers of a thread for the places that hide scores, as tiles without spills say.
    fn reach_registers(&self, tile: &AttentionTile) -> i64 {
        let has_both = self.limits[0].is_some() && self.limits[1].is_some_and(|after| after > 0);
        match (tile.pass, &self.extra) {
            // Of a last tile that is short, both ends are hidden at once.
            (AttentionPass::Queries, _) if has_both => 40,
            (AttentionPass::Queries, None) => 8,
            _ => 0,
        }
    }

    /// Whether warpgroups multiply it: the copy engine brings its operands, which stay where they are, and no block is
    /// mostly beyond an end.
    fn takes_warpgroups(&self, target: &GpuTarget) -> bool {
        target.warpgroups && !self.moves && self.rows >= TALL && self.stream >= TALL
    }

    /// Errs for a tile that the pass cannot have.
    pub(crate) fn check(&self, tile: &AttentionTile, target: &GpuTarget) -> Result<(), String> {
        let &AttentionTile { pass, unit, own, step, warps, stages, resident } = tile;
        tile.grid().check(target)?;
        if self.is_defined() != (unit == AttentionUnit::Thread) {
            return Err(format!("`{pass}`: this attention is not multiplied by unit `{unit}`"));
        }
        if unit == AttentionUnit::Thread {
            self.check_threads(tile)?;
        } else if own < 1 || warps < 1 || own % (warps * UNIT) != 0 || step < 1 || step % UNIT != 0
        {
            return Err(format!(
                "`{pass}`: each warp has {UNIT} lines or a multiple, and steps have multiples of {UNIT} lines"
            ));
        }
        let most = match unit {
            AttentionUnit::Thread => tile.thread_registers(target),
            AttentionUnit::Warp => i64::from(target.thread_registers),
            AttentionUnit::Warpgroup => tile.group_registers(target)[1],
        };
        if own > 1024 || step > 1024 || self.sums(tile) > most {
            return Err(format!(
                "`{pass}`: a thread has too few registers for {own} x {step} scores"
            ));
        }
        match unit {
            AttentionUnit::Thread => {}
            AttentionUnit::Warp => self.check_warps(tile)?,
            AttentionUnit::Warpgroup => self.check_groups(tile, target)?,
        }
        let bytes = self.shared_bytes(tile) + i64::from(target.reserved_shared);
        if !(1..=16).contains(&stages)
            || bytes * i64::from(resident)
                > i64::from(target.shared) + i64::from(target.reserved_shared)
        {
            return Err(format!(
                "`{pass}`: {resident} blocks of {bytes} bytes in {stages} stages are too many"
            ));
        }
        Ok(())
    }

    fn check_warps(&self, tile: &AttentionTile) -> Result<(), String> {
        let &AttentionTile { pass, step, stages, .. } = tile;
        if stages != 2 {
            return Err(format!("`{pass}`: warps have two stages, not {stages}"));
        }
        if pass.owns_keys() && step > tile.grid().threads {
            return Err(format!("`{pass}`: a thread for each of {step} rows is wanted"));
        }
        Ok(())
    }

    fn check_groups(&self, tile: &AttentionTile, target: &GpuTarget) -> Result<(), String> {
        let &AttentionTile { pass, own, step, .. } = tile;
        if !self.takes_warpgroups(target) {
            return Err(format!("`{pass}`: warpgroups do not multiply this attention"));
        }
        let groups = tile.groups();
        if !(1..=3).contains(&groups) || own != groups * TALL || step > 256 {
            return Err(format!(
                "`{pass}`: one to three warpgroups of {TALL} lines each go over 256 others at most"
            ));
        }
        Ok(())
    }
}

impl DecisionLine for AttentionDecision {
    fn write(&self, to: &mut Writer) {
        for tile in &self.tiles {
            let AttentionTile { pass, unit, own, step, warps, stages, resident } = tile;
            let fields: [(&str, &dyn fmt::Display); 7] = [
                ("pass", pass),
                ("unit", unit),
                ("own", own),
                ("step", step),
                ("warps", warps),
                ("stages", stages),
                ("resident", resident),
            ];
            to.line("tile", &fields);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<AttentionDecision, Diagnostic> {
        let mut tiles = SmallVec::new();
        let fields = ["pass", "unit", "own", "step", "warps", "stages", "resident"];
        while from.next() == Some("tile") {
            let line = from.line("tile", &fields)?;
            let (name, span) = line.word("pass")?;
            let none = || wrong(span, format!("there is no pass `{name}`"));
            let pass = AttentionPass::ALL.iter().find(|(_, n)| *n == name).ok_or_else(none)?.0;
            let (name, span) = line.word("unit")?;
            let none = || wrong(span, format!("there is no unit `{name}`"));
            let unit = AttentionUnit::ALL.iter().find(|(_, n)| *n == name).ok_or_else(none)?.0;
            let resident = u32::try_from(line.int("resident")?).unwrap_or(u32::MAX);
            let [own, step, warps, stages] =
                [line.int("own")?, line.int("step")?, line.int("warps")?, line.int("stages")?];
            tiles.push(AttentionTile { pass, unit, own, step, warps, stages, resident });
        }
        Ok(AttentionDecision { tiles })
    }
}

impl AttentionDecision {
    /// Errs for tiles that attention cannot have, and for other passes than it takes.
    pub(crate) fn check(&self, form: &AttentionForm, target: &GpuTarget) -> Result<(), String> {
        let own = form.decide(target).map_err(|d| d.message)?;
        let passes = |d: &AttentionDecision| d.tiles.iter().map(|t| t.pass).collect::<Vec<_>>();
        if passes(self) != passes(&own) {
            return Err("the passes are not those of this attention".to_owned());
        }
        self.tiles.iter().try_for_each(|tile| form.check(tile, target))
    }
}

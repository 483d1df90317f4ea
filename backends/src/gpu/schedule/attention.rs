//! Attention of 16-bit floats on matrix units: the passes that it takes, and the tile of each.
//!
//! The way there is one pass, a block of threads for some rows of a head. The way back is two, which compute the weights
//! again: one for cotangents of keys and values, where a block has some keys and goes over all rows, and one for cotangents of
//! queries, where it has some rows and goes over the keys. So every sum has one owner and one order.

use super::capabilities::ATTENTION;
use super::grid::Grid;
use super::shape::internal;
use super::text::{DecisionLine, Reader, Writer, wrong};
use crate::gpu::target::{GpuTarget, WARP};
use adfuse_ir::kernel::{Attend, Buffer, Program};
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
    /// Cotangents of queries, and of scores where they are wanted.
    Queries,
}

impl AttentionPass {
    const ALL: [(AttentionPass, &'static str); 3] = [
        (AttentionPass::Values, "values"),
        (AttentionPass::Keys, "keys"),
        (AttentionPass::Queries, "queries"),
    ];
}

impl fmt::Display for AttentionPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = AttentionPass::ALL.iter().find(|(pass, _)| pass == self);
        f.write_str(found.map_or("", |(_, name)| name))
    }
}

/// The tile of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AttentionTile {
    pub(crate) pass: AttentionPass,
    /// Lines that a block owns: keys where it computes cotangents of keys, rows elsewhere.
    pub(crate) own: i64,
    /// Lines of the others that it goes over at a time.
    pub(crate) step: i64,
    pub(crate) warps: i64,
    /// Blocks that share a multiprocessor.
    pub(crate) resident: u32,
}

impl AttentionTile {
    /// 16-line tiles of a warp, of the lines that the block owns.
    pub(crate) fn tall(&self) -> i64 {
        self.own / self.warps / UNIT
    }

    pub(crate) fn grid(&self) -> Grid {
        Grid { threads: self.warps * WARP, resident: self.resident }
    }
}

/// The tiles of all passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AttentionDecision {
    pub(crate) tiles: SmallVec<[AttentionTile; 2]>,
}

/// A mask or a bias: elements from one head, row and key to the next; none where its extent is 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ScoreOperand {
    pub(crate) buffer: Buffer,
    pub(crate) mask: bool,
    /// Heads along the axes before rows, outermost first, with the elements from one to the next.
    pub(crate) heads: SmallVec<[(i64, i64); 4]>,
    pub(crate) row: i64,
    pub(crate) key: i64,
}

impl ScoreOperand {
    /// Bytes of an element.
    pub(crate) fn size(&self) -> i64 {
        if self.mask { 1 } else { SIZE }
    }
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
    pub(crate) extra: Option<ScoreOperand>,
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
    ATTENTION.has(fp, dtype, shape.depth, shape.width)
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
        fp: Fp,
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
        let extra = step.extra().map(|b| score_operand(program, b, &heads));
        Ok(AttentionForm {
            step: step.clone(),
            dtype: q.dtype,
            heads: int(shape.groups.saturating_mul(shape.shared)),
            shared: int(shape.shared.max(1)),
            rows: int(shape.rows),
            stream: int(shape.stream),
            depth: int(shape.depth),
            width: int(shape.width),
            extra,
        })
    }

    /// How many keys further a row sees than its own place.
    pub(crate) fn ahead(&self) -> i64 {
        self.stream - self.rows
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

    /// Bytes of shared memory of a pass: what a block owns, and two stages of what it goes over.
    pub(crate) fn shared_bytes(&self, tile: &AttentionTile) -> i64 {
        let (deep, wide) = (AttentionForm::pitch(self.depth), AttentionForm::pitch(self.width));
        match tile.pass {
            AttentionPass::Values => tile.own * deep + 2 * tile.step * (deep + wide),
            // The rows of a stage have two numbers each.
            AttentionPass::Keys => tile.own * (deep + wide) + 2 * tile.step * (deep + wide + 8),
            AttentionPass::Queries => (tile.own + 2 * tile.step) * (deep + wide),
        }
    }

    /// Registers of a thread for sums and scores.
    fn sums(&self, tile: &AttentionTile) -> i64 {
        let (deep, wide) = (AttentionForm::padded(self.depth), AttentionForm::padded(self.width));
        let each = match tile.pass {
            AttentionPass::Values => wide + tile.step,
            AttentionPass::Keys => deep + wide + 2 * tile.step,
            AttentionPass::Queries => deep + 2 * tile.step,
        };
        tile.tall() * each / 2
    }

    /// Errs for a tile that the pass cannot have.
    pub(crate) fn check(&self, tile: &AttentionTile, target: &GpuTarget) -> Result<(), String> {
        let &AttentionTile { pass, own, step, warps, resident } = tile;
        tile.grid().check(target)?;
        if own < 1 || warps < 1 || own % (warps * UNIT) != 0 || step < 1 || step % UNIT != 0 {
            return Err(format!(
                "`{pass}`: each warp has {UNIT} lines or a multiple, and steps have multiples of {UNIT} lines"
            ));
        }
        if own > 1024 || step > 1024 || self.sums(tile) > i64::from(target.thread_registers) {
            return Err(format!(
                "`{pass}`: a thread has too few registers for {own} x {step} scores"
            ));
        }
        if pass == AttentionPass::Keys && step > tile.grid().threads {
            return Err(format!("`{pass}`: a thread for each of {step} rows is wanted"));
        }
        let bytes = self.shared_bytes(tile) + i64::from(target.reserved_shared);
        if bytes * i64::from(resident)
            > i64::from(target.shared) + i64::from(target.reserved_shared)
        {
            return Err(format!("`{pass}`: {resident} blocks of {bytes} bytes are too many"));
        }
        Ok(())
    }

    /// The passes that it takes, with the engine's own tiles.
    pub(crate) fn decide(&self, target: &GpuTarget) -> Result<AttentionDecision, Diagnostic> {
        let passes: &[AttentionPass] = match self.step.backward {
            false => &[AttentionPass::Values],
            true => &[AttentionPass::Keys, AttentionPass::Queries],
        };
        let best = |&pass: &AttentionPass| {
            let fits = |tile: &AttentionTile| self.check(tile, target).is_ok();
            let found = candidates(pass, self.depth.max(self.width) <= 64).find(fits);
            found.ok_or_else(|| internal("no tile of attention fits"))
        };
        Ok(AttentionDecision { tiles: passes.iter().map(best).collect::<Result<_, _>>()? })
    }
}

/// Tiles of a pass, the best first; `shallow` where a query and a value have 64 elements at most.
fn candidates(pass: AttentionPass, shallow: bool) -> impl Iterator<Item = AttentionTile> {
    let tile =
        move |(own, step, warps, resident)| AttentionTile { pass, own, step, warps, resident };
    // Of the tiles that were measured on an H200, those without spills that took least, and smaller ones for less shared memory.
    let list: &[(i64, i64, i64, u32)] = match (pass, shallow) {
        (AttentionPass::Values, true) => &[(64, 64, 4, 4), (64, 64, 4, 2), (64, 32, 4, 2)],
        (AttentionPass::Values, false) => &[(128, 32, 4, 2), (64, 64, 4, 2), (64, 32, 4, 2)],
        (AttentionPass::Keys, true) => &[(64, 64, 4, 2), (64, 32, 4, 2)],
        (AttentionPass::Keys, false) => &[(64, 64, 4, 2), (64, 32, 4, 2), (64, 16, 4, 1)],
        (AttentionPass::Queries, true) => &[(64, 64, 4, 3), (64, 64, 4, 2), (64, 32, 4, 2)],
        (AttentionPass::Queries, false) => &[(128, 32, 4, 2), (64, 32, 4, 2), (64, 16, 4, 1)],
    };
    list.iter().copied().map(tile)
}

/// A mask or a bias with the elements from one place to the next.
fn score_operand(program: &Program, buffer: Buffer, of_q: &[i64]) -> ScoreOperand {
    let data = &program.buffers[buffer];
    let mut strides: SmallVec<[i64; 4]> = SmallVec::new();
    let mut dense = 1i64;
    for &n in data.dims.iter().rev() {
        strides.push(if n == 1 { 0 } else { dense });
        dense = dense.saturating_mul(n.max(1));
    }
    strides.reverse();
    let rank = strides.len();
    let at = |k: usize| strides.get(rank.wrapping_sub(k)).copied().unwrap_or(0);
    // Where the mask has extent 1 there are heads all the same.
    let heads = of_q.iter().copied().zip(strides.iter().copied()).take(rank.saturating_sub(2));
    ScoreOperand {
        buffer,
        mask: data.dtype == DType::Bool,
        heads: heads.collect(),
        row: at(2),
        key: at(1),
    }
}

impl DecisionLine for AttentionDecision {
    fn write(&self, to: &mut Writer) {
        for AttentionTile { pass, own, step, warps, resident } in &self.tiles {
            let fields: [(&str, &dyn fmt::Display); 5] = [
                ("pass", pass),
                ("own", own),
                ("step", step),
                ("warps", warps),
                ("resident", resident),
            ];
            to.line("tile", &fields);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<AttentionDecision, Diagnostic> {
        let mut tiles = SmallVec::new();
        while from.next() == Some("tile") {
            let line = from.line("tile", &["pass", "own", "step", "warps", "resident"])?;
            let (name, span) = line.word("pass")?;
            let none = || wrong(span, format!("there is no pass `{name}`"));
            let pass = AttentionPass::ALL.iter().find(|(_, n)| *n == name).ok_or_else(none)?.0;
            let resident = u32::try_from(line.int("resident")?).unwrap_or(u32::MAX);
            let [own, step, warps] = [line.int("own")?, line.int("step")?, line.int("warps")?];
            tiles.push(AttentionTile { pass, own, step, warps, resident });
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

//! Flat loops that read along one axis what they store along another, through tiles in shared memory: so
//! neighbouring threads have neighbouring places on both sides.

use super::address::{Vars, resolved, value};
use super::asm::{Asm, Class, Reg};
use super::emit::{At, Emit};
use super::entry::{Out, begun};
use super::operands::class;
use crate::gpu::schedule::grid::Grid;
use crate::gpu::schedule::index::coordinates;
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::transpose_tile::{ScheduledTranspose, element_bytes};
use crate::gpu::schedule::work::Flat;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Extents, Param, Sink, volume};
use adfuse_ir::{DType, Diagnostic};

/// Launches a loop that turns elements around.
pub(crate) fn transposed(
    s: &GpuSchedule,
    out: &mut Out,
    turn: &ScheduledTranspose,
) -> Result<(), Diagnostic> {
    let ScheduledTranspose { flat, tile: shape, .. } = turn;
    let side = shape.side;
    let mut emit = begun(s, out);
    let tiles = |axis: usize| (flat.domain[axis] + side - 1) / side;
    // Blocks by the axes that stay, then by tiles.
    let mut extents: Extents = flat.domain.clone();
    (extents[turn.to], extents[turn.from]) = (1, 1);
    extents.extend([tiles(turn.from), tiles(turn.to)]);
    let blocks = volume(&extents);
    let mut vars = Vars::default();
    let block = emit.asm.special("ctaid.x");
    let block = vars.push(block, blocks);
    let thread = emit.asm.special("tid.x");
    let thread = vars.push(thread, shape.threads());
    let mut tile = coordinates(&block, &extents);
    let across = tile.pop().unwrap_or(IndexExpr::Const(0)).times(side);
    let down = tile.pop().unwrap_or(IndexExpr::Const(0)).times(side);
    let t = Tile {
        flat,
        turn,
        vars,
        others: tile,
        first: [down, across],
        lane: thread.clone().modulo(side),
        line: thread.floor_div(side),
    };
    t.fetch(&mut emit);
    emit.asm.emit("bar.sync 0");
    t.store(&mut emit);
    let shared = u32::try_from(t.offset(shape.params.len())).unwrap_or(u32::MAX);
    let grid = Grid { threads: shape.threads(), resident: shape.resident };
    out.launch(&s.homes, emit, blocks, grid, shared)
}

struct Tile<'f> {
    flat: &'f Flat,
    turn: &'f ScheduledTranspose,
    vars: Vars,
    /// Coordinates but for those of the two axes.
    others: Vec<IndexExpr>,
    /// The first point of the tile along the axis that is read along, and along the one that is stored along.
    first: [IndexExpr; 2],
    lane: IndexExpr,
    line: IndexExpr,
}

impl Tile<'_> {
    /// Bytes of the tiles before one.
    fn offset(&self, number: usize) -> i64 {
        let shape = &self.turn.tile;
        let size = |&k: &usize| shape.bytes(self.flat.stage.program.params[k]);
        // The widest first would be no nearer: all begin at multiples of 8.
        self.turn.tile.params[..number].iter().map(size).sum()
    }

    /// Coordinates of the point of a tile that is so far along the axis that is read along, and along the
    /// other; and whether there is one.
    fn point(
        &self,
        emit: &mut Emit<'_>,
        vars: &mut Vars,
        [read, stored]: [&IndexExpr; 2],
    ) -> (Vec<IndexExpr>, Option<Reg>) {
        let ScheduledTranspose { to, from, .. } = *self.turn;
        let mut coords = self.others.clone();
        let domain = &self.flat.domain;
        let here = emit.below(vars, &self.first[0].clone().sum(read.clone()), domain[from]);
        coords[from] = here.place;
        let there = emit.below(vars, &self.first[1].clone().sum(stored.clone()), domain[to]);
        coords[to] = there.place;
        (coords, emit.all(here.valid, there.valid))
    }

    /// Where an element of a tile is.
    fn address(&self, asm: &mut Asm, number: usize, place: &IndexExpr) -> String {
        let size = element_bytes(self.flat.stage.program.params[self.turn.tile.params[number]]);
        let same: Vec<IndexExpr> = (0..self.vars.extents.len()).map(IndexExpr::axis).collect();
        let e = resolved(&place.clone().times(size), &same, &self.vars);
        let x = value(asm, &e, &self.vars, &[]);
        let base = asm.pure(Class::Word, "mov.u32", "dynamic");
        let at = asm.pure(Class::Word, "add.s32", format_args!("{x}, {base}"));
        format!("[{at}+{}]", self.offset(number))
    }

    /// Reads elements into the tiles, lanes along the axis that they are read along.
    fn fetch(&self, emit: &mut Emit<'_>) {
        let mut stores = Vec::new();
        for (number, &k) in self.turn.tile.params.iter().enumerate() {
            let Param::Load(pieces) = &self.flat.stage.params[k] else { continue };
            let dtype = self.flat.stage.program.params[k];
            for turn in 0..self.turn.tile.side / self.turn.tile.lines {
                let line = self.line.clone().plus(turn * self.turn.tile.lines);
                let mut own = self.vars.clone();
                let (coords, _) = self.point(emit, &mut own, [&self.lane, &line]);
                let x = emit.load(pieces, dtype, &At { vars: &own, coords: &coords }, &[]);
                let x = emit.plain(x, dtype);
                let place = line.times(self.turn.tile.pitch()).sum(self.lane.clone());
                let at = self.address(&mut emit.asm, number, &place);
                stores.push(format!("st.shared.{} {at}, {x}", x.class.moved()));
            }
        }
        stores.into_iter().for_each(|line| emit.asm.emit(line));
    }

    /// Computes and stores, lanes along the axis that is stored along.
    fn store(&self, emit: &mut Emit<'_>) {
        let stage = &self.flat.stage;
        let program = emit.written(&stage.program);
        for turn in 0..self.turn.tile.side / self.turn.tile.lines {
            let line = self.line.clone().plus(turn * self.turn.tile.lines);
            let mut own = self.vars.clone();
            let (coords, valid) = self.point(emit, &mut own, [&line, &self.lane]);
            let place = self.lane.clone().times(self.turn.tile.pitch()).sum(line);
            let at = At { vars: &own, coords: &coords };
            let values = emit.outputs(stage, &program, &at, &mut |emit, k, _| {
                let number = self.turn.tile.params.iter().position(|&p| p == k)?;
                let at = self.address(&mut emit.asm, number, &place);
                Some(kept(&mut emit.asm, stage.program.params[k], &at))
            });
            for (sink, x) in stage.sinks.iter().zip(values) {
                if let Sink::Store { buffer, index } = sink {
                    emit.store(*buffer, index, x, &at, valid);
                }
            }
        }
    }
}

/// An element that a tile has.
fn kept(asm: &mut Asm, dtype: DType, at: &str) -> Reg {
    let form = if dtype == DType::Bool { Class::Word } else { class(dtype) };
    let found = asm.fresh(form);
    asm.emit(format_args!("ld.shared.{} {found}, {at}", form.moved()));
    match dtype {
        DType::Bool => asm.pure(Class::Pred, "setp.ne.s32", format_args!("{found}, 0")),
        _ => found,
    }
}

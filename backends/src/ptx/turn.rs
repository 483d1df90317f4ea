//! Flat loops that read along one axis what they store along another, through tiles in shared memory: so
//! neighbouring threads have neighbouring places on both sides.

use super::asm::{Asm, Class, Reg};
use super::emit::{At, Emit};
use super::launch::{Out, begun};
use super::lower::{Flat, Lowering, volume};
use super::place::{Vars, coordinates, resolved, value};
use super::prim::class;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Extents, Param, Sink, Storage};
use adfuse_ir::{DType, Diagnostic};
use smallvec::SmallVec;

/// Points of a tile along each side.
const SIDE: i64 = 32;
/// Elements from one line of a tile to the next: one more, so that those of a column are in different banks.
const PITCH: i64 = SIDE + 1;
/// Lines that the threads of a block have at once.
const LINES: i64 = 8;
const THREADS: i64 = SIDE * LINES;
/// Tiles of a block at most.
const TILES: usize = 4;
/// Points along both axes from which on tiles are worth it.
const LEAST: i64 = 16;
/// Instructions of a body that is written for several points, at most.
const HEAVY: usize = 300;

/// What is turned around in a loop.
pub(super) struct Turn {
    /// The loop, with axes joined that all accesses go through as one.
    flat: Flat,
    /// The axis along which everything is stored.
    to: usize,
    /// The axis along which the parameters are read.
    from: usize,
    params: Vec<usize>,
}

/// How far apart neighbours along each axis are.
type Steps = SmallVec<[i64; 8]>;

impl Turn {
    /// What a loop turns around, if it is worth it.
    pub(super) fn of(emit: &Emit<'_>, flat: &Flat, instructions: usize) -> Option<Turn> {
        let rank = flat.domain.len();
        let steps = |b, index: &[IndexExpr]| {
            let data = &emit.program.buffers[b];
            data.steps(index, rank).filter(|_| data.storage == Storage::Plain)
        };
        let mut stored: Vec<Steps> = Vec::new();
        for sink in &flat.stage.sinks {
            let Sink::Store { buffer, index } = sink else { return None };
            stored.push(steps(*buffer, index)?);
        }
        let mut read: Vec<(usize, Steps)> = Vec::new();
        for (k, param) in flat.stage.params.iter().enumerate() {
            let whole = emit.whole(param).filter(|_| flat.stage.program.reads_param(k));
            read.extend(whole.and_then(|(b, piece)| Some((k, steps(b, &piece.index)?))));
        }
        let mut flat = flat.clone();
        for axis in (1..rank).rev() {
            let n = flat.domain[axis];
            let one = |s: &Steps| s[axis - 1] == s[axis] * n;
            if stored.iter().all(one) && read.iter().all(|(_, s)| one(s)) {
                flat = joined(&flat, axis - 1);
                let all = stored.iter_mut().chain(read.iter_mut().map(|(_, s)| s));
                all.for_each(|s| {
                    s.remove(axis - 1);
                });
            }
        }
        let domain = &flat.domain;
        let near = |s: &Steps| (0..s.len()).find(|&a| s[a].abs() == 1 && domain[a] > 1);
        let to = near(stored.first()?)?;
        let alike = stored.iter().all(|s| near(s) == Some(to));
        if !alike || domain[to] < LEAST || instructions > HEAVY {
            return None;
        }
        let (mut from, mut params) = (None, Vec::new());
        for (k, s) in &read {
            let Some(near) = near(s) else { continue };
            let across = near != to && s[to] != 0 && domain[near] >= LEAST;
            if across && params.len() < TILES && *from.get_or_insert(near) == near {
                params.push(*k);
            }
        }
        Some(Turn { flat, to, from: from?, params })
    }
}

/// A loop with an axis and the next one as one.
fn joined(flat: &Flat, axis: usize) -> Flat {
    let n = flat.domain[axis + 1].max(1);
    let mut flat = flat.clone();
    flat.domain[axis] *= n;
    flat.domain.remove(axis + 1);
    let of = |a: usize| match a {
        a if a < axis => IndexExpr::axis(a),
        a if a == axis => IndexExpr::axis(axis).floor_div(n),
        a if a == axis + 1 => IndexExpr::axis(axis).modulo(n),
        a => IndexExpr::axis(a - 1),
    };
    let at: Vec<IndexExpr> = (0..=flat.domain.len()).map(of).collect();
    let moved = |e: &mut IndexExpr| *e = e.compose(&at);
    for param in &mut flat.stage.params {
        match param {
            Param::Load(pieces) => {
                for piece in pieces {
                    piece.index.iter_mut().for_each(moved);
                    piece.guards.iter_mut().for_each(|g| moved(&mut g.expr));
                }
            }
            Param::Coord(e) => moved(e),
            Param::Row(_) | Param::Tile(_) | Param::Sum => {}
        }
    }
    for sink in &mut flat.stage.sinks {
        if let Sink::Store { index, .. } = sink {
            index.iter_mut().for_each(moved);
        }
    }
    flat
}

/// How elements are kept in a tile: in 4 bytes at least.
fn bytes(dtype: DType) -> i64 {
    dtype.bytes().max(4) as i64
}

/// Launches a loop that turns elements around.
pub(super) fn turned(low: &Lowering, out: &mut Out, turn: &Turn) -> Result<(), Diagnostic> {
    let flat = &turn.flat;
    let mut emit = begun(low, out);
    let tiles = |axis: usize| (flat.domain[axis] + SIDE - 1) / SIDE;
    // Blocks by the axes that stay, then by tiles.
    let mut extents: Extents = flat.domain.clone();
    (extents[turn.to], extents[turn.from]) = (1, 1);
    extents.extend([tiles(turn.from), tiles(turn.to)]);
    let blocks = volume(&extents);
    let mut vars = Vars::default();
    let block = emit.asm.special("ctaid.x");
    let block = vars.push(block, blocks);
    let thread = emit.asm.special("tid.x");
    let thread = vars.push(thread, THREADS);
    let mut tile = coordinates(&block, &extents);
    let across = tile.pop().unwrap_or(IndexExpr::Const(0)).times(SIDE);
    let down = tile.pop().unwrap_or(IndexExpr::Const(0)).times(SIDE);
    let t = Tile {
        flat,
        turn,
        vars,
        others: tile,
        first: [down, across],
        lane: thread.clone().modulo(SIDE),
        line: thread.floor_div(SIDE),
    };
    t.fetch(&mut emit);
    emit.asm.emit("bar.sync 0");
    t.store(&mut emit);
    let shared = t.offset(turn.params.len());
    out.launch(&low.homes, emit, blocks, THREADS as u32, u32::try_from(shared).unwrap_or(u32::MAX))
}

struct Tile<'f> {
    flat: &'f Flat,
    turn: &'f Turn,
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
        let size = |&k: &usize| PITCH * SIDE * bytes(self.flat.stage.program.params[k]);
        // The widest first would be no nearer: all begin at multiples of 8.
        self.turn.params[..number].iter().map(size).sum()
    }

    /// Coordinates of the point of a tile that is so far along the axis that is read along, and along the
    /// other; and whether there is one.
    fn point(
        &self,
        emit: &mut Emit<'_>,
        vars: &mut Vars,
        [read, stored]: [&IndexExpr; 2],
    ) -> (Vec<IndexExpr>, Option<Reg>) {
        let Turn { to, from, .. } = *self.turn;
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
        let size = bytes(self.flat.stage.program.params[self.turn.params[number]]);
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
        for (number, &k) in self.turn.params.iter().enumerate() {
            let Param::Load(pieces) = &self.flat.stage.params[k] else { continue };
            let dtype = self.flat.stage.program.params[k];
            for turn in 0..SIDE / LINES {
                let line = self.line.clone().plus(turn * LINES);
                let mut own = self.vars.clone();
                let (coords, _) = self.point(emit, &mut own, [&self.lane, &line]);
                let x = emit.load(pieces, dtype, &At { vars: &own, coords: &coords }, &[]);
                let x = emit.plain(x, dtype);
                let place = line.times(PITCH).sum(self.lane.clone());
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
        for turn in 0..SIDE / LINES {
            let line = self.line.clone().plus(turn * LINES);
            let mut own = self.vars.clone();
            let (coords, valid) = self.point(emit, &mut own, [&line, &self.lane]);
            let place = self.lane.clone().times(PITCH).sum(line);
            let at = At { vars: &own, coords: &coords };
            let values = emit.outputs(stage, &program, &at, &mut |emit, k, _| {
                let number = self.turn.params.iter().position(|&p| p == k)?;
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

//! Transposes through tiles of shared memory: which elementwise kernels are one.

use super::index::whole;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Param, Program, Sink, Storage};
use smallvec::SmallVec;

use super::work::Flat;

/// Points along both axes from which on tiles are worth it.
const LEAST: i64 = 16;

/// Instructions of a body that is written for several points, at most.
const HEAVY: usize = 300;

/// What is turned around in a loop.
pub(crate) struct Turn {
    /// The loop, with axes joined that all accesses go through as one.
    pub(crate) flat: Flat,
    /// The axis along which everything is stored.
    pub(crate) to: usize,
    /// The axis along which the parameters are read.
    pub(crate) from: usize,
    pub(crate) params: Vec<usize>,
}

/// How far apart neighbours along each axis are.
type Steps = SmallVec<[i64; 8]>;

impl Turn {
    /// What a loop turns around, if it is worth it.
    pub(crate) fn of(program: &Program, flat: &Flat, instructions: usize) -> Option<Turn> {
        let rank = flat.domain.len();
        let steps = |b, index: &[IndexExpr]| {
            let data = &program.buffers[b];
            data.steps(index, rank).filter(|_| data.storage == Storage::Plain)
        };
        let mut stored: Vec<Steps> = Vec::new();
        for sink in &flat.stage.sinks {
            let Sink::Store { buffer, index } = sink else { return None };
            stored.push(steps(*buffer, index)?);
        }
        let mut read: Vec<(usize, Steps)> = Vec::new();
        for (k, param) in flat.stage.params.iter().enumerate() {
            let whole = whole(param).filter(|_| flat.stage.program.reads_param(k));
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

/// Tiles of a block at most.
pub(crate) const TILES: usize = 4;

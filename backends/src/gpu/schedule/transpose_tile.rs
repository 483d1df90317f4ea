//! Transposes through tiles of shared memory: which elementwise kernels are one.

use super::index::whole;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Program, Sink, Storage};
use smallvec::SmallVec;

use super::grid::resident_fits;
use super::text::{DecisionLine, Reader, Writer, listed, number};
use super::work::Flat;
use crate::gpu::target::{GpuTarget, WARP};
use adfuse_ir::{DType, Diagnostic};

/// Points along both axes from which on tiles are worth it.
const LEAST: i64 = 16;

/// Instructions of a body that is written for several points, at most.
const MOST_INSTRUCTIONS: usize = 300;

/// Tiles of a block at most.
const MOST_TILES: usize = 4;

/// A loop whose parameters are read along one axis and whose results are stored along another.
pub(crate) struct ScheduledTranspose {
    /// The loop, with axes joined that all accesses go through as one.
    pub(crate) flat: Flat,
    /// The axis along which everything is stored.
    pub(crate) to: usize,
    /// The axis along which the parameters are read.
    pub(crate) from: usize,
    pub(crate) tile: TransposeTile,
}

/// The tiles of shared memory that a block transposes through.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TransposeTile {
    /// Points of a tile along each side.
    pub(crate) side: i64,
    /// Lines that the threads of a block have at once.
    pub(crate) lines: i64,
    /// Blocks that a multiprocessor shall have at a time.
    pub(crate) resident: u32,
    /// The parameters that go through tiles.
    pub(crate) params: Vec<usize>,
}

impl TransposeTile {
    /// Threads of a block.
    pub(crate) fn threads(&self) -> i64 {
        self.side * self.lines
    }

    /// Elements from one line of a tile to the next: one more, so that those of a column are in different banks.
    pub(crate) fn pitch(&self) -> i64 {
        self.side + 1
    }

    /// Bytes of the tile of an element type: elements have 4 at least.
    pub(crate) fn bytes(&self, dtype: DType) -> i64 {
        self.pitch() * self.side * element_bytes(dtype)
    }

    /// Errs where the loop, whose best tiles are known, cannot be run so.
    pub(crate) fn check(
        &self,
        best: &ScheduledTranspose,
        target: &GpuTarget,
    ) -> Result<(), String> {
        let TransposeTile { side, lines, ref params, .. } = *self;
        let of = |n: i64| (4..=64).contains(&n) && n.count_ones() == 1;
        if !of(side) || !of(lines) || lines > side || self.threads() > target.block_threads.into() {
            return Err(format!(
                "tiles of {side} points are not turned by {lines} lines of threads"
            ));
        }
        if self.threads() % WARP != 0 {
            return Err(format!("{side} x {lines} threads are no whole warps"));
        }
        let ordered = params.windows(2).all(|w| w[0] < w[1]);
        if params.is_empty() || !ordered || !params.iter().all(|k| best.tile.params.contains(k)) {
            let all = listed(&best.tile.params);
            return Err(format!("the parameters that are read across are among {all}"));
        }
        let dtype = |&k: &usize| best.flat.stage.program.params[k];
        let bytes: i64 = params.iter().map(|k| self.bytes(dtype(k))).sum();
        if bytes > target.shared.into() {
            return Err(format!("tiles of {bytes} bytes outgrow shared memory"));
        }
        resident_fits(self.resident, self.threads(), target)
    }
}

/// Bytes of an element in a tile.
pub(crate) fn element_bytes(dtype: DType) -> i64 {
    dtype.bytes().max(4) as i64
}

impl DecisionLine for TransposeTile {
    fn write(&self, to: &mut Writer) {
        let Self { side, lines, resident, .. } = self;
        to.line("tile", &[("side", side), ("lines", lines), ("resident", resident)]);
        to.line("staged", &[("params", &listed(&self.params))]);
    }

    fn read(from: &mut Reader<'_>) -> Result<TransposeTile, Diagnostic> {
        let line = from.line("tile", &["side", "lines", "resident"])?;
        let resident = u32::try_from(line.int("resident")?).unwrap_or(u32::MAX);
        let (side, lines) = (line.int("side")?, line.int("lines")?);
        let staged = from.line("staged", &["params"])?.list("params")?;
        let params = staged.into_iter().map(|(w, span)| Ok(number(w, span)? as usize));
        let params = params.collect::<Result<_, Diagnostic>>()?;
        Ok(TransposeTile { side, lines, resident, params })
    }
}

/// How far apart neighbours along each axis are.
type Steps = SmallVec<[i64; 8]>;

impl ScheduledTranspose {
    /// How a loop is transposed, if that is worth it.
    pub(crate) fn of(
        program: &Program,
        flat: &Flat,
        instructions: usize,
    ) -> Option<ScheduledTranspose> {
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
        if !alike || domain[to] < LEAST || instructions > MOST_INSTRUCTIONS {
            return None;
        }
        let (mut from, mut params) = (None, Vec::new());
        for (k, s) in &read {
            let Some(near) = near(s) else { continue };
            let across = near != to && s[to] != 0 && domain[near] >= LEAST;
            if across && params.len() < MOST_TILES && *from.get_or_insert(near) == near {
                params.push(*k);
            }
        }
        let tile = TransposeTile { side: 32, lines: 8, resident: 2, params };
        Some(ScheduledTranspose { flat, to, from: from?, tile })
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
    flat.stage = flat.stage.at(&at);
    flat
}

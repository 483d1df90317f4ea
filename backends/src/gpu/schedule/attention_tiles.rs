//! The tiles of attention that engines choose from, and how those of threads lie in shared memory.

use super::attention::{
    AttentionDecision, AttentionForm, AttentionPass, AttentionTile, AttentionUnit,
};
use super::shape::internal;
use super::warpgroup_tile::{GROUP, TALL};
use crate::gpu::target::{GpuTarget, WARP};
use adfuse_ir::Diagnostic;
use adfuse_ir::op::{ATTENTION_BLOCK, ATTENTION_JOINT};

/// Lines and columns of scores that a thread has where threads multiply, and threads along a line.
pub(crate) const THREAD_LINES: i64 = 4;
pub(crate) const THREAD_COLUMNS: i64 = 8;
pub(crate) const THREADS_ACROSS: i64 = BLOCK / THREAD_COLUMNS;
/// Lines of a warp.
const WARP_LINES: i64 = WARP / THREADS_ACROSS * THREAD_LINES;
/// The block of keys or rows of the defined order.
pub(crate) const BLOCK: i64 = ATTENTION_BLOCK as i64;
/// Elements of one access to shared memory.
pub(crate) const TOGETHER: i64 = 4;
/// Bytes of it.
const ACCESS: i64 = 16;
/// Registers of a thread beside sums and scores where threads multiply: operands, places, numbers of lines.
const OTHER_REGISTERS: i64 = 52;

/// Lines of `f32` in shared memory. Lines are an odd number of accesses apart, so that eight of them lie in different banks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FloatTile {
    /// Bytes before it.
    pub(crate) at: i64,
    pub(crate) lines: i64,
    /// Elements of a line.
    pub(crate) elements: i64,
}

impl FloatTile {
    /// Bytes from one line to the next.
    pub(crate) fn pitch(&self) -> i64 {
        ((self.elements / TOGETHER) | 1) * ACCESS
    }

    /// The first byte after it.
    fn end(&self) -> i64 {
        self.at + self.lines * self.pitch()
    }
}

/// What a block of a pass by threads has in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FloatTiles {
    /// Of the lines that the block owns: those of queries or keys, and those of cotangents or values.
    pub(crate) own: [FloatTile; 2],
    /// Of the lines that it goes over: the same of the other kind.
    pub(crate) step: [FloatTile; 2],
    /// Weights, or cotangents of scores.
    pub(crate) weights: FloatTile,
    /// Bytes of all.
    pub(crate) bytes: i64,
}

impl AttentionForm {
    /// How a pass by threads lays out shared memory. Weights take the place of what has been read when they are known: of keys
    /// in `values`, of values in `queries`.
    pub(crate) fn float_tiles(&self, tile: &AttentionTile) -> FloatTiles {
        let of = |at: i64, lines: i64, elements: i64| FloatTile { at, lines, elements };
        let weights = |at: i64| of(at, tile.own, tile.step);
        let left = of(0, tile.own, self.depth);
        let right = of(left.end(), tile.own, self.width);
        match tile.pass {
            AttentionPass::Values => {
                let keys = of(left.end(), tile.step, self.depth);
                let weights = weights(keys.at);
                let values = of(keys.end().max(weights.end()), tile.step, self.width);
                let own = [left, FloatTile { lines: 0, ..right }];
                FloatTiles { own, step: [keys, values], weights, bytes: values.end() }
            }
            AttentionPass::Keys | AttentionPass::KeyCotangents | AttentionPass::ValueCotangents => {
                let queries = of(right.end(), tile.step, self.depth);
                let cotangents = of(queries.end(), tile.step, self.width);
                let weights = weights(cotangents.end());
                let step = [queries, cotangents];
                FloatTiles { own: [left, right], step, weights, bytes: weights.end() }
            }
            AttentionPass::Queries => {
                let keys = of(right.end(), tile.step, self.depth);
                let values = of(keys.end(), tile.step, self.width);
                let weights = weights(values.at);
                let bytes = values.end().max(weights.end());
                FloatTiles { own: [left, right], step: [keys, values], weights, bytes }
            }
        }
    }

    /// Registers of a thread for sums and scores where threads multiply.
    pub(super) fn thread_sums(&self, tile: &AttentionTile) -> i64 {
        let sums = |n: i64| column_groups(n) * TOGETHER * THREAD_LINES;
        let (deep, wide) = (sums(self.depth), sums(self.width));
        let scores = THREAD_LINES * THREAD_COLUMNS;
        let each = match tile.pass {
            AttentionPass::Values => wide + scores.max(wide),
            AttentionPass::Queries => deep + (2 * scores).max(deep),
            _ => deep + wide + scores + scores.max(deep).max(wide),
        };
        each + OTHER_REGISTERS
    }

    /// Errs for lines that threads do not divide among them, and for steps that are no blocks of the defined order.
    pub(super) fn check_threads(&self, tile: &AttentionTile) -> Result<(), String> {
        let &AttentionTile { pass, own, step, warps, stages, .. } = tile;
        if own < WARP_LINES || own != warps * WARP_LINES || BLOCK % own != 0 {
            return Err(format!(
                "`{pass}`: a warp has {WARP_LINES} lines, and a block of {BLOCK} lines is divided evenly"
            ));
        }
        if step != BLOCK || stages != 1 {
            return Err(format!("`{pass}`: threads go over {BLOCK} lines at a time, in one stage"));
        }
        Ok(())
    }
}

impl AttentionForm {
    /// The passes that it takes, with the engine's own tiles.
    pub(crate) fn decide(&self, target: &GpuTarget) -> Result<AttentionDecision, Diagnostic> {
        use AttentionPass::{KeyCotangents, Keys, Queries, ValueCotangents, Values};
        let joint = self.depth + self.width <= ATTENTION_JOINT as i64;
        let passes: &[AttentionPass] = match (self.step.backward, joint) {
            (false, _) => &[Values],
            (true, true) => &[Keys, Queries],
            (true, false) => &[ValueCotangents, KeyCotangents, Queries],
        };
        let shallow = self.depth.max(self.width) <= 64;
        let best = |&pass: &AttentionPass| {
            let fits = |tile: &AttentionTile| self.check(tile, target).is_ok();
            let threads = thread_tiles(self, pass, target);
            let units = warpgroup_tiles(pass, shallow).chain(warp_tiles(pass, shallow));
            let found = threads.into_iter().chain(units).find(fits);
            found.ok_or_else(|| internal("no tile of attention fits"))
        };
        Ok(AttentionDecision { tiles: passes.iter().map(best).collect::<Result<_, _>>()? })
    }
}

impl AttentionTile {
    /// Registers that a thread may have where this many blocks share a multiprocessor.
    pub(super) fn thread_registers(&self, target: &GpuTarget) -> i64 {
        let threads = target.allocated_threads(self.grid().threads);
        let most = i64::from(target.thread_registers);
        target.registers_of(threads * i64::from(self.resident)).min(most)
    }
}

/// Groups of neighbouring elements of a line that each thread has sums of.
pub(crate) fn column_groups(elements: i64) -> i64 {
    let across = THREADS_ACROSS * TOGETHER;
    (elements + across - 1) / across
}

/// Tiles of a pass by threads, the best first. Blocks of more lines read less, those of fewer lines fill the chip more evenly.
fn thread_tiles(
    form: &AttentionForm,
    pass: AttentionPass,
    target: &GpuTarget,
) -> Vec<AttentionTile> {
    let (owners, lines) = form.owners(pass);
    let tile = |(own, resident): (i64, u32)| AttentionTile {
        pass,
        unit: AttentionUnit::Thread,
        own,
        step: BLOCK,
        warps: own / WARP_LINES,
        stages: 1,
        resident,
    };
    let blocks = owners.saturating_mul((lines + 63) / 64);
    let is_many = blocks >= 8 * i64::from(target.multiprocessors);
    let list: &[(i64, u32)] = match is_many {
        true => &[(64, 2), (32, 2), (64, 1), (32, 1), (16, 1), (8, 1)],
        false => &[(32, 2), (64, 1), (32, 1), (16, 1), (8, 1)],
    };
    list.iter().copied().map(tile).collect()
}

/// Tiles of a pass by warps, the best first; `shallow` where a query and a value have 64 elements at most.
fn warp_tiles(pass: AttentionPass, shallow: bool) -> impl Iterator<Item = AttentionTile> {
    let unit = AttentionUnit::Warp;
    let tile = move |(own, step, warps, resident)| AttentionTile {
        pass,
        unit,
        own,
        step,
        warps,
        stages: 2,
        resident,
    };
    // Of the tiles that were measured on an H200, those without spills that took least, and smaller ones for less shared memory.
    let list: &[(i64, i64, i64, u32)] = match (pass, shallow) {
        (AttentionPass::Values, true) => &[(64, 64, 4, 4), (64, 64, 4, 2), (64, 32, 4, 2)],
        (AttentionPass::Values, false) => {
            &[(128, 32, 4, 2), (64, 64, 4, 2), (64, 32, 4, 2), (64, 16, 4, 1)]
        }
        (AttentionPass::Keys, true) => &[(64, 64, 4, 2), (64, 32, 4, 2)],
        (AttentionPass::Keys, false) => &[(64, 64, 4, 2), (64, 32, 4, 2), (64, 16, 4, 1)],
        (AttentionPass::Queries, true) => &[(64, 64, 4, 3), (64, 64, 4, 2), (64, 32, 4, 2)],
        (AttentionPass::Queries, false) => {
            &[(128, 32, 4, 2), (64, 32, 4, 2), (64, 32, 4, 1), (64, 16, 4, 1)]
        }
        (AttentionPass::KeyCotangents | AttentionPass::ValueCotangents, _) => {
            &[(64, 32, 4, 2), (64, 16, 4, 2), (64, 32, 4, 1), (64, 16, 4, 1)]
        }
    };
    list.iter().copied().map(tile)
}

/// Tiles of a pass by warpgroups, the best first.
fn warpgroup_tiles(pass: AttentionPass, shallow: bool) -> impl Iterator<Item = AttentionTile> {
    let unit = AttentionUnit::Warpgroup;
    let tile = move |(groups, step, stages, resident)| AttentionTile {
        pass,
        unit,
        own: groups * TALL,
        step,
        warps: groups * GROUP / WARP,
        stages,
        resident,
    };
    // Of the tiles that were measured on an H200, those that took least, and smaller ones for masks and biases.
    let list: &[(i64, i64, i64, u32)] = match (pass, shallow) {
        (AttentionPass::Values, true) => &[(1, 96, 2, 3), (1, 128, 2, 2), (1, 64, 2, 2)],
        (AttentionPass::Values, false) => &[(2, 128, 2, 1), (2, 64, 2, 1), (2, 32, 2, 1)],
        (AttentionPass::Keys, true) => &[(1, 64, 3, 2), (1, 32, 3, 2)],
        (AttentionPass::Keys, false) => &[(2, 48, 5, 1), (2, 32, 4, 1)],
        (AttentionPass::Queries, true) => &[(1, 96, 3, 2), (1, 64, 3, 2)],
        (AttentionPass::Queries, false) => &[(2, 96, 3, 1), (2, 64, 3, 1), (2, 32, 3, 1)],
        (AttentionPass::ValueCotangents, _) => &[(2, 64, 2, 1), (2, 32, 3, 1), (1, 32, 2, 1)],
        (AttentionPass::KeyCotangents, _) => &[(2, 32, 3, 1), (2, 32, 2, 1), (1, 32, 2, 1)],
    };
    list.iter().copied().map(tile)
}

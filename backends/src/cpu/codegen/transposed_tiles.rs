//! Transposed tiles: an array whose neighbours lie along the axis around the lines, and whose elements along a line are far apart,
//! is read block by block. Each block of a few neighbouring lines is transposed in registers into memory of the function, which
//! stays in the first-level cache, and lines read their elements there as neighbours.
//!
//! Otherwise each element would be read by itself, as often as cache lines leave the cache between lines: from every one of them.

use super::loop_ir::{LoopNest, ParamRead, VectorAccess};
use super::loop_program::{LoopOp, LoopStmt, LoopVal, TransposedTile};
use super::lower::GroupTarget;
use super::program_builder::ProgramBuilder;

/// Lines of a block.
pub(crate) const TILE_LINES: i64 = 16;

/// Lanes of 32 bits of the vectors that tiles are for: their masks suppress accesses.
const LANES: u32 = 16;

/// Elements of a line, at least: each line has a loop of its own.
const SHORTEST: i64 = 4;

/// Lines of fewer neighbours than this are read element by element.
const LEAST: i64 = 8;

/// Elements of a line that are nearer than this are read by permutations, or from cache lines that are there still.
const FAR_BYTES: i64 = 64;

/// Bytes of the tiles of a sweep together, at most: half of the smallest first-level cache.
const MOST_BYTES: i64 = 16 << 10;

impl LoopNest {
    /// The parameters that are read by transposed tiles, for vectors of this many lanes of 32 bits.
    pub(crate) fn transposed(&self, lanes: u32) -> Vec<(usize, TransposedTile)> {
        let Some(around) = self.inner().checked_sub(1) else { return Vec::new() };
        let n = self.line_length();
        if lanes != LANES || n < SHORTEST || self.walk.extents[around] < LEAST {
            return Vec::new();
        }
        let (mut found, mut bytes) = (Vec::new(), 0i64);
        for (k, read) in self.reads.iter().enumerate() {
            let Some(tile) = self.tile_of(k, read, around) else { continue };
            let Some(all) = tile.pitch().checked_mul(TILE_LINES) else { continue };
            if bytes.saturating_add(all) <= MOST_BYTES {
                bytes += all;
                found.push((k, tile));
            }
        }
        found
    }

    fn tile_of(&self, k: usize, read: &ParamRead, around: usize) -> Option<TransposedTile> {
        if !self.varies[k] || self.loads[k] != VectorAccess::Even || self.grid().is_some() {
            return None;
        }
        let array = read.sources().first()?.from.array()?;
        let form = &self.forms[array.form];
        let (bytes, step) = (array.dtype.bytes() as i64, self.step(array.form));
        let apart = step.checked_mul(bytes)?;
        // Sixteen of a line's elements are named by offsets of 32 bits.
        let near = i32::try_from(apart.checked_mul(TILE_LINES)?).is_ok();
        let fits = form.rest.is_empty() && form.steps.get(around) == Some(&1);
        (fits && near && apart.checked_abs()? >= FAR_BYTES).then(|| TransposedTile {
            dtype: array.dtype,
            count: self.line_length(),
            step,
        })
    }
}

impl ProgramBuilder<'_> {
    /// Notes which parameters are read by transposed tiles.
    pub(crate) fn find_tiles(&mut self, target: GroupTarget) {
        let GroupTarget::Partial { lanes } = target else { return };
        for (k, tile) in self.p.transposed(lanes) {
            self.tile_of[k] = Some(self.tiles.len());
            self.tiles.push(tile);
        }
    }

    /// Fills all tiles with a block of lines. The current line is the first of them.
    pub(crate) fn fill_tiles(&mut self, lines: LoopVal) {
        let p = self.p;
        for (k, read) in p.reads.iter().enumerate() {
            let array = read.sources().first().and_then(|s| s.from.array());
            if let (Some(tile), Some(a)) = (self.tile_of[k], array) {
                let from = self.pointer(a.at, a.form, a.dtype.bytes() as i64);
                self.push(LoopStmt::Transpose { tile, from, lines });
            }
        }
    }

    /// Where the tile of a parameter has the line that is computed; none where it has no tile.
    pub(crate) fn tile_line(&mut self, k: usize) -> Option<LoopVal> {
        let tile = self.tile_of[k]?;
        let line = self.line.in_tile?;
        let base = self.op(LoopOp::Tile(tile as u32));
        let offset = self.mul(line, self.tiles[tile].pitch());
        Some(self.add(base, offset))
    }
}

//! Loop-invariant code motion: short lines have a loop of their own, along the axis around them, and what does not change
//! from one line to the next is computed before it.
//!
//! A sweep's function is given a range of places. The coordinates of a place are quotients and remainders, which a loop of lines
//! computes once for all lines that differ in one coordinate alone.

use super::interleave::whole_line;
use super::loop_program::{LoopOp, LoopVal};
use super::lower::GroupTarget;
use super::program_builder::ProgramBuilder;
use super::transposed_tiles::TILE_LINES;

/// Lines of at most this many elements have a loop of their own: computing where a line begins, by quotients of its place,
/// would take longer than computing its elements.
const SHORT: i64 = 64;

impl ProgramBuilder<'_> {
    /// Computes the line that a place is in. Where lines are short, it computes all lines from that one to the end of the axis
    /// around them. Gives the place behind what is computed.
    pub(crate) fn lines_from(&mut self, place: LoopVal, target: GroupTarget) -> LoopVal {
        let p = self.p;
        let n = p.line_length();
        let Some(around) = p.inner().checked_sub(1) else {
            return self.one_line([place, place], LoopVal::END, Vec::new(), target);
        };
        let line = self.div(place, n);
        let start = self.mul(line, n);
        let low = self.sub(place, start);
        let mut outer = self.outer(line);
        let short = n <= SHORT || self.has_whole_lines(target);
        if !short && self.tiles.is_empty() {
            return self.one_line([place, low], LoopVal::END, outer, target);
        }
        let Some(first) = outer.pop() else { return place };
        let lines = self.int(p.walk.extents[around]);
        let lines = self.sub(lines, first);
        let rest = self.mul(lines, n);
        let rest = self.sub(rest, low);
        let end = self.add(place, rest);
        let end = self.min(end, LoopVal::END);
        if self.tiles.is_empty() {
            return self.line_loop([place, low, first], [end, end], &outer, target)[0];
        }
        let [behind, ..] = self.turns([place, low, first], end, |b, [place, low, at]| {
            let (extent, most) = (b.int(p.walk.extents[around]), b.int(TILE_LINES));
            let left = b.sub(extent, at);
            let lines = b.min(left, most);
            b.line.outer = outer.iter().copied().chain([at]).collect();
            b.fill_tiles(lines);
            let rest = b.mul(lines, n);
            let rest = b.sub(rest, low);
            let stop = b.add(place, rest);
            let stop = b.min(stop, end);
            let [behind, next] = b.line_loop([place, low, at], [stop, end], &outer, target);
            [behind, b.int(0), next]
        });
        behind
    }

    /// Whether whole lines are emitted without loops.
    fn has_whole_lines(&self, target: GroupTarget) -> bool {
        match target {
            GroupTarget::Whole(_) => false,
            GroupTarget::Partial { lanes } => whole_line(self.p, lanes).is_some(),
        }
    }

    /// Lines along the axis around them from a place up to another; gives the place and the line behind them. Tiles have the lines from
    /// the first one on.
    fn line_loop(
        &mut self,
        [place, low, first]: [LoopVal; 3],
        [stop, end]: [LoopVal; 2],
        outer: &[LoopVal],
        target: GroupTarget,
    ) -> [LoopVal; 2] {
        self.preheader = Some(self.open.len());
        let [behind, _, next] = self.turns([place, low, first], stop, |b, [place, low, at]| {
            b.line.in_tile = (!b.tiles.is_empty()).then(|| b.sub(at, first));
            let outer = outer.iter().copied().chain([at]).collect();
            let behind = b.one_line([place, low], end, outer, target);
            [behind, b.int(0), b.plus(at, 1)]
        });
        self.preheader = None;
        [behind, next]
    }

    /// How many blocks are open where an operation is defined: those around it, or, where it does not change in the loop
    /// of lines, those around that loop. What is in memory is read where it is asked for.
    pub(crate) fn block_of(&self, op: &LoopOp) -> usize {
        let here = self.open.len();
        let Some(preheader) = self.preheader else { return here };
        match op {
            LoopOp::Load(..) | LoopOp::LoadBits(..) | LoopOp::Literal(_) => here,
            op => {
                let depth = |v: &LoopVal| self.values.get(v.0 as usize).map_or(here, |v| v.depth);
                let depths = op.operands().iter().map(depth).max();
                if depths.unwrap_or(0) <= preheader { preheader } else { here }
            }
        }
    }
}

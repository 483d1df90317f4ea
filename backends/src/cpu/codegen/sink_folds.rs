//! Folds sunk into the ends of blocks: lanes are set to what is neutral where a block of the strict order begins, and
//! are joined to its part where it ends. In between they stay in memory, also for the next call. Columns are combined in
//! the array of parts.

use super::loop_ir::WalkedFold;
use super::loop_program::{GroupFold, GroupWrite, LoopCond, LoopStmt, LoopVal};
use super::program_builder::ProgramBuilder;
use crate::reference::order::LANES;

/// Lanes of a block.
pub(crate) const BLOCK_LANES: i64 = LANES as i64;

impl ProgramBuilder<'_> {
    /// The outputs that fold in the order of lanes.
    pub(crate) fn lane_folds(&self) -> Vec<usize> {
        let folds = self.p.folds.iter().enumerate();
        folds.filter(|(_, f)| f.as_ref().is_some_and(|f| f.lanes.is_some())).map(|f| f.0).collect()
    }

    /// Where the outputs fold, all along a line.
    pub(crate) fn folds(&mut self) {
        let p = self.p;
        for (k, fold) in p.folds.iter().enumerate() {
            let Some(f) = fold else { continue };
            let dtype = f.dtype;
            let fold = GroupFold { monoid: f.monoid, dtype, lanes: f.lanes.is_some() };
            let place = self.fixed_form(f.place);
            self.writes[k] = match &f.lanes {
                Some(lanes) => {
                    let pointer = self.pointer(lanes.at, lanes.form, dtype.bytes() as i64);
                    GroupWrite::Lanes { fold, pointer, place }
                }
                None => GroupWrite::Columns { fold, pointer: self.part(k, f, place) },
            };
        }
    }

    /// Where the part of the block is that a place is in.
    fn part(&mut self, k: usize, f: &WalkedFold, place: LoopVal) -> LoopVal {
        let (a, bytes) = (&self.p.writes[k], f.dtype.bytes() as i64);
        let first = self.pointer(a.at, a.form, bytes);
        let block = self.div(place, 1 << f.block_bits());
        let apart = self.mul(block, f.apart.wrapping_mul(bytes));
        self.add(first, apart)
    }

    /// Sets the columns of a line to what is neutral, where it is the first of a block.
    pub(crate) fn begin_columns(
        &mut self,
        [low, high]: [LoopVal; 2],
        fill: impl Fn(&mut Self, usize, [LoopVal; 2]),
    ) {
        let p = self.p;
        for (k, f) in p.folds.iter().enumerate() {
            let Some(f) = f.as_ref().filter(|f| f.lanes.is_none()) else { continue };
            let place = self.fixed_form(f.place);
            let within = self.rem(place, 1 << f.block_bits());
            self.when(vec![LoopCond::Zero(within)], |b| fill(b, k, [low, high]));
        }
    }

    /// Begins a segment at a coordinate: sets the lanes of a block that begins there; gives the place, and where the
    /// block ends.
    pub(crate) fn begin_block(&mut self, f: &WalkedFold, from: LoopVal) -> [LoopVal; 2] {
        let whole = 1 << f.block_bits();
        let first = self.fixed_form(f.place);
        let place = self.add(first, from);
        let within = self.rem(place, whole);
        let begins = self.sub(from, within);
        let ends = self.plus(begins, whole);
        let folds = self.lane_folds();
        self.when(vec![LoopCond::Zero(within)], |b| {
            folds.into_iter().for_each(|output| b.push(LoopStmt::FillLanes { output }));
        });
        [place, ends]
    }

    /// Ends a segment that began at a place: where the block does, or all of it, its lanes join.
    pub(crate) fn end_block(&mut self, f: &WalkedFold, [place, from, to]: [LoopVal; 3]) {
        let count = self.sub(to, from);
        let end = self.add(place, count);
        let within = self.rem(end, 1 << f.block_bits());
        let size = self.int(f.size);
        let left = self.sub(size, end);
        let least = self.min(within, left);
        let folds = self.lane_folds();
        self.when(vec![LoopCond::Zero(least)], |b| {
            for output in folds {
                if let Some(f) = &b.p.folds[output] {
                    let to = b.part(output, f, place);
                    b.push(LoopStmt::JoinLanes { output, to });
                }
            }
        });
    }

    /// The outputs that fold in the order of lanes, and where the parts of a whole line are.
    pub(crate) fn line_parts(&mut self) -> Vec<(usize, LoopVal)> {
        let p = self.p;
        let first = self.int(0);
        let folds = p.folds.iter().enumerate();
        let mut parts = Vec::new();
        for (k, f) in
            folds.filter_map(|(k, f)| Some((k, f.as_ref().filter(|f| f.lanes.is_some())?)))
        {
            parts.push((k, self.part(k, f, first)));
        }
        parts
    }

    /// Where what the element of a coordinate folds into is.
    pub(crate) fn folded_at(&mut self, k: usize, f: &WalkedFold, at: LoopVal) -> LoopVal {
        let (pointer, element) = match self.writes[k] {
            GroupWrite::Lanes { pointer, place, .. } => {
                let place = self.add(place, at);
                (pointer, self.rem(place, BLOCK_LANES))
            }
            GroupWrite::Columns { pointer, .. } => (pointer, at),
            GroupWrite::Element | GroupWrite::Even { .. } | GroupWrite::Packed { .. } => {
                (self.int(0), at)
            }
        };
        let offset = self.mul(element, f.dtype.bytes() as i64);
        self.add(pointer, offset)
    }
}

//! Turns of loops that are calls of functions alone: the pointers that move are written where those functions read them, and
//! the functions are called one after the other. Nothing else is asked at a turn.
//!
//! A turn of a small loop takes some hundred nanoseconds, and going through its steps took a third of that.
#![allow(unsafe_code)]

use super::block::CompiledBlock;
use super::loop_run::{BlockTurn, LoopTurns, StepRun, copy};
use super::turn_calls::{DirectTurns, DueTurns};
use std::sync::PoisonError;

impl DirectTurns {
    /// Writes the pointers of what is kept for several turns, and in the last of these those of their elements. Whether no turns are done
    /// at once with this one, and whether it is the last of those that are.
    fn at_once(&mut self, run: &LoopTurns<'_>, position: u64, outer: &[*mut u8]) -> (bool, bool) {
        let Some(deferral) = &self.deferral else { return (true, false) };
        let turns = deferral.turns;
        let (t, reverse) = (run.position(position), run.made.reverse);
        let nth = t % turns;
        let last = nth + 1 == turns;
        // Rows are in the order of positions.
        let row = if reverse { turns - 1 - nth } else { nth } as usize;
        for (all, bytes, places) in &deferral.kept {
            let at = self.table[*all].wrapping_add(row * bytes);
            places.iter().for_each(|&place| self.table[place] = at);
        }
        let alone = t >= run.trips - run.trips % turns;
        if last && !alone {
            let first = if reverse { position } else { position + 1 - turns } as usize;
            for (from, bytes, places) in &deferral.elements {
                let at = outer[*from].wrapping_add(first * bytes);
                places.iter().for_each(|&place| self.table[place] = at);
            }
        }
        (alone, last && !alone)
    }
}

impl StepRun<'_> {
    /// Puts what is carried in one place there, at first with its value.
    pub(super) fn hold(
        &mut self,
        run: &LoopTurns<'_>,
        first: bool,
        (now, next): (&mut [*mut u8], &mut [*mut u8]),
    ) {
        let Some(turns) = &self.turns[run.made.step.table] else { return };
        let outer = self.tables[run.outer][0].get_mut().unwrap_or_else(PoisonError::into_inner);
        for &k in turns.deferral.iter().flat_map(|d| &d.carries) {
            let carry = &run.made.carries[k];
            let to = outer.table[carry.to];
            if first {
                copy(now[k], to, carry.bytes);
            }
            (now[k], next[k]) = (to, to);
        }
    }

    /// Says where those pointers of a block are that stay in all turns, if its turns are calls alone.
    pub(super) fn open_turns(&mut self, block: &CompiledBlock) {
        if let Some(turns) = &mut self.turns[block.table] {
            let worker =
                self.tables[block.table][0].get_mut().unwrap_or_else(PoisonError::into_inner);
            turns.open(worker);
        }
    }

    /// Runs a block once, if its turns are calls alone; whether they are.
    pub(super) fn direct_turn(
        &mut self,
        run: &LoopTurns<'_>,
        block: &CompiledBlock,
        turn: &BlockTurn<'_>,
    ) -> bool {
        let Some(turns) = &mut self.turns[block.table] else { return false };
        let outer = self.tables[run.outer][0].get_mut().unwrap_or_else(PoisonError::into_inner);
        for (&(_, input), places) in block.moving.iter().zip(&turns.moving) {
            let at = turn.input(input, |from| outer.table[from]);
            places.iter().for_each(|&place| turns.table[place] = at);
        }
        let to = |k: usize| turn.output(k, |stack| outer.table[stack]);
        for (k, (output, places)) in block.outputs.iter().zip(&turns.outputs).enumerate() {
            if !output.copied {
                let at = to(k);
                places.iter().for_each(|&place| turns.table[place] = at);
            }
        }
        let (alone, last) = turns.at_once(run, turn.position, &outer.table);
        for call in &turns.calls {
            let due = match call.when {
                DueTurns::Always => true,
                DueTurns::Alone => alone,
                DueTurns::AtOnce => last,
            };
            if !due {
                continue;
            }
            // SAFETY: the table has, for each buffer and slot that the sweep names, a pointer to memory of its size and type:
            // the block's own, or where this turn has them. Places are within the extents of the sweep.
            unsafe { (call.function)(turns.table[call.table..].as_ptr(), call.begin, call.end) }
        }
        for (k, output) in block.outputs.iter().enumerate().filter(|(_, output)| output.copied) {
            // SAFETY: both have this many bytes. What is copied is an input, a constant or another output of the
            // block; where it goes is none of them, since a turn writes nothing that it reads.
            unsafe {
                std::ptr::copy_nonoverlapping(turns.table[output.buffer], to(k), output.bytes);
            }
        }
        true
    }
}

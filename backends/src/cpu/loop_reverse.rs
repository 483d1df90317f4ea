//! Runs of loops with a way back: what is carried is kept at checkpoints, and computed again from there.
#![allow(unsafe_code)]

use super::block::{CompiledBack, CompiledCarry};
use super::loop_run::{BlockTurn, LoopPointers, LoopTurns, StepRun, copy};
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::{Reversal, ReversalAction, SLOT};

impl StepRun<'_> {
    /// The steps of a loop, and the way back over them.
    pub(super) fn reverse(
        &mut self,
        run: &LoopTurns<'_>,
        back: &CompiledBack,
        pointers: &mut LoopPointers,
    ) -> Result<(), Diagnostic> {
        let (outer, made) = (run.outer, run.made);
        let LoopPointers { now, next, returned, returned_next } = pointers;
        self.begin(outer, &made.carries, true, (now, next));
        self.begin(outer, &back.carries, run.trips % 2 == 1, (returned, returned_next));
        let (at, most) = back.numbers;
        let count = usize::try_from(run.trips).unwrap_or(most).min(most);
        let at = self.scratch(outer, at).cast::<u64>();
        // SAFETY: there is room for this many numbers at a multiple of 64 bytes, which nobody else uses while the loop
        // runs; they are made zeros before there is a slice of them.
        let numbers = unsafe {
            at.write_bytes(0, count);
            std::slice::from_raw_parts_mut(at, count)
        };
        let mut ended = false;
        let mut actions = Reversal::new(run.trips, numbers).peekable();
        while let Some(action) = actions.next() {
            match action {
                ReversalAction::Keep(k) => self.keep(outer, &made.carries, k, now),
                ReversalAction::Restore(k) => {
                    for (carry, now) in made.carries.iter().zip(&mut *now) {
                        *now = self.checkpoint(outer, carry, k);
                    }
                }
                ReversalAction::Advance(from, to) => {
                    for t in from..to {
                        // A state that is kept is written where it is kept.
                        let kept = match actions.peek() {
                            Some(&ReversalAction::Keep(k)) if t + 1 == to => Some(k),
                            _ => None,
                        };
                        self.aside(outer, &made.carries, kept, (now, next));
                        self.step(run, t, now, next)?;
                        now.copy_from_slice(next);
                    }
                }
                ReversalAction::Turn(t) => {
                    if !ended {
                        for (carry, next) in made.carries.iter().zip(&mut *next) {
                            *next = self.pointer(outer, carry.to);
                        }
                        self.step(run, t, now, next)?;
                        ended = true;
                    }
                    let position = run.position(t);
                    let stacks = &back.stacks;
                    let turn = BlockTurn { position, now, returned, next: returned_next, stacks };
                    self.turn(run, &back.step, &turn)?;
                    self.swap(outer, &back.carries, (returned, returned_next));
                }
            }
        }
        if !ended {
            self.end(outer, &made.carries, now);
        }
        self.end(outer, &back.carries, returned);
        Ok(())
    }

    /// Keeps what is carried at checkpoint `k`.
    fn keep(&mut self, outer: usize, carries: &[CompiledCarry], k: usize, now: &mut [*mut u8]) {
        for (carry, now) in carries.iter().zip(now) {
            let at = self.checkpoint(outer, carry, k);
            copy(*now, at, carry.bytes);
            *now = at;
        }
    }

    fn checkpoint(&mut self, outer: usize, carry: &CompiledCarry, k: usize) -> *mut u8 {
        let line = (carry.bytes as u64).next_multiple_of(SLOT);
        self.scratch(outer, carry.kept + k as u64 * line)
    }

    /// Says where a step writes that is computed for a later one: to a checkpoint, or to one of two places in turn.
    fn aside(
        &mut self,
        outer: usize,
        carries: &[CompiledCarry],
        kept: Option<usize>,
        (now, next): (&[*mut u8], &mut [*mut u8]),
    ) {
        for ((carry, now), next) in carries.iter().zip(now).zip(next) {
            let spare = self.scratch(outer, carry.spare[0]);
            *next = match kept {
                Some(k) => self.checkpoint(outer, carry, k),
                None if *now == spare => self.scratch(outer, carry.spare[1]),
                None => spare,
            };
        }
    }
}

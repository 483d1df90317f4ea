//! Carries of loops that are stacked at each step: their values are where they are stacked, in place of two places in turn, so that nothing
//! is copied.

use super::block::CarryInStack;
use super::loop_run::{LoopTurns, StepRun, copy};

impl StepRun<'_> {
    /// Says for a turn which carries are read and written in stacks.
    pub(super) fn place_in_stacks(
        &mut self,
        run: &LoopTurns<'_>,
        t: u64,
        (now, next): (&mut [*mut u8], &mut [*mut u8]),
    ) {
        if t >= run.trips {
            return;
        }
        for &CarryInStack { carry: k, stack, before } in &run.made.in_stacks {
            let (carry, (stack, bytes)) = (&run.made.carries[k], run.made.stacks[stack]);
            let (stack, end) = (self.pointer(run.outer, stack), self.pointer(run.outer, carry.to));
            let element = |t: u64| stack.wrapping_add(run.position(t) as usize * bytes);
            if !before {
                next[k] = element(t);
                continue;
            }
            if t == 0 {
                copy(now[k], element(0), carry.bytes);
            }
            now[k] = element(t);
            next[k] = if t + 1 < run.trips { element(t + 1) } else { end };
        }
    }
}

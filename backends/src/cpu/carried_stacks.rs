//! Carries of loops that are stacked at each step: their values are where they are stacked, in place of two places in turn, so that nothing
//! is copied.

use super::block::{CompiledBlock, MovingInput};
use super::loop_run::{LoopTurns, StepRun, copy};

/// A carry that a loop stacks at each step. Its values are where they are stacked, so nothing is copied.
pub(super) struct CarryInStack {
    pub(super) carry: usize,
    /// Its position among the stacks.
    pub(super) stack: usize,
    /// Whether an element is what the step begins with; otherwise it is what the step gives.
    pub(super) before: bool,
}

/// The carries of this many that a block stacks, each by one of its outputs, which then is where it goes.
pub(super) fn in_stacks(block: &mut CompiledBlock, carries: usize) -> Vec<CarryInStack> {
    let mut found: Vec<CarryInStack> = Vec::new();
    for before in [true, false] {
        for stack in 0..block.outputs.len().saturating_sub(carries) {
            let output = &block.outputs[carries + stack];
            let is_input = |k: usize| {
                let all = &block.moving;
                all.iter().any(|&(b, input)| {
                    b == output.buffer && matches!(input, MovingInput::Carry(j) if j == k)
                })
            };
            let is_next =
                |k: usize| !block.outputs[k].copied && block.outputs[k].buffer == output.buffer;
            let carry = (0..carries).find(|&k| if before { is_input(k) } else { is_next(k) });
            let Some(carry) = carry.filter(|&k| found.iter().all(|one| one.carry != k)) else {
                continue;
            };
            if found.iter().any(|one| one.stack == stack) {
                continue;
            }
            found.push(CarryInStack { carry, stack, before });
            block.outputs[carries + stack].copied = false;
        }
    }
    found
}

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

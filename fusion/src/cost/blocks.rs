//! The cost of loops and branches: that of their blocks, as often as they run.

use super::operations::Ops;
use super::step_cost::{Bottleneck, Cost, StepCost};
use adfuse_ir::kernel::{Block, Branch, Loop, Program, Step, forward_steps};

/// Steps that a loop is taken to have where the program does not say how many.
const GUESSED_TRIPS: u64 = 100;

/// What a loop or a branch costs where `cost` is that of a program; `None` for other steps.
pub(super) fn of_blocks(step: &Step, cost: &dyn Fn(&Program) -> Cost) -> Option<StepCost> {
    let mut sum = BlockSum { cost, all: nothing() };
    match step {
        Step::Loop(l) => sum.repeated(l),
        Step::Branch(branch) => sum.one_of(branch),
        _ => return None,
    }
    Some(sum.all)
}

fn nothing() -> StepCost {
    StepCost {
        reads: 0,
        writes: 0,
        ops: Ops::default(),
        launches: 0,
        registers: 0,
        occupancy: 1.0,
        recomputed: 0,
        resident: true,
        seconds: 0.0,
        ideal_seconds: 0.0,
        bound: Bottleneck::Launch,
    }
}

struct BlockSum<'c> {
    cost: &'c dyn Fn(&Program) -> Cost,
    all: StepCost,
}

impl BlockSum<'_> {
    fn repeated(&mut self, l: &Loop) {
        let trips = l.trips.known().unwrap_or(GUESSED_TRIPS);
        if let Some(test) = l.trips.test() {
            self.add(test, trips.saturating_add(1));
        }
        let forward = match &l.back {
            None => trips,
            Some(back) => forward_steps(trips, back.checkpoints),
        };
        self.add(&l.step, forward);
        if let Some(back) = &l.back {
            self.add(&back.step, trips);
        }
    }

    /// One of them, and it may be the dearest.
    fn one_of(&mut self, branch: &Branch) {
        let costs = branch.blocks.iter().map(|block| (block, (self.cost)(&block.program)));
        let dearest = costs.max_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds));
        if let Some((_, of)) = dearest {
            self.times(&of, 1);
        }
    }

    fn add(&mut self, block: &Block, times: u64) {
        self.times(&(self.cost)(&block.program), times);
    }

    fn times(&mut self, of: &Cost, times: u64) {
        let StepCost { reads, writes, ops, launches, registers, occupancy, recomputed, .. } =
            &mut self.all;
        for step in &of.steps {
            *reads = reads.saturating_add(step.reads.saturating_mul(times));
            *writes = writes.saturating_add(step.writes.saturating_mul(times));
            *recomputed = recomputed.saturating_add(step.recomputed.saturating_mul(times));
            ops.add_times(&step.ops, times);
            *registers = step.registers.max(*registers);
            *occupancy = occupancy.min(step.occupancy);
            let begun = u64::from(step.launches).saturating_mul(times);
            *launches = launches.saturating_add(u32::try_from(begun).unwrap_or(u32::MAX));
        }
        let seconds = of.seconds * times as f64;
        if seconds > self.all.seconds
            && let Some(slowest) = of.steps.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds))
        {
            self.all.bound = slowest.bound;
        }
        self.all.seconds += seconds;
    }
}

//! Loops and branches: the steps that run programs of their own.

use super::evaluate;
use super::state::{ProgramRun, RunEnvironment, internal};
use crate::reference::reserve;
use crate::runtime::limits::loop_too_long;
use adfuse_ir::kernel::{
    Back, Block, BlockInput, Branch, Buffer, Carry, Loop, LoopTrips, Operand, Reversal,
    ReversalAction, Role,
};
use adfuse_ir::{DType, Diagnostic, Literal};

/// The bits of one value.
type Bits = Vec<u64>;

/// What a block of a loop is entered with.
#[derive(Clone, Copy, Default)]
struct BlockEntry<'v> {
    /// The position, and the type in which the block reads it.
    at: i64,
    index: Option<(DType, i64)>,
    carries: &'v [Bits],
    returned: &'v [Bits],
}

/// The steps of a loop, once it is known how many there are.
struct KnownSteps<'l> {
    step: &'l Loop,
    trips: u64,
    first: i64,
    index: DType,
}

impl KnownSteps<'_> {
    /// What step `t` is entered with.
    fn entry<'v>(&self, t: u64, carries: &'v [Bits], returned: &'v [Bits]) -> BlockEntry<'v> {
        let at = if self.step.reverse { self.trips - 1 - t } else { t } as i64;
        BlockEntry { at, index: Some((self.index, self.first.wrapping_add(at))), carries, returned }
    }
}

impl ProgramRun<'_> {
    pub(super) fn branch(
        &mut self,
        step: &Branch,
        env: &mut RunEnvironment<'_>,
    ) -> Result<(), Diagnostic> {
        let is_bool = self.program.buffers[step.selector].dtype == DType::Bool;
        let taken = Branch::taken(step.blocks.len(), is_bool, self.integer(step.selector)?);
        let block = step.blocks.get(taken).ok_or_else(|| internal("a branch has no such case"))?;
        let results = self.block(block, BlockEntry::default(), env)?;
        step.outputs.iter().zip(results).try_for_each(|(&b, bits)| self.put(b, bits))
    }

    pub(super) fn repeat(
        &mut self,
        step: &Loop,
        env: &mut RunEnvironment<'_>,
    ) -> Result<(), Diagnostic> {
        let carries = self.begun(&step.carries)?;
        let (first, trips, index) = match &step.trips {
            LoopTrips::While { test, most } => {
                let ends = self.while_true((step, test, *most), carries, env)?;
                return self.end(&step.carries, ends);
            }
            LoopTrips::Known(n) => (0, *n, DType::I64),
            LoopTrips::Count(n) => (0, self.integer(*n)?.max(0) as u64, DType::I64),
            LoopTrips::Range(from, to) => {
                let (first, last) = (self.integer(*from)?, self.integer(*to)?);
                let dtype = self.program.buffers[*from].dtype;
                (first, last.saturating_sub(first).max(0) as u64, dtype)
            }
        };
        env.limits.check(step.op(), trips)?;
        for stack in step.all_stacks() {
            let data = &self.program.buffers[stack];
            let bits = vec![0; super::volume(&data.dims)? as usize];
            self.put(stack, bits)?;
        }
        let steps = KnownSteps { step, trips, first, index };
        let ends = match &step.back {
            None => {
                let mut carries = carries;
                for t in 0..trips {
                    carries = self.turn(&steps, t, &carries, env)?;
                }
                carries
            }
            Some(back) => {
                let returned = self.begun(&back.carries)?;
                let (ends, returned) = self.back(&steps, back, (carries, returned), env)?;
                self.end(&back.carries, returned)?;
                ends
            }
        };
        self.end(&step.carries, ends)
    }

    /// Repeats a step while the test gives true; gives what is carried then.
    fn while_true(
        &mut self,
        (step, test, most): (&Loop, &Block, u64),
        mut carries: Vec<Bits>,
        env: &mut RunEnvironment<'_>,
    ) -> Result<Vec<Bits>, Diagnostic> {
        let most = if most == 0 { u64::MAX } else { most }.min(env.limits.max_trips);
        let mut trips = 0;
        loop {
            let entry = BlockEntry { carries: &carries, ..BlockEntry::default() };
            let answer = self.block(test, entry, env)?;
            if answer.first().and_then(|bits| bits.first()).is_none_or(|bit| bit & 1 == 0) {
                return Ok(carries);
            }
            if trips == most {
                return Err(loop_too_long(most));
            }
            let at = trips as i64;
            trips += 1;
            let index = Some((DType::I64, at));
            let entry = BlockEntry { at, index, carries: &carries, returned: &[] };
            carries = self.block(&step.step, entry, env)?;
        }
    }

    /// One step: elements are stacked, what is carried on is given.
    fn turn(
        &mut self,
        steps: &KnownSteps<'_>,
        t: u64,
        carries: &[Bits],
        env: &mut RunEnvironment<'_>,
    ) -> Result<Vec<Bits>, Diagnostic> {
        let entry = steps.entry(t, carries, &[]);
        let results = self.block(&steps.step.step, entry, env)?;
        self.stacked(results, &steps.step.stacks, (entry.at, steps.trips))
    }

    /// Reverses the steps: gives what is carried after the last, and what is handed back from the first.
    fn back(
        &mut self,
        steps: &KnownSteps<'_>,
        back: &Back,
        (mut state, mut returned): (Vec<Bits>, Vec<Bits>),
        env: &mut RunEnvironment<'_>,
    ) -> Result<(Vec<Bits>, Vec<Bits>), Diagnostic> {
        if steps.trips == 0 {
            return Ok((state, returned));
        }
        let count = back.checkpoints.min(steps.trips);
        let mut numbers = reserve(count)?;
        numbers.resize(count as usize, 0);
        let mut slots: Vec<Vec<Bits>> = Vec::new();
        let mut ends = None;
        for action in Reversal::new(steps.trips, &mut numbers) {
            match action {
                ReversalAction::Keep(k) => {
                    slots.truncate(k);
                    slots.push(state.clone());
                }
                ReversalAction::Advance(from, to) => {
                    for t in from..to {
                        state = self.turn(steps, t, &state, env)?;
                    }
                }
                ReversalAction::Restore(k) => {
                    state.clone_from(slots.get(k).ok_or_else(|| internal("no such checkpoint"))?);
                }
                ReversalAction::Turn(t) => {
                    if ends.is_none() {
                        ends = Some(self.turn(steps, t, &state, env)?);
                    }
                    let entry = steps.entry(t, &state, &returned);
                    let results = self.block(&back.step, entry, env)?;
                    returned = self.stacked(results, &back.stacks, (entry.at, steps.trips))?;
                }
            }
        }
        Ok((ends.unwrap_or(state), returned))
    }

    /// The values that are carried into the first step.
    fn begun(&self, carries: &[Carry]) -> Result<Vec<Bits>, Diagnostic> {
        let first = |carry: &Carry| match carry.from {
            Operand::Buffer(b) => Ok(self.tensor(b)?.bits.clone()),
            Operand::Literal(l) => {
                let elements = super::volume(&self.program.buffers[carry.to].dims)?;
                let mut bits = reserve(elements)?;
                bits.resize(elements as usize, l.bits());
                Ok(bits)
            }
        };
        carries.iter().map(first).collect()
    }

    fn end(&mut self, carries: &[Carry], ends: Vec<Bits>) -> Result<(), Diagnostic> {
        carries.iter().zip(ends).try_for_each(|(carry, bits)| self.put(carry.to, bits))
    }

    /// Puts the last results of a step into element `at` of `n` of what is stacked; gives the others.
    fn stacked(
        &mut self,
        mut results: Vec<Bits>,
        stacks: &[Buffer],
        (at, n): (i64, u64),
    ) -> Result<Vec<Bits>, Diagnostic> {
        let elements = results.split_off(results.len() - stacks.len());
        for (&stack, element) in stacks.iter().zip(elements) {
            let whole = self.tensors[stack].as_mut();
            let whole = whole.ok_or_else(|| internal("a stack is not there"))?;
            let each = whole.bits.len() / n.max(1) as usize;
            whole.bits[at as usize * each..][..each].copy_from_slice(&element);
        }
        Ok(results)
    }

    /// Runs a block; gives its results.
    fn block(
        &mut self,
        block: &Block,
        entry: BlockEntry<'_>,
        env: &mut RunEnvironment<'_>,
    ) -> Result<Vec<Bits>, Diagnostic> {
        let carried = |all: &[Bits], k: usize| {
            all.get(k).cloned().ok_or_else(|| internal("nothing is carried there"))
        };
        let mut inputs = Vec::new();
        for input in &block.inputs {
            inputs.push(match *input {
                BlockInput::Index => {
                    let (dtype, at) =
                        entry.index.ok_or_else(|| internal("there is no position"))?;
                    vec![Literal::from_i64(dtype, at).bits()]
                }
                BlockInput::Carry(k) => carried(entry.carries, k)?,
                BlockInput::Returned(k) => carried(entry.returned, k)?,
                BlockInput::Whole(b) => self.tensor(b)?.bits.clone(),
                BlockInput::Element(b) => {
                    let whole = self.tensor(b)?;
                    let n = whole.dims.first().copied().unwrap_or(1).max(1) as usize;
                    let each = whole.bits.len() / n;
                    whole.bits[entry.at as usize * each..][..each].to_vec()
                }
            });
        }
        let (results, peak) = evaluate(&block.program, inputs, env, &mut |_| {})?;
        // Inputs and outputs are memory of the step around it.
        let bytes = |b: Buffer| block.program.buffers[b].bytes();
        let outputs = block.program.buffers.iter().filter(|(_, data)| data.role == Role::Output);
        let shared = block.program.inputs().chain(outputs.map(|(b, _)| b)).map(bytes).sum::<u64>();
        self.within = self.within.max(peak.saturating_sub(shared));
        Ok(results.into_iter().map(|tensor| tensor.bits).collect())
    }

    /// The integer or the truth value in a scalar.
    fn integer(&self, b: Buffer) -> Result<i64, Diagnostic> {
        let scalar = self.tensor(b)?;
        let bits = scalar.bits.first().copied();
        let bits = bits.ok_or_else(|| internal("a scalar has no element"))?;
        Ok(Literal::from_bits(scalar.dtype, bits).to_i64())
    }
}

//! Runs of steps, of loops and branches with the steps in them too. No turn of a loop allocates memory or takes a lock.
#![allow(unsafe_code)]

use super::block::{
    BlockOutput, CompiledBlock, CompiledBranch, CompiledCarry, CompiledLoop, CompiledTrips,
    MovingInput,
};
use super::carry_start::{CarryStart, fill};
use super::machine_code::Code;
use super::scalar_loop::{CompiledScalarLoop, ScalarTrips};
use super::steps::CompiledStep;
use super::thread_pool::ThreadPool;
use super::turn_calls::DirectTurns;
use super::workers::{Worker, WorkerSet};
use crate::runtime::limits::{RunLimits, loop_too_long};
use crate::runtime::report::StepReport;
use crate::runtime::trace::SpanRecorder;
use adfuse_ir::kernel::Branch;
use adfuse_ir::{At, DType, Diagnostic, Literal};
use std::sync::{Mutex, PoisonError};

/// The workers of one program: each has a table of pointers to the program's buffers.
pub(super) type WorkerTables = Vec<Mutex<Worker>>;

/// Where the values that a loop carries are: those that a turn reads, and those that it writes.
#[derive(Default)]
pub(super) struct LoopPointers {
    pub(super) now: Vec<*mut u8>,
    pub(super) next: Vec<*mut u8>,
    pub(super) returned: Vec<*mut u8>,
    pub(super) returned_next: Vec<*mut u8>,
}

impl LoopPointers {
    /// Room for the pointers of this many values, forward and back.
    pub(super) fn of([carries, returned]: [usize; 2]) -> LoopPointers {
        LoopPointers {
            now: Vec::with_capacity(carries),
            next: Vec::with_capacity(carries),
            returned: Vec::with_capacity(returned),
            returned_next: Vec::with_capacity(returned),
        }
    }
}

/// What steps run with.
pub(super) struct StepRun<'a> {
    pub(super) code: &'a Code,
    /// Of the whole program, then of the programs in its steps.
    pub(super) tables: &'a mut [WorkerTables],
    pub(super) loops: &'a mut [LoopPointers],
    /// Of the programs whose turns are calls of functions alone, at the numbers of their tables.
    pub(super) turns: &'a mut [Option<DirectTurns>],
    pub(super) pool: Option<&'a mut ThreadPool>,
    pub(super) limits: RunLimits,
    /// The step of the whole program that runs.
    pub(super) step: usize,
    /// Records when the tasks of the whole program's own steps run, on request.
    pub(super) recorder: Option<&'a SpanRecorder>,
}

/// A loop that runs.
#[derive(Clone, Copy)]
pub(super) struct LoopTurns<'l> {
    pub(super) made: &'l CompiledLoop,
    /// The table of the program around it.
    pub(super) outer: usize,
    pub(super) trips: u64,
    /// The first position, as blocks read it.
    first: i64,
}

impl LoopTurns<'_> {
    /// The position of a step.
    pub(super) fn position(&self, t: u64) -> u64 {
        if self.made.reverse { self.trips - 1 - t } else { t }
    }
}

/// One turn: what a block reads and writes.
pub(super) struct BlockTurn<'t> {
    pub(super) position: u64,
    pub(super) now: &'t [*mut u8],
    pub(super) returned: &'t [*mut u8],
    pub(super) next: &'t [*mut u8],
    pub(super) stacks: &'t [(usize, usize)],
}

impl BlockTurn<'_> {
    /// Where an input that moves is, by the pointers around the loop.
    pub(super) fn input(
        &self,
        input: MovingInput,
        outer: impl FnOnce(usize) -> *mut u8,
    ) -> *mut u8 {
        match input {
            MovingInput::Carry(k) => self.now[k],
            MovingInput::Returned(k) => self.returned[k],
            MovingInput::Element(from, bytes) => {
                outer(from).wrapping_add(self.position as usize * bytes)
            }
        }
    }

    /// Where output `k` of a block goes: to what is carried on, then to the elements of what is stacked.
    pub(super) fn output(&self, k: usize, outer: impl FnOnce(usize) -> *mut u8) -> *mut u8 {
        match self.next.get(k) {
            Some(&at) => at,
            None => {
                let (stack, bytes) = self.stacks[k - self.next.len()];
                outer(stack).wrapping_add(self.position as usize * bytes)
            }
        }
    }
}

impl StepRun<'_> {
    /// Runs a step of the program with this table.
    ///
    /// # Errors
    /// What a user function says, and loops of more steps than they may take.
    pub(super) fn run(&mut self, table: usize, step: &CompiledStep) -> Result<(), Diagnostic> {
        match step {
            CompiledStep::Loop(step) => return self.repeat(table, step),
            CompiledStep::ScalarLoop(step) => return self.scalar_loop(table, step),
            CompiledStep::Branch(branch) => return self.branch(table, branch),
            CompiledStep::Copy(from, to, n) => {
                let (from, to) = (self.pointer(table, *from), self.pointer(table, *to));
                // SAFETY: both have this many bytes, and are not the same.
                unsafe { std::ptr::copy_nonoverlapping(from, to, *n) }
                return Ok(());
            }
            CompiledStep::Kernel(_) | CompiledStep::Bundle(_) if self.recorder.is_none() => {
                let worker =
                    self.tables[table][0].get_mut().unwrap_or_else(PoisonError::into_inner);
                let done = match step {
                    CompiledStep::Kernel(kernel) => kernel.run_alone(self.code, worker),
                    CompiledStep::Bundle(bundle) => bundle.run_alone(self.code, worker),
                    _ => false,
                };
                if done {
                    return Ok(());
                }
            }
            _ => {}
        }
        let worker_set = &mut WorkerSet {
            code: self.code,
            workers: &self.tables[table],
            pool: self.pool.as_deref_mut(),
            step: self.step,
            recorder: self.recorder,
        };
        match step {
            CompiledStep::Kernel(kernel) => kernel.run(worker_set),
            CompiledStep::Bundle(bundle) => bundle.run(worker_set),
            CompiledStep::Contract(members) => members.iter().for_each(|m| m.run(worker_set)),
            CompiledStep::Scatter(scatter) => scatter.run(worker_set),
            CompiledStep::Argsort(argsort) => argsort.run(worker_set),
            CompiledStep::Attend(attend) => attend.run(worker_set),
            CompiledStep::Call(call) => call.run(worker_set)?,
            CompiledStep::Exchange(exchange) => exchange.run(worker_set)?,
            CompiledStep::Print(print) => print.run(worker_set)?,
            CompiledStep::Copy(..)
            | CompiledStep::Loop(_)
            | CompiledStep::ScalarLoop(_)
            | CompiledStep::Branch(_) => {}
        }
        Ok(())
    }

    /// Where a buffer is.
    pub(super) fn pointer(&mut self, table: usize, buffer: usize) -> *mut u8 {
        let worker = self.tables[table][0].get_mut().unwrap_or_else(PoisonError::into_inner);
        worker.table[buffer]
    }

    /// Says to all workers where a buffer is.
    fn set(&mut self, table: usize, buffer: usize, at: *mut u8) {
        for worker in &mut self.tables[table] {
            worker.get_mut().unwrap_or_else(PoisonError::into_inner).table[buffer] = at;
        }
    }

    /// An address in the scratch memory of a program's steps.
    pub(super) fn scratch(&mut self, table: usize, offset: u64) -> *mut u8 {
        self.tables[table][0].get_mut().unwrap_or_else(PoisonError::into_inner).all(offset)
    }

    fn scalar(&mut self, table: usize, buffer: usize, dtype: DType) -> i64 {
        let (at, mut bits) = (self.pointer(table, buffer), [0; 8]);
        // SAFETY: the buffer is a scalar of this type, which an earlier step or the caller has written.
        unsafe { std::ptr::copy_nonoverlapping(at, bits.as_mut_ptr(), dtype.bytes() as usize) };
        Literal::from_bits(dtype, u64::from_le_bytes(bits)).to_i64()
    }

    fn branch(&mut self, outer: usize, branch: &CompiledBranch) -> Result<(), Diagnostic> {
        let (selector, dtype) = branch.selector;
        let selector = self.scalar(outer, selector, dtype);
        let taken = Branch::taken(branch.blocks.len(), dtype == DType::Bool, selector);
        let block = &branch.blocks[taken];
        self.open(outer, block, std::ptr::null_mut());
        for (output, &to) in block.outputs.iter().zip(&branch.outputs) {
            let to = self.pointer(outer, to);
            self.give(block, output, to);
        }
        let recorder = self.recorder.take();
        let ran = self.inside(block);
        self.recorder = recorder;
        ran?;
        for (output, &to) in block.outputs.iter().zip(&branch.outputs) {
            let to = self.pointer(outer, to);
            self.copy_out(block, output, to);
        }
        Ok(())
    }

    /// Says where those inputs of a block are that stay there for all turns.
    fn open(&mut self, outer: usize, block: &CompiledBlock, index: *mut u8) {
        for &(b, from) in &block.whole {
            let at = self.pointer(outer, from);
            self.set(block.table, b, at);
        }
        for &b in &block.index {
            self.set(block.table, b, index);
        }
    }

    /// Says where an output of a block is written.
    fn give(&mut self, block: &CompiledBlock, output: &BlockOutput, to: *mut u8) {
        if !output.copied {
            self.set(block.table, output.buffer, to);
        }
    }

    /// Copies an output of a block that is not written where it goes.
    fn copy_out(&mut self, block: &CompiledBlock, output: &BlockOutput, to: *mut u8) {
        if output.copied {
            let from = self.pointer(block.table, output.buffer);
            // SAFETY: both have this many bytes. What is copied is an input, a constant or another output of the
            // block; where it goes is none of them, since a turn writes nothing that it reads.
            unsafe { std::ptr::copy_nonoverlapping(from, to, output.bytes) }
        }
    }

    /// Runs the steps of a block.
    fn inside(&mut self, block: &CompiledBlock) -> Result<(), Diagnostic> {
        for (step, made) in block.steps.iter().zip(&block.made) {
            self.run(block.table, step).map_err(|d| located(d, &block.name, step, made))?;
        }
        Ok(())
    }

    /// Runs a loop that is one function.
    fn scalar_loop(&mut self, outer: usize, made: &CompiledScalarLoop) -> Result<(), Diagnostic> {
        let (first, trips) = match made.trips {
            ScalarTrips::Known(n) => (0, n),
            ScalarTrips::Count(n) => (0, self.scalar(outer, n, DType::I64).max(0) as u64),
            ScalarTrips::Range(from, to) => {
                let [from, to] = [from, to].map(|b| self.scalar(outer, b, made.index));
                (from, to.saturating_sub(from).max(0) as u64)
            }
            ScalarTrips::While(0) => (0, self.limits.max_trips),
            ScalarTrips::While(most) => (0, most.min(self.limits.max_trips)),
        };
        let asks = matches!(made.trips, ScalarTrips::While(_));
        if !asks {
            self.limits.check(made.op, trips)?;
        }
        let steps = i64::try_from(trips).unwrap_or(i64::MAX);
        let worker = self.tables[outer][0].get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: buffers are set for the whole run, or for each turn of a loop around this one, with the sizes that the plan was
        // checked for; arrays of elements have one for each step, as the verifier has seen.
        let goes_on = unsafe { self.code.run_loop(made.function, &worker.table, first, steps) };
        if asks && goes_on { Err(loop_too_long(trips)) } else { Ok(()) }
    }

    fn repeat(&mut self, outer: usize, made: &CompiledLoop) -> Result<(), Diagnostic> {
        let mut pointers = std::mem::take(&mut self.loops[made.state]);
        let recorder = self.recorder.take();
        let ran = self.all_turns(outer, made, &mut pointers);
        self.recorder = recorder;
        self.loops[made.state] = pointers;
        ran
    }

    fn all_turns(
        &mut self,
        outer: usize,
        made: &CompiledLoop,
        pointers: &mut LoopPointers,
    ) -> Result<(), Diagnostic> {
        let (first, trips) = match made.trips {
            CompiledTrips::Known(n) => (0, n),
            CompiledTrips::Count(n) => (0, self.scalar(outer, n, DType::I64).max(0) as u64),
            CompiledTrips::Range(from, to) => {
                let [from, to] = [from, to].map(|b| self.scalar(outer, b, made.index.0));
                (from, to.saturating_sub(from).max(0) as u64)
            }
            CompiledTrips::While(..) => (0, 0),
        };
        self.limits.check(made.op, trips)?;
        let index = self.scratch(outer, made.index.1);
        for block in made.blocks() {
            self.open(outer, block, index);
            self.open_turns(block);
        }
        let run = LoopTurns { made, outer, trips, first };
        match (&made.trips, &made.back) {
            (CompiledTrips::While(test, most), _) => self.while_true(&run, test, *most, pointers),
            (_, Some(back)) => self.reverse(&run, back, pointers),
            (_, None) => self.forward(&run, pointers),
        }
    }

    /// The steps of a loop in order. The last one writes its carries where they are to end.
    fn forward(
        &mut self,
        run: &LoopTurns<'_>,
        pointers: &mut LoopPointers,
    ) -> Result<(), Diagnostic> {
        let LoopPointers { now, next, .. } = pointers;
        let made = run.made;
        self.begin(run.outer, &made.carries, run.trips % 2 == 1, (now, next));
        self.hold(run, true, (now, next));
        self.place_in_stacks(run, 0, (now, next));
        for t in 0..run.trips {
            let position = run.position(t);
            let turn = BlockTurn { position, now, next, returned: &[], stacks: &made.stacks };
            self.turn(run, &made.step, &turn)?;
            self.swap(run.outer, &made.carries, (now, next));
            self.hold(run, false, (now, next));
            self.place_in_stacks(run, t + 1, (now, next));
        }
        self.end(run.outer, &made.carries, now);
        Ok(())
    }

    fn while_true(
        &mut self,
        run: &LoopTurns<'_>,
        test: &CompiledBlock,
        most: u64,
        pointers: &mut LoopPointers,
    ) -> Result<(), Diagnostic> {
        let LoopPointers { now, next, .. } = pointers;
        let made = run.made;
        let most = if most == 0 { u64::MAX } else { most }.min(self.limits.max_trips);
        let answer = self.scratch(run.outer, made.answer);
        self.begin(run.outer, &made.carries, true, (now, next));
        let mut position = 0;
        loop {
            let asked = BlockTurn { position, now, next: &[answer], returned: &[], stacks: &[] };
            self.turn(run, test, &asked)?;
            // SAFETY: the test has written a byte of 0 or 1 there.
            if unsafe { answer.read() } & 1 == 0 {
                self.end(run.outer, &made.carries, now);
                return Ok(());
            }
            if position == most {
                return Err(loop_too_long(most));
            }
            let turn = BlockTurn { position, now, next, returned: &[], stacks: &made.stacks };
            self.turn(run, &made.step, &turn)?;
            self.swap(run.outer, &made.carries, (now, next));
            position += 1;
        }
    }

    /// A forward step.
    pub(super) fn step(
        &mut self,
        run: &LoopTurns<'_>,
        t: u64,
        now: &[*mut u8],
        next: &[*mut u8],
    ) -> Result<(), Diagnostic> {
        let (position, stacks) = (run.position(t), &run.made.stacks);
        self.turn(run, &run.made.step, &BlockTurn { position, now, next, returned: &[], stacks })
    }

    /// Runs a block once.
    pub(super) fn turn(
        &mut self,
        run: &LoopTurns<'_>,
        block: &CompiledBlock,
        turn: &BlockTurn<'_>,
    ) -> Result<(), Diagnostic> {
        if !block.index.is_empty() {
            let (dtype, at) = run.made.index;
            let at = self.scratch(run.outer, at);
            let bits =
                Literal::from_i64(dtype, run.first.wrapping_add(turn.position as i64)).bits();
            let bytes = bits.to_le_bytes();
            // SAFETY: there are 8 bytes for the position, and no number of a position has more.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
        }
        if self.direct_turn(run, block, turn) {
            return Ok(());
        }
        for &(b, input) in &block.moving {
            let at = turn.input(input, |from| self.pointer(run.outer, from));
            self.set(block.table, b, at);
        }
        for (k, output) in block.outputs.iter().enumerate() {
            let to = turn.output(k, |stack| self.pointer(run.outer, stack));
            self.give(block, output, to);
        }
        self.inside(block)?;
        for (k, output) in block.outputs.iter().enumerate().filter(|(_, output)| output.copied) {
            let to = turn.output(k, |stack| self.pointer(run.outer, stack));
            self.copy_out(block, output, to);
        }
        Ok(())
    }

    /// Says where values are at first, and where the first turn writes them: to where they end, or beside that. A
    /// constant is filled in where the first turn does not write.
    pub(super) fn begin(
        &mut self,
        outer: usize,
        carries: &[CompiledCarry],
        ends_first: bool,
        (now, next): (&mut Vec<*mut u8>, &mut Vec<*mut u8>),
    ) {
        now.clear();
        next.clear();
        for carry in carries {
            let (end, spare) = (self.pointer(outer, carry.to), self.scratch(outer, carry.spare[0]));
            let (first, other) = if ends_first { (end, spare) } else { (spare, end) };
            next.push(first);
            now.push(match carry.start {
                CarryStart::Buffer(b) => self.pointer(outer, b),
                CarryStart::Fill(bits, width) => {
                    fill(other, carry.bytes, bits, width);
                    other
                }
            });
        }
    }

    /// Goes on to the next turn: what was written is read, and written where it was not.
    pub(super) fn swap(
        &mut self,
        outer: usize,
        carries: &[CompiledCarry],
        (now, next): (&mut [*mut u8], &mut [*mut u8]),
    ) {
        for ((carry, now), next) in carries.iter().zip(now).zip(next) {
            let end = self.pointer(outer, carry.to);
            *now = *next;
            *next = if *now == end { self.scratch(outer, carry.spare[0]) } else { end };
        }
    }

    /// Copies what is carried to where it ends, where it is not there.
    pub(super) fn end(&mut self, outer: usize, carries: &[CompiledCarry], now: &[*mut u8]) {
        for (carry, &at) in carries.iter().zip(now) {
            let end = self.pointer(outer, carry.to);
            copy(at, end, carry.bytes);
        }
    }
}

/// Copies bytes to another place, if it is another.
pub(super) fn copy(from: *mut u8, to: *mut u8, bytes: usize) {
    if from != to {
        // SAFETY: a value that is carried has as many bytes in each of its places, and no two of these overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) }
    }
}

/// The error with the step it is about.
pub(super) fn located(
    mut d: Diagnostic,
    program: &str,
    step: &CompiledStep,
    made: &StepReport,
) -> Diagnostic {
    if d.at.func.is_none() {
        d.at =
            At { func: Some(program.into()), inst: Some(step.title(made).into()), ..At::default() };
    }
    d
}

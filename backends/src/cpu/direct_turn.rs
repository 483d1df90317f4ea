//! Turns of loops that are calls of functions alone: the pointers that move are written where those functions read them, and
//! the functions are called one after the other. Nothing else is asked at a turn.
//!
//! A turn of a small loop takes some hundred nanoseconds, and going through its steps took a third of that.
#![allow(unsafe_code)]

use super::block::{CompiledBlock, MovingInput};
use super::kernel::WorkerArray;
use super::loop_run::{BlockTurn, LoopTurns, StepRun, copy};
use super::machine_code::{Code, SweepFn, SweepId};
use super::steps::CompiledStep;
use super::workers::Worker;
use smallvec::SmallVec;
use std::sync::PoisonError;

/// A call of a sweep's function, for all of its places or some of them.
pub(super) struct SweepCall {
    pub(super) sweep: SweepId,
    pub(super) begin: i64,
    pub(super) end: i64,
    /// Arrays of the worker that it reads or writes, and the point whose element they begin with.
    pub(super) arrays: SmallVec<[(WorkerArray, i64); 2]>,
}

/// What the turns of a block are, where they are calls alone.
#[derive(Default)]
pub(super) struct DirectTurns {
    /// The block's own table, then one for each call whose function reads pointers elsewhere.
    table: Vec<*mut u8>,
    /// How many entries the block's own table has.
    own: usize,
    calls: Vec<PlacedCall>,
    /// Where the functions read the pointer to each input that moves.
    moving: Vec<SmallVec<[usize; 4]>>,
    /// The same for each output.
    outputs: Vec<SmallVec<[usize; 4]>>,
    deferral: Option<TurnsAtOnce>,
}

/// Turns that some steps are done for at once.
struct TurnsAtOnce {
    turns: u64,
    /// Carries that stay in one place.
    carries: Vec<usize>,
    /// Arrays around the loop, the bytes of an element, and where functions read the pointer to the elements of all the turns.
    elements: Vec<(usize, usize, SmallVec<[usize; 4]>)>,
    /// The array with a row for each turn, the bytes of a row, and where functions read the pointer to the row.
    kept: Vec<(usize, usize, SmallVec<[usize; 4]>)>,
}

/// In which turns a call is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// In those that no others are done at once with.
    Alone,
    /// In the last of several that are done at once.
    AtOnce,
}

struct PlacedCall {
    function: SweepFn,
    /// Where its table begins.
    table: usize,
    begin: i64,
    end: i64,
    when: When,
    /// Entries of its table that are other ones of the block's own.
    moves: SmallVec<[(u32, u32); 4]>,
    arrays: SmallVec<[(WorkerArray, i64); 2]>,
}

/// The calls that the steps of a block are for the caller's worker, of this many; `None` where a step is more than that.
fn direct_calls(block: &CompiledBlock, threads: usize) -> Option<Vec<(When, SweepCall)>> {
    let mut calls = Vec::new();
    let mut add = |when: When, all: &mut Vec<SweepCall>| {
        calls.extend(all.drain(..).map(|call| (when, call)));
    };
    for (n, step) in block.steps.iter().enumerate() {
        let mut all = Vec::new();
        match step {
            CompiledStep::Kernel(kernel) => kernel.calls(threads, &mut all)?,
            CompiledStep::Bundle(bundle) => bundle.calls(threads, &mut all)?,
            _ => return None,
        }
        let deferred = block.deferred.iter().flat_map(|d| &d.steps).find(|(step, _)| *step == n);
        let Some((_, kernels)) = deferred else {
            add(When::Always, &mut all);
            continue;
        };
        add(When::Alone, &mut all);
        kernels.iter().try_for_each(|kernel| kernel.calls(threads, &mut all))?;
        add(When::AtOnce, &mut all);
    }
    Some(calls)
}

/// The turns of all blocks within these steps, at the numbers of their tables, which have these many entries.
pub(super) fn turns_of_blocks(
    steps: &[CompiledStep],
    code: &Code,
    (entries, threads): (&[usize], usize),
) -> Vec<Option<DirectTurns>> {
    let mut all: Vec<Option<DirectTurns>> = entries.iter().map(|_| None).collect();
    let mut left: Vec<&CompiledBlock> = steps.iter().flat_map(CompiledStep::blocks).collect();
    while let Some(block) = left.pop() {
        left.extend(block.steps.iter().flat_map(CompiledStep::blocks));
        if let Some(calls) = direct_calls(block, threads) {
            all[block.table] = Some(DirectTurns::new(block, calls, code, entries[block.table]));
        }
    }
    all
}

impl DirectTurns {
    fn new(
        block: &CompiledBlock,
        calls: Vec<(When, SweepCall)>,
        code: &Code,
        own: usize,
    ) -> DirectTurns {
        let mut entries = own;
        let mut placed = Vec::with_capacity(calls.len());
        for (when, call) in calls.into_iter().filter(|(_, call)| call.begin < call.end) {
            let moves = code.moves(call.sweep);
            let table = if moves.is_empty() && call.arrays.is_empty() { 0 } else { entries };
            entries += if table == 0 { 0 } else { own };
            placed.push(PlacedCall {
                function: code.function(call.sweep),
                table,
                begin: call.begin,
                end: call.end,
                when,
                moves: moves.iter().copied().collect(),
                arrays: call.arrays,
            });
        }
        let places = |buffer: usize| {
            let others = placed.iter().filter(|call| call.table > 0);
            let in_table = |call: &PlacedCall| {
                let is = |&(at, from): &(u32, u32)| {
                    (from as usize == buffer).then_some(call.table + at as usize)
                };
                let stays = call.moves.iter().all(|&(at, _)| at as usize != buffer);
                let moved: SmallVec<[usize; 4]> = call.moves.iter().filter_map(is).collect();
                moved.into_iter().chain(stays.then_some(call.table + buffer))
            };
            [buffer].into_iter().chain(others.flat_map(in_table)).collect()
        };
        let deferral = block.deferred.as_ref().map(|d| TurnsAtOnce {
            turns: d.turns,
            carries: d.carries.clone(),
            elements: d.elements.iter().map(|&(from, n, all)| (from, n, places(all))).collect(),
            kept: d.kept.iter().map(|&(b, n, all)| (all, n, places(b))).collect(),
        });
        DirectTurns {
            deferral,
            moving: block.moving.iter().map(|&(b, _)| places(b)).collect(),
            outputs: block.outputs.iter().map(|output| places(output.buffer)).collect(),
            table: vec![std::ptr::null_mut(); entries],
            own,
            calls: placed,
        }
    }

    /// Takes over what stays where it is in all turns of a run.
    fn open(&mut self, worker: &Worker) {
        self.table[..self.own].copy_from_slice(&worker.table);
        for call in self.calls.iter().filter(|call| call.table > 0) {
            self.table.copy_within(..self.own, call.table);
            for &(at, from) in &call.moves {
                self.table[call.table + at as usize] = self.table[from as usize];
            }
            for &(array, first) in &call.arrays {
                let entry = call.table + worker.buffers + array.slot as usize;
                self.table[entry] = array.begins(worker, first);
            }
        }
    }
}

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
        let position = turn.position as usize;
        for (&(_, input), places) in block.moving.iter().zip(&turns.moving) {
            let at = match input {
                MovingInput::Carry(k) => turn.now[k],
                MovingInput::Returned(k) => turn.returned[k],
                MovingInput::Element(from, bytes) => {
                    outer.table[from].wrapping_add(position * bytes)
                }
            };
            places.iter().for_each(|&place| turns.table[place] = at);
        }
        let to = |k: usize| match turn.next.get(k) {
            Some(&at) => at,
            None => {
                let (stack, bytes) = turn.stacks[k - turn.next.len()];
                outer.table[stack].wrapping_add(position * bytes)
            }
        };
        for (k, (output, places)) in block.outputs.iter().zip(&turns.outputs).enumerate() {
            if !output.copied {
                let at = to(k);
                places.iter().for_each(|&place| turns.table[place] = at);
            }
        }
        let (alone, last) = turns.at_once(run, turn.position, &outer.table);
        for call in &turns.calls {
            let due = match call.when {
                When::Always => true,
                When::Alone => alone,
                When::AtOnce => last,
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

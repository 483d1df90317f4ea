//! Turns of loops as calls of functions alone: which functions, and where they read the pointers that move.

use super::block::CompiledBlock;
use super::machine_code::{Code, SweepFn};
use super::steps::CompiledStep;
use super::sweep_call::SweepCall;
use super::workers::{OwnArray, Worker};
use smallvec::SmallVec;

/// What the turns of a block are, where they are calls alone.
#[derive(Default)]
pub(super) struct DirectTurns {
    /// The block's own table, then one for each call whose function reads pointers elsewhere.
    pub(super) table: Vec<*mut u8>,
    /// How many entries the block's own table has.
    own: usize,
    pub(super) calls: Vec<PlacedCall>,
    /// Where the functions read the pointer to each input that moves.
    pub(super) moving: Vec<SmallVec<[usize; 4]>>,
    /// The same for each output.
    pub(super) outputs: Vec<SmallVec<[usize; 4]>>,
    pub(super) deferral: Option<TurnsAtOnce>,
}

/// Turns that some steps are done for at once.
pub(super) struct TurnsAtOnce {
    pub(super) turns: u64,
    /// Carries that stay in one place.
    pub(super) carries: Vec<usize>,
    /// Arrays around the loop, the bytes of an element, and where functions read the pointer to the elements of all the turns.
    pub(super) elements: Vec<(usize, usize, SmallVec<[usize; 4]>)>,
    /// The array with a row for each turn, the bytes of a row, and where functions read the pointer to the row.
    pub(super) kept: Vec<(usize, usize, SmallVec<[usize; 4]>)>,
}

/// In which turns a call is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DueTurns {
    Always,
    /// In those that no others are done at once with.
    Alone,
    /// In the last of several that are done at once.
    AtOnce,
}

pub(super) struct PlacedCall {
    pub(super) function: SweepFn,
    /// Where its table begins.
    pub(super) table: usize,
    pub(super) begin: i64,
    pub(super) end: i64,
    pub(super) when: DueTurns,
    /// Entries of its table that are other ones of the block's own.
    moves: SmallVec<[(u32, u32); 4]>,
    arrays: SmallVec<[(OwnArray, i64); 2]>,
}

/// The calls that the steps of a block are for the caller's worker, of this many; `None` where a step is more than that.
fn direct_calls(block: &CompiledBlock, threads: usize) -> Option<Vec<(DueTurns, SweepCall)>> {
    let mut calls = Vec::new();
    let mut add = |when: DueTurns, all: &mut Vec<SweepCall>| {
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
            add(DueTurns::Always, &mut all);
            continue;
        };
        add(DueTurns::Alone, &mut all);
        kernels.iter().try_for_each(|kernel| kernel.calls(threads, &mut all))?;
        add(DueTurns::AtOnce, &mut all);
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
        calls: Vec<(DueTurns, SweepCall)>,
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
    pub(super) fn open(&mut self, worker: &Worker) {
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

//! Memory: the offsets of temporaries, and the total that a program takes.
//!
//! Temporaries and the scratch of steps share one arena. A temporary is live from the step that writes it to the last
//! step that reads it; scratch is live during its step. Inputs, constants and outputs count for the whole run. Results
//! may be in donated inputs ([`crate::memory::donation`]), and temporaries there and in results that are not written
//! yet ([`crate::memory::donors`]).

mod arena;
pub(crate) mod donation;
mod donors;
pub(crate) mod engine;
mod instance_residuals;
mod known_packings;
mod layout;
pub(crate) mod least_peak;
pub(crate) mod peak;
pub(crate) mod residuals;
pub(crate) mod size;
mod spaced;
mod step_uses;

use crate::lower::linked::LinkedProgram;
use crate::plan::options::Effort;
use adfuse_ir::kernel::{Buffer, BufferData, Program, Role, Step, is_donor};
use adfuse_ir::{At, Diagnostic, Kind};
use adfuse_memplan::{Packing, PlanError, Violation, check};
use arena::{Arena, ArenaRequest};
use cranelift_entity::SecondaryMap;
use donation::results_in_inputs;
use donors::{DonorError, DonorPacking};
use layout::DonorOf;
use size::{MOST_BYTES, bytes};
use std::cell::OnceCell;
use std::sync::OnceLock;
use std::thread::available_parallelism;
use step_uses::StepUses;

pub use known_packings::KnownPackings;
pub use layout::{ALIGN, Memory};
pub use spaced::memory_spaced;

/// Plans the memory of a program. The program must be one that the verifier accepts: which writes
/// may be in place rests on what it has proven.
///
/// With [`Effort::Off`] every temporary goes to the lowest place that is free when it is written, and
/// none takes the place of one that is still read: what better plans are measured against. The answer
/// depends on the program and the effort alone.
///
/// # Errors
/// [`Kind::Limit`] when the buffers take more than 2^62 bytes together.
pub fn memory(program: &Program, effort: Effort) -> Result<Memory, Diagnostic> {
    memory_beside(program, effort, &scratch(program, effort)?)
}

/// Bytes of scratch memory that each step needs by its structure; those of loops and branches with the arena of the
/// largest of their blocks.
///
/// # Errors
/// As [`memory`].
pub(crate) fn scratch(program: &Program, effort: Effort) -> Result<Vec<u64>, Diagnostic> {
    let of = |step: &Step| {
        let mut most = 0;
        for (_, block) in step.blocks() {
            let beside = scratch(&block.program, effort)?;
            most = block_memory(&block.program, effort, &beside, &[])?.arena.max(most);
        }
        Ok(program.scratch(step).saturating_add(most))
    };
    program.steps.iter().map(of).collect()
}

/// As [`memory`], for an engine that says how many bytes of scratch memory each step needs while it
/// runs; steps that it does not list need none.
///
/// # Errors
/// As [`memory`].
pub fn memory_beside(
    program: &Program,
    effort: Effort,
    scratch: &[u64],
) -> Result<Memory, Diagnostic> {
    memory_apart(program, effort, scratch, &[])
}

/// As [`memory_beside`], for an engine that says of each step whether it reads again what it has read when
/// it has begun to write: what such a step writes shares no memory with what it reads. Steps that are
/// not listed read first.
///
/// # Errors
/// As [`memory`].
pub fn memory_apart(
    program: &Program,
    effort: Effort,
    scratch: &[u64],
    reads_again: &[bool],
) -> Result<Memory, Diagnostic> {
    planned((program, program), effort, (scratch, reads_again), true, None)
}

/// As [`memory_apart`], for a program that a loop or a branch runs: its results are carried values and parts of stacks,
/// whose memory others read and which begin anywhere. So no temporary is in a result.
///
/// # Errors
/// As [`memory`].
pub fn block_memory(
    program: &Program,
    effort: Effort,
    scratch: &[u64],
    reads_again: &[bool],
) -> Result<Memory, Diagnostic> {
    planned((program, program), effort, (scratch, reads_again), false, None)
}

/// As [`memory_apart`], where some packings are known.
///
/// # Errors
/// As [`memory`].
pub(crate) fn memory_knowing(
    known: &KnownPackings,
    program: &Program,
    effort: Effort,
    (scratch, reads_again): (&[u64], &[bool]),
) -> Result<Memory, Diagnostic> {
    planned((program, program), effort, (scratch, reads_again), true, Some(known))
}

/// As [`memory_apart`], for a program that is not written out, where some packings may be known.
///
/// # Errors
/// As [`memory`].
pub(crate) fn linked_memory(
    program: &LinkedProgram,
    effort: Effort,
    (scratch, reads_again): (&[u64], &[bool]),
    known: Option<&KnownPackings>,
) -> Result<Memory, Diagnostic> {
    planned((&program.frame, program), effort, (scratch, reads_again), true, known)
}

/// Threads that pack the memory of one program, at most.
const MOST_THREADS: usize = 4;

fn cores() -> usize {
    // Asking reads files, which takes longer than packing a small program.
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| available_parallelism().map_or(1, usize::from).min(MOST_THREADS))
}

/// Plans the memory of a program; `donors` says whether there are arrays of the caller's to use.
fn planned(
    (program, uses): (&Program, &dyn StepUses),
    effort: Effort,
    (scratch, reads_again): (&[u64], &[bool]),
    donors: bool,
    known: Option<&KnownPackings>,
) -> Result<Memory, Diagnostic> {
    let donors = donors && effort != Effort::Off;
    let lives = uses.lives();
    // Linked plans are many, which threads compare side by side.
    let threads = if uses.is_one_of_many() { 1 } else { cores() };
    let wanted =
        ArenaRequest { program, uses, effort, scratch, reads_again, lives: &lives, threads, known };
    let arena = Arena::of(&wanted, &DonorOf::new()).ok_or_else(|| too_large(program))?;
    let packed = PackedArena { wanted, arena, packing: OnceCell::new() };
    let is_given =
        |(b, data): (Buffer, &BufferData)| data.role == Role::Input && is_donor(program, b);
    if !donors || !program.buffers.iter().any(is_given) {
        return packed.memory(donors, false);
    }
    // A result in an input offers temporaries no array. Donating must not raise the peak, so the plan without it is
    // made too, unless it takes as much before it has an arena. Engines have whole cache lines of the arena.
    let held = |m: &Memory| (m.peak - m.arena).saturating_add(m.arena.next_multiple_of(ALIGN));
    let memory = packed.memory(donors, true)?;
    let least = outside(program, &DonorOf::new()).ok_or_else(|| too_large(program))?;
    if held(&memory) <= least.inputs + least.constants + least.outputs {
        return Ok(memory);
    }
    let without = packed.memory(donors, false)?;
    Ok(if held(&without) < held(&memory) { without } else { memory })
}

/// The arena of a program.
struct PackedArena<'a> {
    wanted: ArenaRequest<'a>,
    arena: Arena,
    /// The arena packed by itself, where that was asked for.
    packing: OnceCell<Packing>,
}

impl PackedArena<'_> {
    /// The arena packed by itself.
    fn packing(&self) -> Result<&Packing, Diagnostic> {
        if let Some(known) = self.packing.get() {
            return Ok(known);
        }
        let PackedArena { wanted, arena, .. } = self;
        let packing = arena.pack(wanted);
        let packing = packing.map_err(|e| asked(wanted.program, e))?;
        // Bound or free to share, what is in place must be so as a pair that is free to.
        check(&arena.with_pairs(false), &packing).map_err(|e| wrong(wanted.program, &e))?;
        Ok(self.packing.get_or_init(|| packing))
    }

    /// Where everything is; `donors` says whether there are arrays of the caller's to use, and `inputs` whether donated
    /// inputs are among them.
    fn memory(&self, donors: bool, inputs: bool) -> Result<Memory, Diagnostic> {
        let program = self.wanted.program;
        let results = match inputs {
            true => results_in_inputs(&self.wanted),
            false => DonorOf::new(),
        };
        let mut memory = outside(program, &results).ok_or_else(|| too_large(program))?;
        memory.in_donor = results;
        self.places(donors, inputs, &mut memory)?;
        memory.peak = [memory.inputs, memory.constants, memory.outputs]
            .into_iter()
            .try_fold(memory.arena, u64::checked_add)
            .filter(|&peak| peak <= MOST_BYTES)
            .ok_or_else(|| too_large(program))?;
        Ok(memory)
    }

    /// Places temporaries and scratch: in the arena alone, or in arrays of the caller too where the arena is smaller then.
    fn places(&self, donors: bool, inputs: bool, memory: &mut Memory) -> Result<(), Diagnostic> {
        let PackedArena { wanted, arena, .. } = self;
        let failed = |e| match e {
            DonorError::Asked(e) => asked(wanted.program, e),
            DonorError::Found(e) => wrong(wanted.program, &e),
        };
        let beside = |memory: &Memory, below: u64| match donors {
            true => DonorPacking::of(wanted, arena, inputs, memory, below).map_err(failed),
            false => Ok(None),
        };
        // Where the arena is smaller beside arrays of the caller than it can be by itself, it is not packed by itself.
        let least = arena.least();
        let mut found = beside(memory, least)?;
        if let Some(found) = found.as_ref().filter(|found| found.arena < least) {
            return found.places(wanted, memory).map_err(failed);
        }
        arena.places(self.packing()?, wanted, memory);
        if found.is_none() {
            found = beside(memory, memory.arena)?;
        }
        match found.filter(|found| found.arena < memory.arena) {
            Some(found) => found.places(wanted, memory).map_err(failed),
            None => Ok(()),
        }
    }
}

fn fail(program: &Program, kind: Kind, message: String) -> Diagnostic {
    let at = At { func: Some(program.name.clone()), ..At::default() };
    Diagnostic::new(at, kind, message)
}

fn too_large(program: &Program) -> Diagnostic {
    fail(program, Kind::Limit, "the buffers take more than 2^62 bytes together".into())
}

/// An error of the memory planner for what it was asked.
fn asked(program: &Program, e: PlanError) -> Diagnostic {
    match e {
        PlanError::TooLarge { .. } => too_large(program),
        e => fail(program, Kind::Internal, format!("memory was asked for wrongly: {e}")),
    }
}

/// An error in what the memory planner has answered.
fn wrong(program: &Program, e: &Violation) -> Diagnostic {
    fail(program, Kind::Internal, format!("memory was planned wrongly: {e}"))
}

/// What is outside of the arena; `None` where it is too much to count.
fn outside(program: &Program, results: &DonorOf) -> Option<Memory> {
    let mut memory = Memory { offsets: SecondaryMap::new(), ..Memory::default() };
    for data in program.buffers.values() {
        let total = match data.role {
            Role::Input => &mut memory.inputs,
            Role::Constant(_) => &mut memory.constants,
            Role::Output | Role::Temp => continue,
        };
        *total = total.checked_add(bytes(data)?)?;
    }
    // What is declared an output counts also where nobody is handed it.
    let handed = |b: &Buffer| !program.outputs.contains(b);
    let declared = program.buffers.iter().filter(|(_, data)| data.role == Role::Output);
    let others: Vec<Buffer> = declared.map(|(b, _)| b).filter(handed).collect();
    for &b in program.outputs.iter().chain(&others).filter(|b| results[**b].is_none()) {
        memory.outputs = memory.outputs.checked_add(bytes(&program.buffers[b])?)?;
    }
    Some(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::greedy::plan_at;
    use crate::lower::lowered;
    use crate::plan::machine_model::MachineModel;
    use crate::plan::options::PlanOptions;
    use adfuse_ir::Fp;
    use adfuse_ir::text::parse;

    /// A chain of values, of which the last is a result.
    const CHAIN: &str = "func @f(%x: f32[1000]) -> f32[1000] {
  %a = sin %x : f32[1000]
  %b = exp %a : f32[1000]
  %c = cos %b : f32[1000]
  %d = sin %c : f32[1000]
  return %d
}";

    /// The same of which a number is the result: no temporary fits into it.
    const SUM: &str = "func @f(%x: f32[1000]) -> f32[] {
  %a = sin %x : f32[1000]
  %b = exp %a : f32[1000]
  %c = reduce_sum %b {axes = [0]} : f32[]
  return %c
}";

    #[test]
    fn an_arena_is_packed_by_itself_only_where_that_may_be_smaller() {
        for (text, alone) in [(CHAIN, false), (SUM, true)] {
            let module = parse(text).expect("parses");
            let f = module.find("f").expect("it");
            let off =
                PlanOptions { device: MachineModel::cpu(), effort: Effort::Off, fp: Fp::Strict };
            let plan = plan_at(f, &off, 0.0, &[]).expect("has a plan");
            let program = &lowered(f, &plan, &off.device).expect("has a program");
            let uses: &dyn StepUses = program;
            let (effort, lives) = (Effort::Default, uses.lives());
            let (scratch, reads_again, lives) = (&[][..], &[][..], &lives);
            let (threads, known) = (1, None);
            let wanted =
                ArenaRequest { program, uses, effort, scratch, reads_again, lives, threads, known };
            let arena = Arena::of(&wanted, &DonorOf::new()).expect("is small");
            let least = arena.least();
            let packed = PackedArena { wanted, arena, packing: OnceCell::new() };
            let beside = packed.memory(true, false).expect("has memory");
            assert_eq!(packed.packing.get().is_some(), alone);
            let by_itself = packed.memory(false, false).expect("has memory");
            assert!(least <= by_itself.arena, "{least} {}", by_itself.arena);
            assert_eq!(beside.arena < by_itself.arena, !alone);
            assert_eq!(beside, memory(program, effort).expect("has memory"));
        }
    }
}

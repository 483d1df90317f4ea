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
use layout::DonorOf;
use size::{MOST_BYTES, bytes};
use std::sync::OnceLock;
use std::thread::available_parallelism;
use step_uses::StepUses;

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
    planned((program, program), effort, (scratch, reads_again), true)
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
    planned((program, program), effort, (scratch, reads_again), false)
}

/// As [`memory_beside`], for a program that is not written out.
///
/// # Errors
/// As [`memory`].
pub(crate) fn linked_memory(
    program: &LinkedProgram,
    effort: Effort,
    scratch: &[u64],
) -> Result<Memory, Diagnostic> {
    planned((&program.frame, program), effort, (scratch, &[]), true)
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
) -> Result<Memory, Diagnostic> {
    let donors = donors && effort != Effort::Off;
    let lives = uses.lives();
    // Linked plans are many, which threads compare side by side.
    let threads = if uses.is_one_of_many() { 1 } else { cores() };
    let wanted =
        ArenaRequest { program, uses, effort, scratch, reads_again, lives: &lives, threads };
    let arena = Arena::of(&wanted, &DonorOf::new()).ok_or_else(|| too_large(program))?;
    let packing = arena.pack(effort, threads).map_err(|e| asked(program, e))?;
    // Bound or free to share, what is in place must be so as a pair that is free to.
    check(&arena.with_pairs(false), &packing).map_err(|e| wrong(program, &e))?;
    let packed = PackedArena { wanted, arena, packing };
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

/// The arena of a program, packed by itself.
struct PackedArena<'a> {
    wanted: ArenaRequest<'a>,
    arena: Arena,
    packing: Packing,
}

impl PackedArena<'_> {
    /// Where everything is; `donors` says whether there are arrays of the caller's to use, and `inputs` whether donated
    /// inputs are among them.
    fn memory(&self, donors: bool, inputs: bool) -> Result<Memory, Diagnostic> {
        let PackedArena { wanted, arena, packing } = self;
        let program = wanted.program;
        let results = match inputs {
            true => results_in_inputs(wanted),
            false => DonorOf::new(),
        };
        let mut memory = outside(program, &results).ok_or_else(|| too_large(program))?;
        memory.in_donor = results;
        arena.places(packing, wanted, &mut memory);
        // Temporaries that are elsewhere take the place of none in the arena, which may be worth more.
        if donors {
            donors::use_donors(wanted, arena, inputs, &mut memory).map_err(|e| match e {
                donors::DonorError::Asked(e) => asked(program, e),
                donors::DonorError::Found(e) => wrong(program, &e),
            })?;
        }
        memory.peak = [memory.inputs, memory.constants, memory.outputs]
            .into_iter()
            .try_fold(memory.arena, u64::checked_add)
            .filter(|&peak| peak <= MOST_BYTES)
            .ok_or_else(|| too_large(program))?;
        Ok(memory)
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

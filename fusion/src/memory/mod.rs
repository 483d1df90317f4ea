//! Memory: the offsets of temporaries, and the total that a program takes.
//!
//! Temporaries and the scratch of steps share one arena. A temporary is live from the step that writes it to the last
//! step that reads it; scratch is live during its step. Inputs, constants and outputs count for the whole run. Results
//! and temporaries may be in donated inputs ([`crate::memory::donation`]).

pub(crate) mod donation;
pub(crate) mod engine;
pub(crate) mod peak;
pub(crate) mod residuals;
pub(crate) mod size;

use crate::plan::options::Effort;
use adfuse_ir::kernel::{Buffer, InPlace, Lives, Program, Role, Space, Step, in_place, lives};
use adfuse_ir::{At, Diagnostic, Kind};
use adfuse_memplan::{
    BufferId, BufferSpec, PackOptions, Packing, PlacementOrder, PlanError, Problem, check, plan,
    plan_in_order,
};
use cranelift_entity::SecondaryMap;
use donation::{DonorOf, placed};
use size::{MOST_BYTES, bytes, first_reading};

/// The alignment of every offset in the arena, in bytes: a cache line, and more than the
/// widest load of any engine needs.
pub const ALIGN: u64 = 64;

/// Where temporaries are, and what a program takes. Everything is in bytes, of the engine's memory:
/// buffers in the memory of the caller do not count and have no offset.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Memory {
    /// Of the arena.
    pub arena: u64,
    /// Of inputs, constants, outputs and the arena together: no moment of a run takes more.
    pub peak: u64,
    /// Of the inputs.
    pub inputs: u64,
    /// Of the results: the caller is handed an array for each, also where two are the same or one is an
    /// input. Those in the memory of a donated input do not count.
    pub outputs: u64,
    /// Of the constants.
    pub constants: u64,
    /// Where each temporary starts in the arena, a multiple of [`ALIGN`]; `None` for other buffers.
    pub offsets: SecondaryMap<Buffer, Option<u64>>,
    /// The offset in the arena of each step's scratch memory, a multiple of [`ALIGN`], and how
    /// many bytes; `None` for steps that need nothing.
    pub scratch: Vec<Option<(u64, u64)>>,
    /// For results and temporaries in donated inputs: the input.
    pub donated: SecondaryMap<Buffer, Option<Buffer>>,
    /// The temporaries that are written where one is that dies at the same step, in the order of the
    /// steps.
    pub in_place: Vec<InPlace>,
}

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
            most = memory(&block.program, effort)?.arena.max(most);
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
    let fail = |kind, message: String| {
        let at = At { func: Some(program.name.clone()), ..At::default() };
        Diagnostic::new(at, kind, message)
    };
    let too_large = || fail(Kind::Limit, "the buffers take more than 2^62 bytes together".into());
    let mut memory = Memory { offsets: SecondaryMap::new(), ..Memory::default() };
    for data in program.buffers.values() {
        let total = match data.role {
            Role::Input => &mut memory.inputs,
            Role::Constant(_) => &mut memory.constants,
            Role::Output | Role::Temp => continue,
        };
        *total = total.checked_add(bytes(data).ok_or_else(too_large)?).ok_or_else(too_large)?;
    }
    let lives = lives(program);
    let (results, all) = placed(program, &lives, effort, reads_again);
    memory.donated = results;
    // What is declared an output counts also where nobody is handed it.
    let handed = |b: &Buffer| !program.outputs.contains(b);
    let declared = program.buffers.iter().filter(|(_, data)| data.role == Role::Output);
    let others: Vec<Buffer> = declared.map(|(b, _)| b).filter(handed).collect();
    let own = |b: &&Buffer| memory.donated[**b].is_none();
    for &b in program.outputs.iter().chain(&others).filter(own) {
        let size = bytes(&program.buffers[b]).ok_or_else(too_large)?;
        memory.outputs = memory.outputs.checked_add(size).ok_or_else(too_large)?;
    }
    let packed = |donated: &DonorOf| {
        let beside = (scratch, reads_again);
        let arena = Arena::of(program, effort, beside, &lives, donated).ok_or_else(too_large)?;
        let packing = arena.pack(effort).map_err(|e| match e {
            PlanError::TooLarge { .. } => too_large(),
            e => fail(Kind::Internal, format!("memory was asked for wrongly: {e}")),
        })?;
        Ok::<_, Diagnostic>((arena, packing))
    };
    let (mut arena, mut packing) = packed(&memory.donated)?;
    // Temporaries that are elsewhere take the place of none in the arena, which may be worth more.
    if all != memory.donated {
        let other = packed(&all)?;
        if other.1.peak < packing.peak {
            ((arena, packing), memory.donated) = (other, all);
        }
    }
    // Bound or free to share, what is in place must be so as a pair that is free to.
    check(&arena.with_pairs(false), &packing)
        .map_err(|e| fail(Kind::Internal, format!("memory was planned wrongly: {e}")))?;
    let at = |id: BufferId| packing.offsets[id].bytes();
    for (b, id) in arena.temporaries() {
        memory.offsets[b] = Some(at(id));
    }
    let sized = arena.scratch.iter().zip(scratch.iter().chain(std::iter::repeat(&0)));
    memory.scratch = sized.map(|(id, &bytes)| id.map(|id| (at(id), bytes))).collect();
    memory.in_place = arena.in_place.clone();
    memory.in_place.retain(|p| memory.offsets[p.child] == memory.offsets[p.parent]);
    memory.arena = packing.peak;
    memory.peak = [memory.inputs, memory.constants, memory.outputs]
        .into_iter()
        .try_fold(memory.arena, u64::checked_add)
        .filter(|&peak| peak <= MOST_BYTES)
        .ok_or_else(too_large)?;
    Ok(memory)
}

/// The problem for the memory planner.
struct Arena {
    problem: Problem,
    blocks: SecondaryMap<Buffer, Option<BufferId>>,
    /// For each step, where it needs something.
    scratch: Vec<Option<BufferId>>,
    /// What may be in place.
    in_place: Vec<InPlace>,
}

impl Arena {
    /// `None` where there are too many bytes.
    fn of(
        program: &Program,
        effort: Effort,
        (scratch, reads_again): (&[u64], &[bool]),
        lives: &Lives,
        donated: &DonorOf,
    ) -> Option<Arena> {
        let mut arena = Arena {
            problem: Problem::new(),
            blocks: SecondaryMap::new(),
            scratch: Vec::with_capacity(program.steps.len()),
            in_place: Vec::new(),
        };
        for (b, data) in program.buffers.iter() {
            let here = data.role == Role::Temp && data.space == Space::Device;
            if let Some((from, last)) = lives[b].filter(|_| here && donated[b].is_none()) {
                let block = BufferSpec::new(from as u64..last as u64 + 1, bytes(data)?);
                arena.blocks[b] = Some(arena.problem.push(block.with_align(ALIGN)));
            }
        }
        for n in 0..program.steps.len() {
            let size = scratch.get(n).copied().unwrap_or(0);
            if size > MOST_BYTES {
                return None;
            }
            let block = BufferSpec::new(n as u64..n as u64 + 1, size).with_align(ALIGN);
            arena.scratch.push((size > 0).then(|| arena.problem.push(block)));
        }
        if effort != Effort::Off {
            for n in first_reading(program, reads_again) {
                let ours = |b: Buffer| arena.blocks[b].is_some();
                let dies = |b: Buffer| {
                    ours(b) && lives[b].is_some_and(|(from, last)| from < n && last == n)
                };
                let found = in_place(program, n, &dies, &ours);
                arena.in_place.extend(found);
            }
        }
        Some(arena)
    }

    fn temporaries(&self) -> impl Iterator<Item = (Buffer, BufferId)> + '_ {
        self.blocks.iter().filter_map(|(b, id)| Some((b, (*id)?)))
    }

    /// The question with its in-place pairs: bound to share, or free to.
    fn with_pairs(&self, bound: bool) -> Problem {
        let mut problem = self.problem.clone();
        for pair in &self.in_place {
            if let (Some(child), Some(parent)) = (self.blocks[pair.child], self.blocks[pair.parent])
            {
                match bound {
                    true => problem.must_share(child, parent),
                    false => problem.may_share(child, parent),
                }
            }
        }
        problem
    }

    fn pack(&self, effort: Effort) -> Result<Packing, PlanError> {
        let count = self.problem.buffers.len();
        match effort {
            Effort::Off => plan_in_order(&self.problem, PlacementOrder::Birth),
            // Placing takes time by the square of the number.
            _ if count > MOST_ORDERED => {
                plan_in_order(&self.with_pairs(true), PlacementOrder::Size)
            }
            Effort::Quick => {
                best_of(&self.with_pairs(true), &[PlacementOrder::Size, PlacementOrder::Birth])
            }
            Effort::Default | Effort::Search if count > MOST_SEARCHED => {
                best_of(&self.with_pairs(true), &PlacementOrder::ALL)
            }
            Effort::Default | Effort::Search => {
                let effort = STEPS / count.max(1) as u64;
                plan(&self.with_pairs(false), &PackOptions { effort, ..PackOptions::default() })
            }
        }
    }
}

/// Buffers up to which several orders are tried.
const MOST_ORDERED: usize = 4000;

/// Buffers up to which a better plan than that of the orders is searched for.
const MOST_SEARCHED: usize = 1000;

/// Steps of that search for one buffer; with more there are fewer, since all take part in each.
const STEPS: u64 = 1_000_000;

/// The best of what these orders give.
fn best_of(problem: &Problem, orders: &[PlacementOrder]) -> Result<Packing, PlanError> {
    let mut best: Option<Packing> = None;
    for &order in orders {
        let found = plan_in_order(problem, order)?;
        if best.as_ref().is_none_or(|best| found.peak < best.peak) {
            best = Some(found);
        }
        if best.as_ref().is_some_and(Packing::is_optimal) {
            break;
        }
    }
    best.map_or_else(|| plan_in_order(problem, PlacementOrder::Size), Ok)
}

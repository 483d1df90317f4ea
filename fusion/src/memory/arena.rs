//! The arena: temporaries and the scratch of steps as a problem of the memory planner.

use super::known_packings::KnownPackings;
use super::layout::{ALIGN, DonorOf, Memory};
use super::size::{MOST_BYTES, bytes, first_reading};
use super::step_uses::StepUses;
use crate::plan::options::Effort;
use adfuse_ir::kernel::{Buffer, InPlace, Lives, Program, Role, Space};
use adfuse_memplan::{
    BufferId, BufferSpec, PackOptions, Packing, PlacementOrder, PlanError, Problem, plan,
    plan_in_order, plan_in_orders,
};
use cranelift_entity::SecondaryMap;
use std::ops::Range;

/// What memory is planned for.
pub(super) struct ArenaRequest<'a> {
    /// The buffers; steps are looked at through `uses` alone.
    pub(super) program: &'a Program,
    pub(super) uses: &'a dyn StepUses,
    pub(super) effort: Effort,
    /// Bytes of scratch memory of each step.
    pub(super) scratch: &'a [u64],
    /// Whether each step reads again what it has read when it has begun to write.
    pub(super) reads_again: &'a [bool],
    pub(super) lives: &'a Lives,
    /// How many threads pack it.
    pub(super) threads: usize,
    /// What is known of packings.
    pub(super) known: Option<&'a KnownPackings>,
}

impl ArenaRequest<'_> {
    /// Bytes of scratch memory of a step; steps that are not listed need none.
    pub(super) fn scratch_of(&self, step: usize) -> u64 {
        self.scratch.get(step).copied().unwrap_or(0)
    }
}

/// The time of the first step; what callers hand over is there before it.
pub(super) const FIRST: u64 = 1;

/// The time of some steps, the last one included.
pub(super) fn time((from, last): (usize, usize)) -> Range<u64> {
    from as u64 + FIRST..last as u64 + FIRST + 1
}

/// The problem for the memory planner.
pub(super) struct Arena {
    problem: Problem,
    pub(super) blocks: SecondaryMap<Buffer, Option<BufferId>>,
    /// For each step, where it needs something.
    pub(super) scratch: Vec<Option<BufferId>>,
    /// What may be in place.
    pub(super) in_place: Vec<InPlace>,
}

impl Arena {
    /// Of all temporaries that are not elsewhere. `None` where there are too many bytes.
    pub(super) fn of(wanted: &ArenaRequest<'_>, elsewhere: &DonorOf) -> Option<Arena> {
        let ArenaRequest { program, uses, lives, .. } = *wanted;
        let mut arena = Arena {
            problem: Problem::new(),
            blocks: SecondaryMap::new(),
            scratch: Vec::with_capacity(uses.steps()),
            in_place: Vec::new(),
        };
        for (b, data) in program.buffers.iter() {
            let here = data.role == Role::Temp && data.space == Space::Device;
            if let Some(life) = lives[b].filter(|_| here && elsewhere[b].is_none()) {
                let block = BufferSpec::new(time(life), bytes(data)?);
                arena.blocks[b] = Some(arena.problem.push(block.with_align(ALIGN)));
            }
        }
        for n in 0..uses.steps() {
            let size = wanted.scratch_of(n);
            if size > MOST_BYTES {
                return None;
            }
            let block = BufferSpec::new(time((n, uses.scratch_until(n))), size).with_align(ALIGN);
            arena.scratch.push((size > 0).then(|| arena.problem.push(block)));
        }
        if wanted.effort != Effort::Off {
            let ours = |b: Buffer| arena.blocks[b].is_some();
            arena.in_place = pairs(wanted, &ours, &ours);
        }
        Some(arena)
    }

    /// The question with its in-place pairs: bound to share, or free to.
    pub(super) fn with_pairs(&self, bound: bool) -> Problem {
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

    /// Bytes that the arena takes at the least, however it is packed: those that are live both at a step and at the next, of
    /// which none is in place of another.
    pub(super) fn least(&self) -> u64 {
        let blocks = || self.problem.buffers.values().filter(|block| !block.live.is_empty());
        let end = blocks().map(|block| block.live.end).max().unwrap_or(0);
        let mut changes = vec![0i128; end as usize + 1];
        for block in blocks() {
            changes[block.live.start as usize] += i128::from(block.size);
            changes[block.live.end as usize - 1] -= i128::from(block.size);
        }
        let live = changes.into_iter().scan(0, |now, change| {
            *now += change;
            Some(*now)
        });
        let alone = blocks().map(|block| i128::from(block.size)).max().unwrap_or(0);
        u64::try_from(live.max().unwrap_or(0).max(alone)).unwrap_or(u64::MAX)
    }

    /// Writes a packing into a plan of the memory.
    pub(super) fn places(&self, packing: &Packing, wanted: &ArenaRequest<'_>, memory: &mut Memory) {
        let at = |id: BufferId| packing.offsets[id].bytes();
        memory.offsets = SecondaryMap::new();
        for (b, id) in self.blocks.iter().filter_map(|(b, id)| Some((b, (*id)?))) {
            memory.offsets[b] = Some(at(id));
        }
        let place = |(n, id): (usize, &Option<BufferId>)| Some((at((*id)?), wanted.scratch_of(n)));
        memory.scratch = self.scratch.iter().enumerate().map(place).collect();
        memory.in_place = self.in_place.clone();
        memory.in_place.retain(|p| memory.offsets[p.child] == memory.offsets[p.parent]);
        memory.arena = packing.peak;
    }

    /// Packs the arena by itself.
    pub(super) fn pack(&self, wanted: &ArenaRequest<'_>) -> Result<Packing, PlanError> {
        let (effort, count) = (wanted.effort, self.problem.buffers.len());
        let searched = effort > Effort::Quick && count <= MOST_SEARCHED;
        let problem = match effort {
            Effort::Off => return plan_in_order(&self.problem, PlacementOrder::Birth),
            _ => self.with_pairs(!searched),
        };
        let pack = |problem: &Problem| match effort {
            // Placing takes time by the square of the number.
            _ if count > MOST_ORDERED => plan_in_order(problem, PlacementOrder::Size),
            Effort::Off | Effort::Quick => {
                plan_in_orders(problem, PlacementOrder::Size, &[PlacementOrder::Birth])
            }
            Effort::Default | Effort::Search if searched => {
                let effort = STEPS / count.max(1) as u64;
                let threads = wanted.threads;
                plan(problem, &PackOptions { effort, threads, ..PackOptions::default() })
            }
            Effort::Default | Effort::Search => {
                let [first, others @ ..] = PlacementOrder::ALL;
                plan_in_orders(problem, first, &others)
            }
        };
        match wanted.known {
            Some(known) => known.alone(problem, effort, pack),
            None => pack(&problem),
        }
    }
}

/// The pairs of all steps that may be in place, of a buffer that dies at the step and is one of some and another that
/// is made there and one of others.
pub(super) fn pairs(
    wanted: &ArenaRequest<'_>,
    parents: &dyn Fn(Buffer) -> bool,
    children: &dyn Fn(Buffer) -> bool,
) -> Vec<InPlace> {
    let ArenaRequest { program, uses, lives, .. } = *wanted;
    let mut found = Vec::new();
    for n in first_reading(uses, wanted.reads_again) {
        let dies = |b: Buffer| {
            let before =
                |(from, last)| (from < n || program.buffers[b].role == Role::Input) && last == n;
            parents(b) && lives[b].is_some_and(before)
        };
        let made = |b: Buffer| children(b) && lives[b].is_some_and(|(from, _)| from == n);
        found.extend(uses.in_place(n, &dies, &made));
    }
    found
}

/// Buffers up to which several orders are tried.
pub(super) const MOST_ORDERED: usize = 4000;

/// Buffers up to which a better plan than that of the orders is searched for.
const MOST_SEARCHED: usize = 1000;

/// Steps of that search for one buffer; with more there are fewer, since all take part in each.
const STEPS: u64 = 60_000;

//! Exact search: whether an instance fits a capacity.
//!
//! It is depth-first over the choices of a [`Skyline`], and restarts with another order of candidates after too many
//! dead ends. Dead states are remembered across runs, so that no run repeats them. A run that ends by itself proves
//! that nothing fits.

use crate::instance::{Instance, SlotId};
use crate::limit::Limit;
use crate::scatter::scatter;
use crate::shape::InstanceFacts;
use crate::skyline::{SectionChoice, Skyline};

/// The outcome of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It fits, with these offsets.
    Fits(Vec<i64>),
    /// It does not fit.
    DoesNotFit,
    /// The limit was reached first.
    Unknown,
}

/// Looks for offsets with which no slot ends above `capacity`. Other rounds search in another order.
pub(crate) fn decide(
    instance: &Instance,
    shape: &InstanceFacts,
    capacity: i64,
    round: u64,
    limit: &mut Limit,
) -> Verdict {
    let mut refuted = DeadStates::new(instance.slots.len());
    for run in 1.. {
        let dead_ends = luby(run) * (DEAD_ENDS + instance.slots.len() as u64 / 4);
        let preference = CandidateOrder::of_run(run, round);
        let mut skyline = Skyline::new(instance, shape, capacity);
        match dive(instance, &mut skyline, preference, dead_ends, &mut refuted, limit) {
            Some(true) => return Verdict::Fits(skyline.offsets().to_vec()),
            Some(false) => return Verdict::DoesNotFit,
            None if limit.is_reached() => return Verdict::Unknown,
            None => {}
        }
    }
    Verdict::Unknown
}

/// Dead ends in the shortest run, beside one for every four slots.
const DEAD_ENDS: u64 = 64;

/// Looking at this many sections counts as a step.
const WORK: u64 = 192;

/// A choice under way.
struct SearchFrame {
    mark: usize,
    key: u128,
    height: i64,
    section: usize,
    candidates: Vec<SlotId>,
    raised: Option<i64>,
    next: usize,
}

/// One run. `Some(true)`: the skyline is complete; `Some(false)`: no packing exists; `None`: too many
/// dead ends or steps.
fn dive(
    instance: &Instance,
    skyline: &mut Skyline<'_>,
    preference: CandidateOrder,
    mut dead_ends: u64,
    refuted: &mut DeadStates,
    limit: &mut Limit,
) -> Option<bool> {
    let mut frames: Vec<SearchFrame> = Vec::new();
    loop {
        if skyline.is_complete() {
            return Some(true);
        }
        let key = skyline.key();
        let choice = if refuted.contains(key) { None } else { skyline.choice() };
        if let Some(mut choice) = choice {
            preference.sort(instance, &mut choice);
            let SectionChoice { section, valley, candidates, raised } = choice;
            let (mark, height) = (skyline.mark(), valley.height);
            frames.push(SearchFrame { mark, key, height, section, candidates, raised, next: 0 });
        } else {
            dead_ends = dead_ends.checked_sub(1)?;
        }
        loop {
            let Some(frame) = frames.last_mut() else { return Some(false) };
            skyline.undo(frame.mark);
            if !limit.spend(1 + skyline.take_work() / WORK) {
                return None;
            }
            if let Some(&id) = frame.candidates.get(frame.next) {
                frame.next += 1;
                skyline.place(id, frame.height);
                break;
            }
            if let Some(floor) = frame.raised.take() {
                skyline.raise(frame.section, floor);
                break;
            }
            refuted.insert(frame.key);
            frames.pop();
        }
    }
}

/// What a run prefers among candidates.
#[derive(Clone, Copy)]
enum CandidateOrder {
    /// What fills the width of the valley or reaches up to its wall, then the larger.
    Snug,
    /// The longer-lived.
    Wide,
    /// The larger.
    Tall,
    /// Any, by this seed.
    Random(u64),
}

impl CandidateOrder {
    fn of_run(run: u64, round: u64) -> Self {
        match run {
            _ if round > 0 && run.is_multiple_of(2) => CandidateOrder::Random(run ^ round << 16),
            1 => CandidateOrder::Snug,
            2 => CandidateOrder::Wide,
            3 => CandidateOrder::Tall,
            _ if run.is_multiple_of(2) => CandidateOrder::Snug,
            _ => CandidateOrder::Random(run),
        }
    }

    fn sort(self, instance: &Instance, choice: &mut SectionChoice) {
        let valley = &choice.valley;
        let rank = |id: SlotId| {
            let slot = &instance.slots[id];
            let wide = slot.birth() <= valley.from && valley.to <= slot.death();
            let end = valley.height + slot.extent;
            let level = end == valley.walls.0 || end == valley.walls.1;
            match self {
                CandidateOrder::Snug => {
                    (u64::from(wide) + u64::from(level), slot.extent.unsigned_abs())
                }
                CandidateOrder::Wide => (slot.lifetime, slot.extent.unsigned_abs()),
                CandidateOrder::Tall => (slot.extent.unsigned_abs(), slot.lifetime),
                CandidateOrder::Random(seed) => (scatter(seed, id.as_u32().into()), 0),
            }
        };
        choice.candidates.sort_by_cached_key(|&id| (std::cmp::Reverse(rank(id)), id));
    }
}

/// The sequence 1, 1, 2, 1, 1, 2, 4, 1, .. of Luby, Sinclair and Zuckerman (1993), from `index` 1 on.
fn luby(index: u64) -> u64 {
    let mut index = index;
    loop {
        let size = u64::BITS - index.leading_zeros();
        if index + 1 == 1 << size {
            return 1 << (size - 1);
        }
        index -= (1 << (size - 1)) - 1;
    }
}

/// States that lead nowhere. Of two that collide the later stays, which costs time only.
struct DeadStates {
    keys: Vec<Option<u128>>,
}

impl DeadStates {
    fn new(slots: usize) -> Self {
        let size = (slots * 256).next_power_of_two().clamp(1 << 10, 1 << 19);
        Self { keys: vec![None; size] }
    }

    fn place(&self, key: u128) -> usize {
        (key >> 64) as usize & (self.keys.len() - 1)
    }

    fn contains(&self, key: u128) -> bool {
        self.keys[self.place(key)] == Some(key)
    }

    fn insert(&mut self, key: u128) {
        let place = self.place(key);
        self.keys[place] = Some(key);
    }
}

//! Solves one group of slots: cheap methods first, the exact search last, and only as far as needed.

use crate::best_fit::{FitRule, best_fit};
use crate::bound::lower_bound;
use crate::boxes::{BoxEffort, boxed};
use crate::fillers::{filled, surely_filled};
use crate::fit::{Fit, Overlaps};
use crate::greedy_try::{GreedyTry, place_side_by_side};
use crate::instance::{Instance, SlotId};
use crate::joined::Joined;
use crate::limit::Limit;
use crate::packing::{Method, PlacementOrder};
use crate::padded_boxes::{MOST_PADDED, padded};
use crate::refine::refine;
use crate::search::{Verdict, decide};
use crate::shape::InstanceFacts;
use crate::sharing::{Sharings, sharings};
use crate::sweep::sweep;

/// Offsets for one instance.
pub(crate) struct Solved {
    pub(crate) offsets: Vec<i64>,
    pub(crate) peak: i64,
    pub(crate) lower_bound: i64,
    pub(crate) method: Method,
}

/// With more slots than this, only what every plan needs is tried beside the search: placing takes
/// time by the square.
const MANY: usize = 2048;

/// The most buffers for which every greedy order is tried.
pub const MOST_ORDERED: usize = 4096;

/// The exact search treats no instance whose slots cover more sections together: it looks at all of them again and again.
const MOST_COVERED: usize = 1 << 26;

/// Up to this many slots boxes are made four times, each time joined in another way, and up to eight times as many twice.
const OFTEN: usize = 2048;

/// From this many slots on boxes are padded, and from this level on: the search does by itself with fewer, or with few steps.
const PADDED: usize = 128;

const PADDED_LEVEL: u32 = 2;

/// How far above the goal, in parts of a hundred, padding may go: with more room fewer boxes are left, which the search packs sooner.
const PADDED_ABOVE: [i64; 6] = [0, 1, 2, 3, 4, 5];

/// In each round of a level boxes are joined and searches ordered in another way.
const ROUNDS: u64 = 32;

/// Steps of the first level. Each further one has [`GROWTH`] times as many.
const FIRST: u64 = 732;

/// And for each slot, where there are many: less than this shows nothing.
const FIRST_A_SLOT: u64 = 8;

const GROWTH: u64 = 4;

/// Slots from which on a thread is worth beginning to place them in one order.
const WORTH_A_THREAD: usize = 128;

/// The search for one group of slots, level by level.
///
/// How a level spends its steps depends on its number and not on how many steps there are in all, so that a
/// longer search begins with all that a shorter one does.
pub(crate) struct Solver<'a> {
    instance: &'a Instance,
    /// The best so far.
    pub(crate) best: Solved,
    /// Placements so far.
    pub(crate) placements: u64,
    /// Which order led to the best greedy placement.
    best_order: Vec<SlotId>,
    sharings: Sharings,
    /// The sharings as the search works on them; made when the first level begins.
    plain: Option<Vec<SearchForm>>,
    /// Boxes of slots that nearly fit together; made when level [`PADDED_LEVEL`] begins.
    padded: Vec<SearchForm>,
    /// The next level, and its steps.
    level: u32,
    steps: u64,
    /// Rounds done, of all levels.
    rounds: u64,
    /// No peak need be below.
    goal: i64,
}

/// A form of the instance that the exact search works on.
struct SearchForm {
    joined: Joined,
    shape: InstanceFacts,
    lower_bound: i64,
    method: Method,
}

impl SearchForm {
    fn of(mut joined: Joined, method: Method) -> Option<Self> {
        joined.instance.merge_sections();
        let parts = joined.instance.slots.values().flat_map(|slot| &slot.parts);
        let covered = parts.fold(0, |sum: usize, part| sum.saturating_add(part.to - part.from));
        let shape = InstanceFacts::of(&joined.instance).filter(|_| covered <= MOST_COVERED)?;
        let lower_bound = lower_bound(&joined.instance);
        Some(Self { joined, shape, lower_bound, method })
    }
}

impl<'a> Solver<'a> {
    /// With the best of the greedy placements, or any of at most `goal`.
    pub(crate) fn new(
        instance: &'a Instance,
        goal: i64,
        threads: usize,
        limit: &mut Limit,
    ) -> Self {
        let bound = lower_bound(instance);
        let best = Solved {
            offsets: Vec::new(),
            peak: i64::MAX,
            lower_bound: bound,
            method: Method::Trivial,
        };
        let mut solver = Self {
            instance,
            best,
            placements: 0,
            best_order: Vec::new(),
            sharings: sharings(instance),
            plain: None,
            padded: Vec::new(),
            level: 0,
            steps: FIRST.max(FIRST_A_SLOT * instance.slots.len() as u64),
            rounds: 0,
            goal: goal.max(bound),
        };
        let unchanged = Joined::unchanged(instance);
        // Without in-place pairs the first is the instance itself.
        let joint = if instance.in_place.is_empty() { 1 } else { 0 };
        let variants = if instance.slots.len() > MANY { 1 } else { 2 };
        let all = std::mem::take(&mut solver.sharings.all);
        let probed = solver.probe(&all[0], limit);
        solver.greedy(&unchanged, threads, limit);
        let known = if joint == 1 { probed.as_slice() } else { &[] };
        solver.fit_best(&unchanged, &FitRule::ALL, Method::BestFit, known, limit);
        for (k, joined) in all.iter().enumerate().skip(joint).take(variants) {
            let known = if k == 0 { probed.as_slice() } else { &[] };
            solver.greedy(joined, threads, limit);
            solver.fit_best(joined, &FitRule::ALL, Method::BestFit, known, limit);
        }
        solver.sharings.all = all;
        // There is time for this whatever the time.
        if !solver.is_done() {
            solver.offer(sweep(instance), Method::Sweep);
        }
        solver
    }

    /// One more level of search for a peak of at most `goal`.
    pub(crate) fn level(&mut self, goal: i64, limit: &mut Limit) {
        self.goal = goal.max(self.best.lower_bound);
        if self.is_done() || limit.is_over() {
            return;
        }
        let Sharings { all, exhaustive } =
            std::mem::replace(&mut self.sharings, Sharings { all: Vec::new(), exhaustive: false });
        let plain = self.plain.take().unwrap_or_else(|| {
            all.iter().filter_map(|j| SearchForm::of(j.clone(), Method::Search)).collect()
        });
        // Without a form for every sharing, that none fits shows nothing.
        let complete = exhaustive && plain.len() == all.len();
        if self.rounds == 0 {
            self.construct(&all[0], limit);
        }
        // Of many slots the first level has more steps than that one has of few.
        let many = self.instance.slots.len() > MOST_ORDERED;
        if self.level == if many { 0 } else { PADDED_LEVEL } {
            self.padded = self.padded_forms(&all[0], limit);
        }
        let steps = self.steps;
        self.steps = steps.saturating_mul(GROWTH);
        self.level += 1;
        let forms = std::mem::take(&mut self.padded);
        limit.within(steps / 2, |limit| self.narrow(&forms, &[], 0, limit));
        self.padded = forms;
        limit.within(steps, |limit| self.search(&all[0], &plain, complete, steps, limit));
        (self.sharings, self.plain) = (Sharings { all, exhaustive }, Some(plain));
    }

    fn search(
        &mut self,
        joined: &Joined,
        plain: &[SearchForm],
        complete: bool,
        steps: u64,
        limit: &mut Limit,
    ) {
        for number in 0..ROUNDS {
            let round = self.rounds;
            self.rounds += 1;
            let boxes = self.boxes(joined, round, limit);
            for form in &boxes {
                self.decide(form, self.goal, round, steps / 16, limit);
            }
            if number == 0 {
                self.reach_goal(plain, complete, steps / 8, limit);
            }
            limit.within(steps / 4, |limit| self.narrow(&boxes, plain, round, limit));
            if number == 0 {
                limit.within(steps / 16, |limit| self.refine(joined, limit));
                if complete {
                    limit.within(steps / 8, |limit| self.close(plain, limit));
                }
            }
            if self.is_done() || limit.is_reached() {
                return;
            }
        }
    }

    fn is_done(&self) -> bool {
        self.best.peak <= self.goal
    }

    fn offer(&mut self, offsets: Vec<i64>, method: Method) {
        let peak = self.instance.peak(&offsets);
        if peak < self.best.peak {
            self.best = Solved { offsets, peak, method, ..self.best };
        }
    }

    /// Best fit of boxes, those of the slots with what a packing at the goal leaves free first. It takes nearly linear time and no steps.
    fn construct(&mut self, joined: &Joined, limit: &mut Limit) {
        let count = joined.instance.slots.len();
        let seeds = if count <= OFTEN {
            4
        } else if count <= 8 * OFTEN {
            2
        } else {
            1
        };
        let filled = filled(&joined.instance, self.goal).map(|filled| filled.after(joined));
        for seed in 0..seeds {
            for slots in filled.iter().chain([joined]) {
                if self.is_done() || limit.is_late() {
                    return;
                }
                let boxes = boxed(&slots.instance, BoxEffort::Wheels, seed, limit);
                self.fit_best(&boxes.after(slots), &FitRule::ALL[..2], Method::Boxes, &[], limit);
            }
        }
    }

    /// Boxes padded to the goal and a little above it.
    fn padded_forms(&self, joined: &Joined, limit: &mut Limit) -> Vec<SearchForm> {
        if self.is_done()
            || joined.instance.slots.len() < PADDED
            || !joined.instance.in_place.is_empty()
        {
            return Vec::new();
        }
        // Where it is all but certain what is missing, more fits together exactly.
        let sure = surely_filled(&joined.instance, self.goal).map(|filled| filled.after(joined));
        let slots = sure.as_ref().unwrap_or(joined);
        let boxes = boxed(&slots.instance, BoxEffort::Wheels, 0, limit);
        let boxes = boxes.after(slots).without_empty();
        if boxes.instance.slots.len() > MOST_PADDED {
            return Vec::new();
        }
        let goals = PADDED_ABOVE.iter().map(|above| self.goal + self.goal / 100 * above);
        let below = goals.filter(|&goal| goal < self.best.peak);
        let all = below.filter_map(|goal| padded(&boxes.instance, goal, limit));
        let after = all.map(|padded| padded.after(&boxes));
        after.filter_map(|form| SearchForm::of(form, Method::Boxes)).collect()
    }

    /// Tries what is cheap and reaches the goal most often, before all that is there for the case that it does not: where as many
    /// pairs as possible are in place, one order and best fit by each rule. What does not reach the goal changes nothing; gives
    /// the offsets of best fit, rule by rule.
    fn probe(&mut self, joined: &Joined, limit: &mut Limit) -> Vec<Vec<i64>> {
        let mut found = Vec::new();
        if limit.is_late() || joined.instance.slots.len() > MOST_ORDERED {
            return found;
        }
        let overlaps = Overlaps::of(&joined.instance);
        let mut first = GreedyTry::new(&joined.instance, &overlaps, limit);
        let order = PlacementOrder::ALL[0];
        // A peak above the goal is of no use here.
        self.placements += 1;
        first.place((order, Fit::Lowest), self.goal.saturating_add(1));
        if first.peak.is_some_and(|peak| peak <= self.goal) {
            let offsets = joined.unpack(first.placement.offsets());
            self.offer(offsets, Method::Greedy(order));
            self.best_order = first.ids;
            return found;
        }
        for rule in FitRule::ALL {
            self.placements += 1;
            let Some(offsets) = best_fit(&joined.instance, rule, limit) else { return found };
            if joined.instance.peak(&offsets) <= self.goal {
                self.offer(joined.unpack(&offsets), Method::BestFit);
                return found;
            }
            found.push(offsets);
        }
        found
    }

    /// Best fit by some rules; `known` has the offsets of the first of them.
    fn fit_best(
        &mut self,
        joined: &Joined,
        rules: &[FitRule],
        method: Method,
        known: &[Vec<i64>],
        limit: &mut Limit,
    ) {
        for (k, &rule) in rules.iter().enumerate() {
            if self.is_done() || limit.is_late() {
                return;
            }
            let made = match known.get(k) {
                Some(offsets) => Some(offsets.clone()),
                None => {
                    self.placements += 1;
                    best_fit(&joined.instance, rule, limit)
                }
            };
            if let Some(offsets) = made {
                self.offer(joined.unpack(&offsets), method);
            }
        }
    }

    /// Every order, and both ways to fit.
    fn greedy(&mut self, joined: &Joined, threads: usize, limit: &mut Limit) {
        let count = joined.instance.slots.len();
        if self.is_done() || limit.is_late() || count > MOST_ORDERED {
            return;
        }
        let overlaps = Overlaps::of(&joined.instance);
        let fits: &[Fit] =
            if count > MANY { &[Fit::Lowest] } else { &[Fit::Lowest, Fit::Tightest] };
        let ways: Vec<(PlacementOrder, Fit)> = PlacementOrder::ALL
            .iter()
            .flat_map(|&order| fits.iter().map(move |&fit| (order, fit)))
            .collect();
        let threads = if count < WORTH_A_THREAD { 1 } else { threads.max(1) };
        let mut tries: Vec<GreedyTry<'_>> =
            (0..threads).map(|_| GreedyTry::new(&joined.instance, &overlaps, limit)).collect();
        for ways in ways.chunks(threads) {
            if self.is_done() {
                return;
            }
            let below = self.best.peak;
            place_side_by_side(&mut tries[..ways.len()], ways, below);
            // In their order, as if one had been tried after the other.
            for (made, &(order, _)) in tries.iter().zip(ways) {
                let Some(peak) = made.peak else {
                    limit.join(&made.limit);
                    return;
                };
                self.placements += u64::from(!self.is_done());
                if peak < self.best.peak && !self.is_done() {
                    let offsets = joined.unpack(made.placement.offsets());
                    self.offer(offsets, Method::Greedy(order));
                    self.best_order.clone_from(&made.ids);
                }
            }
        }
    }

    /// Boxes of the slots of `joined`, those with the most joined first. Other rounds join otherwise.
    fn boxes(&self, joined: &Joined, round: u64, limit: &mut Limit) -> Vec<SearchForm> {
        let mut forms: Vec<SearchForm> = Vec::new();
        for box_effort in [BoxEffort::All, BoxEffort::Matching, BoxEffort::Chains] {
            if !limit.spend(joined.instance.slots.len() as u64) {
                break;
            }
            let boxes = boxed(&joined.instance, box_effort, round, limit);
            let before = forms.last().map_or(0, |form| form.joined.instance.slots.len());
            let count = boxes.instance.slots.len();
            if count != before && count != joined.instance.slots.len() {
                forms.extend(SearchForm::of(boxes.after(joined), Method::Boxes));
            }
        }
        forms
    }

    /// Tries for the goal itself.
    fn reach_goal(
        &mut self,
        plain: &[SearchForm],
        exhaustive: bool,
        effort: u64,
        limit: &mut Limit,
    ) {
        let steps = effort / plain.len().max(1) as u64;
        let mut refuted = exhaustive;
        for form in plain {
            refuted &= self.decide(form, self.goal, 0, steps, limit) == Some(false);
        }
        if refuted && !self.is_done() {
            self.best.lower_bound = self.best.lower_bound.max(self.goal + 1);
            self.goal = self.goal.max(self.best.lower_bound);
        }
    }

    /// Halves the distance between the best peak and the goal as long as that succeeds.
    fn narrow(
        &mut self,
        boxes: &[SearchForm],
        plain: &[SearchForm],
        round: u64,
        limit: &mut Limit,
    ) {
        let effort = limit.left();
        let mut low = self.goal;
        let mut forms: Vec<&SearchForm> = boxes.iter().chain(plain.iter().take(2)).collect();
        while self.best.peak - low > (self.goal >> 9).max(1) && !limit.is_reached() {
            let target = low + (self.best.peak - low) / 2;
            let fitting = forms.iter().position(|form| {
                let steps = (effort / 32).max(8 * form.joined.instance.slots.len() as u64);
                self.decide(form, target, round, steps, limit) == Some(true)
            });
            match fitting {
                // What worked once is tried first.
                Some(index) => forms[..=index].rotate_right(1),
                None => low = target,
            }
        }
    }

    fn refine(&mut self, joined: &Joined, limit: &mut Limit) {
        if self.is_done() || self.best_order.len() != joined.instance.slots.len() {
            return;
        }
        let overlaps = Overlaps::of(&joined.instance);
        let (_, offsets) = refine(&joined.instance, &overlaps, &self.best_order, self.goal, limit);
        if !offsets.is_empty() {
            self.offer(joined.unpack(&offsets), Method::Refined);
        }
    }

    /// Spends what is left on peaks just below the best, until there is none.
    fn close(&mut self, plain: &[SearchForm], limit: &mut Limit) {
        while !self.is_done() && !limit.is_reached() {
            let target = self.best.peak - 1;
            let mut refuted = true;
            for form in plain {
                match self.decide(form, target, 0, limit.left(), limit) {
                    Some(true) => {
                        refuted = false;
                        break;
                    }
                    Some(false) => {}
                    None => return,
                }
            }
            if refuted {
                self.best.lower_bound = self.best.peak;
                return;
            }
        }
    }

    /// Whether the form fits `capacity`; `None` if that was not found out.
    fn decide(
        &mut self,
        form: &SearchForm,
        capacity: i64,
        round: u64,
        steps: u64,
        limit: &mut Limit,
    ) -> Option<bool> {
        if form.lower_bound > capacity {
            return Some(false);
        }
        if self.best.peak <= capacity {
            return Some(true);
        }
        if limit.is_reached() {
            return None;
        }
        let instance = &form.joined.instance;
        match limit.within(steps, |limit| decide(instance, &form.shape, capacity, round, limit)) {
            Verdict::Fits(offsets) => {
                self.offer(form.joined.unpack(&offsets), form.method);
                Some(true)
            }
            Verdict::DoesNotFit => Some(false),
            Verdict::Unknown => None,
        }
    }
}

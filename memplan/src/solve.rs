//! One group of slots: the cheap ways first, the exact search last, and none further than needed.

use crate::bound::lower_bound;
use crate::boxes::{Zeal, boxed};
use crate::fit::{Fit, Overlaps, Placement};
use crate::instance::{Instance, SlotId};
use crate::joined::Joined;
use crate::limit::Limit;
use crate::orders::ordered;
use crate::packing::{Method, Order};
use crate::refine::refine;
use crate::search::{Verdict, decide};
use crate::shape::Shape;
use crate::sharing::{Sharings, sharings};

/// Offsets for one instance.
pub(crate) struct Solved {
    pub(crate) offsets: Vec<i64>,
    pub(crate) peak: i64,
    pub(crate) lower_bound: i64,
    pub(crate) method: Method,
}

/// Looks for the least peak, or any of at most `goal`.
pub(crate) fn solve(instance: &Instance, goal: i64, limit: &mut Limit) -> Solved {
    let bound = lower_bound(instance);
    let mut solver = Solver {
        instance,
        goal: goal.max(bound),
        best: Solved {
            offsets: Vec::new(),
            peak: i64::MAX,
            lower_bound: bound,
            method: Method::Trivial,
        },
        best_order: Vec::new(),
    };
    solver.run(limit);
    solver.best
}

/// With more slots than this, only what every plan needs is tried beside the search: placing takes
/// time by the square.
const MANY: usize = 2048;

/// In each round boxes are joined and searches ordered in another way.
const ROUNDS: u64 = 32;

struct Solver<'a> {
    instance: &'a Instance,
    /// No peak need be below.
    goal: i64,
    best: Solved,
    /// Which order led to the best greedy placement.
    best_order: Vec<SlotId>,
}

/// A form of the instance that the exact search works on.
struct Form {
    joined: Joined,
    shape: Shape,
    lower_bound: i64,
    method: Method,
}

impl Form {
    fn of(mut joined: Joined, method: Method) -> Option<Self> {
        joined.instance.merge_sections();
        let shape = Shape::of(&joined.instance)?;
        let lower_bound = lower_bound(&joined.instance);
        Some(Self { joined, shape, lower_bound, method })
    }
}

impl Solver<'_> {
    fn run(&mut self, limit: &mut Limit) {
        let Sharings { all, exhaustive } = sharings(self.instance);
        self.greedy(&Joined::unchanged(self.instance));
        // Without in-place pairs the first is the instance itself.
        let joint = if self.instance.in_place.is_empty() { 1 } else { 0 };
        let variants = if self.instance.slots.len() > MANY { 1 } else { 2 };
        for joined in all.iter().skip(joint).take(variants) {
            self.greedy(joined);
        }
        if self.is_done() || limit.is_reached() {
            return;
        }
        let effort = limit.left();
        let plain: Vec<Form> =
            all.iter().filter_map(|j| Form::of(j.clone(), Method::Search)).collect();
        // Without a form for every sharing, that none fits shows nothing.
        let exhaustive = exhaustive && plain.len() == all.len();
        for round in 0..ROUNDS {
            let boxes = self.boxes(&all[0], round, limit);
            for form in &boxes {
                self.decide(form, self.goal, round, effort / 16, limit);
            }
            if round == 0 {
                self.reach_goal(&plain, exhaustive, effort / 8, limit);
            }
            limit.within(effort / 4, |limit| self.narrow(&boxes, &plain, round, limit));
            if round == 0 {
                limit.within(effort / 16, |limit| self.refine(&all[0], limit));
                if exhaustive {
                    limit.within(effort / 8, |limit| self.close(&plain, limit));
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

    /// Every order, and both ways to fit.
    fn greedy(&mut self, joined: &Joined) {
        let overlaps = Overlaps::of(&joined.instance);
        let mut placement = Placement::new(&joined.instance, &overlaps);
        for order in Order::ALL {
            let ids = ordered(&joined.instance, order);
            let fits: &[Fit] =
                if ids.len() > MANY { &[Fit::Lowest] } else { &[Fit::Lowest, Fit::Tightest] };
            for &fit in fits {
                if self.is_done() {
                    return;
                }
                let peak = placement.place_all(&ids, fit);
                if peak < self.best.peak {
                    self.offer(joined.unpack(placement.offsets()), Method::Greedy(order));
                    self.best_order.clone_from(&ids);
                }
            }
        }
    }

    /// Boxes of the slots of `joined`, those with the most joined first. Other rounds join otherwise.
    fn boxes(&self, joined: &Joined, round: u64, limit: &mut Limit) -> Vec<Form> {
        let mut forms: Vec<Form> = Vec::new();
        for zeal in [Zeal::All, Zeal::Matching, Zeal::Chains] {
            limit.spend(joined.instance.slots.len() as u64);
            let boxes = boxed(&joined.instance, zeal, round);
            let before = forms.last().map_or(0, |form| form.joined.instance.slots.len());
            let count = boxes.instance.slots.len();
            if count != before && count != joined.instance.slots.len() {
                forms.extend(Form::of(boxes.after(joined), Method::Boxes));
            }
        }
        forms
    }

    /// Tries for the goal itself.
    fn reach_goal(&mut self, plain: &[Form], exhaustive: bool, effort: u64, limit: &mut Limit) {
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
    fn narrow(&mut self, boxes: &[Form], plain: &[Form], round: u64, limit: &mut Limit) {
        let effort = limit.left();
        let mut low = self.goal;
        let mut forms: Vec<&Form> = boxes.iter().chain(plain.iter().take(2)).collect();
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
    fn close(&mut self, plain: &[Form], limit: &mut Limit) {
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
        form: &Form,
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

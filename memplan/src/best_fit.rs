//! Best fit on a skyline (Burke, Kendall and Whitwell 2004, for strips; Sekiyama et al. 2018, for arenas).
//!
//! The lowest run of sections with one floor is filled first: with a slot that lives within it, one at its edge if there is one. Where nothing fits, its
//! floor rises to the lower of its neighbours'. Time is nearly linear in the number of slots: the slots within a run are found by a tree over their order.
//! Gaps and in-place pairs are ignored, and all is above what is fixed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cranelift_entity::EntityRef;

use crate::instance::{Instance, Slot, SlotId, align_up};
use crate::limit::Limit;
use crate::shape::SectionLists;

/// Which of the slots that fit is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FitRule {
    /// Of those at an edge of the run the longest-lived, else of all.
    LongestAtEdge,
    /// The same with the largest product of size and lifetime.
    WidestAtEdge,
    /// The same with the largest size.
    TallestAtEdge,
    /// The longest-lived, wherever it is.
    Longest,
}

impl FitRule {
    pub(crate) const ALL: [FitRule; 4] =
        [FitRule::LongestAtEdge, FitRule::WidestAtEdge, FitRule::TallestAtEdge, FitRule::Longest];
}

/// An offset for each slot, or nothing where the time ends before.
pub(crate) fn best_fit(instance: &Instance, rule: FitRule, limit: &mut Limit) -> Option<Vec<i64>> {
    let mut fill = SkylineFill::new(instance, rule);
    while fill.step() {
        if !limit.look(STEP) {
            return None;
        }
    }
    Some(fill.offsets)
}

/// The cost of a step, counted in places of a placement.
const STEP: usize = 64;

/// Slots at an edge that are compared.
const MOST_AT_EDGE: usize = 8;

/// Slots at an edge that are looked at, placed ones among them.
const MOST_LOOKED_AT: usize = 256;

/// A number that is no run's.
const NONE: usize = usize::MAX;

/// Neighbouring sections with one floor, in a list in the order of time.
#[derive(Clone, Copy, Debug)]
struct FloorRun {
    from: usize,
    to: usize,
    floor: i64,
    before: usize,
    after: usize,
}

struct SkylineFill<'a> {
    instance: &'a Instance,
    at_edges: bool,
    offsets: Vec<i64>,
    placed: Vec<bool>,
    /// The slots in the order in which they are preferred.
    order: Vec<SlotId>,
    rank: Vec<usize>,
    within: LifeTree,
    begins: SectionLists,
    ends: SectionLists,
    /// A run that is no more has an empty range.
    runs: Vec<FloorRun>,
    /// The lowest runs first; entries of runs that have changed since are left in it.
    lowest: BinaryHeap<Reverse<(i64, usize, usize)>>,
}

impl<'a> SkylineFill<'a> {
    fn new(instance: &'a Instance, rule: FitRule) -> Self {
        let fixed = instance.slots.values().filter_map(|s| Some(s.fixed? + s.extent));
        let base = fixed.max().unwrap_or(0);
        let movable = |slot: &Slot| slot.fixed.is_none() && !slot.parts.is_empty();
        let slots = instance.slots.iter().filter(|(_, slot)| movable(slot));
        let mut order: Vec<SlotId> = slots.map(|(id, _)| id).collect();
        order.sort_by_cached_key(|&id| {
            let slot = &instance.slots[id];
            let (size, life) = (slot.extent.unsigned_abs(), (slot.death() - slot.birth()) as u64);
            let first = match rule {
                FitRule::LongestAtEdge | FitRule::Longest => u128::from(life),
                FitRule::WidestAtEdge => u128::from(life) * u128::from(size),
                FitRule::TallestAtEdge => u128::from(size),
            };
            (Reverse(first), Reverse(size), id)
        });
        let mut rank = vec![0; instance.slots.len()];
        order.iter().enumerate().for_each(|(k, id)| rank[id.index()] = k);
        let lives =
            order.iter().map(|&id| (instance.slots[id].birth(), instance.slots[id].death()));
        let within = LifeTree::new(&lives.collect::<Vec<_>>());
        let count = instance.section_count;
        let edges = |edge: &dyn Fn(&Slot) -> usize| {
            let ids = order.iter().map(|&id| (edge(&instance.slots[id]), id));
            SectionLists::ranked(count, ids, &rank)
        };
        let (begins, ends) = (edges(&|slot| slot.birth()), edges(&|slot| slot.death() - 1));
        let offsets = instance.slots.values().map(|slot| slot.fixed.unwrap_or(0)).collect();
        let whole = FloorRun { from: 0, to: count, floor: base, before: NONE, after: NONE };
        Self {
            instance,
            at_edges: rule != FitRule::Longest,
            offsets,
            placed: vec![false; instance.slots.len()],
            order,
            rank,
            within,
            begins,
            ends,
            runs: vec![whole],
            lowest: BinaryHeap::from([Reverse((base, 0, 0))]),
        }
    }

    /// Fills or raises the lowest run; whether there is more to do.
    fn step(&mut self) -> bool {
        let Some(Reverse((floor, from, number))) = self.lowest.pop() else { return false };
        let run = self.runs[number];
        if run.from != from || run.floor != floor || run.from >= run.to {
            return true;
        }
        let floor_of = |number: usize| self.runs.get(number).map_or(i64::MAX, |run| run.floor);
        let wall = floor_of(run.before).min(floor_of(run.after));
        match self.choice(&run, wall) {
            Some(id) => self.place(number, id),
            // Nothing is left anywhere.
            None if wall == i64::MAX => return false,
            None => {
                self.runs[number].floor = wall;
                self.settle(number);
            }
        }
        true
    }

    fn choice(&self, run: &FloorRun, wall: i64) -> Option<SlotId> {
        if self.at_edges {
            let starting = self.at_edge(self.begins.of(run.from), *run);
            let ending = self.at_edge(self.ends.of(run.to - 1), *run);
            let score = |id: &SlotId| {
                let slot = &self.instance.slots[*id];
                let wide = slot.birth() == run.from && slot.death() == run.to;
                let level = align_up(run.floor, slot.align) + slot.extent == wall;
                (Reverse(u8::from(wide) + u8::from(level)), self.rank[id.index()])
            };
            if let Some(id) = starting.chain(ending).min_by_key(score) {
                return Some(id);
            }
        }
        self.within.first(run.from, run.to).map(|rank| self.order[rank])
    }

    /// Some of the slots at an edge that live within the run, the preferred ones first.
    fn at_edge<'s>(
        &'s self,
        ids: &'s [SlotId],
        run: FloorRun,
    ) -> impl Iterator<Item = SlotId> + 's {
        let fits = move |id: &SlotId| {
            let slot = &self.instance.slots[*id];
            !self.placed[id.index()] && run.from <= slot.birth() && slot.death() <= run.to
        };
        ids.iter().copied().take(MOST_LOOKED_AT).filter(fits).take(MOST_AT_EDGE)
    }

    fn place(&mut self, number: usize, id: SlotId) {
        let instance = self.instance;
        let slot = &instance.slots[id];
        let run = self.runs[number];
        let offset = align_up(run.floor, slot.align);
        self.offsets[id.index()] = offset;
        self.placed[id.index()] = true;
        self.within.remove(self.rank[id.index()]);
        let (birth, death) = (slot.birth(), slot.death());
        let mut middle = number;
        if run.from < birth {
            middle = self.insert_after(number, FloorRun { from: birth, ..run });
            self.runs[number].to = birth;
            self.lowest.push(Reverse((run.floor, run.from, number)));
        }
        if death < run.to {
            let rest = self.insert_after(middle, FloorRun { from: death, ..run });
            self.lowest.push(Reverse((run.floor, death, rest)));
        }
        self.runs[middle].to = death;
        self.runs[middle].floor = offset + slot.extent;
        self.settle(middle);
    }

    /// Puts a run behind another in the list; its number.
    fn insert_after(&mut self, number: usize, run: FloorRun) -> usize {
        let new = self.runs.len();
        let after = self.runs[number].after;
        self.runs.push(FloorRun { before: number, after, ..run });
        self.runs[number].after = new;
        if let Some(next) = self.runs.get_mut(after) {
            next.before = new;
        }
        new
    }

    /// Joins a run whose floor has changed with neighbours of the same floor.
    fn settle(&mut self, number: usize) {
        let (mut run, mut kept) = (self.runs[number], number);
        if let Some(&before) = self.runs.get(run.before)
            && before.floor == run.floor
        {
            kept = run.before;
            self.runs[number].to = self.runs[number].from;
            run = FloorRun { to: run.to, after: run.after, ..before };
        }
        if let Some(&after) = self.runs.get(run.after)
            && after.floor == run.floor
        {
            let gone = &mut self.runs[run.after];
            gone.to = gone.from;
            (run.to, run.after) = (after.to, after.after);
        }
        self.runs[kept] = run;
        if let Some(next) = self.runs.get_mut(run.after) {
            next.before = kept;
        }
        self.lowest.push(Reverse((run.floor, run.from, kept)));
    }
}

/// Lives as points of birth and death, with ranks: a k-d tree (Bentley 1975) that finds the least rank within a range of time.
struct LifeTree {
    /// The root is 1; the leaves begin at their number.
    cells: Vec<LifeCell>,
    leaves: usize,
    /// The leaf of each rank.
    leaf: Vec<usize>,
}

/// What is below a cell: the earliest and the latest birth and death, and the least rank that is left.
#[derive(Clone, Copy)]
struct LifeCell {
    birth: (usize, usize),
    death: (usize, usize),
    rank: usize,
}

impl LifeTree {
    /// Of the lives of ranks from 0 on.
    fn new(lives: &[(usize, usize)]) -> Self {
        let leaves = lives.len().next_power_of_two();
        let empty = LifeCell { birth: (NONE, 0), death: (NONE, 0), rank: NONE };
        let mut tree = Self { cells: vec![empty; 2 * leaves], leaves, leaf: vec![0; lives.len()] };
        let mut ranks: Vec<usize> = (0..lives.len()).collect();
        tree.fill(lives, &mut ranks);
        for at in (1..leaves).rev() {
            let [a, b] = [tree.cells[2 * at], tree.cells[2 * at + 1]];
            let span = |a: (usize, usize), b: (usize, usize)| (a.0.min(b.0), a.1.max(b.1));
            tree.cells[at] = LifeCell {
                birth: span(a.birth, b.birth),
                death: span(a.death, b.death),
                rank: a.rank.min(b.rank),
            };
        }
        tree
    }

    /// Divides ranks among the leaves, by birth and by death in turns.
    fn fill(&mut self, lives: &[(usize, usize)], ranks: &mut [usize]) {
        // The first leaf of each part that is left, the number of its leaves, its ranks, and its axis.
        let mut open = vec![(self.leaves, self.leaves, 0, ranks.len(), true)];
        while let Some((leaf, cells, from, to, by_birth)) = open.pop() {
            if from == to {
                continue;
            }
            if cells == 1 {
                let (birth, death) = lives[ranks[from]];
                let rank = ranks[from];
                self.leaf[rank] = leaf;
                self.cells[leaf] = LifeCell { birth: (birth, birth), death: (death, death), rank };
                continue;
            }
            // The first half of the leaves is full unless there are fewer.
            let half = cells / 2;
            let middle = (from + half).min(to);
            if middle < to {
                let key = |&rank: &usize| if by_birth { lives[rank].0 } else { lives[rank].1 };
                ranks[from..to].select_nth_unstable_by_key(middle - from, key);
            }
            open.push((leaf, half, from, middle, !by_birth));
            open.push((leaf + half, half, middle, to, !by_birth));
        }
    }

    fn remove(&mut self, rank: usize) {
        let mut at = self.leaf[rank];
        self.cells[at].rank = NONE;
        while at > 1 {
            at /= 2;
            self.cells[at].rank = self.cells[2 * at].rank.min(self.cells[2 * at + 1].rank);
        }
    }

    /// The least rank of a life within `from..to`.
    fn first(&self, from: usize, to: usize) -> Option<usize> {
        let mut best = NONE;
        let mut open = vec![1];
        while let Some(at) = open.pop() {
            let cell = &self.cells[at];
            if cell.rank >= best || cell.birth.1 < from || cell.death.0 > to {
                continue;
            }
            if cell.birth.0 >= from && cell.death.1 <= to {
                best = cell.rank;
                continue;
            }
            let below = [2 * at, 2 * at + 1];
            let nearer = usize::from(self.cells[below[1]].rank < self.cells[below[0]].rank);
            open.extend([below[1 - nearer], below[nearer]]);
        }
        (best != NONE).then_some(best)
    }
}

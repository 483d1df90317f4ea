//! The state of the exact search: slots stacked from the bottom of the arena up.
//!
//! The floor of a section is the end of what is placed in it. The search looks at a valley, a run of
//! sections of equal floor between higher ones, and decides what rests on the floor at one end of it:
//! one of the slots that begin (or end) there and fit into the valley, or nothing, in which case the
//! floor of that section rises to the next height at which a slot could rest. What reaches out of a
//! valley comes to rest above its walls, so that the valley alone decides what can rest in it. Every
//! slot thus rests on another one, an alignment boundary or its fixed offset; some packing of least
//! peak has that form, since in any other a slot can sink.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cranelift_entity::EntityRef;
use smallvec::SmallVec;

use crate::instance::{Instance, Slot, SlotId, SlotPart, align_up};
use crate::shape::InstanceFacts;

/// Slots placed so far, and what is left.
pub(crate) struct Skyline<'a> {
    instance: &'a Instance,
    shape: &'a InstanceFacts,
    /// No slot may end above.
    capacity: i64,
    offsets: Vec<i64>,
    /// The lowest offset for further slots over all sections, in the order of time; neighbours differ.
    runs: Vec<FlatRun>,
    /// The end of the highest slot in each section, which may be below the floor.
    top: Vec<i64>,
    /// Sections whose top is below their floor.
    hollow: usize,
    /// Bytes that may yet be left empty in each section.
    spare: Vec<i64>,
    left: usize,
    /// The sections between the first and the last that the latest step changed.
    touched: (usize, usize),
    /// What to restore on the way back.
    trail: Vec<Change>,
    /// Runs that were replaced, in the order of the trail.
    replaced: Vec<FlatRun>,
    key: u128,
    /// Sections looked at; a slot counts for several.
    work: Cell<u64>,
}

/// Neighbouring sections with the same floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FlatRun {
    from: usize,
    to: usize,
    floor: i64,
}

/// The floor of sections that take no more slots.
const CLOSED: i64 = i64::MAX;
const UNPLACED: i64 = -1;

enum Change {
    /// A slot was put on the floor.
    Placed { id: SlotId, height: i64 },
    /// A slot was put on a section whose top was below its floor.
    Covered { section: usize, top: i64 },
    /// The floor of a section was raised by this much.
    Raised { section: usize, by: i64 },
    /// From the run `first` on, the `before` last of the replaced runs became `after` others.
    Runs { first: usize, before: usize, after: usize },
}

/// A choice to be made: what rests on the floor of one section.
#[derive(Clone, Debug)]
pub(crate) struct SectionChoice {
    pub(crate) section: usize,
    pub(crate) valley: Valley,
    /// Slots that can rest there.
    pub(crate) candidates: Vec<SlotId>,
    /// The floor if none does; `None` if that leaves too little room.
    pub(crate) raised: Option<i64>,
}

impl<'a> Skyline<'a> {
    /// Nothing placed.
    pub(crate) fn new(instance: &'a Instance, shape: &'a InstanceFacts, capacity: i64) -> Self {
        let count = instance.section_count;
        let mut spare = vec![capacity + shape.slack; count];
        let mut left = 0;
        let mut offsets = vec![UNPLACED; instance.slots.len()];
        for (id, slot) in instance.slots.iter() {
            if slot.parts.is_empty() {
                offsets[id.index()] = slot.fixed.unwrap_or(0);
                continue;
            }
            left += 1;
            for part in &slot.parts {
                let size = align_up(part.hi, shape.granule);
                spare[part.from..part.to].iter_mut().for_each(|spare| *spare -= size);
            }
        }
        let mut runs: SmallVec<[FlatRun; 8]> = SmallVec::new();
        for (section, &spare) in spare.iter().enumerate() {
            let floor = if spare == capacity + shape.slack { CLOSED } else { 0 };
            push_run(&mut runs, FlatRun { from: section, to: section + 1, floor });
        }
        Self {
            instance,
            shape,
            capacity,
            offsets,
            runs: runs.into_vec(),
            top: vec![0; count],
            hollow: 0,
            spare,
            left,
            touched: (0, count),
            trail: Vec::new(),
            replaced: Vec::new(),
            key: 0,
            work: Cell::new(0),
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// The offset of each slot. All have one when the state is complete.
    pub(crate) fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    /// Equal for states with the same slots placed, the same floors and the same tops; else different
    /// but for a chance below 2^-64.
    pub(crate) fn key(&self) -> u128 {
        self.key
    }

    /// About how many sections were looked at since the last call, and as much for slots as takes the
    /// same time.
    pub(crate) fn take_work(&self) -> u64 {
        self.work.take()
    }

    fn worked(&self, amount: usize) {
        self.work.set(self.work.get() + amount as u64);
    }

    /// A mark to come back to with [`Skyline::undo`].
    pub(crate) fn mark(&self) -> usize {
        self.trail.len()
    }

    /// The end of a valley that has the fewest choices; `None` if some valley has no choice left.
    /// There must be slots left.
    pub(crate) fn choice(&self) -> Option<SectionChoice> {
        self.worked(2 * self.runs.len());
        let lowest = self.runs.iter().map(|run| run.floor).min().unwrap_or(CLOSED);
        let mut best: Option<Edge> = None;
        let mut fewest = (usize::MAX, CLOSED);
        for (index, run) in self.runs.iter().enumerate() {
            let wall = |at: Option<&FlatRun>| at.map_or(CLOSED, |run| run.floor);
            let before = wall(index.checked_sub(1).and_then(|at| self.runs.get(at)));
            let walls = (before, wall(self.runs.get(index + 1)));
            // Slots of several parts reach into several valleys: only the lowest is sure to have all
            // that is below them placed.
            let eligible = !self.shape.broken || run.floor == lowest;
            if run.floor >= walls.0.min(walls.1) || !eligible {
                continue;
            }
            let valley = Valley { from: run.from, to: run.to, height: run.floor, walls };
            let near = run.from <= self.touched.1 && self.touched.0 <= run.to;
            if near && self.is_starved(&valley) {
                return None;
            }
            for at_start in [true, false] {
                let edge = Edge { valley: valley.clone(), at_start };
                let count = self.count(&edge);
                if count == 0 {
                    return None;
                }
                if (count, run.floor) < fewest {
                    fewest = (count, run.floor);
                    best = Some(edge);
                }
            }
        }
        best.map(|edge| self.choices(edge))
    }

    /// Whether some section of a valley cannot be filled up to the lower wall: what reaches out of
    /// the valley comes to rest above it.
    fn is_starved(&self, valley: &Valley) -> bool {
        let need = valley.walls.0.min(valley.walls.1);
        if need == CLOSED || self.shape.broken {
            return false;
        }
        let need = need - valley.height;
        self.worked(valley.to - valley.from);
        let mut ends: BinaryHeap<Reverse<(usize, i64)>> = BinaryHeap::new();
        let mut inside = 0;
        for section in valley.from..valley.to {
            while let Some(&Reverse((end, size))) = ends.peek()
                && end <= section
            {
                inside -= size;
                ends.pop();
            }
            let ids = self.shape.begins.of(section);
            self.worked(4 * ids.len());
            for &id in ids {
                let slot = &self.instance.slots[id];
                if self.offsets[id.index()] == UNPLACED && slot.death() <= valley.to {
                    let size = align_up(slot.extent, self.shape.granule);
                    inside += size;
                    ends.push(Reverse((slot.death(), size)));
                }
            }
            if inside + self.spare[section] < need {
                return true;
            }
        }
        false
    }

    /// About how many ways there are to go on at the edge of a valley; 0 only if there is none.
    fn count(&self, edge: &Edge) -> usize {
        let (section, ids) = self.edge(edge);
        self.worked(4 + 8 * ids.len());
        let resting = ids.iter().filter(|&&id| {
            self.offsets[id.index()] == UNPLACED
                && self.is_first_twin(id)
                && matches!(self.rest(id, &edge.valley), RestPosition::Here)
        });
        resting.count() + usize::from(self.spare[section] > 0)
    }

    /// The section at the edge of a valley, and the slots that begin or end there.
    fn edge(&self, edge: &Edge) -> (usize, &[SlotId]) {
        if edge.at_start {
            (edge.valley.from, self.shape.begins.of(edge.valley.from))
        } else {
            (edge.valley.to - 1, self.shape.ends.of(edge.valley.to - 1))
        }
    }

    fn choices(&self, edge: Edge) -> SectionChoice {
        let (section, ids) = self.edge(&edge);
        let valley = &edge.valley;
        let mut candidates: Vec<SlotId> = Vec::new();
        // The lowest height above at which a slot can rest on this section.
        let mut next = valley.walls.0.min(valley.walls.1);
        for &id in ids.iter().filter(|id| self.offsets[id.index()] == UNPLACED) {
            match self.rest(id, valley) {
                RestPosition::Here if self.is_first_twin(id) => candidates.push(id),
                RestPosition::From(offset) => next = next.min(offset),
                RestPosition::Here | RestPosition::Never => {}
            }
        }
        if self.spare[section] > 0 {
            next = next.min(self.least_support(section, valley));
        }
        let affordable = next != CLOSED && next - valley.height <= self.spare[section];
        SectionChoice {
            section,
            valley: edge.valley,
            candidates,
            raised: affordable.then_some(next),
        }
    }

    /// The least end of a slot, yet to be placed beside `section`, on which one over `section` could
    /// rest.
    fn least_support(&self, section: usize, valley: &Valley) -> i64 {
        // A slot of several parts may be held up by what is placed far away.
        let all = self.shape.broken;
        let reach = if all { 0..self.top.len() } else { valley.from..valley.to };
        let mut least = CLOSED;
        self.worked(reach.len());
        for beside in reach {
            let ids = self.shape.begins.of(beside);
            self.worked(4 * ids.len());
            for &id in ids {
                let slot = &self.instance.slots[id];
                let beside_only = slot.parts.iter().all(|p| section < p.from || p.to <= section);
                let near = all || slot.death() <= valley.to;
                if near && beside_only && self.offsets[id.index()] == UNPLACED {
                    let size = slot.parts.iter().map(|p| p.hi).min().unwrap_or(0);
                    let base = align_up(valley.height, slot.align);
                    let end = base + align_up(size, self.shape.granule);
                    least = least.min(end);
                }
            }
        }
        least
    }

    /// Where a slot that reaches the edge of a valley can rest on its floor.
    fn rest(&self, id: SlotId, valley: &Valley) -> RestPosition {
        let slot = &self.instance.slots[id];
        let height = valley.height;
        let floor_of = |p: &SlotPart| {
            let inside = valley.from <= p.from && p.to <= valley.to;
            if inside { height } else { self.greatest_floor(p.from, p.to) }
        };
        let floor = slot.parts.iter().map(floor_of).max().unwrap_or(height);
        let offset = match slot.fixed {
            Some(fixed) if fixed < floor => return RestPosition::Never,
            Some(fixed) => fixed,
            None => align_up(floor.min(self.capacity), slot.align),
        };
        if floor == CLOSED || offset + slot.extent > self.capacity {
            return RestPosition::Never;
        }
        if offset > height {
            return RestPosition::From(offset);
        }
        let sunk = self.hollow > 0 && slot.fixed.is_none() && self.can_sink(slot, height);
        if sunk || self.hits_fixed(id, height) { RestPosition::Never } else { RestPosition::Here }
    }

    fn greatest_floor(&self, from: usize, to: usize) -> i64 {
        let first = self.runs.partition_point(|run| run.to <= from);
        let runs = self.runs[first..].iter().take_while(|run| run.from < to);
        runs.map(|run| run.floor).max().unwrap_or(CLOSED)
    }

    /// Whether the tops leave room below. The packing with the slot lower is tried elsewhere.
    fn can_sink(&self, slot: &Slot, height: i64) -> bool {
        let mut tops = slot.parts.iter().flat_map(|p| &self.top[p.from..p.to]);
        tops.all(|&top| align_up(top, slot.align) < height)
    }

    fn hits_fixed(&self, id: SlotId, height: i64) -> bool {
        let slot = &self.instance.slots[id];
        self.shape.fixed.iter().any(|&other_id| {
            let other = &self.instance.slots[other_id];
            other_id != id
                && self.offsets[other_id.index()] == UNPLACED
                && other.fixed.is_some_and(|offset| offset < height + slot.extent)
                && other.meets(slot)
        })
    }

    /// Of slots that are alike, only the first that is left need be tried.
    fn is_first_twin(&self, id: SlotId) -> bool {
        self.shape.twin[id.index()].is_none_or(|before| self.offsets[before.index()] != UNPLACED)
    }

    /// Puts a candidate of a choice on the floor.
    pub(crate) fn place(&mut self, id: SlotId, height: i64) {
        let instance = self.instance;
        let slot = &instance.slots[id];
        self.offsets[id.index()] = height;
        self.left -= 1;
        self.trail.push(Change::Placed { id, height });
        self.key = self.key.wrapping_add(self.shape.slot_code[id.index()]);
        self.touched = (slot.birth(), slot.death());
        let mut runs: SmallVec<[FlatRun; 8]> = SmallVec::new();
        for part in &slot.parts {
            self.worked((part.to - part.from) / 2);
            let above = height + align_up(part.hi, self.shape.granule);
            runs.clear();
            for section in part.from..part.to {
                let top = std::mem::replace(&mut self.top[section], above);
                if top < height {
                    self.key = self.key.wrapping_sub(self.shape.hollow_code(section, height - top));
                    self.hollow -= 1;
                    self.trail.push(Change::Covered { section, top });
                }
                // What is not spare is full, placed or raised: nothing is left to come.
                let full = self.capacity + self.shape.slack - self.spare[section];
                let floor = if above == full { CLOSED } else { above };
                push_run(&mut runs, FlatRun { from: section, to: section + 1, floor });
            }
            self.replace_runs(&runs);
        }
    }

    /// Lifts the floor of a section that nothing rests on.
    pub(crate) fn raise(&mut self, section: usize, floor: i64) {
        let by = floor - self.greatest_floor(section, section + 1);
        if self.top[section] == floor - by {
            self.hollow += 1;
        }
        self.spare[section] -= by;
        self.key = self.key.wrapping_add(self.shape.raise_code(section, by));
        self.touched = (section, section + 1);
        self.trail.push(Change::Raised { section, by });
        self.replace_runs(&[FlatRun { from: section, to: section + 1, floor }]);
    }

    /// Replaces a part of a run by other runs.
    fn replace_runs(&mut self, new: &[FlatRun]) {
        let (Some(start), Some(end)) = (new.first(), new.last()) else { return };
        let first = self.runs.partition_point(|run| run.to <= start.from);
        let old = self.runs[first];
        let mut range = first..first + 1;
        let mut runs: SmallVec<[FlatRun; 8]> = SmallVec::new();
        if old.from < start.from {
            runs.push(FlatRun { to: start.from, ..old });
        } else if first > 0 {
            range.start -= 1;
            runs.push(self.runs[first - 1]);
        }
        for &run in new {
            push_run(&mut runs, run);
        }
        if end.to < old.to {
            push_run(&mut runs, FlatRun { from: end.to, ..old });
        } else if let Some(&after) = self.runs.get(first + 1) {
            range.end += 1;
            push_run(&mut runs, after);
        }
        let (first, before, after) = (range.start, range.len(), runs.len());
        self.trail.push(Change::Runs { first, before, after });
        self.replaced.extend(self.runs.splice(range, runs));
    }

    /// Returns to a mark.
    pub(crate) fn undo(&mut self, mark: usize) {
        while self.trail.len() > mark {
            match self.trail.pop() {
                Some(Change::Runs { first, before, after }) => {
                    let old = self.replaced.drain(self.replaced.len() - before..);
                    self.runs.splice(first..first + after, old);
                }
                Some(Change::Covered { section, top }) => {
                    self.top[section] = top;
                    self.hollow += 1;
                }
                Some(Change::Raised { section, by }) => {
                    self.spare[section] += by;
                    self.key = self.key.wrapping_sub(self.shape.raise_code(section, by));
                    if self.top[section] == self.greatest_floor(section, section + 1) {
                        self.hollow -= 1;
                    }
                }
                Some(Change::Placed { id, height }) => self.take_out(id, height),
                None => return,
            }
        }
    }

    fn take_out(&mut self, id: SlotId, height: i64) {
        let instance = self.instance;
        self.offsets[id.index()] = UNPLACED;
        self.left += 1;
        self.key = self.key.wrapping_sub(self.shape.slot_code[id.index()]);
        for section in instance.slots[id].parts.iter().flat_map(|p| p.from..p.to) {
            // A section that was covered has its lower top back already.
            let top = height.min(self.top[section]);
            self.top[section] = top;
            if top < height {
                self.key = self.key.wrapping_add(self.shape.hollow_code(section, height - top));
            }
        }
    }
}

/// A run of sections between higher ones.
#[derive(Clone, Debug)]
pub(crate) struct Valley {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Its floor.
    pub(crate) height: i64,
    /// The floors before and after; [`CLOSED`] at the ends of time and beside full sections.
    pub(crate) walls: (i64, i64),
}

/// The first or the last section of a valley.
struct Edge {
    valley: Valley,
    at_start: bool,
}

enum RestPosition {
    Here,
    /// At this offset or higher.
    From(i64),
    Never,
}

fn push_run<A: smallvec::Array<Item = FlatRun>>(runs: &mut SmallVec<A>, run: FlatRun) {
    match runs.last_mut() {
        Some(last) if last.floor == run.floor => last.to = run.to,
        _ => runs.push(run),
    }
}

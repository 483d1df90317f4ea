//! The state of the exact search: slots stacked from the bottom of the arena up.
//!
//! The floor of a section is the end of what is placed in it. The search always looks at a valley, a
//! run of sections with the lowest floor, and decides what rests on the floor at one end of it: one
//! of the slots that start (or end) there and fit into the valley, or nothing, in which case the
//! floor of that section rises to the next height at which a slot could rest. Slots are thus placed
//! by rising offset, each on the floor, an alignment boundary or its fixed offset; some packing of
//! least peak has that form, since in any other a slot can sink.

use cranelift_entity::EntityRef;

use crate::instance::{Instance, SlotId, align_up};

/// Slots placed so far, and what is left.
pub(crate) struct Skyline<'a> {
    instance: &'a Instance,
    shape: &'a Shape,
    /// No slot may end above.
    capacity: i64,
    offsets: Vec<i64>,
    /// The lowest offset for further slots in each section; [`CLOSED`] where none is left.
    floor: Vec<i64>,
    /// The end of the highest slot in each section, which may be below the floor.
    top: Vec<i64>,
    /// Bytes that may yet be left empty in each section.
    spare: Vec<i64>,
    left: usize,
    /// What to restore on the way back.
    trail: Vec<Change>,
    key: u128,
}

/// The floor of a section that takes no more slots.
const CLOSED: i64 = i64::MAX;
const UNPLACED: i64 = -1;

enum Change {
    /// A slot was put on the floor.
    Placed { id: SlotId, height: i64 },
    /// A slot was put on a section whose top was below its floor.
    Covered { section: usize, top: i64 },
    /// The floor of a section was raised.
    Raised { section: usize, floor: i64 },
}

/// A choice to be made: what rests on the floor of one section.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) section: usize,
    pub(crate) height: i64,
    /// The sections of the valley.
    pub(crate) valley: (usize, usize),
    /// Where the walls of the valley end; [`i64::MAX`] at the ends of time.
    pub(crate) walls: (i64, i64),
    /// Slots that can rest there.
    pub(crate) candidates: Vec<SlotId>,
    /// The floor if none does; `None` if that leaves too little room.
    pub(crate) raised: Option<i64>,
}

/// What does not change in a search: which slots begin and end where.
pub(crate) struct Shape {
    begins: Lists,
    ends: Lists,
    /// Sizes rounded up to what the slots above are aligned to anyway.
    granule: i64,
    /// At most this much of a section's topmost slot is rounding.
    slack: i64,
    /// The next slot that is like this one in all respects, for each slot.
    twin: Vec<Option<SlotId>>,
    fixed: Vec<SlotId>,
    /// Whether some slot has several parts.
    broken: bool,
    /// Random numbers that make up the keys of states.
    slot_code: Vec<u128>,
    section_code: Vec<[u128; 2]>,
}

impl Shape {
    /// `None` if the search cannot treat the instance: windows let slots interlock, and pairs that
    /// may be in place must be decided on first.
    pub(crate) fn of(instance: &Instance) -> Option<Self> {
        let windowed = instance.slots.values().any(|s| s.parts.iter().any(|p| p.lo != 0));
        if windowed || !instance.in_place.is_empty() {
            return None;
        }
        let used = || instance.slots.iter().filter(|(_, slot)| !slot.parts.is_empty());
        let granule = used().map(|(_, slot)| slot.align).min().unwrap_or(1);
        let slack = used().map(|(_, s)| align_up(s.extent, granule) - s.extent).max().unwrap_or(0);
        let parts = || used().flat_map(|(id, s)| s.parts.iter().map(move |p| (id, p)));
        let count = instance.section_count;
        Some(Self {
            begins: Lists::new(count, parts().map(|(id, p)| (p.from, id))),
            ends: Lists::new(count, parts().map(|(id, p)| (p.to - 1, id))),
            granule,
            slack,
            twin: twins(instance),
            fixed: used().filter(|(_, slot)| slot.fixed.is_some()).map(|(id, _)| id).collect(),
            broken: used().any(|(_, slot)| slot.parts.len() > 1),
            slot_code: (0..instance.slots.len()).map(|i| random(3 * i as u64)).collect(),
            section_code: (0..count as u64)
                .map(|i| [random(3 * i + 1) | 1, random(3 * i + 2) | 1])
                .collect(),
        })
    }

    /// Adds to the key of a state when a floor rises by `bytes` above its top.
    fn raise_code(&self, section: usize, bytes: i64) -> u128 {
        let [raised, hollow] = self.section_code[section];
        raised.wrapping_add(hollow).wrapping_mul(bytes.unsigned_abs().into())
    }

    /// What of that is taken back when a slot comes to rest above.
    fn hollow_code(&self, section: usize, bytes: i64) -> u128 {
        self.section_code[section][1].wrapping_mul(bytes.unsigned_abs().into())
    }
}

impl<'a> Skyline<'a> {
    /// Nothing placed.
    pub(crate) fn new(instance: &'a Instance, shape: &'a Shape, capacity: i64) -> Self {
        let mut spare = vec![capacity + shape.slack; instance.section_count];
        let mut floor = vec![CLOSED; instance.section_count];
        let mut left = 0;
        for slot in instance.slots.values().filter(|slot| !slot.parts.is_empty()) {
            left += 1;
            for part in &slot.parts {
                let size = align_up(part.hi, shape.granule);
                spare[part.from..part.to].iter_mut().for_each(|spare| *spare -= size);
                floor[part.from..part.to].fill(0);
            }
        }
        Self {
            instance,
            shape,
            capacity,
            offsets: vec![UNPLACED; instance.slots.len()],
            floor,
            top: vec![0; instance.section_count],
            spare,
            left,
            trail: Vec::new(),
            key: 0,
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// The offset of each slot. All have one when the state is complete, but for slots without parts.
    pub(crate) fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    /// Equal for states with the same slots placed, the same floors and the same tops; else different
    /// but for a chance below 2^-64.
    pub(crate) fn key(&self) -> u128 {
        self.key
    }

    /// A mark to come back to with [`Skyline::undo`].
    pub(crate) fn mark(&self) -> usize {
        self.trail.len()
    }

    /// The end of the lowest valley that has the fewest choices. There must be slots left.
    pub(crate) fn choice(&self) -> Choice {
        let height = self.floor.iter().copied().min().unwrap_or(CLOSED);
        let from = self.floor.iter().position(|&floor| floor == height).unwrap_or(0);
        let to = from + self.floor[from..].iter().take_while(|&&floor| floor == height).count();
        let left = self.choice_at(from, (from, to), height, &self.shape.begins);
        if left.branches() <= 1 {
            return left;
        }
        let right = self.choice_at(to - 1, (from, to), height, &self.shape.ends);
        if right.branches() < left.branches() { right } else { left }
    }

    fn choice_at(
        &self,
        section: usize,
        valley: (usize, usize),
        height: i64,
        at_edge: &Lists,
    ) -> Choice {
        let wall = |at: Option<usize>| at.and_then(|at| self.floor.get(at)).copied();
        let walls = (
            wall(valley.0.checked_sub(1)).unwrap_or(CLOSED),
            wall(Some(valley.1)).unwrap_or(CLOSED),
        );
        let mut candidates: Vec<SlotId> = Vec::new();
        // The lowest height above at which a slot can rest on this section.
        let mut next = walls.0.min(walls.1);
        for &id in at_edge.of(section) {
            if self.offsets[id.index()] != UNPLACED {
                continue;
            }
            match self.rest(id, valley, height) {
                Rest::Here => candidates.push(id),
                Rest::From(offset) => next = next.min(offset),
                Rest::Never => {}
            }
        }
        if next - height > 0 && self.spare[section] > 0 {
            next = next.min(self.least_support(section, valley, height));
        }
        candidates.retain(|&id| self.is_first_twin(id));
        let raised = (next != CLOSED && next - height <= self.spare[section]).then_some(next);
        Choice { section, height, valley, walls, candidates, raised }
    }

    /// The least end of a slot, yet to be placed beside `section`, on which one over `section` could
    /// rest.
    fn least_support(&self, section: usize, valley: (usize, usize), height: i64) -> i64 {
        // A slot of several parts may be held up by what is placed far away.
        let all = self.shape.broken;
        let reach = if all { 0..self.floor.len() } else { valley.0..valley.1 };
        let mut least = CLOSED;
        for beside in reach {
            for &id in self.shape.begins.of(beside) {
                let slot = &self.instance.slots[id];
                let beside_only = slot.parts.iter().all(|p| section < p.from || p.to <= section);
                let near = all || slot.death() <= valley.1;
                if near && beside_only && self.offsets[id.index()] == UNPLACED {
                    let size = slot.parts.iter().map(|p| p.hi).min().unwrap_or(0);
                    let end = align_up(height, slot.align) + align_up(size, self.shape.granule);
                    least = least.min(end);
                }
            }
        }
        least
    }

    /// Where a slot that reaches the end of a valley can rest on its floor.
    fn rest(&self, id: SlotId, valley: (usize, usize), height: i64) -> Rest {
        let slot = &self.instance.slots[id];
        let inside = |from: usize, to: usize| valley.0 <= from && to <= valley.1;
        let floor_of = |from: usize, to: usize| {
            if inside(from, to) { height } else { greatest(&self.floor[from..to]) }
        };
        let floor = slot.parts.iter().map(|p| floor_of(p.from, p.to)).max().unwrap_or(height);
        let offset = match slot.fixed {
            Some(fixed) if fixed < floor => return Rest::Never,
            Some(fixed) => fixed,
            None => align_up(floor, slot.align),
        };
        if offset + slot.extent > self.capacity {
            return Rest::Never;
        }
        if offset > height {
            return Rest::From(offset);
        }
        // If the tops leave room to sink, the same packing with this slot lower is tried elsewhere.
        let top = slot.parts.iter().map(|p| greatest(&self.top[p.from..p.to])).max().unwrap_or(0);
        let sunk = slot.fixed.is_none() && align_up(top, slot.align) < height;
        if sunk || self.hits_fixed(id, height) { Rest::Never } else { Rest::Here }
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
        self.offsets[id.index()] = height;
        self.left -= 1;
        self.trail.push(Change::Placed { id, height });
        self.key = self.key.wrapping_add(self.shape.slot_code[id.index()]);
        let instance = self.instance;
        for part in &instance.slots[id].parts {
            let size = align_up(part.hi, self.shape.granule);
            for section in part.from..part.to {
                let top = std::mem::replace(&mut self.top[section], height + size);
                if top < height {
                    self.key = self.key.wrapping_sub(self.shape.hollow_code(section, height - top));
                    self.trail.push(Change::Covered { section, top });
                }
                // What is not spare is full, placed or raised: nothing is left to come.
                let full = self.capacity + self.shape.slack - self.spare[section];
                self.floor[section] = if height + size == full { CLOSED } else { height + size };
            }
        }
    }

    /// Lifts the floor of a section that nothing rests on.
    pub(crate) fn raise(&mut self, section: usize, floor: i64) {
        let before = std::mem::replace(&mut self.floor[section], floor);
        self.spare[section] -= floor - before;
        let code = self.shape.raise_code(section, floor - before);
        self.key = self.key.wrapping_add(code);
        self.trail.push(Change::Raised { section, floor: before });
    }

    /// Returns to a mark.
    pub(crate) fn undo(&mut self, mark: usize) {
        let instance = self.instance;
        while self.trail.len() > mark {
            match self.trail.pop() {
                Some(Change::Placed { id, height }) => {
                    self.offsets[id.index()] = UNPLACED;
                    self.left += 1;
                    self.key = self.key.wrapping_sub(self.shape.slot_code[id.index()]);
                    for part in &instance.slots[id].parts {
                        self.floor[part.from..part.to].fill(height);
                        for section in part.from..part.to {
                            // A section that was covered has its lower top back already.
                            let top = height.min(self.top[section]);
                            self.top[section] = top;
                            if top < height {
                                let code = self.shape.hollow_code(section, height - top);
                                self.key = self.key.wrapping_add(code);
                            }
                        }
                    }
                }
                Some(Change::Covered { section, top }) => self.top[section] = top,
                Some(Change::Raised { section, floor }) => {
                    let raised = std::mem::replace(&mut self.floor[section], floor);
                    self.spare[section] += raised - floor;
                    let code = self.shape.raise_code(section, raised - floor);
                    self.key = self.key.wrapping_sub(code);
                }
                None => return,
            }
        }
    }
}

impl Choice {
    /// The number of ways to go on.
    pub(crate) fn branches(&self) -> usize {
        self.candidates.len() + usize::from(self.raised.is_some())
    }
}

enum Rest {
    Here,
    /// At this offset or higher.
    From(i64),
    Never,
}

/// Slots listed by section.
struct Lists {
    starts: Vec<usize>,
    ids: Vec<SlotId>,
}

impl Lists {
    fn new(sections: usize, entries: impl Iterator<Item = (usize, SlotId)>) -> Self {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable();
        let starts =
            (0..=sections).map(|s| entries.partition_point(|&(section, _)| section < s)).collect();
        Self { starts, ids: entries.into_iter().map(|(_, id)| id).collect() }
    }

    fn of(&self, section: usize) -> &[SlotId] {
        &self.ids[self.starts[section]..self.starts[section + 1]]
    }
}

/// For each slot the one before it that has the same parts, size and alignment, and no fixed offset.
fn twins(instance: &Instance) -> Vec<Option<SlotId>> {
    let mut ids: Vec<SlotId> = instance.slots.keys().collect();
    let like = |id: SlotId| {
        let slot = &instance.slots[id];
        let parts: Vec<_> = slot.parts.iter().map(|p| (p.from, p.to, p.hi)).collect();
        (parts, slot.extent, slot.align, slot.fixed)
    };
    ids.sort_by_cached_key(|&id| (like(id), id));
    let mut twin = vec![None; ids.len()];
    for pair in ids.windows(2) {
        if instance.slots[pair[0]].fixed.is_none() && like(pair[0]) == like(pair[1]) {
            twin[pair[1].index()] = Some(pair[0]);
        }
    }
    twin
}

fn greatest(values: &[i64]) -> i64 {
    values.iter().copied().max().unwrap_or(0)
}

/// The `index`th of a sequence of random numbers, by SplitMix64.
fn random(index: u64) -> u128 {
    let word = |index: u64| {
        let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    u128::from(word(2 * index)) << 64 | u128::from(word(2 * index + 1))
}

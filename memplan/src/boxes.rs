//! Joins slots that fit together exactly: stacked over the same time, consecutive in time with the same size, or five
//! around each other as a pinwheel. What is joined wastes nothing, so the joined instance is smaller and has the same load. Its minimum peak may be
//! higher, so it is one method among others.

use std::collections::BTreeMap;

use smallvec::smallvec;

use crate::instance::{Instance, Slot, SlotId, SlotPart, align_up};
use crate::joined::Joined;
use crate::limit::Limit;
use crate::scatter::scatter;

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoxEffort {
    /// Join in time only.
    Chains,
    /// Stack two only if what results can then be joined in time.
    Matching,
    /// Stack whatever has the same life.
    All,
    /// The same, and join pinwheels before that.
    Wheels,
}

/// Joins what can be joined, as far as there is time. Where several can be joined to one, `seed` decides;
/// 0 takes the first.
pub(crate) fn boxed(
    instance: &Instance,
    box_effort: BoxEffort,
    seed: u64,
    limit: &mut Limit,
) -> Joined {
    let mut box_set = BoxSet::new(instance, seed);
    box_set.chain(limit);
    if box_effort != BoxEffort::Chains {
        while limit.look(box_set.boxes.len() * BOX) {
            let before = box_set.boxes.len();
            let joins = box_set.stack_matching()
                || box_effort == BoxEffort::Wheels && box_set.wheel()
                || box_effort != BoxEffort::Matching && box_set.stack_shortest();
            if !joins {
                break;
            }
            box_set.chain(limit);
            // Of many boxes a few joins are not worth the time that each pass over them takes.
            if (before - box_set.boxes.len()) * LEAST_PART < before && before > FEW {
                break;
            }
        }
    }
    box_set.finish(instance)
}

/// The cost of a box, counted in places of a placement.
const BOX: usize = 64;

/// Among more boxes than this a pass that joins less than one in `LEAST_PART` is the last.
const FEW: usize = 1 << 14;
const LEAST_PART: usize = 1024;

/// Among more boxes than this a pass stacks boxes of several lengths of life.
const MANY: usize = 1 << 11;

/// Of boxes with equal lives each is compared with this many others.
const MOST_COMPARED: usize = 64;

/// Boxes under construction.
struct BoxSet {
    boxes: Vec<SlotBox>,
}

/// A box: slots at offsets relative to its own.
#[derive(Clone)]
struct SlotBox {
    /// The size rounded up to what all slots are aligned to: that much is taken up anyway.
    size: i64,
    slot: Slot,
    members: Vec<(SlotId, i64)>,
    /// Of a plain shape, so that it can be joined.
    plain: bool,
}

/// Boxes by when they begin, and by their size.
type BoxesBySize = BTreeMap<(usize, i64), Vec<usize>>;

impl SlotBox {
    fn life(&self) -> (usize, usize) {
        (self.slot.birth(), self.slot.death())
    }
}

impl BoxSet {
    fn new(instance: &Instance, seed: u64) -> Self {
        let granule = instance.slots.values().map(|slot| slot.align).min().unwrap_or(1);
        let mut boxes: Vec<SlotBox> = instance
            .slots
            .iter()
            .map(|(id, slot)| SlotBox {
                size: align_up(slot.extent, granule),
                slot: slot.clone(),
                members: vec![(id, 0)],
                plain: slot.fixed.is_none()
                    && matches!(slot.parts[..], [part] if part.lo == 0 && part.hi == slot.extent),
            })
            .collect();
        if seed != 0 {
            boxes.sort_by_cached_key(|item| scatter(seed, item.members[0].0.as_u32().into()));
        }
        Self { boxes }
    }

    /// Joins boxes of equal size of which one is born when the other dies, until there are none.
    fn chain(&mut self, limit: &mut Limit) {
        while limit.look(self.boxes.len() * BOX) {
            let mut born: BTreeMap<(usize, i64, i64), Vec<usize>> = BTreeMap::new();
            for (index, item) in self.boxes.iter().enumerate().filter(|(_, item)| item.plain) {
                let key = (item.life().0, item.size, item.slot.align);
                born.entry(key).or_default().push(index);
            }
            let mut taken = vec![false; self.boxes.len()];
            let mut joins = Vec::new();
            for (index, item) in self.boxes.iter().enumerate().filter(|(_, item)| item.plain) {
                let key = (item.life().1, item.size, item.slot.align);
                let next = born.get_mut(&key).and_then(|list| {
                    list.retain(|&other| !taken[other]);
                    list.first().copied()
                });
                if let Some(next) = next
                    && !taken[index]
                {
                    (taken[index], taken[next]) = (true, true);
                    joins.push((index, next));
                }
            }
            if joins.is_empty() {
                return;
            }
            self.join(&joins, false);
        }
    }

    /// Stacks the first pair found whose total matches a box that is born when the pair dies, or dies
    /// when it is born.
    fn stack_matching(&mut self) -> bool {
        let mut born: BTreeMap<(usize, i64), ()> = BTreeMap::new();
        let mut dying: BTreeMap<(usize, i64), ()> = BTreeMap::new();
        for item in self.boxes.iter().filter(|item| item.plain) {
            born.insert((item.life().0, item.size), ());
            dying.insert((item.life().1, item.size), ());
        }
        let mut joins = Vec::new();
        let mut taken = vec![false; self.boxes.len()];
        for group in self.by_life() {
            for (i, &a) in group.iter().enumerate() {
                for &b in group[i + 1..].iter().take(MOST_COMPARED) {
                    let (from, to) = self.boxes[a].life();
                    let sum = self.boxes[a].size + self.boxes[b].size;
                    let matches = born.contains_key(&(to, sum)) || dying.contains_key(&(from, sum));
                    if matches && !taken[a] && !taken[b] && self.stackable(a, b) {
                        (taken[a], taken[b]) = (true, true);
                        joins.push((a, b));
                    }
                }
            }
        }
        self.join(&joins, true);
        !joins.is_empty()
    }

    /// Stacks boxes two by two that have equal lives, of the shortest length there is; of many boxes those of up to twice that length, since each pass
    /// looks at all boxes.
    fn stack_shortest(&mut self) -> bool {
        let groups = self.by_life();
        let longest =
            |shortest: usize| if self.boxes.len() > MANY { 2 * shortest } else { shortest };
        let length = |group: &[usize]| {
            let (from, to) = self.boxes[group[0]].life();
            to - from
        };
        let mut found: Vec<(usize, Vec<(usize, usize)>)> = Vec::new();
        let mut shortest = usize::MAX / 2;
        for group in &groups {
            if group.len() < 2 || length(group) > longest(shortest) {
                continue;
            }
            let pairs = group.chunks_exact(2).map(|pair| (pair[0], pair[1]));
            let pairs: Vec<_> = pairs.filter(|&(a, b)| self.stackable(a, b)).collect();
            if !pairs.is_empty() {
                shortest = shortest.min(length(group));
                found.push((length(group), pairs));
            }
        }
        let most = longest(shortest);
        let short = found.into_iter().filter(|&(length, _)| length <= most);
        let joins: Vec<(usize, usize)> = short.flat_map(|(_, pairs)| pairs).collect();
        self.join(&joins, true);
        !joins.is_empty()
    }

    /// Joins five boxes as a pinwheel wherever five fit: in time the first pair begins together, the second pair ends together, and the box in the middle
    /// begins where one of the first pair ends and ends where the other does.
    ///
    /// ```text
    ///   left  | top top top
    ///   left  | middle | right
    ///   bottom  bottom | right
    /// ```
    fn wheel(&mut self) -> bool {
        let mut born = BoxesBySize::new();
        let mut dying: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, item) in self.boxes.iter().enumerate().filter(|(_, item)| item.plain) {
            born.entry((item.life().0, item.size)).or_default().push(index);
            dying.entry(item.life().1).or_default().push(index);
        }
        let mut taken = vec![false; self.boxes.len()];
        let mut wheels: Vec<[usize; 5]> = Vec::new();
        for middle in 0..self.boxes.len() {
            if !self.boxes[middle].plain || taken[middle] {
                continue;
            }
            if let Some(wheel) = self.wheel_around(middle, (&born, &dying), &taken) {
                wheel.iter().for_each(|&index| taken[index] = true);
                wheels.push(wheel);
            }
        }
        let found = !wheels.is_empty();
        self.join_wheels(&wheels);
        found
    }

    /// Bottom, right, top, left and the middle itself.
    fn wheel_around(
        &self,
        middle: usize,
        (born, dying): (&BoxesBySize, &BTreeMap<usize, Vec<usize>>),
        taken: &[bool],
    ) -> Option<[usize; 5]> {
        let boxes = &self.boxes;
        let (from, to) = boxes[middle].life();
        let size = boxes[middle].size;
        let free = |list: Option<&Vec<usize>>| -> Vec<usize> {
            let all = list.into_iter().flatten().copied();
            all.filter(|&k| !taken[k] && k != middle).take(MOST_COMPARED).collect()
        };
        let bottoms = free(dying.get(&to));
        for left in free(dying.get(&from)) {
            for top in free(born.get(&(from, boxes[left].size - size))) {
                for &bottom in &bottoms {
                    if boxes[bottom].life().0 != boxes[left].life().0 {
                        continue;
                    }
                    let rights = free(born.get(&(to, boxes[bottom].size + size)));
                    let right = rights.into_iter().find(|&right| {
                        boxes[right].life().1 == boxes[top].life().1
                            && self.is_aligned([bottom, right, top, left, middle])
                    });
                    if let Some(right) = right {
                        return Some([bottom, right, top, left, middle]);
                    }
                }
            }
        }
        None
    }

    /// Whether each box of a pinwheel is aligned where it starts.
    fn is_aligned(&self, [bottom, right, top, left, middle]: [usize; 5]) -> bool {
        let boxes = &self.boxes;
        let fits = |start: i64, index: usize| start % boxes[index].slot.align == 0;
        fits(boxes[bottom].size, left)
            && fits(boxes[bottom].size, middle)
            && fits(boxes[right].size, top)
    }

    fn join_wheels(&mut self, wheels: &[[usize; 5]]) {
        let mut gone = vec![false; self.boxes.len()];
        for &[bottom, right, top, left, middle] in wheels {
            let (low, high) = (self.boxes[bottom].size, self.boxes[right].size);
            let starts = [(right, 0), (top, high), (left, low), (middle, low)];
            let mut whole = self.boxes[bottom].clone();
            for (index, start) in starts {
                let item = &self.boxes[index];
                whole.members.extend(item.members.iter().map(|&(id, at)| (id, at + start)));
                whole.slot.extent = whole.slot.extent.max(start + item.slot.extent);
                whole.slot.align = whole.slot.align.max(item.slot.align);
                whole.slot.lifetime = whole.slot.lifetime.max(item.slot.lifetime);
                gone[index] = true;
            }
            whole.size = low + self.boxes[left].size;
            let (from, to) = (self.boxes[bottom].life().0, self.boxes[top].life().1);
            whole.slot.parts = smallvec![SlotPart { from, to, lo: 0, hi: whole.slot.extent }];
            self.boxes[bottom] = whole;
        }
        let mut gone = gone.into_iter();
        self.boxes.retain(|_| !gone.next().unwrap_or(false));
    }

    /// Boxes with equal lives, the most aligned first.
    fn by_life(&self) -> Vec<Vec<usize>> {
        let mut groups: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for (index, item) in self.boxes.iter().enumerate().filter(|(_, item)| item.plain) {
            groups.entry(item.life()).or_default().push(index);
        }
        for group in groups.values_mut() {
            group.sort_by_key(|&index| (std::cmp::Reverse(self.boxes[index].slot.align), index));
        }
        groups.into_values().collect()
    }

    /// Whether `b` is aligned without padding where it starts at the end of `a`.
    fn stackable(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.boxes[a], &self.boxes[b]);
        a.slot.align >= b.slot.align && a.size % b.slot.align == 0
    }

    fn join(&mut self, pairs: &[(usize, usize)], stacked: bool) {
        let mut gone = vec![false; self.boxes.len()];
        for &(a, b) in pairs {
            gone[b] = true;
            let upper = self.boxes[b].clone();
            let lower = &mut self.boxes[a];
            let start = if stacked { lower.size } else { 0 };
            lower.members.extend(upper.members.iter().map(|&(id, at)| (id, at + start)));
            let (from, to) = (lower.slot.birth(), upper.slot.death());
            let end = lower.slot.extent.max(start + upper.slot.extent);
            lower.size = start + upper.size;
            lower.slot.extent = end;
            lower.slot.parts = smallvec![SlotPart { from, to, lo: 0, hi: end }];
            if !stacked {
                lower.slot.lifetime = lower.slot.lifetime.saturating_add(upper.slot.lifetime);
            }
        }
        let mut gone = gone.into_iter();
        self.boxes.retain(|_| !gone.next().unwrap_or(false));
    }

    fn finish(self, instance: &Instance) -> Joined {
        Joined::of_boxes(instance, self.boxes.into_iter().map(|item| (item.slot, item.members)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cranelift_entity::PrimaryMap;

    /// Each pass looks at all boxes: where every pair has a length of its own, one pass a length would take time by the square.
    #[test]
    fn many_boxes_of_many_lengths_are_stacked_in_few_passes() {
        let passes = |pairs: usize| {
            let mut slots = PrimaryMap::new();
            for k in 0..2 * pairs {
                let to = 1 + k / 2;
                slots.push(Slot {
                    parts: smallvec![SlotPart { from: 0, to, lo: 0, hi: 8 }],
                    extent: 8,
                    align: 1,
                    fixed: None,
                    floor: 0,
                    lifetime: to as u64,
                });
            }
            let instance = Instance { slots, section_count: pairs, ..Instance::default() };
            let mut set = BoxSet::new(&instance, 0);
            let passes = std::iter::from_fn(|| set.stack_shortest().then_some(())).count();
            assert_eq!(set.boxes.len(), pairs);
            passes
        };
        // Of few boxes the shortest come first, one length after the other.
        assert_eq!(passes(100), 100);
        assert!(passes(2 * MANY) < 20 + MANY, "{}", passes(2 * MANY));
    }
}

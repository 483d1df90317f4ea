//! Joins slots that nearly fit together, the least waste first.
//!
//! [`boxed`](crate::boxes::boxed) joins what fits exactly, and ends where a buffer is missing that would make it fit. Here what is left is joined
//! with padding: a slot is followed by a smaller or larger one, or by one of its size after a while, or it is stacked with one that lives longer. A
//! join is made where the bytes that it wastes are free at the wanted peak.

use std::collections::BTreeSet;

use cranelift_entity::EntityRef;
use smallvec::smallvec;

use crate::free_bytes::FreeBytes;
use crate::instance::{Instance, Slot, SlotId, SlotPart, align_up};
use crate::joined::Joined;
use crate::limit::Limit;

/// The most slots that are joined so: of more the exact search packs nothing.
pub(crate) const MOST_PADDED: usize = 1 << 13;

/// Joins the slots of an instance as far as a peak of `goal` leaves room; `None` where more than that is live at some moment.
pub(crate) fn padded(instance: &Instance, goal: i64, limit: &mut Limit) -> Option<Joined> {
    let mut set = PaddedBoxSet::new(instance, goal)?;
    while limit.look(set.boxes.len() * BOX) && set.join_some() {}
    Some(set.finish(instance))
}

/// The cost of a box in a pass, counted in places of a placement.
const BOX: usize = 64;

/// A pass makes joins that waste up to this many times the least.
const NEXT: i128 = 2;

/// Which boxes begin and end when.
struct BoxNeighbours {
    begun: BoxLists,
    ended: BoxLists,
    /// Boxes that begin where none ends: size, birth and index, in order.
    alone: Vec<(i64, usize, usize)>,
}

impl BoxNeighbours {
    fn of(set: &PaddedBoxSet) -> Self {
        let sections = set.section_count + 1;
        let plain = || set.boxes.iter().enumerate().filter(|(_, item)| item.plain);
        let begun = BoxLists::new(sections, plain().map(|(index, item)| (item.from, index)));
        let ended = BoxLists::new(sections, plain().map(|(index, item)| (item.to, index)));
        let alone = plain().filter(|(_, item)| ended.of(item.from).is_empty());
        let mut alone: Vec<_> = alone.map(|(index, item)| (item.size, item.from, index)).collect();
        alone.sort_unstable();
        Self { begun, ended, alone }
    }

    /// The first box of a size that begins in a section or later, where none ends.
    fn next(&self, size: i64, section: usize) -> Option<usize> {
        let at = self.alone.partition_point(|&(s, from, _)| (s, from) < (size, section));
        self.alone.get(at).filter(|&&(s, ..)| s == size).map(|&(.., index)| index)
    }
}

/// Boxes listed by section.
struct BoxLists {
    starts: Vec<usize>,
    indices: Vec<usize>,
}

impl BoxLists {
    fn new(sections: usize, entries: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable();
        let mut starts = vec![0; sections + 1];
        for &(section, _) in &entries {
            starts[section + 1] += 1;
        }
        for section in 0..sections {
            starts[section + 1] += starts[section];
        }
        Self { starts, indices: entries.into_iter().map(|(_, index)| index).collect() }
    }

    fn of(&self, section: usize) -> &[usize] {
        &self.indices[self.starts[section]..self.starts[section + 1]]
    }
}

struct PaddedBoxSet {
    boxes: Vec<PaddedBox>,
    /// Bytes that are free in each section at the wanted peak.
    free: FreeBytes,
    section_count: usize,
    /// Joins for which too little was free, by the numbers of their boxes: less is free later.
    refused: BTreeSet<(usize, usize)>,
    /// The number of the next box.
    next: usize,
}

#[derive(Clone)]
struct PaddedBox {
    number: usize,
    slot: Slot,
    from: usize,
    to: usize,
    /// The size with what alignment takes up.
    size: i64,
    members: Vec<(SlotId, i64)>,
    /// Of a plain shape, so that it can be joined.
    plain: bool,
}

/// How two boxes become one. The order is that of preference among joins that waste the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum JoinKind {
    /// The second one follows the first.
    Followed,
    /// The second one is above the first.
    Stacked,
}

/// Two boxes that may become one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PaddedJoin {
    /// Whether no neighbour says that the two belong together.
    guessed: bool,
    /// Bytes times sections.
    waste: i128,
    kind: JoinKind,
    first: usize,
    second: usize,
}

impl PaddedBoxSet {
    fn new(instance: &Instance, goal: i64) -> Option<Self> {
        let granule = instance.slots.values().map(|slot| slot.align).min().unwrap_or(1);
        let boxes: Vec<PaddedBox> = instance
            .slots
            .iter()
            .map(|(id, slot)| PaddedBox {
                number: id.index(),
                slot: slot.clone(),
                from: slot.birth(),
                to: slot.death(),
                size: align_up(slot.extent, granule),
                members: vec![(id, 0)],
                plain: slot.fixed.is_none()
                    && matches!(slot.parts[..], [part] if part.lo == 0 && part.hi == slot.extent),
            })
            .collect();
        let mut free = vec![0; instance.section_count + 1];
        for item in &boxes {
            free[item.from] -= item.size;
            free[item.to] += item.size;
        }
        free.pop();
        let mut sum = goal;
        for bytes in &mut free {
            sum += *bytes;
            *bytes = sum;
        }
        let next = boxes.len();
        let fits = free.iter().all(|&bytes| bytes >= 0);
        fits.then(|| Self {
            boxes,
            free: FreeBytes::new(&free),
            section_count: instance.section_count,
            refused: BTreeSet::new(),
            next,
        })
    }

    /// Makes the joins that waste least; whether there was one.
    fn join_some(&mut self) -> bool {
        let mut joins = self.candidates();
        joins.sort_unstable();
        let mut taken = vec![false; self.boxes.len()];
        let mut gone = vec![false; self.boxes.len()];
        let mut most = i128::MAX;
        let mut certain = false;
        for join in joins {
            if join.guessed && (certain || join.waste > most) {
                break;
            }
            if !taken[join.first] && !taken[join.second] && self.join(join) {
                (taken[join.first], taken[join.second]) = (true, true);
                gone[join.second] = true;
                certain |= !join.guessed;
                most = most.min(NEXT * join.waste);
            }
        }
        let mut each = gone.iter();
        self.boxes.retain(|_| !each.next().is_some_and(|&gone| gone));
        gone.contains(&true)
    }

    fn candidates(&self) -> Vec<PaddedJoin> {
        let around = BoxNeighbours::of(self);
        let mut joins = Vec::new();
        for section in 0..=self.section_count {
            let (ended, begun) = (around.ended.of(section), around.begun.of(section));
            match (ended, begun) {
                (&[first], &[second]) => joins.push(self.followed(first, second)),
                (ended, []) => {
                    for &index in ended {
                        let next = around.next(self.boxes[index].size, section);
                        joins.extend(next.map(|next| self.followed(index, next)));
                        let mates = around.begun.of(self.boxes[index].from).iter().copied();
                        let longer = mates.filter(|&other| self.boxes[other].to > section);
                        joins.extend(longer.filter_map(|m| self.stacked(&around, m, index)).min());
                    }
                }
                ([], begun) => {
                    for &index in begun {
                        let mates = around.ended.of(self.boxes[index].to).iter().copied();
                        let longer = mates.filter(|&other| self.boxes[other].from < section);
                        joins.extend(longer.filter_map(|m| self.stacked(&around, m, index)).min());
                    }
                }
                _ => {}
            }
            let mut by_end: Vec<(usize, usize)> =
                begun.iter().map(|&index| (self.boxes[index].to, index)).collect();
            by_end.sort_unstable();
            let equal = by_end.windows(2).filter(|pair| pair[0].0 == pair[1].0);
            joins.extend(equal.filter_map(|pair| self.stacked(&around, pair[0].1, pair[1].1)));
        }
        joins
    }

    fn followed(&self, first: usize, second: usize) -> PaddedJoin {
        let (a, b) = (&self.boxes[first], &self.boxes[second]);
        let area = |bytes: i64, sections: usize| i128::from(bytes) * sections as i128;
        let size = a.size.max(b.size);
        let waste = area(size - a.size, a.to - a.from)
            + area(size - b.size, b.to - b.from)
            + area(size, b.from - a.to);
        PaddedJoin { guessed: a.size != b.size, waste, kind: JoinKind::Followed, first, second }
    }

    /// `None` where neither is aligned above the other.
    fn stacked(&self, around: &BoxNeighbours, a: usize, b: usize) -> Option<PaddedJoin> {
        let fits = |&(lower, upper): &(usize, usize)| {
            let (lower, upper) = (&self.boxes[lower], &self.boxes[upper]);
            lower.slot.align >= upper.slot.align && lower.size % upper.slot.align == 0
        };
        let (first, second) = [(a, b), (b, a)].into_iter().find(fits)?;
        let (a, b) = (&self.boxes[first], &self.boxes[second]);
        let (from, to, size) = (a.from.min(b.from), a.to.max(b.to), a.size + b.size);
        let beside =
            |item: &PaddedBox| i128::from(item.size) * (to - from - (item.to - item.from)) as i128;
        let waste = beside(a) + beside(b);
        let equals = |list: &[usize]| list.iter().any(|&other| self.boxes[other].size == size);
        let guessed = waste > 0 && !equals(around.ended.of(from)) && !equals(around.begun.of(to));
        Some(PaddedJoin { guessed, waste, kind: JoinKind::Stacked, first, second })
    }

    /// Joins two boxes where what it wastes is free; whether it was.
    fn join(&mut self, join: PaddedJoin) -> bool {
        let (a, b) = (&self.boxes[join.first], &self.boxes[join.second]);
        let (from, to) = (a.from.min(b.from), a.to.max(b.to));
        let start = if join.kind == JoinKind::Stacked { a.size } else { 0 };
        let size = a.size.max(start + b.size);
        let pair = (a.number, b.number);
        if self.refused.contains(&pair) {
            return false;
        }
        // Between these nothing changes in what either box takes.
        let mut cuts = [a.from, a.to, b.from, b.to];
        cuts.sort_unstable();
        let taken = [0, 1, 2].map(|k| {
            let bytes = |item: &PaddedBox| {
                if item.from <= cuts[k] && cuts[k] < item.to { item.size } else { 0 }
            };
            (cuts[k], cuts[k + 1], size - bytes(a) - bytes(b))
        });
        if taken.iter().any(|&(from, to, bytes)| from < to && self.free.least(from, to) < bytes) {
            self.refused.insert(pair);
            return false;
        }
        taken.iter().for_each(|&(from, to, bytes)| self.free.take(from, to, bytes));
        let upper = self.boxes[join.second].clone();
        let lower = &mut self.boxes[join.first];
        lower.members.extend(upper.members.iter().map(|&(id, at)| (id, at + start)));
        let extent = lower.slot.extent.max(start + upper.slot.extent);
        (lower.from, lower.to, lower.size) = (from, to, size);
        lower.number = self.next;
        self.next += 1;
        lower.slot.extent = extent;
        lower.slot.align = lower.slot.align.max(upper.slot.align);
        lower.slot.lifetime = lower.slot.lifetime.saturating_add(upper.slot.lifetime);
        lower.slot.parts = smallvec![SlotPart { from, to, lo: 0, hi: extent }];
        true
    }

    fn finish(self, instance: &Instance) -> Joined {
        Joined::of_boxes(instance, self.boxes.into_iter().map(|item| (item.slot, item.members)))
    }
}

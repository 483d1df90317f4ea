//! A lower bound on the peak: the bytes that are live at the most crowded moment, with alignment waste, and without the
//! bytes that in-place pairs may save.

use cranelift_entity::EntityRef;

use crate::instance::{Instance, Slot, SlotId, SlotPart, align_up};

/// No placement of `instance` has a peak below this many bytes.
pub(crate) fn lower_bound(instance: &Instance) -> i64 {
    let mut aligns: Vec<i64> = instance.slots.values().map(|slot| slot.align).collect();
    aligns.push(1);
    aligns.sort_unstable();
    aligns.dedup();
    let sized = instance.slots.values().filter(|slot| slot.extent > 0);
    let alone = sized.map(|slot| slot.extent + slot.fixed.unwrap_or(0)).max();
    let crowded = aligns.iter().map(|&align| most_crowded(instance, align)).max();
    alone.max(crowded).unwrap_or(0)
}

/// Bytes live in each section, in-place pairs counted twice.
pub(crate) fn loads(instance: &Instance) -> Vec<i64> {
    sum_of(instance, |_, part| part.hi - part.lo)
}

/// The bound from slots that are aligned to `align` or more alone. Where such slots are stacked, each
/// starts at a multiple of `align`, so that all but the topmost take up their size rounded up.
fn most_crowded(instance: &Instance, align: i64) -> i64 {
    // A window does not start where its slot does, so that the argument fails for it.
    let counts = |slot: &Slot, part: &SlotPart| slot.align >= align && (align == 1 || part.lo == 0);
    let mut load =
        sum_of(
            instance,
            |slot, part| {
                if counts(slot, part) { align_up(part.hi - part.lo, align) } else { 0 }
            },
        );
    let mut padded: Vec<(i64, SlotPart)> = Vec::new();
    for slot in instance.slots.values() {
        for part in slot.parts.iter().filter(|part| counts(slot, part)) {
            let padding = align_up(part.hi - part.lo, align) - (part.hi - part.lo);
            if padding > 0 {
                padded.push((padding, *part));
            }
        }
    }
    subtract_greatest(&mut load, padded);
    for (section, saving) in savings(instance, align) {
        load[section] -= saving;
    }
    load.into_iter().max().unwrap_or(0)
}

/// Sums `bytes` over the parts live in each section.
fn sum_of(instance: &Instance, bytes: impl Fn(&Slot, &SlotPart) -> i64) -> Vec<i64> {
    let mut change = vec![0i64; instance.section_count + 1];
    for slot in instance.slots.values() {
        for part in &slot.parts {
            let bytes = bytes(slot, part);
            change[part.from] += bytes;
            change[part.to] -= bytes;
        }
    }
    change.pop();
    let mut sum = 0;
    for section in &mut change {
        sum += *section;
        *section = sum;
    }
    change
}

/// Takes from each section the greatest of the values whose parts cover it.
fn subtract_greatest(load: &mut [i64], mut values: Vec<(i64, SlotPart)>) {
    values.sort_by_key(|&(value, part)| (std::cmp::Reverse(value), part.from));
    // `next[i]` leads to the first section from `i` on that no greater value has covered.
    let mut next: Vec<usize> = (0..=load.len()).collect();
    for (value, part) in values {
        let mut at = part.from;
        loop {
            while next[at] != at {
                next[at] = next[next[at]];
                at = next[at];
            }
            if at >= part.to {
                break;
            }
            load[at] -= value;
            next[at] = at + 1;
        }
    }
}

/// For sections with in-place pairs, at most how many bytes these save. A slot is in place of at most
/// one other per section, so that no more is saved than the best pair of each child, nor of each
/// parent.
fn savings(instance: &Instance, align: i64) -> Vec<(usize, i64)> {
    let mut pairs: Vec<(usize, SlotId, SlotId, i64)> = Vec::new();
    for &(a, b) in &instance.in_place {
        let (x, y) = (&instance.slots[a], &instance.slots[b]);
        let (child, parent) = if x.birth() >= y.birth() { (a, b) } else { (b, a) };
        for p in &x.parts {
            for q in &y.parts {
                let saving = align_up((p.hi - p.lo).min(q.hi - q.lo), align);
                let sections = p.from.max(q.from)..p.to.min(q.to);
                pairs.extend(sections.map(|section| (section, child, parent, saving)));
            }
        }
    }
    pairs.sort_unstable_by_key(|&(section, ..)| section);
    let best_per = |pairs: &[(usize, SlotId, SlotId, i64)], child: bool| {
        let mut of_slot: Vec<(usize, i64)> = pairs
            .iter()
            .map(|&(_, c, p, saving)| (if child { c.index() } else { p.index() }, saving))
            .collect();
        of_slot.sort_unstable_by_key(|&(slot, saving)| (slot, std::cmp::Reverse(saving)));
        of_slot.dedup_by_key(|&mut (slot, _)| slot);
        of_slot.iter().map(|&(_, saving)| saving).sum::<i64>()
    };
    pairs
        .chunk_by(|x, y| x.0 == y.0)
        .map(|pairs| (pairs[0].0, best_per(pairs, true).min(best_per(pairs, false))))
        .collect()
}

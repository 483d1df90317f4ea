//! Validation: turns a problem into an instance, and reports every malformed part. Must-share groups become slots, and
//! time becomes sections.

use std::ops::Range;

use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use smallvec::SmallVec;

use crate::error::PlanError;
use crate::instance::{Instance, Slot, SlotId, SlotPart};
use crate::problem::{BufferId, BufferSpec, Problem, Share, names_a_buffer};

/// The instance that stands for `problem`, and the slot of each buffer.
pub(crate) fn validate(
    problem: &Problem,
) -> Result<(Instance, SecondaryMap<BufferId, SlotId>), PlanError> {
    check_buffers(problem)?;
    check_shares(problem)?;
    let slot_of = slot_of_buffers(problem);
    let instance = build(problem, &slot_of)?;
    check_fixed(problem, &instance, &slot_of)?;
    Ok((instance, slot_of))
}

/// All sizes, alignments and offsets together stay below this, so that no sum of them overflows.
const MOST_BYTES: u64 = 1 << 62;

fn check_buffers(problem: &Problem) -> Result<(), PlanError> {
    let mut sum = 0u64;
    let mut highest = 0u64;
    for (id, buffer) in problem.buffers.iter() {
        let Range { start: lower, end: upper } = buffer.live;
        if lower > upper {
            return Err(PlanError::ReversedLife { buffer: id, lower, upper });
        }
        let align = buffer.align;
        if !align.is_power_of_two() {
            return Err(PlanError::Alignment { buffer: id, align });
        }
        if let Some(offset) = buffer.fixed
            && !offset.bytes().is_multiple_of(align)
        {
            return Err(PlanError::FixedMisaligned { buffer: id, offset, align });
        }
        check_gaps(id, buffer)?;
        highest = highest.max(buffer.fixed.map_or(0, |offset| offset.bytes()));
        sum = sum.saturating_add(buffer.size).saturating_add(align);
        if sum.saturating_add(highest) > MOST_BYTES {
            return Err(PlanError::TooLarge { buffer: id });
        }
    }
    Ok(())
}

fn check_gaps(id: BufferId, buffer: &BufferSpec) -> Result<(), PlanError> {
    let mut order: Vec<usize> = (0..buffer.gaps.len()).collect();
    order.sort_by_key(|&i| (buffer.gaps[i].live.start, buffer.gaps[i].live.end));
    let mut now = buffer.live.start;
    for index in order {
        let gap = &buffer.gaps[index];
        let inside = now <= gap.live.start
            && gap.live.start <= gap.live.end
            && gap.live.end <= buffer.live.end
            && gap.window.as_ref().is_none_or(|w| w.start <= w.end && w.end <= buffer.size);
        if !inside {
            return Err(PlanError::Gap { buffer: id, gap: index });
        }
        now = gap.live.end;
    }
    Ok(())
}

fn check_shares(problem: &Problem) -> Result<(), PlanError> {
    for share in &problem.shares {
        for id in share.buffers() {
            if !names_a_buffer(problem, id) {
                return Err(PlanError::UnknownBuffer { buffer: id });
            }
            if problem.buffers[id].gaps.iter().any(|gap| gap.window.is_some()) {
                return Err(PlanError::ShareWindow { buffer: id });
            }
        }
        if let Share::May { child, parent } = *share {
            let (c, p) = (&problem.buffers[child].live, &problem.buffers[parent].live);
            if p.start >= c.start || p.end > c.start.saturating_add(1) {
                return Err(PlanError::ShareTimes { child, parent });
            }
        }
    }
    Ok(())
}

/// Numbers the classes of buffers that must share storage, in the order of their first buffers.
fn slot_of_buffers(problem: &Problem) -> SecondaryMap<BufferId, SlotId> {
    // Union by lowest id, with path halving.
    let mut leader: SecondaryMap<BufferId, BufferId> = SecondaryMap::with_default(BufferId::new(0));
    leader.resize(problem.buffers.len());
    for id in problem.buffers.keys() {
        leader[id] = id;
    }
    fn find(leader: &mut SecondaryMap<BufferId, BufferId>, mut id: BufferId) -> BufferId {
        while leader[id] != id {
            leader[id] = leader[leader[id]];
            id = leader[id];
        }
        id
    }
    for share in &problem.shares {
        if let Share::Must(a, b) = *share {
            let (a, b) = (find(&mut leader, a), find(&mut leader, b));
            leader[a.max(b)] = a.min(b);
        }
    }
    let mut slot_of = SecondaryMap::with_default(SlotId::new(0));
    slot_of.resize(problem.buffers.len());
    let mut count = 0;
    for id in problem.buffers.keys() {
        let first = find(&mut leader, id);
        slot_of[id] = if first == id {
            count += 1;
            SlotId::new(count - 1)
        } else {
            slot_of[first]
        };
    }
    slot_of
}

fn build(
    problem: &Problem,
    slot_of: &SecondaryMap<BufferId, SlotId>,
) -> Result<Instance, PlanError> {
    let mut cuts: Vec<u64> = Vec::new();
    for buffer in problem.buffers.values() {
        cuts.extend([buffer.live.start, buffer.live.end]);
        cuts.extend(buffer.gaps.iter().flat_map(|gap| [gap.live.start, gap.live.end]));
    }
    cuts.sort_unstable();
    cuts.dedup();
    let section = |time: u64| cuts.partition_point(|&cut| cut < time);
    let singles: PrimaryMap<BufferId, Slot> =
        problem.buffers.values().map(|buffer| single(buffer, &section)).collect();

    let lone = Instance {
        slots: singles.values().cloned().collect(),
        section_count: cuts.len().saturating_sub(1),
        in_place: Vec::new(),
    };
    let group_of: Vec<usize> = problem.buffers.keys().map(|id| slot_of[id].index()).collect();
    let mut instance = lone.joined(&group_of);
    check_fixed_groups(problem, &instance, slot_of)?;
    instance.in_place = in_place_pairs(problem, &singles, slot_of);
    Ok(instance)
}

/// The slot that holds one buffer.
fn single(buffer: &BufferSpec, section: &impl Fn(u64) -> usize) -> Slot {
    let size = signed(buffer.size);
    let mut parts: SmallVec<[SlotPart; 1]> = SmallVec::new();
    let mut push = |time: Range<u64>, lo: i64, hi: i64| {
        if !time.is_empty() && lo < hi {
            parts.push(SlotPart { from: section(time.start), to: section(time.end), lo, hi });
        }
    };
    let mut gaps: Vec<_> = buffer.gaps.iter().filter(|gap| !gap.live.is_empty()).collect();
    gaps.sort_by_key(|gap| gap.live.start);
    let mut now = buffer.live.start;
    for gap in gaps {
        push(now..gap.live.start, 0, size);
        if let Some(window) = &gap.window {
            push(gap.live.clone(), signed(window.start), signed(window.end));
        }
        now = gap.live.end;
    }
    push(now..buffer.live.end, 0, size);
    Slot {
        parts,
        extent: if buffer.live.is_empty() { 0 } else { size },
        align: signed(buffer.align),
        fixed: buffer.fixed.map(|offset| signed(offset.bytes())),
        floor: 0,
        lifetime: buffer.live.end - buffer.live.start,
    }
}

/// Groups are fixed where any member is, and all members agree.
fn check_fixed_groups(
    problem: &Problem,
    instance: &Instance,
    slot_of: &SecondaryMap<BufferId, SlotId>,
) -> Result<(), PlanError> {
    let mut fixed_by: SecondaryMap<SlotId, Option<BufferId>> = SecondaryMap::new();
    for (id, buffer) in problem.buffers.iter() {
        let Some(offset) = buffer.fixed else { continue };
        let slot = slot_of[id];
        match fixed_by[slot] {
            Some(a) if problem.buffers[a].fixed != buffer.fixed => {
                return Err(PlanError::FixedApart { a, b: id });
            }
            _ => fixed_by[slot] = Some(id),
        }
        let align = instance.slots[slot].align;
        if signed(offset.bytes()) % align != 0 {
            let align = align.unsigned_abs();
            return Err(PlanError::FixedMisaligned { buffer: id, offset, align });
        }
    }
    Ok(())
}

/// The in-place pairs between slots. Groups of several buffers may be in place of each other only if
/// every pair of buffers that meet is declared.
fn in_place_pairs(
    problem: &Problem,
    singles: &PrimaryMap<BufferId, Slot>,
    slot_of: &SecondaryMap<BufferId, SlotId>,
) -> Vec<(SlotId, SlotId)> {
    let mut declared: Vec<(BufferId, BufferId)> = Vec::new();
    for share in &problem.shares {
        if let Share::May { child, parent } = *share {
            declared.push((child.min(parent), child.max(parent)));
        }
    }
    if declared.is_empty() {
        return Vec::new();
    }
    declared.sort_unstable();
    declared.dedup();
    let mut members: SecondaryMap<SlotId, SmallVec<[BufferId; 2]>> = SecondaryMap::new();
    for id in problem.buffers.keys() {
        members[slot_of[id]].push(id);
    }
    let mut pairs = Vec::new();
    for &(a, b) in &declared {
        let (x, y) = (slot_of[a], slot_of[b]);
        if x == y || !singles[a].meets(&singles[b]) {
            continue;
        }
        let sound = members[x].iter().all(|&m| {
            members[y].iter().all(|&n| {
                !singles[m].meets(&singles[n])
                    || declared.binary_search(&(m.min(n), m.max(n))).is_ok()
            })
        });
        if sound {
            pairs.push((x.min(y), x.max(y)));
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// No two fixed slots overlap.
fn check_fixed(
    problem: &Problem,
    instance: &Instance,
    slot_of: &SecondaryMap<BufferId, SlotId>,
) -> Result<(), PlanError> {
    let mut fixed: Vec<(i64, SlotId)> =
        instance.slots.iter().filter_map(|(id, slot)| Some((slot.fixed?, id))).collect();
    fixed.sort_unstable();
    for (index, &(offset, id)) in fixed.iter().enumerate() {
        let slot = &instance.slots[id];
        let above =
            fixed[index + 1..].iter().take_while(|(other, _)| *other < offset + slot.extent);
        for &(other_offset, other) in above {
            let clash = !(offset == other_offset && instance.may_be_in_place(id, other))
                && bytes_clash(slot, offset, &instance.slots[other], other_offset);
            if clash {
                let named = |slot: SlotId| {
                    let mut of_slot = problem.buffers.iter().filter(|(b, _)| slot_of[*b] == slot);
                    of_slot.find(|(_, b)| b.fixed.is_some()).map_or(BufferId::new(0), |(b, _)| b)
                };
                let (a, b) = (named(id), named(other));
                return Err(PlanError::FixedOverlap { a: a.min(b), b: a.max(b) });
            }
        }
    }
    Ok(())
}

fn bytes_clash(a: &Slot, a_offset: i64, b: &Slot, b_offset: i64) -> bool {
    a.parts.iter().any(|p| {
        b.parts.iter().any(|q| {
            p.from < q.to
                && q.from < p.to
                && a_offset + p.lo < b_offset + q.hi
                && b_offset + q.lo < a_offset + p.hi
        })
    })
}

/// Bytes known to be at most [`MOST_BYTES`].
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

//! Decisions on in-place pairs: which slots that may share an offset do share it.

use cranelift_entity::EntityRef;

use crate::instance::{Instance, SlotId};
use crate::joined::Joined;

/// Instances without in-place pairs, in each of which some pairs are joined and the others are to be
/// kept apart.
pub(crate) struct Sharings {
    /// The most promising first; never empty.
    pub(crate) all: Vec<Joined>,
    /// Whether every placement of the original is one of one of these.
    pub(crate) exhaustive: bool,
}

/// Few pairs are decided in every way; of many as many as possible are joined, or none.
pub(crate) fn sharings(instance: &Instance) -> Sharings {
    let mut pairs = instance.in_place.clone();
    pairs.sort_by_key(|&(a, b)| {
        let saving = instance.slots[a].extent.min(instance.slots[b].extent);
        (std::cmp::Reverse(saving), a, b)
    });
    if pairs.len() > MOST_ENUMERATED {
        let all = vec![join(instance, &pairs), join(instance, &[])];
        return Sharings { all, exhaustive: false };
    }
    let mut choices: Vec<u32> = (0..1 << pairs.len()).collect();
    choices.sort_by_key(|choice| std::cmp::Reverse(choice.count_ones()));
    let mut all: Vec<Joined> = Vec::new();
    for choice in choices {
        let chosen: Vec<_> =
            (0..pairs.len()).filter(|i| choice & (1 << i) != 0).map(|i| pairs[i]).collect();
        let joined = join(instance, &chosen);
        // Where pairs exclude each other several choices come to the same.
        if all.iter().all(|other| other.place != joined.place) {
            all.push(joined);
        }
    }
    Sharings { all, exhaustive: true }
}

/// With more pairs than this, not every choice is tried.
const MOST_ENUMERATED: usize = 4;

/// Joins the pairs that can be, the first ones first.
fn join(instance: &Instance, pairs: &[(SlotId, SlotId)]) -> Joined {
    let mut group_of: Vec<usize> = (0..instance.slots.len()).collect();
    let mut members: Vec<Vec<SlotId>> = instance.slots.keys().map(|id| vec![id]).collect();
    for &(a, b) in pairs {
        let (mut x, mut y) = (group_of[a.index()], group_of[b.index()]);
        if members[x].len() < members[y].len() {
            (x, y) = (y, x);
        }
        if x != y && can_join(instance, &members[x], &members[y]) {
            for id in std::mem::take(&mut members[y]) {
                group_of[id.index()] = x;
                members[x].push(id);
            }
        }
    }
    // Number the groups that are left without holes.
    let mut number = vec![usize::MAX; members.len()];
    let mut count = 0;
    for group in &mut group_of {
        if number[*group] == usize::MAX {
            number[*group] = count;
            count += 1;
        }
        *group = number[*group];
    }
    let place = group_of.iter().map(|&group| (SlotId::new(group), 0)).collect();
    Joined { instance: instance.joined(&group_of), place }
}

fn can_join(instance: &Instance, xs: &[SlotId], ys: &[SlotId]) -> bool {
    let slots = || xs.iter().chain(ys).map(|&id| &instance.slots[id]);
    let align = slots().map(|slot| slot.align).max().unwrap_or(1);
    let fixed = slots().find_map(|slot| slot.fixed);
    let agree = slots().all(|slot| slot.fixed.is_none() || slot.fixed == fixed)
        && fixed.is_none_or(|offset| offset % align == 0);
    agree
        && xs.iter().all(|&x| {
            ys.iter().all(|&y| {
                !instance.slots[x].meets(&instance.slots[y]) || instance.may_be_in_place(x, y)
            })
        })
}

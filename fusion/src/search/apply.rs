//! Applying a move, and undoing it.

use super::moves::Move;
use super::space::PlanSpace;
use super::state::{GroupSlot, PartSlot, PlanState};
use crate::plan::Group;
use adfuse_ir::kernel::Storage;
use adfuse_ir::{Inst, Value};
use cranelift_entity::EntitySet;

/// What a move has changed: it is taken back by [`PlanState::undo`].
#[derive(Clone, Debug)]
pub struct Undo {
    /// Where groups changed, how many are there now, and what was there.
    at: usize,
    now: usize,
    groups: Vec<Group>,
    inlined: Option<(Inst, bool)>,
    form: Option<(Value, Storage)>,
}

impl PlanState {
    /// Takes back the move that was applied last.
    pub fn undo(&mut self, undo: Undo) {
        self.groups.splice(undo.at..undo.at + undo.now, undo.groups);
        if let Some((i, was)) = undo.inlined {
            self.inlined[i] = was;
        }
        if let Some((v, was)) = undo.form {
            self.forms[v] = was;
        }
    }
}

impl PlanSpace<'_> {
    /// Applies a move of this state. `None` where what is named is not there; then the state is as it
    /// was. Whether the outcome is a plan is another question: [`PlanSpace::moves`] has moves of which it is.
    pub fn apply(&self, state: &mut PlanState, change: &Move) -> Option<Undo> {
        let mut next = state.groups.clone();
        let (mut inlined, mut form) = (None, None);
        match *change {
            Move::Merge { into, from } => {
                let moved = only(&next, from)?.clone();
                let mut target = next.get(into.slot.at())?.clone();
                target.parts.get_mut(into.part as usize)?.extend(moved);
                self.placed(state, &mut next, into.slot, from, target)?;
            }
            Move::Beside { into, from } => {
                let mut target = next.get(into.at())?.clone();
                target.parts.extend(next.get(from.at())?.parts.iter().cloned());
                self.placed(state, &mut next, into, from, target)?;
            }
            Move::Split { part_slot, at } => split(&mut next, part_slot, at)?,
            Move::Apart { part_slot } => split_off(&mut next, part_slot)?,
            Move::Shift { from, at, into } => self.shifted(state, &mut next, (from, at), into)?,
            Move::Inline { inst } => {
                if state.inlined[inst] {
                    return None;
                }
                inlined = Some((inst, true));
                next.iter_mut().flat_map(|g| &mut g.parts).for_each(|p| p.retain(|&i| i != inst));
                emptied(&mut next);
            }
            Move::Keep { inst, into } => {
                if !state.inlined[inst] {
                    return None;
                }
                inlined = Some((inst, false));
                self.computed(state, &mut next, inst, into)?;
            }
            Move::Again { inst, into } => {
                let target = part(&mut next, into)?;
                if state.inlined[inst] || target.contains(&inst) {
                    return None;
                }
                self.seated(state, target, inst);
            }
            Move::Once { part_slot, at } => read_again(&mut next, part_slot, at)?,
            Move::Store { value, form: to } => {
                if state.forms[value] == to {
                    return None;
                }
                form = Some((value, to));
            }
            Move::Order { from, before } => reordered(&mut next, from, before)?,
        }
        Some(state.changed(next, inlined, form))
    }

    /// Replaces two groups by one. What is between them and reads the first of the two moves behind
    /// it.
    fn placed(
        &self,
        state: &PlanState,
        groups: &mut Vec<Group>,
        first: GroupSlot,
        second: GroupSlot,
        made: Group,
    ) -> Option<()> {
        if first >= second || second.at() >= groups.len() {
            return None;
        }
        let mut late = EntitySet::<Inst>::new();
        late.extend(groups[first.at()].parts.iter().flatten().copied());
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for group in &groups[first.at() + 1..second.at()] {
            let members = || group.parts.iter().flatten().copied();
            let reads = members().flat_map(|i| self.reads(state, i));
            if reads.filter_map(|v| self.maker(v)).any(|j| late.contains(j)) {
                late.extend(members());
                after.push(group.clone());
            } else {
                before.push(group.clone());
            }
        }
        before.push(made);
        groups.splice(first.at()..=second.at(), before.into_iter().chain(after));
        Some(())
    }

    /// Moves a member of the part `from` to the part `into`.
    fn shifted(
        &self,
        state: &PlanState,
        next: &mut [Group],
        (from, at): (PartSlot, u32),
        into: PartSlot,
    ) -> Option<()> {
        let members = part(next, from)?;
        if from == into || members.len() < 2 || at as usize >= members.len() {
            return None;
        }
        let i = members.remove(at as usize);
        let target = part(next, into)?;
        // Where it is there already, the part reads that.
        if !target.contains(&i) {
            self.seated(state, target, i);
        }
        Some(())
    }

    /// Computes an inlined instruction: in the part `into`, or by a group before the first
    /// that uses it.
    fn computed(
        &self,
        state: &PlanState,
        next: &mut Vec<Group>,
        inst: Inst,
        into: Option<PartSlot>,
    ) -> Option<()> {
        match into {
            Some(part_slot) => self.seated(state, part(next, part_slot)?, inst),
            None => {
                let first = state
                    .part_slots()
                    .find(|(_, members)| members.iter().any(|&i| self.uses_of(state, i, inst)));
                let at = first?.0.slot.at();
                next.insert(at, Group { parts: vec![vec![inst]] });
            }
        }
        Some(())
    }

    /// Puts an instruction into a part: before what reads it there, otherwise last.
    fn seated(&self, state: &PlanState, members: &mut Vec<Inst>, i: Inst) {
        let reader = members.iter().position(|&m| self.uses_of(state, m, i));
        members.insert(reader.unwrap_or(members.len()), i);
    }
}

impl PlanState {
    /// Takes over what has changed.
    fn changed(
        &mut self,
        mut next: Vec<Group>,
        inlined: Option<(Inst, bool)>,
        form: Option<(Value, Storage)>,
    ) -> Undo {
        let same = |a: &Group, b: &Group| a == b;
        let at = self.groups.iter().zip(&next).take_while(|(a, b)| same(a, b)).count();
        let shorter = self.groups.len().min(next.len()) - at;
        let ends = self.groups.iter().rev().zip(next.iter().rev()).take(shorter);
        let end = ends.take_while(|(a, b)| same(a, b)).count();
        let now = next.len() - end - at;
        let put: Vec<Group> = next.drain(at..at + now).collect();
        let groups: Vec<Group> = self.groups.splice(at..self.groups.len() - end, put).collect();
        let inlined = inlined.map(|(i, to)| (i, std::mem::replace(&mut self.inlined[i], to)));
        let form = form.map(|(v, to)| (v, std::mem::replace(&mut self.forms[v], to)));
        Undo { at, now, groups, inlined, form }
    }
}

/// The members of a group of one part.
fn only(groups: &[Group], slot: GroupSlot) -> Option<&Vec<Inst>> {
    match groups.get(slot.at())?.parts.as_slice() {
        [members] => Some(members),
        _ => None,
    }
}

fn part(groups: &mut [Group], part_slot: PartSlot) -> Option<&mut Vec<Inst>> {
    groups.get_mut(part_slot.slot.at())?.parts.get_mut(part_slot.part as usize)
}

/// Cuts a part: its members from `at` on become a group that runs next.
fn split(next: &mut Vec<Group>, part_slot: PartSlot, at: u32) -> Option<()> {
    let members = part(next, part_slot)?;
    if at == 0 || at as usize >= members.len() {
        return None;
    }
    let tail = members.split_off(at as usize);
    next.insert(part_slot.slot.at() + 1, Group { parts: vec![tail] });
    Some(())
}

/// Makes one of several parts a group that runs next.
fn split_off(next: &mut Vec<Group>, part_slot: PartSlot) -> Option<()> {
    part(next, part_slot)?;
    let parts = &mut next[part_slot.slot.at()].parts;
    if parts.len() < 2 {
        return None;
    }
    let alone = parts.remove(part_slot.part as usize);
    next.insert(part_slot.slot.at() + 1, Group { parts: vec![alone] });
    Some(())
}

/// Drops a member that another part computes too.
fn read_again(next: &mut Vec<Group>, part_slot: PartSlot, at: u32) -> Option<()> {
    let members = part(next, part_slot)?;
    let i = *members.get(at as usize)?;
    members.remove(at as usize);
    if !next.iter().flat_map(|g| &g.parts).any(|p| p.contains(&i)) {
        return None;
    }
    emptied(next);
    Some(())
}

/// Runs a group before another one, or last.
fn reordered(next: &mut Vec<Group>, from: GroupSlot, before: GroupSlot) -> Option<()> {
    if from.at() >= next.len() || before.at() > next.len() {
        return None;
    }
    let group = next.remove(from.at());
    let to = before.at() - usize::from(before > from);
    next.insert(to, group);
    Some(())
}

/// Drops parts and groups that have no members.
fn emptied(groups: &mut Vec<Group>) {
    groups.iter_mut().for_each(|g| g.parts.retain(|p| !p.is_empty()));
    groups.retain(|g| !g.parts.is_empty());
}

//! Moves: small changes of a plan, and the moves that a state has.

use super::space::PlanSpace;
use super::state::{GroupSlot, PartSlot, PlanState, Uses};
use crate::analysis::class::InstClass;
use adfuse_ir::kernel::Storage;
use adfuse_ir::{Inst, Value};
use std::collections::BTreeSet;

/// A small change of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Move {
    /// All members of a later group join a part.
    Merge {
        /// The part that they join.
        into: PartSlot,
        /// Their group, which has one part.
        from: GroupSlot,
    },
    /// Contractions of two groups run as one, or kernels that share nothing.
    Beside {
        /// The first.
        into: GroupSlot,
        /// The later one.
        from: GroupSlot,
    },
    /// A part's members from one on become a group that runs next.
    Split {
        /// The part.
        part_slot: PartSlot,
        /// The first member that leaves.
        at: u32,
    },
    /// One of several parts becomes a group that runs next.
    Apart {
        /// The part.
        part_slot: PartSlot,
    },
    /// A member leaves a part for another.
    Shift {
        /// The part that it leaves.
        from: PartSlot,
        /// Which member.
        at: u32,
        /// The part that it joins.
        into: PartSlot,
    },
    /// An elementwise instruction is inlined in every group that uses it.
    Inline {
        /// The instruction.
        inst: Inst,
    },
    /// An inlined instruction is computed by a group: by the given part, or by a group of its own before the
    /// first that uses it.
    Keep {
        /// The instruction.
        inst: Inst,
        /// The part that computes it.
        into: Option<PartSlot>,
    },
    /// A part recomputes a value that it reads.
    Again {
        /// The instruction.
        inst: Inst,
        /// The part.
        into: PartSlot,
    },
    /// A part reads a value that it recomputed.
    Once {
        /// The part.
        part_slot: PartSlot,
        /// Which member.
        at: u32,
    },
    /// A value is stored in another form that keeps it.
    Store {
        /// The value.
        value: Value,
        /// The form.
        form: Storage,
    },
    /// A group runs at another time.
    Order {
        /// The group.
        from: GroupSlot,
        /// The group that it runs before.
        before: GroupSlot,
    },
}

impl Move {
    /// A number for each kind of moves, from 0 to 10.
    pub fn kind(&self) -> u8 {
        match self {
            Move::Merge { .. } => 0,
            Move::Beside { .. } => 1,
            Move::Split { .. } => 2,
            Move::Apart { .. } => 3,
            Move::Shift { .. } => 4,
            Move::Inline { .. } => 5,
            Move::Keep { .. } => 6,
            Move::Again { .. } => 7,
            Move::Once { .. } => 8,
            Move::Store { .. } => 9,
            Move::Order { .. } => 10,
        }
    }
}

/// The most readers of one value that are paired with the next ones.
const NEAR: usize = 4;

impl PlanSpace<'_> {
    /// The legal moves of a state, those of a kind together, in a fixed order. Whether a move is legal is found by applying it, so
    /// they are found as they are asked for.
    pub fn moves<'s>(&'s self, state: &'s PlanState) -> impl Iterator<Item = Move> + 's {
        let mut tried = state.clone();
        self.proposals(state).into_iter().filter(move |m| {
            let Some(undo) = self.apply(&mut tried, m) else { return false };
            let legal = self.is_legal(&tried);
            tried.undo(undo);
            legal
        })
    }

    /// What might be moves, those of a kind together.
    pub(super) fn proposals(&self, state: &PlanState) -> Vec<Move> {
        let uses = self.uses(state);
        let mut found = Vec::new();
        self.joining(state, &uses, &mut found);
        self.parting(state, &uses, &mut found);
        self.keeping(state, &uses, &mut found);
        found.sort_by_key(Move::kind);
        found
    }

    /// Groups that have something to do with each other: one reads what the other computes, or they read
    /// the same.
    fn neighbours(&self, state: &PlanState, uses: &Uses) -> BTreeSet<(PartSlot, PartSlot)> {
        let mut pairs = BTreeSet::new();
        let f = self.facts.f;
        let values = f.params().iter().copied();
        let computed = f.body_insts().iter().flat_map(|&i| f.inst_results(i)).copied();
        for v in values.chain(computed.filter(|&v| !state.written_out_value(self, v))) {
            let read = &uses.read[v];
            for &made in &uses.made[v] {
                pairs.extend(read.iter().map(|&r| (made, r)));
            }
            for (k, &a) in read.iter().enumerate() {
                pairs.extend(read[k + 1..].iter().take(NEAR).map(|&b| (a, b)));
            }
        }
        pairs.retain(|(a, b)| a.slot < b.slot);
        pairs
    }

    fn joining(&self, state: &PlanState, uses: &Uses, found: &mut Vec<Move>) {
        let contracts = |slot: GroupSlot| {
            let firsts = state.group(slot).parts.iter().filter_map(|p| p.first());
            firsts.into_iter().all(|&i| self.facts.class[i] == InstClass::Contract)
        };
        let mut beside = BTreeSet::new();
        for (a, b) in self.neighbours(state, uses) {
            let alone = state.group(b.slot).parts.len() == 1;
            match (contracts(a.slot), contracts(b.slot)) {
                (true, true) => {
                    beside.insert((a.slot, b.slot));
                }
                (_, false) if alone => found.push(Move::Merge { into: a, from: b.slot }),
                _ => {}
            }
            let (left, right) = (&state.members(a).len(), &state.members(b).len());
            // Alone, a member that leaves is a merge.
            if *left > 1 {
                let last = (0..*left as u32).rev();
                found.extend(last.map(|at| Move::Shift { from: a, at, into: b }));
            }
            if *right > 1 {
                found.extend((0..*right as u32).map(|at| Move::Shift { from: b, at, into: a }));
            }
        }
        // Kernels that share nothing may run as one. Only neighbours are proposed: `Order` brings others together.
        let slots: Vec<GroupSlot> = state.slots().collect();
        let kernels = |slot: GroupSlot| {
            state.group(slot).parts.iter().filter_map(|p| p.first()).all(|&i| {
                matches!(
                    self.facts.class[i],
                    InstClass::Point | InstClass::Reduce(_) | InstClass::Scan(_)
                )
            })
        };
        let pairs = slots.windows(2).map(|pair| (pair[0], pair[1]));
        beside.extend(pairs.filter(|(a, b)| kernels(*a) && kernels(*b)));
        found.extend(beside.into_iter().map(|(into, from)| Move::Beside { into, from }));
    }

    fn parting(&self, state: &PlanState, uses: &Uses, found: &mut Vec<Move>) {
        for (part_slot, members) in state.part_slots() {
            if state.group(part_slot.slot).parts.len() > 1 {
                found.push(Move::Apart { part_slot });
            }
            found.extend((1..members.len() as u32).map(|at| Move::Split { part_slot, at }));
            for (&i, at) in members.iter().zip(0..) {
                if uses.made[self.facts.f.inst_results(i)[0]].len() > 1 {
                    found.push(Move::Once { part_slot, at });
                }
            }
        }
        let slots: Vec<GroupSlot> = state.slots().collect();
        for (k, &from) in slots.iter().enumerate() {
            // One place is enough to reach every order in several moves.
            found.extend(slots.get(k + 2).map(|&before| Move::Order { from, before }));
            found.extend(k.checked_sub(2).map(|k| Move::Order { from, before: slots[k] }));
        }
    }

    fn keeping(&self, state: &PlanState, uses: &Uses, found: &mut Vec<Move>) {
        let f = self.facts.f;
        for &inst in f.body_insts() {
            let v = f.inst_results(inst)[0];
            if state.inlined[inst] {
                found.push(Move::Keep { inst, into: None });
                let users = state
                    .part_slots()
                    .filter(|(_, m)| m.iter().any(|&i| self.uses_of(state, i, inst)));
                found.extend(users.take(NEAR).map(|(s, _)| Move::Keep { inst, into: Some(s) }));
                continue;
            }
            if self.facts.class[inst] == InstClass::Constant {
                continue;
            }
            if self.facts.class[inst] == InstClass::Point && !self.facts.is_held(v) {
                found.push(Move::Inline { inst });
            }
            let again = uses.read[v].iter().filter(|s| !uses.made[v].contains(s));
            found.extend(again.take(NEAR).map(|&into| Move::Again { inst, into }));
            if uses.crosses[v]
                && !self.results.contains(v)
                && let Some(narrow) = self.ranges.narrowest(&self.facts, v)
            {
                let plain = state.forms[v] == Storage::Plain;
                let form = if plain { narrow } else { Storage::Plain };
                found.push(Move::Store { value: v, form });
            }
        }
    }

    /// Whether an instruction is inlined in another.
    pub(super) fn uses_of(&self, state: &PlanState, reader: Inst, inst: Inst) -> bool {
        let (mut stack, mut seen) = (vec![reader], BTreeSet::new());
        while let Some(i) = stack.pop() {
            for j in self.facts.f.args(i).iter().filter_map(|&a| self.maker(a)) {
                if j == inst {
                    return true;
                }
                if state.inlined[j] && seen.insert(j) {
                    stack.push(j);
                }
            }
        }
        false
    }
}

impl PlanState {
    pub(super) fn members(&self, part_slot: PartSlot) -> &Vec<Inst> {
        &self.group(part_slot.slot).parts[part_slot.part as usize]
    }

    fn written_out_value(&self, space: &PlanSpace<'_>, v: Value) -> bool {
        space.maker(v).is_some_and(|i| self.inlined[i])
    }
}

//! The state of a search: a plan as data that moves change.

use super::space::PlanSpace;
use crate::analysis::leaves::leaves_under;
use crate::fuse::greedy::narrow;
use crate::plan::{Group, Plan};
use adfuse_ir::kernel::Storage;
use adfuse_ir::{Inst, Value, ValueDef};
use cranelift_entity::{SecondaryMap, entity_impl};
use smallvec::SmallVec;

/// Where a group is in the order in which groups run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupSlot(u32);
entity_impl!(GroupSlot, "slot");

/// A part of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PartSlot {
    /// The group.
    pub slot: GroupSlot,
    /// Which of its parts.
    pub part: u32,
}

/// A plan of a function as data that is changed a little at a time.
///
/// A value's form is what it is stored in wherever a plan leaves it to another group; plans say it of
/// those alone that they do leave.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanState {
    pub(super) groups: Vec<Group>,
    pub(super) inlined: SecondaryMap<Inst, bool>,
    pub(super) forms: SecondaryMap<Value, Storage>,
}

impl PlanState {
    /// The groups in the order in which they run. Instructions may recur in several.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Whether an instruction is inlined in every group that uses it.
    pub fn is_written_out(&self, i: Inst) -> bool {
        self.inlined[i]
    }

    /// What a value is stored in, where it is left to another group.
    pub fn form(&self, v: Value) -> Storage {
        self.forms[v]
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = GroupSlot> + use<> {
        (0..self.groups.len() as u32).map(GroupSlot)
    }

    pub(super) fn group(&self, slot: GroupSlot) -> &Group {
        &self.groups[slot.0 as usize]
    }

    pub(super) fn part_slots(&self) -> impl Iterator<Item = (PartSlot, &Vec<Inst>)> + '_ {
        self.groups.iter().zip(0..).flat_map(|(group, slot)| {
            let part_slot = move |part| PartSlot { slot: GroupSlot(slot), part };
            group.parts.iter().zip(0..).map(move |(members, part)| (part_slot(part), members))
        })
    }
}

impl GroupSlot {
    pub(super) fn at(self) -> usize {
        self.0 as usize
    }
}

/// Who reads a value and who computes it, for all values of a state.
pub(super) struct Uses {
    /// The parts that compute a value.
    pub(super) made: SecondaryMap<Value, SmallVec<[PartSlot; 1]>>,
    /// The parts that read it from a buffer.
    pub(super) read: SecondaryMap<Value, SmallVec<[PartSlot; 4]>>,
    /// Whether some part reads an instance that another has computed.
    pub(super) crosses: SecondaryMap<Value, bool>,
}

impl PlanSpace<'_> {
    /// A plan of the function, ready to be changed.
    pub fn state(&self, plan: &Plan) -> PlanState {
        let mut state = PlanState {
            groups: plan.groups.clone(),
            inlined: SecondaryMap::new(),
            forms: SecondaryMap::new(),
        };
        plan.inline.iter().for_each(|&i| state.inlined[i] = true);
        plan.storage.iter().for_each(|&(v, form)| state.forms[v] = form);
        let uses = self.uses(&state);
        for &i in self.facts.f.body_insts() {
            let v = self.facts.f.inst_results(i)[0];
            // What the plan leaves to nobody has the form that the planner would give it.
            if !uses.crosses[v]
                && let Some(form) = narrow(&self.facts, &self.ranges, v)
            {
                state.forms[v] = form;
            }
        }
        state
    }

    /// The plan that a state is.
    pub fn plan(&self, state: &PlanState) -> Plan {
        let f = self.facts.f;
        let uses = self.uses(state);
        let values = f.body_insts().iter().flat_map(|&i| f.inst_results(i)).copied();
        let left = values.filter(|&v| {
            state.forms[v] != Storage::Plain && uses.crosses[v] && !self.results.contains(v)
        });
        Plan {
            inline: f.body_insts().iter().copied().filter(|&i| state.inlined[i]).collect(),
            groups: state.groups.clone(),
            storage: left.map(|v| (v, state.forms[v])).collect(),
            ..self.head.clone()
        }
    }

    /// What an instruction reads from buffers or members before it, constants apart.
    pub(super) fn reads(&self, state: &PlanState, i: Inst) -> SmallVec<[Value; 8]> {
        let mut found = leaves_under(self.facts.f, i, |j| state.inlined[j]);
        found.retain(|v| !self.is_constant(*v));
        found
    }

    pub(super) fn uses(&self, state: &PlanState) -> Uses {
        let mut uses = Uses {
            made: SecondaryMap::new(),
            read: SecondaryMap::new(),
            crosses: SecondaryMap::new(),
        };
        for (part_slot, members) in state.part_slots() {
            for &i in members {
                for v in self.reads(state, i) {
                    if uses.made[v].last() == Some(&part_slot) {
                        continue;
                    }
                    uses.crosses[v] |= !uses.made[v].is_empty();
                    if uses.read[v].last() != Some(&part_slot) {
                        uses.read[v].push(part_slot);
                    }
                }
                for &v in self.facts.f.inst_results(i) {
                    uses.made[v].push(part_slot);
                }
            }
        }
        uses
    }

    pub(super) fn maker(&self, v: Value) -> Option<Inst> {
        match self.facts.f.def(v) {
            ValueDef::Inst(i, _) => Some(i),
            _ => None,
        }
    }
}

//! Features of a state, for policies that choose moves by them.

use super::space::PlanSpace;
use super::state::{GroupSlot, PlanState};
use crate::cost::step_cost::StepCost;
use crate::fuse::inline;
use crate::lower::instances::instances;
use crate::lower::steps::steps_of;
use adfuse_ir::{Inst, Value};

/// The groups of a state, and what they leave to each other.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Features {
    /// For each group, in the order in which they run.
    pub groups: Vec<GroupFeatures>,
    /// For each value and each group that reads it from another, in the order of the function.
    pub edges: Vec<EdgeFeatures>,
}

/// Numbers about a group.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct GroupFeatures {
    /// Its parts.
    pub parts: u32,
    /// Its instructions.
    pub members: u32,
    /// Those of them that another group computes as well.
    pub again: u32,
    /// Primitives of an element of each of them.
    pub weight: u32,
    /// The phases of the first and of the last.
    pub phases: [u8; 2],
    /// Bytes that it reads.
    pub reads: u64,
    /// Bytes that it writes.
    pub writes: u64,
    /// Kernels begun.
    pub launches: u32,
    /// The most registers of a step of it.
    pub registers: u32,
    /// Operations done more often than there are values.
    pub recomputed: u64,
    /// Predicted seconds.
    pub seconds: f64,
}

/// Numbers about a value that one group leaves and another reads.
#[derive(Clone, PartialEq, Debug)]
pub struct EdgeFeatures {
    /// The value.
    pub value: Value,
    /// The group that computed it last before.
    pub from: GroupSlot,
    /// The group that reads it.
    pub to: GroupSlot,
    /// Its bytes, in the narrowest form that keeps it.
    pub bytes: f64,
    /// Its elements.
    pub elements: i64,
    /// Primitives of an element.
    pub weight: u32,
    /// The parts that read it.
    pub readers: u32,
    /// The phases of the instruction that computes it and of the last that the reading group has.
    pub phases: [u8; 2],
}

impl PlanSpace<'_> {
    /// The numbers of a state; `None` where it is no plan.
    pub fn features(&self, state: &PlanState) -> Option<Features> {
        let (f, plan) = (self.facts.f, self.plan(state));
        let program = self.program(&plan)?;
        let costs = self.engine.cost(&program, &self.options.device).steps;
        // Steps follow groups, those of instances too.
        let of_instances = instances(f, &plan).ok()?;
        let steps = steps_of(of_instances.as_ref().map_or(&plan, |x| &x.plan), &program);
        let uses = self.uses(state);
        let mut found = Features::default();
        for (slot, steps) in state.slots().zip(steps) {
            let members: Vec<Inst> = state.group(slot).parts.iter().flatten().copied().collect();
            let again = |i: &&Inst| uses.made[f.inst_results(**i)[0]].len() > 1;
            let mut group = GroupFeatures {
                parts: state.group(slot).parts.len() as u32,
                members: members.len() as u32,
                again: members.iter().filter(again).count() as u32,
                phases: self.phases(&members),
                ..GroupFeatures::default()
            };
            for &i in &members {
                group.weight = group.weight.saturating_add(self.facts.weight[i]);
            }
            costs.get(steps)?.iter().for_each(|step| group.add(step));
            found.groups.push(group);
        }
        for &i in f.body_insts() {
            let v = f.inst_results(i)[0];
            for reader in &uses.read[v] {
                let before = uses.made[v].iter().rev().find(|m| m.slot < reader.slot);
                let Some(from) = before.map(|part_slot| part_slot.slot) else { continue };
                let members = state.members(*reader);
                found.edges.push(EdgeFeatures {
                    value: v,
                    from,
                    to: reader.slot,
                    bytes: inline::bytes(&self.facts, v),
                    elements: self.facts.elements[v],
                    weight: self.facts.weight[i],
                    readers: uses.read[v].len() as u32,
                    phases: [f.inst(i).phase.0, self.phases(members)[1]],
                });
            }
        }
        Some(found)
    }

    fn phases(&self, members: &[Inst]) -> [u8; 2] {
        let phases = || members.iter().map(|&i| self.facts.f.inst(i).phase.0);
        [phases().min().unwrap_or(0), phases().max().unwrap_or(0)]
    }
}

impl GroupFeatures {
    fn add(&mut self, step: &StepCost) {
        self.reads = self.reads.saturating_add(step.reads);
        self.writes = self.writes.saturating_add(step.writes);
        self.launches = self.launches.saturating_add(step.launches);
        self.registers = self.registers.max(step.registers);
        self.recomputed = self.recomputed.saturating_add(step.recomputed);
        self.seconds += step.seconds;
    }
}

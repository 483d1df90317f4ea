//! A group lowered by itself, without the rest of its plan: what a change of a plan is priced by.

use super::group_key::GroupKey;
use super::group_memo::{KnownGroup, LoweringMemo};
use super::grown::Grown;
use super::loop_schedule::schedule;
use super::{Lower, is_stored};
use crate::analysis::facts::Facts;
use crate::plan::layout::Layout;
use crate::plan::machine_model::MachineModel;
use crate::plan::{Group, Plan};
use adfuse_ir::kernel::{Buffer, Program, Role, Storage};
use adfuse_ir::{Diagnostic, Fp, Value};
use cranelift_entity::SecondaryMap;
use hashbrown::HashSet;

/// What lowering notes of values, kept from one group to the next: its tables are as long as the function.
pub(crate) struct GroupLowering {
    grown: Grown,
    buffers: SecondaryMap<Value, Option<Buffer>>,
    plan: Plan,
}

impl GroupLowering {
    /// For groups in a mode, of a plan with a layout.
    pub(crate) fn new(fp: Fp, layout: Layout) -> GroupLowering {
        let plan = Plan { fp, layout, ..Plan::default() };
        GroupLowering { grown: Grown::empty(), buffers: SecondaryMap::new(), plan }
    }

    /// What one group of a key becomes, which the memo has or has from then on. `buffer` says which values of the key the group
    /// reads from buffers or leaves there. `None` where the group's members share no nest, or have no lowering.
    pub(crate) fn lowered(
        &mut self,
        facts: &Facts<'_>,
        (group, key): (&Group, GroupKey),
        buffer: impl Fn(Value) -> Option<(Role, Storage)>,
        (device, memo): (&MachineModel, &LoweringMemo),
    ) -> KnownGroup {
        if let Some(known) = memo.find(&key) {
            return known;
        }
        let stored = key.values.iter().filter_map(|&v| {
            let (role, storage) = buffer(v)?;
            Some((v, role, storage))
        });
        let stored: Vec<(Value, Role, Storage)> = stored.collect();
        let found = match self.lower(facts, group, &stored, device) {
            Some(Program { buffers, steps, .. }) => {
                memo.keep(key, (&buffers, steps), &self.buffers)
            }
            None => {
                memo.refuse(key);
                None
            }
        };
        stored.iter().for_each(|(v, ..)| self.buffers[*v] = None);
        found
    }

    /// The program of one group, and what buffers its values have. It has no results, and its temporaries are computed by
    /// nobody: it is there to be priced.
    fn lower(
        &mut self,
        facts: &Facts<'_>,
        group: &Group,
        stored: &[(Value, Role, Storage)],
        device: &MachineModel,
    ) -> Option<Program> {
        let empty = GroupLowering::new(self.plan.fp, self.plan.layout);
        let GroupLowering { mut grown, buffers, mut plan } = std::mem::replace(self, empty);
        grown.begin(facts, group);
        plan.groups = vec![group.clone()];
        let mut lower = Lower {
            facts,
            plan: &plan,
            device,
            memo: None,
            is_named: false,
            of_group: Vec::new(),
            grown,
            program: Program::default(),
            buffers,
            printed: &|_| String::new(),
            origin: None,
            names: HashSet::new(),
            numbered: 0,
        };
        let made = lower.single(stored);
        let Lower { mut grown, buffers, program, .. } = lower;
        grown.end(facts, group);
        *self = GroupLowering { grown, buffers, plan };
        made.ok().map(|()| program)
    }
}

impl Lower<'_> {
    fn single(&mut self, stored: &[(Value, Role, Storage)]) -> Result<(), Diagnostic> {
        for (v, role, storage) in stored.iter().filter(|(v, ..)| is_stored(self.facts.f, *v)) {
            // The memo keeps no names.
            let b = self.declare_as(String::new(), *v, role.clone());
            self.program.buffers[b].storage = *storage;
            self.plan.layout.lay_out(&mut self.program.buffers[b]);
        }
        self.grown.group(self.facts, self.device, (0, &self.plan.groups[0]))?;
        self.group(0)?;
        schedule(&mut self.program, 0);
        Ok(())
    }
}

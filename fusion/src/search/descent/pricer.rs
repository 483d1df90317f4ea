//! Prices of single groups: each form of a group is lowered and priced once.

use super::table::{AppliedChange, GroupId, GroupTable};
use crate::lower::group_memo::{KeyBuilder, LoweringMemo};
use crate::lower::single_group::GroupLowering;
use crate::memory::engine::EngineModel;
use crate::plan::machine_model::MachineModel;
use crate::search::point::group_price;
use adfuse_ir::Fp;
use hashbrown::HashMap;

/// What groups cost, by their canonical forms. Equal layers have equal groups, most changes of a plan make groups
/// that an equal layer has made before, and plans that are compared have most groups in common: so prices are those
/// of the memo.
pub(super) struct GroupPricer<'a> {
    engine: &'a dyn EngineModel,
    device: &'a MachineModel,
    lowering: GroupLowering,
    keys: KeyBuilder<'a>,
    memo: &'a LoweringMemo,
    /// The groups that were asked for; `None` for those that have no kernel.
    known: HashMap<Vec<u32>, Option<GroupSeconds>>,
    /// Members of all groups that were asked for.
    members: usize,
    /// Whether the engine said what it makes of every step.
    knows: bool,
}

/// What a group takes, and what it would take were its loops ideal.
#[derive(Clone, Copy)]
pub(super) struct GroupSeconds {
    pub(super) seconds: f64,
    pub(super) ideal: f64,
}

impl<'a> GroupPricer<'a> {
    /// Prices by an engine on a machine.
    pub(super) fn new(
        engine: &'a dyn EngineModel,
        device: &'a MachineModel,
        fp: Fp,
        memo: &'a LoweringMemo,
    ) -> GroupPricer<'a> {
        GroupPricer {
            engine,
            device,
            lowering: GroupLowering::new(fp),
            keys: KeyBuilder::new(memo, fp == Fp::Strict),
            memo,
            known: HashMap::new(),
            members: 0,
            knows: true,
        }
    }

    /// Members of all groups that were asked for, those of equal forms once: whether the memo had them changes nothing.
    pub(super) fn members(&self) -> usize {
        self.members
    }

    /// The seconds of a group of a table. `None` for a group that is not legal, and for one that is not priced by itself.
    pub(super) fn seconds(&mut self, table: &GroupTable<'_>, g: GroupId) -> Option<f64> {
        Some(self.priced(table, g)?.seconds)
    }

    /// As [`GroupPricer::seconds`], with those of ideal loops.
    pub(super) fn priced(&mut self, table: &GroupTable<'_>, g: GroupId) -> Option<GroupSeconds> {
        let group = &table.rows[g].group;
        let key = self.keys.key(&table.facts, group, |v| table.form(v))?;
        if let Some(known) = self.known.get(&key.tokens) {
            return *known;
        }
        self.members += group.parts.iter().map(Vec::len).sum::<usize>();
        let tokens = key.tokens.clone();
        let lowered = self.memo.find(&key).unwrap_or_else(|| {
            let stored = key.values.iter().filter_map(|&v| {
                let (role, storage) = table.buffer(v)?;
                Some((v, role, storage))
            });
            let stored: Vec<_> = stored.collect();
            let with = (self.device, self.memo);
            self.lowering.lowered(&table.facts, (group, key), &stored, with)
        });
        let found = lowered.map(|lowered| {
            let price = group_price(&lowered, self.engine, self.device);
            self.knows &= price.stated;
            GroupSeconds { seconds: price.steps.iter().sum(), ideal: price.ideal }
        });
        self.known.insert(tokens, found);
        found
    }

    /// The seconds that a change adds to the plan of a table, in which it has been applied, and those of each group that
    /// it touches. `None` where a group is not priced, or has no kernel.
    pub(super) fn added(
        &mut self,
        table: &GroupTable<'_>,
        applied: &AppliedChange,
    ) -> Option<(f64, Vec<(GroupId, f64)>)> {
        let (mut now, mut then) = (Vec::new(), 0.0);
        for (_, row) in &applied.before {
            then += row.seconds?;
        }
        for &g in &applied.touched {
            if !applied.before.iter().any(|(h, _)| *h == g) && !applied.new.contains(&g) {
                then += table.rows[g].seconds?;
            }
            let seconds = match table.rows[g].group.parts.is_empty() {
                true => 0.0,
                false => self.seconds(table, g)?,
            };
            now.push((g, seconds));
        }
        Some((now.iter().map(|(_, seconds)| seconds).sum::<f64>() - then, now))
    }

    /// The machine.
    pub(super) fn device(&self) -> &MachineModel {
        self.device
    }

    /// Whether the engine said what it makes of every step that was priced.
    pub(super) fn knows(&self) -> bool {
        self.knows
    }
}

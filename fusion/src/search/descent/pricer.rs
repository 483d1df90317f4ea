//! Prices of single groups: each form of a group is lowered and priced once.

use super::table::{AppliedChange, GroupForm, GroupId, GroupSeconds, GroupTable, SingleChange};
use super::worth::Worth;
use crate::analysis::class::InstClass;
use crate::lower::group_key::KeyBuilder;
use crate::lower::group_memo::LoweringMemo;
use crate::lower::single_group::GroupLowering;
use crate::memory::engine::EngineModel;
use crate::plan::layout::Layout;
use crate::plan::machine_model::MachineModel;
use crate::search::point::group_price;
use adfuse_ir::Fp;
use cranelift_entity::EntityRef;
use hashbrown::HashMap;

/// What the seconds of groups must differ by to count, as a part of them: sums in another order differ by less.
const ROUNDING: f64 = 1e-9;

/// Pricing a kernel takes this many times as long as finding that a group has no kernel.
const REFUSED: usize = 8;

/// The prices of the groups that a change touches; `None` for those that are no more.
pub(super) type TouchedPrices = Vec<(GroupId, Option<GroupSeconds>)>;

/// What a change adds to a plan.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Added {
    pub(super) seconds: f64,
    /// Bytes that groups leave to others.
    pub(super) bytes: i128,
    /// Bytes that phases leave to later ones.
    pub(super) saved: i128,
}

impl Added {
    /// What two changes add.
    pub(super) fn and(&self, other: &Added) -> Added {
        Added {
            seconds: self.seconds + other.seconds,
            bytes: self.bytes + other.bytes,
            saved: self.saved + other.saved,
        }
    }
}

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
    /// Members of all groups that were asked for; a part of them where there was no kernel to price.
    members: usize,
    /// Whether the engine said what it makes of every step.
    knows: bool,
}

impl<'a> GroupPricer<'a> {
    /// Prices by an engine on a machine.
    pub(super) fn new(
        engine: &'a dyn EngineModel,
        device: &'a MachineModel,
        (fp, layout): (Fp, Layout),
        memo: &'a LoweringMemo,
    ) -> GroupPricer<'a> {
        GroupPricer {
            engine,
            device,
            lowering: GroupLowering::new(fp, layout),
            keys: KeyBuilder::new(memo.numbers(), fp == Fp::Strict),
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

    /// The price of a group of a table. `None` for a group that is not legal, and for one that is not priced by itself.
    pub(super) fn price(&mut self, table: &GroupTable<'_>, g: GroupId) -> Option<GroupSeconds> {
        let group = &table.rows[g].group;
        // Attention shares a kernel with nothing: no change concerns it.
        let first = group.parts.first()?.first()?;
        if table.facts.class[*first] == InstClass::Attention {
            return None;
        }
        self.keys.build(&table.facts, group, |v| table.form(v))?;
        if let Some(known) = self.known.get(self.keys.alike()) {
            return *known;
        }
        let alike = self.keys.alike().to_vec();
        let key = self.keys.built();
        let form = GroupForm::new(self.known.len());
        let with = (self.device, self.memo);
        let buffer = |v| table.buffer(v);
        let lowered = self.lowering.lowered(&table.facts, (group, key), buffer, with);
        let found = lowered.map(|lowered| {
            let price = group_price(&lowered, self.engine, self.device);
            self.knows &= price.stated;
            GroupSeconds { seconds: price.steps.iter().sum(), ideal: price.ideal, form }
        });
        let members = group.parts.iter().map(Vec::len).sum::<usize>();
        self.members += if found.is_some() { members } else { members / REFUSED };
        self.known.insert(alike, found);
        found
    }

    /// The seconds that a change adds to the plan of a table, in which it has been applied, and the price of each group
    /// that it touches. `None` where a group is not priced, or has no kernel.
    pub(super) fn added(
        &mut self,
        table: &GroupTable<'_>,
        applied: &AppliedChange,
    ) -> Option<(f64, TouchedPrices)> {
        let (mut now, mut seconds) = (Vec::new(), 0.0);
        let mut then = 0.0;
        for row in table.rows_before(applied) {
            then += row.price?.seconds;
        }
        for &g in &applied.touched {
            let price = match table.rows[g].group.parts.is_empty() {
                true => None,
                false => Some(self.price(table, g)?),
            };
            seconds += price.map_or(0.0, |price| price.seconds);
            now.push((g, price));
        }
        Some((seconds - then, now))
    }

    /// What a change adds to the plan of a table, no seconds where they differ by rounding alone. `None` where it makes no
    /// plan, and where it is not worth pricing. The table is as it was before.
    pub(super) fn tried(
        &mut self,
        table: &mut GroupTable<'_>,
        worth: &Worth<'_>,
        change: &SingleChange,
    ) -> Option<Added> {
        let applied = table.apply(change);
        let found = match table.is_ordered(&applied) && worth.may_gain(table, &applied) {
            true => self.added(table, &applied),
            false => None,
        };
        let (bytes, saved) = (applied.bytes, applied.saved);
        table.undo(applied);
        let (added, now) = found?;
        let whole: f64 = now.iter().filter_map(|(_, price)| Some((*price)?.seconds)).sum();
        let seconds = if added.abs() <= ROUNDING * whole { 0.0 } else { added };
        Some(Added { seconds, bytes, saved })
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

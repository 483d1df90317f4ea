//! Which changes are priced: those of groups that take enough of the plan's time, in loops that leave something.
//!
//! Pricing a change takes a hundred times as long as applying it, and most changes gain nothing. What the groups of a change
//! take as they are, and what they would take were their loops ideal, is known before. All groups of the same forms count,
//! since what is gained in one is gained in each.

use super::table::{AppliedChange, GroupForm, GroupTable, TableRow};
use crate::plan::machine_model::MachineModel;
use adfuse_ir::Inst;
use cranelift_entity::SecondaryMap;

/// The parts of a plan's seconds that the groups of a change must take, and that other loops might save of these, for the
/// change to be priced: one that keeps a value, and one that adds to a long chain of what is inlined. None of 168 plans
/// became slower by more than a hundredth by these bounds and [`DIVIDING`].
const KEEPING: [f64; 2] = [5e-3, 1e-3];
const CHAINING: [f64; 2] = [1e-2, 0.0];

/// The part of a plan's seconds that the moves of a value's bytes, and the launch of a group that would be no more, must take
/// for the value to be inlined. In three steps of training this leaves a sixth of such changes to price, which have all but
/// a thousandth of the gains.
const INLINING: f64 = 2e-4;

/// The part of a plan's seconds, and the part of a group's own, that other loops might save for which it is divided. With half
/// of the group's own, the gelu of a block of GPT-2 stayed with its product on a GPU, 5 % of the step.
const DIVIDING: [f64; 2] = [2e-3, 0.3];

/// Values that an instruction reads, with what is inlined in it, from which on a chain is long: each link has a form of
/// its own.
const FEW_OPERANDS: usize = 8;

/// The seconds of a plan to begin with, and how many of its groups were alike.
pub(super) struct Worth<'a> {
    whole: f64,
    /// Bytes a second of the memory that the values of the plan lie in.
    pub(super) bandwidth: f64,
    device: &'a MachineModel,
    /// For each member of a group how many groups had the form of its own. That is asked of the plan to begin with: equal layers
    /// change one after the other, and what is worth pricing in one of them is worth it in all.
    alike: SecondaryMap<Inst, u32>,
}

impl<'a> Worth<'a> {
    /// Of a plan whose groups have been priced.
    pub(super) fn of(table: &GroupTable<'_>, device: &'a MachineModel) -> Worth<'a> {
        let bytes = u64::try_from(table.bytes()).unwrap_or(u64::MAX);
        let (mut whole, mut alike) = (0.0, SecondaryMap::new());
        let mut count: SecondaryMap<GroupForm, u32> = SecondaryMap::new();
        let priced = || table.rows.values().filter_map(|row| Some((row, row.price?)));
        for (_, price) in priced() {
            whole += price.seconds;
            count[price.form] += 1;
        }
        for (row, price) in priced() {
            row.group.parts.iter().flatten().for_each(|&i| alike[i] = count[price.form]);
        }
        let bandwidth = device.bytes_per_s(bytes);
        Worth { whole, bandwidth, device, alike }
    }

    /// How many groups are like one.
    pub(super) fn count(&self, row: &TableRow) -> f64 {
        let members = row.group.parts.iter().flatten();
        f64::from(members.map(|&i| self.alike[i]).max().unwrap_or(0).max(1))
    }

    /// The seconds of the plan to begin with.
    pub(super) fn whole(&self) -> f64 {
        self.whole
    }

    /// Whether a change that has been applied may gain something.
    pub(super) fn may_gain(&self, table: &GroupTable<'_>, applied: &AppliedChange) -> bool {
        let [least_seconds, least_excess] = match applied.inlined.last().copied() {
            Some((_, false)) => KEEPING,
            Some((i, true)) if !self.may_inline(table, applied, i) => return false,
            Some((_, true)) if table.reads_more_than(applied, FEW_OPERANDS) => CHAINING,
            _ => return true,
        };
        let (mut seconds, mut excess) = (0.0, 0.0);
        for row in table.rows_before(applied) {
            let (count, Some(price)) = (self.count(row), row.price) else { continue };
            seconds += count * price.seconds;
            excess += count * price.excess();
        }
        seconds >= least_seconds * self.whole && excess >= least_excess * self.whole
    }

    /// Whether inlining an instruction saves moves or launches that are worth pricing, or other loops of the group that computed
    /// it may, where nobody else read it. Where its operands are moved in its place, nothing is known before.
    fn may_inline(&self, table: &GroupTable<'_>, applied: &AppliedChange, i: Inst) -> bool {
        let computes = |row: &TableRow| row.group.parts.iter().flatten().any(|&j| j == i);
        let Some((_, home)) = applied.before.iter().find(|(_, row)| computes(row)) else {
            return true;
        };
        let Some(price) = home.price else { return true };
        let saved = match applied.bytes {
            0 if applied.before.len() == 1 => price.excess(),
            0.. => return true,
            bytes => {
                // It is written once, and read by each of the other groups.
                let moves = -bytes as f64 * applied.before.len() as f64;
                let is_gone = home.group.parts.iter().flatten().count() == 1;
                let elements = table.facts.elements[table.facts.f.inst_results(i)[0]];
                let cores = elements as f64 / f64::from(self.device.lanes.max(1));
                let rate = self.bandwidth * self.device.reached(cores);
                moves / rate + if is_gone { self.device.launch_s } else { 0.0 }
            }
        };
        self.count(home) * saved >= INLINING * self.whole
    }

    /// Whether a group may be worth dividing: each piece is a launch, and all together do no
    /// less than the whole with ideal loops.
    pub(super) fn may_divide(&self, row: &TableRow) -> bool {
        let Some(price) = row.price else { return false };
        let [of_plan, of_group] = DIVIDING;
        let (excess, count) = (price.excess(), self.count(row));
        excess >= (of_group * price.seconds).max(self.device.launch_s)
            && excess * count >= of_plan * self.whole
    }
}

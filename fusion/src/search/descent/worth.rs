//! Which changes are priced: those of groups that take enough of the plan's time, in loops that leave something.
//!
//! Pricing a change takes a hundred times as long as applying it, and most changes gain nothing. What the groups of a change
//! take as they are, and what they would take were their loops ideal, is known before. All groups of the same forms count,
//! since what is gained in one is gained in each.

use super::table::{AppliedChange, GroupForm, GroupSeconds, GroupTable};
use cranelift_entity::SecondaryMap;

/// The parts of a plan's seconds that the groups of a change must take, and that other loops might save of these, for the
/// change to be priced: one that keeps a value, and one that adds to a long chain of what is inlined. None of 168 plans
/// became slower by more than a hundredth by these bounds and [`DIVIDING`].
const KEEPING: [f64; 2] = [5e-3, 1e-3];
const CHAINING: [f64; 2] = [1e-2, 0.0];

/// The part of a plan's seconds, and the part of a group's own, that other loops might save for which it is divided.
const DIVIDING: [f64; 2] = [2e-3, 0.3];

/// Values that an instruction reads, with what is inlined in it, from which on a chain is long: each link has a form of
/// its own.
const FEW_OPERANDS: usize = 8;

/// The seconds of a plan, and how many of its groups have a form.
pub(super) struct Worth {
    /// Of the plan to begin with.
    whole: f64,
    count: SecondaryMap<GroupForm, u32>,
}

impl Worth {
    /// Of a plan whose groups have been priced.
    pub(super) fn of(table: &GroupTable<'_>) -> Worth {
        let mut worth = Worth { whole: 0.0, count: SecondaryMap::new() };
        for price in table.rows.values().filter_map(|row| row.price) {
            worth.whole += price.seconds;
            worth.count[price.form] += 1;
        }
        worth
    }

    /// Notes that a group has another price.
    pub(super) fn replace(&mut self, before: Option<GroupSeconds>, now: Option<GroupSeconds>) {
        if let Some(before) = before {
            self.count[before.form] -= 1;
        }
        if let Some(now) = now {
            self.count[now.form] += 1;
        }
    }

    /// Whether a change that has been applied may gain something. What leaves fewer bytes always may, but for long chains.
    pub(super) fn may_gain(&self, table: &GroupTable<'_>, applied: &AppliedChange) -> bool {
        let [least_seconds, least_excess] = match applied.inlined {
            Some((_, false)) => KEEPING,
            Some((_, true)) if table.reads_more_than(applied, FEW_OPERANDS) => CHAINING,
            _ => return true,
        };
        let (mut seconds, mut excess) = (0.0, 0.0);
        for price in table.prices_before(applied).flatten() {
            let count = f64::from(self.count[price.form]);
            seconds += count * price.seconds;
            excess += count * price.excess();
        }
        seconds >= least_seconds * self.whole && excess >= least_excess * self.whole
    }

    /// Whether a group may be worth dividing, where a launch costs `launch_s`: each piece is a launch, and all together do no
    /// less than the whole with ideal loops.
    pub(super) fn may_divide(&self, price: &GroupSeconds, launch_s: f64) -> bool {
        let [of_plan, of_group] = DIVIDING;
        let (excess, count) = (price.excess(), f64::from(self.count[price.form]));
        excess >= (of_group * price.seconds).max(launch_s) && excess * count >= of_plan * self.whole
    }
}

//! How much is priced: pricing takes nearly all of the time that planning takes.
//!
//! Most functions have gained all that they will after a number of prices that grows with them; others
//! become a quarter faster after that. So a gain lets more be priced, the more the larger it is.

/// Members of groups that are priced whatever is gained. To change groups: this many for each instruction of the function, and this
/// many more.
const CHANGES: [usize; 2] = [2, 1000];
/// The same, to divide groups.
const DIVISIONS: usize = 600;

/// The part of a plan's time whose gain lets as many members be priced as there are instructions.
const PART: f64 = 3e-3;

/// A gain lets at most as many times the instructions be priced.
const MOST: f64 = 2.0;

/// What groups are priced for. Dividing leaves other changes as much to price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PricedFor {
    /// To change them: instructions are inlined or kept, groups joined, folds moved.
    Change,
    /// To divide them.
    Division,
}

/// Members of groups that may still be priced.
pub(super) struct Allowance {
    insts: f64,
    changes: usize,
    divisions: usize,
}

impl Allowance {
    /// For a function of this many instructions.
    pub(super) fn new(insts: usize) -> Allowance {
        let [each, beside] = CHANGES;
        Allowance { insts: insts as f64, changes: each * insts + beside, divisions: DIVISIONS }
    }

    fn left(&mut self, priced_for: PricedFor) -> &mut usize {
        match priced_for {
            PricedFor::Change => &mut self.changes,
            PricedFor::Division => &mut self.divisions,
        }
    }

    /// Whether anything may still be priced.
    pub(super) fn is_left(&self, priced_for: PricedFor) -> bool {
        match priced_for {
            PricedFor::Change => self.changes > 0,
            PricedFor::Division => self.divisions > 0,
        }
    }

    /// Notes that groups of this many members were priced.
    pub(super) fn spend(&mut self, priced_for: PricedFor, members: usize) {
        let left = self.left(priced_for);
        *left = left.saturating_sub(members);
    }

    /// Notes a gain, as a part of the plan's time.
    pub(super) fn go_on(&mut self, priced_for: PricedFor, gained: f64) {
        let more = ((gained / PART).min(MOST) * self.insts) as usize;
        let left = self.left(priced_for);
        *left = more.max(*left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_let_more_be_priced() {
        let mut allowance = Allowance::new(100);
        allowance.spend(PricedFor::Change, 10_000);
        assert!(!allowance.is_left(PricedFor::Change) && allowance.is_left(PricedFor::Division));
        // One instruction's worth, then twice all of them.
        allowance.go_on(PricedFor::Change, PART / 100.0);
        allowance.spend(PricedFor::Change, 1);
        assert!(!allowance.is_left(PricedFor::Change));
        allowance.go_on(PricedFor::Change, 0.5);
        allowance.spend(PricedFor::Change, 199);
        assert!(allowance.is_left(PricedFor::Change));
        allowance.spend(PricedFor::Change, 1);
        assert!(!allowance.is_left(PricedFor::Change));
    }
}

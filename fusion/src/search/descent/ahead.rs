//! Prices ahead: threads price the changes of a plan before these are tried one after the other.
//!
//! Each thread has a table of its own, and each form is priced by the thread that meets it first. All that they leave is
//! lowered and priced groups in the memo, so what is decided does not depend on threads. Few changes are made of those that
//! are tried: most of what is priced ahead is asked for.

use super::Descent;
use super::pricer::Claimed;
use super::table::SingleChange;
use crate::search::parallel::{each_with, threads};

/// The fewest changes for which threads are begun.
const WORTH_THREADS: usize = 32;

impl Descent<'_, '_> {
    /// Prices changes of the table as it is, as many as the descent itself may price.
    pub(super) fn price_ahead(&self, changes: &[SingleChange]) {
        let threads = threads();
        if changes.len() < WORTH_THREADS || threads < 2 {
            return;
        }
        let (claimed, most) = (Claimed::default(), self.most_priced() / threads);
        let own = || (self.table.clone(), self.pricer.ahead(&claimed));
        each_with(changes, own, |(table, pricer), change| {
            if pricer.members() < most && !self.is_fixed(change) {
                pricer.tried(table, &self.worth, change);
            }
        });
    }
}

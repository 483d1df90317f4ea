//! Greedy placements that are tried, one after the other or each by a thread.

use std::thread;

use crate::fit::{Fit, Overlaps, Placement};
use crate::instance::{Instance, SlotId};
use crate::limit::Limit;
use crate::orders::ordered;
use crate::packing::PlacementOrder;

/// A greedy placement that is tried.
pub(crate) struct GreedyTry<'a> {
    pub(crate) placement: Placement<'a>,
    pub(crate) ids: Vec<SlotId>,
    /// `None` where time ended before.
    pub(crate) peak: Option<i64>,
    pub(crate) limit: Limit,
}

impl<'a> GreedyTry<'a> {
    pub(crate) fn new(instance: &'a Instance, overlaps: &'a Overlaps, limit: &Limit) -> Self {
        let placement = Placement::new(instance, overlaps);
        Self { placement, ids: Vec::new(), peak: None, limit: limit.clone() }
    }

    pub(crate) fn place(&mut self, (order, fit): (PlacementOrder, Fit), below: i64) {
        self.ids = ordered(self.placement.instance(), order);
        self.peak = self.placement.place_all(&self.ids, fit, below, &mut self.limit);
    }
}

/// Places slots in several ways, each by a thread.
pub(crate) fn place_side_by_side(
    tries: &mut [GreedyTry<'_>],
    ways: &[(PlacementOrder, Fit)],
    below: i64,
) {
    let [first, others @ ..] = tries else { return };
    thread::scope(|scope| {
        for (made, &way) in others.iter_mut().zip(&ways[1..]) {
            scope.spawn(move || made.place(way, below));
        }
        first.place(ways[0], below);
    });
}

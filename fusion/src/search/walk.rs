//! Simulated annealing over plans.

use super::policy::{Policy, SplitMix64};
use super::price::PlanPrice;
use super::space::PlanSpace;
use super::state::PlanState;
use crate::plan::Plan;

/// How far to search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SearchOptions {
    /// What the search goes by where it might go either way.
    pub seed: u64,
    /// The most moves that are tried.
    pub steps: u32,
    /// The most bytes at once that a plan may take.
    pub budget: Option<u64>,
}

impl Default for SearchOptions {
    fn default() -> SearchOptions {
        SearchOptions { seed: 0, steps: 2000, budget: None }
    }
}

/// What a search has found.
#[derive(Clone, PartialEq, Debug)]
pub struct SearchResult {
    /// The best plan.
    pub plan: Plan,
    /// What it costs.
    pub price: PlanPrice,
    /// What the plan cost that the search began with.
    pub began: PlanPrice,
    /// Moves that were tried.
    pub steps: u32,
}

/// How much slower a plan may be for the search to go on from it, as a part of the time of the plan that it
/// began with: at first, and with a probability of 1/e.
const HEAT: f64 = 0.04;

/// The part of all steps without a better plan after which the search goes back to the best.
const PATIENCE: u32 = 8;

/// Walks through the plans of a whole function.
pub(super) fn walk(
    space: &PlanSpace<'_>,
    found: &mut SearchResult,
    wanted: &SearchOptions,
    policy: &mut dyn Policy,
) {
    let mut here = space.state(&found.plan);
    let Some(mut now) = space.price(&here) else { return };
    let mut random = SplitMix64::new(wanted.seed);
    let mut best = here.clone();
    let mut moves = space.proposals(&here);
    let (mut taken, mut since) = (0, 0);
    while taken < wanted.steps {
        if moves.is_empty() || since > wanted.steps / PATIENCE {
            let Some(price) = space.price(&best).filter(|_| here != best) else { break };
            here.clone_from(&best);
            (now, moves, since) = (price, space.proposals(&here), 0);
            continue;
        }
        let chosen = policy.choose(space, &here, &moves).min(moves.len() - 1);
        let chosen = moves.remove(chosen);
        (taken, since, found.steps) = (taken + 1, since + 1, found.steps + 1);
        let Some(undo) = space.apply(&mut here, &chosen) else { continue };
        let Some(price) = space.price(&here) else {
            here.undo(undo);
            continue;
        };
        let more = worth(&price, wanted.budget) - worth(&now, wanted.budget);
        let left = 1.0 - f64::from(taken) / f64::from(wanted.steps);
        let heat = HEAT * left * found.began.seconds;
        if more > 0.0 && (heat <= 0.0 || random.unit() >= (-more / heat).exp()) {
            here.undo(undo);
            continue;
        }
        (now, moves) = (price, space.proposals(&here));
        if is_better(&price, &found.price) && space.is_new_best(found, &here, wanted.budget) {
            best.clone_from(&here);
            since = 0;
        }
    }
}

impl PlanSpace<'_> {
    /// Takes a state for the best, if it is that once its memory is packed as the plan's will be.
    pub(super) fn is_new_best(
        &self,
        found: &mut SearchResult,
        state: &PlanState,
        budget: Option<u64>,
    ) -> bool {
        let plan = self.plan(state);
        let Some(price) = self.price_at(&plan, self.options.effort) else { return false };
        let better = is_better(&price, &found.price) && budget.is_none_or(|m| price.peak <= m);
        if better {
            (found.plan, found.price) = (plan, price);
        }
        better
    }
}

/// Less than what sums of seconds differ by that are added in another order, as a part of them.
const ROUNDING: f64 = 1e-9;

pub(super) fn is_better(a: &PlanPrice, b: &PlanPrice) -> bool {
    a.seconds < b.seconds * (1.0 - ROUNDING) || a.seconds <= b.seconds && a.peak < b.peak
}

/// Seconds, and more where a plan takes more than it may.
fn worth(price: &PlanPrice, budget: Option<u64>) -> f64 {
    let most = budget.unwrap_or(u64::MAX).max(1);
    let over = price.peak.saturating_sub(most) as f64 / most as f64;
    price.seconds * (1.0 + 4.0 * over)
}

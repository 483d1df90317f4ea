//! The search itself: a walk that goes on from worse plans less and less readily.

use super::Space;
use super::policy::{Policy, Random, Uniform};
use super::price::{Predicted, Price};
use super::state::State;
use super::window::through_windows;
use crate::fastest::fastest;
use crate::joint::{Engine, PRICES};
use crate::plan::{Options, Plan, plan_at};
use adfuse_ir::{Diagnostic, Function};

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
pub struct Found {
    /// The best plan.
    pub plan: Plan,
    /// What it costs.
    pub price: Price,
    /// What the plan cost that the search began with.
    pub began: Price,
    /// Moves that were tried.
    pub steps: u32,
}

/// Instructions up to which a function is searched as a whole.
const MOST_WHOLE: usize = 250;

/// How much slower a plan may be for the search to go on from it, as a part of the time of the plan that it
/// began with: at first, and with a probability of 1/e.
const HEAT: f64 = 0.04;

/// The part of all steps without a better plan after which the search goes back to the best.
const PATIENCE: u32 = 8;

/// Looks for a better plan than one of the function, by moves that the policy chooses: a faster one, or
/// one as fast that takes less. Where times are measured, what was found is timed anew against the plan
/// to begin with, and that one stays if it is faster.
///
/// `None` where the plan to begin with has no program, or takes more than the budget.
pub fn search(
    space: &Space<'_>,
    start: &Plan,
    wanted: &SearchOptions,
    policy: &mut dyn Policy,
) -> Option<Found> {
    let price = space.price_at(start, space.options.effort)?;
    if wanted.budget.is_some_and(|most| price.peak > most) {
        return None;
    }
    let mut found = Found { plan: start.clone(), price, began: price, steps: 0 };
    if space.facts.f.body_insts().len() > MOST_WHOLE {
        through_windows(space, &mut found, wanted, policy);
    } else {
        walk(space, &mut found, wanted, policy);
    }
    // Of many times that were measured the least is too good: what won by that does not win again.
    if found.plan != *start && !space.confirms(start, &found.plan) {
        (found.plan, found.price) = (start.clone(), price);
    }
    Some(found)
}

/// The plan of a function that a search finds from the best of the planner's own.
///
/// # Errors
/// As [`plan`](crate::plan()).
pub(crate) fn searched(
    f: &Function,
    options: &Options,
    engine: &dyn Engine,
) -> Result<Plan, Diagnostic> {
    let space = Space::new(f, options, engine, &Predicted)?;
    let mut best: Option<(Price, Plan)> = None;
    let mut first = None;
    let plans = std::iter::once(fastest(f, options))
        .chain(PRICES.into_iter().map(|price| plan_at(f, options, price)));
    for plan in plans {
        let plan = plan?;
        first.get_or_insert_with(|| plan.clone());
        if let Some(price) = space.price_at(&plan, options.effort)
            && best.as_ref().is_none_or(|(least, _)| is_better(&price, least))
        {
            best = Some((price, plan));
        }
    }
    let begun = best.map(|(_, plan)| plan).or(first);
    let Some(plan) = begun else { return plan_at(f, options, 0.0) };
    let wanted = SearchOptions::default();
    let found = search(&space, &plan, &wanted, &mut Uniform::new(wanted.seed));
    // What has no program is refused when it is lowered, with the reason.
    Ok(found.map_or(plan, |found| found.plan))
}

/// Walks through the plans of a whole function.
pub(super) fn walk(
    space: &Space<'_>,
    found: &mut Found,
    wanted: &SearchOptions,
    policy: &mut dyn Policy,
) {
    let mut here = space.state(&found.plan);
    let Some(mut now) = space.price(&here) else { return };
    let mut random = Random::new(wanted.seed);
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
        if is_better(&price, &found.price) && space.takes(found, &here, wanted.budget) {
            best.clone_from(&here);
            since = 0;
        }
    }
}

impl Space<'_> {
    /// Takes a state for the best, if it is that once its memory is packed as the plan's will be.
    pub(super) fn takes(&self, found: &mut Found, state: &State, budget: Option<u64>) -> bool {
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

fn is_better(a: &Price, b: &Price) -> bool {
    a.seconds < b.seconds * (1.0 - ROUNDING) || a.seconds <= b.seconds && a.peak < b.peak
}

/// Seconds, and more where a plan takes more than it may.
fn worth(price: &Price, budget: Option<u64>) -> f64 {
    let most = budget.unwrap_or(u64::MAX).max(1);
    let over = price.peak.saturating_sub(most) as f64 / most as f64;
    price.seconds * (1.0 + 4.0 * over)
}

//! Shared launches where one budget is asked for: only plans that may be the fastest within it are bundled.
//!
//! Bundling takes a third of the time that planning takes, and a budget gets one plan. What a plan takes at the least, however its kernels share launches, is
//! known before anything is bundled.

use crate::search::fastest::are_alike;
use crate::search::parallel::each;
use crate::search::point::PlanPoint;

/// Plans that are bundled side by side: as many on every machine, since what the first ones take decides about the others.
const AT_ONCE: usize = 8;

/// The part of a budget by which a plan may exceed it to be bundled all the same: kernels that share a launch have less scratch memory, and arrays begin
/// elsewhere.
const BEYOND: u64 = 32;

/// Times that differ by a smaller part than this may both be chosen: of plans as fast but for rounding the one of the lowest peak is.
const ROUNDING: f64 = 1e-5;

/// For each of some plans what bundling makes of it, as `bundled` finds it: nothing for those that are not chosen for a budget in bytes. The fastest plans,
/// which take this many seconds, are what the others are compared with. `least_seconds` is what a plan takes at the least.
pub(super) fn bundled_within(
    all: &[PlanPoint],
    (budget, fastest): (u64, f64),
    least_seconds: &(dyn Fn(&PlanPoint) -> f64 + Sync),
    bundled: &(dyn Fn(&PlanPoint) -> Vec<PlanPoint> + Sync),
) -> Vec<Vec<PlanPoint>> {
    let is_fastest = |p: &PlanPoint| are_alike(p.seconds, fastest);
    let near = budget.saturating_add(budget / BEYOND);
    let wanted: Vec<usize> =
        (0..all.len()).filter(|&k| is_fastest(&all[k]) || all[k].peak <= near).collect();
    // The fastest ones first, then by what they take at the least.
    let mut order: Vec<(bool, f64, usize)> =
        each(&wanted, |&k| (!is_fastest(&all[k]), least_seconds(&all[k]), k));
    order.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
    let least = |points: &[PlanPoint]| {
        let fit = points.iter().filter(|p| p.peak <= budget).map(|p| p.seconds);
        fit.fold(f64::INFINITY, f64::min)
    };
    let mut best = least(all);
    let mut found: Vec<Vec<PlanPoint>> = all.iter().map(|_| Vec::new()).collect();
    for some in order.chunks(AT_ONCE) {
        let wanted = |&&(slower, bound, _): &&(bool, f64, usize)| {
            !slower || bound <= best * (1.0 + ROUNDING)
        };
        let some: Vec<usize> = some.iter().filter(wanted).map(|&(.., k)| k).collect();
        let made = each(&some, |&k| bundled(&all[k]));
        for (k, points) in some.into_iter().zip(made) {
            best = best.min(least(&points));
            found[k] = points;
        }
    }
    found
}

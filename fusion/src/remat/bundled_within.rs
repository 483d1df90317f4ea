//! Shared launches where one budget is asked for: only plans that may be the fastest within it are bundled.
//!
//! Bundling takes a third of the time that planning takes, and a budget gets one plan. What a plan takes at the least, however its kernels share launches, is
//! known before anything is bundled.

use crate::search::bundles::BundlingBound;
use crate::search::fastest::are_alike;
use crate::search::parallel::each;
use crate::search::point::PlanPoint;

/// Plans that are bundled side by side: as many on every machine, since what the first ones take decides about the others.
const AT_ONCE: usize = 8;

/// Times that differ by a smaller part than this may both be chosen: of plans as fast but for rounding the one of the lowest peak is.
const ROUNDING: f64 = 1e-5;

/// For each of some plans what bundling makes of it, as `bundled` finds it: nothing for those that are not chosen for a budget in bytes. The fastest plans,
/// which take this many seconds, are what the others are compared with. `bound` is what a plan takes at the least then;
/// `None` where nothing of it shares a launch.
pub(super) fn bundled_within(
    all: &[PlanPoint],
    (budget, fastest): (u64, f64),
    bound: &(dyn Fn(&PlanPoint) -> Option<BundlingBound> + Sync),
    bundled: &(dyn Fn(&PlanPoint) -> Vec<PlanPoint> + Sync),
) -> Vec<Vec<PlanPoint>> {
    let is_fastest = |p: &PlanPoint| are_alike(p.seconds, fastest);
    let bounds = each(all, bound);
    // The fastest ones first, then by what they take at the least.
    let mut order: Vec<(bool, f64, usize)> = Vec::new();
    for (k, (point, bound)) in all.iter().zip(bounds).enumerate() {
        let Some(BundlingBound { seconds, peak }) = bound else { continue };
        if is_fastest(point) || peak <= budget {
            order.push((!is_fastest(point), seconds, k));
        }
    }
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

//! One group of slots: the cheap ways first, the exact search last, none further than the goal.

use crate::bound::lower_bound;
use crate::boxes::{Boxed, Zeal};
use crate::fit::{Fit, Overlaps, Placement};
use crate::instance::{Instance, SlotId};
use crate::limit::Limit;
use crate::orders::ordered;
use crate::packing::{Method, Order};
use crate::refine::refine;
use crate::search::{Verdict, decide};
use crate::skyline::Shape;

/// Offsets for one instance.
pub(crate) struct Solved {
    pub(crate) offsets: Vec<i64>,
    pub(crate) peak: i64,
    pub(crate) lower_bound: i64,
    pub(crate) method: Method,
}

pub(crate) fn solve(instance: &Instance, goal: i64, limit: &mut Limit) -> Solved {
    let bound = lower_bound(instance);
    let goal = goal.max(bound);
    let mut best = Solved { offsets: Vec::new(), peak: i64::MAX, lower_bound: bound, method: Method::Trivial };
    let debug = std::env::var("MEMPLAN_DEBUG").is_ok();
    let t0 = std::time::Instant::now();
    let overlaps = Overlaps::of(instance);
    let mut placement = Placement::new(instance, &overlaps);
    let mut best_order: Vec<SlotId> = Vec::new();
    for order in Order::ALL {
        for fit in [Fit::Lowest, Fit::Tightest] {
            let ids = ordered(instance, order);
            let peak = placement.place_all(&ids, fit);
            if debug { eprintln!("  {order:?} {fit:?}: {peak} ({:.4}) {:?}", peak as f64 / bound as f64, t0.elapsed()); }
            if peak < best.peak {
                best.peak = peak; best.offsets = placement.offsets().to_vec(); best.method = Method::Greedy(order);
                best_order = ids;
            }
            if best.peak <= goal { return best; }
        }
    }
    for zeal in [Zeal::All, Zeal::Matching, Zeal::Chains] {
        if let Some(boxed) = Boxed::of(instance, zeal) {
            if debug { eprintln!("  {zeal:?}: {} -> {} {:?}", instance.slots.len(), boxed.instance.slots.len(), t0.elapsed()); }
            if let Some(shape) = Shape::of(&boxed.instance) {
                let before = limit.spent();
                let v = limit.within(limit.left()/8, |l| decide(&boxed.instance, &shape, goal, l));
                if debug { eprintln!("   search {} steps {:?}", limit.spent() - before, t0.elapsed()); }
                if let Verdict::Fits(o) = v {
                    best.offsets = boxed.unpack(&o); best.peak = instance.peak(&best.offsets); best.method = Method::Boxes;
                    return best;
                }
            }
        }
    }
    if let Some(shape) = Shape::of(instance) {
        let before = limit.spent();
        let v = limit.within(limit.left()/2, |l| decide(instance, &shape, goal, l));
        if debug { eprintln!("  search {} steps {:?} {}", limit.spent() - before, t0.elapsed(), matches!(v, Verdict::DoesNotFit)); }
        if let Verdict::Fits(o) = v {
            best.offsets = o; best.peak = instance.peak(&best.offsets); best.method = Method::Search;
            return best;
        }
    }
    let (p, o) = refine(instance, &overlaps, &best_order, goal, limit);
    if debug { eprintln!("  refine {p} {:.4} {:?}", p as f64 / bound as f64, t0.elapsed()); }
    if p < best.peak { best.peak = p; best.offsets = o; best.method = Method::Refined; }
    best
}

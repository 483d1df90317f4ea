//! What to save for later phases and what to recompute: the trade-off between bytes and time, by minimum cuts.
//!
//! Each value v of phase 0 is needed later or not (n), and computed again or not (r). What is needed
//! and not computed again is saved. Values that later phases read are needed; what is computed again
//! is needed, and so is what it reads. With a price on bytes this is
//!
//! ```text
//! least  sum(time[v] * r[v]) + price * sum(bytes[v] * (n[v] - r[v]))
//! where  r[v] <= n[v],  r[v] <= n[p] for each p that v reads,  n[v] = 1 where a later phase reads v
//! ```
//!
//! a closure of least weight, which is a minimum cut. Every schedule pays this much, since what a
//! later phase reads is resident when phase 0 ends or computed after that; so each price gives a bound on
//! time for all sizes of what is saved. The prices at which the answer changes are the slopes of the
//! convex hull of bytes against time.

use super::cost_graph::{CostGraph, OpId, OpRole};
use crate::analysis::min_cut::{Network, UNBOUNDED};
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use std::collections::BinaryHeap;

/// A choice of what to compute again.
#[derive(Clone, Debug)]
pub struct Residuals {
    /// What is computed again, once.
    pub recomputed: EntitySet<OpId>,
    /// The time that takes.
    pub time: u64,
    /// Bytes of what is saved. Inputs and outputs do not count.
    pub saved: u64,
}

/// The convex hull of saved bytes against recomputed time.
#[derive(Clone, Debug)]
pub struct Hull {
    /// Corners, from nothing computed again to the least saved: time rises, bytes fall.
    pub points: Vec<Residuals>,
    bounds: Vec<ChoiceBound>,
}

/// No choice has `unit * time + price * saved` below `least`.
#[derive(Clone, Copy, Debug)]
struct ChoiceBound {
    unit: u64,
    price: u64,
    least: u128,
}

impl Hull {
    /// The fastest corner that saves at most this many bytes.
    pub fn at(&self, saved: u64) -> Option<&Residuals> {
        self.points.iter().find(|p| p.saved <= saved)
    }

    /// What any schedule computes again at least, as time, if at most this many bytes are saved.
    pub fn least_time(&self, saved: u64) -> u64 {
        let least = |b: &ChoiceBound| {
            let over = b.least.saturating_sub(u128::from(b.price) * u128::from(saved));
            // Times are whole. The bound is below the time of some choice, which is a u64.
            u64::try_from(over.div_ceil(b.unit.into())).unwrap_or(u64::MAX)
        };
        self.bounds.iter().map(least).max().unwrap_or(0)
    }

    /// How far the corner at this many bytes can be from the best choice: the one's time over the
    /// other's, less 1. Nothing where no corner saves so little.
    pub fn gap(&self, saved: u64) -> Option<f64> {
        let (found, least) = (self.at(saved)?.time, self.least_time(saved));
        Some(if found == least { 0.0 } else { found as f64 / least as f64 - 1.0 })
    }
}

/// The hull, by at most this many cuts, of which two are for its ends. Where that is not enough for
/// every corner, the widest stretches are divided first, and bounds remain true.
pub fn residuals(g: &CostGraph, cuts: usize) -> Hull {
    let closure = Closure::of(g);
    let mut hull = Hull { points: Vec::new(), bounds: Vec::new() };
    // The first and last price outweigh whatever the other side can add up to.
    let first = closure.solve(&mut hull, closure.bytes + 1, 1);
    let last = closure.solve(&mut hull, 1, closure.time + 1);
    let mut found = vec![first, last];
    let mut segments = BinaryHeap::new();
    segments.extend(HullSegment::between(&found, 0, 1));
    for _ in 2..cuts {
        let Some(HullSegment { a, b, .. }) = segments.pop() else { break };
        let (p, q) = (&found[a], &found[b]);
        let (unit, price) = (p.saved - q.saved, q.time - p.time);
        let weight = |r: &Residuals| weight(r, unit, price);
        let corner = closure.solve(&mut hull, unit, price);
        if weight(&corner) < weight(p) {
            found.push(corner);
            let c = found.len() - 1;
            segments.extend(HullSegment::between(&found, a, c));
            segments.extend(HullSegment::between(&found, c, b));
        }
    }
    found.sort_by_key(|p| (p.time, p.saved));
    found.dedup_by_key(|p| (p.time, p.saved));
    hull.points = found;
    hull
}

/// What any schedule computes again at least, as time, after an operation runs first, if at most this many bytes are
/// resident then that it does not make and that are no inputs of the graph. By at most this many cuts.
pub(crate) fn least_time_after(g: &CostGraph, moment: OpId, resident: u64, cuts: usize) -> u64 {
    let closure = Closure::at(g, moment);
    let mut hull = Hull { points: Vec::new(), bounds: Vec::new() };
    let mut over = closure.solve(&mut hull, closure.bytes + 1, 1);
    if over.saved <= resident {
        return 0;
    }
    let mut under = closure.solve(&mut hull, 1, closure.time + 1);
    // The corners on both sides of the bytes: the line between the last two is the hull there.
    for _ in 2..cuts {
        let (unit, price) =
            (over.saved.saturating_sub(under.saved), under.time.saturating_sub(over.time));
        if unit == 0 || price == 0 || under.saved > resident {
            break;
        }
        let corner = closure.solve(&mut hull, unit, price);
        if weight(&corner, unit, price) >= weight(&over, unit, price) {
            break;
        }
        if corner.saved > resident { over = corner } else { under = corner }
    }
    hull.least_time(resident)
}

fn weight(r: &Residuals, unit: u64, price: u64) -> u128 {
    u128::from(r.time) * u128::from(unit) + u128::from(r.saved) * u128::from(price)
}

/// Two corners between which there may be others, the wider the first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct HullSegment {
    area: u128,
    a: usize,
    b: usize,
}

impl HullSegment {
    fn between(found: &[Residuals], a: usize, b: usize) -> Option<HullSegment> {
        let (p, q) = (&found[a], &found[b]);
        let area = u128::from(q.time - p.time) * u128::from(p.saved - q.saved);
        (area > 0).then_some(HullSegment { area, a, b })
    }
}

/// The values about which there is something to decide.
struct Closure<'g> {
    g: &'g CostGraph,
    /// The number of the first operation that counts as later: in general the first of a later phase.
    later: usize,
    /// Memory that is resident then in any case: what the first later operation reads.
    held: EntitySet<OpId>,
    /// Values before it that are no inputs and not in the memory of an output.
    values: Vec<OpId>,
    /// All their times and bytes.
    time: u64,
    bytes: u64,
    is_value: EntitySet<OpId>,
}

impl<'g> Closure<'g> {
    /// At the end of phase 0.
    fn of(g: &'g CostGraph) -> Closure<'g> {
        let later = g.runs().find(|&v| g.ops()[v].phase.0 > 0);
        Closure::before(g, later.map_or(g.ops().len(), EntityRef::index))
    }

    /// While an operation runs first.
    fn at(g: &'g CostGraph, moment: OpId) -> Closure<'g> {
        let mut closure = Closure::before(g, moment.index());
        for &input in &g.ops()[moment].inputs {
            let mut root = input;
            while let Some(of) = g.ops()[root].alias {
                root = of;
            }
            closure.held.insert(root);
        }
        closure
    }

    fn before(g: &'g CostGraph, later: usize) -> Closure<'g> {
        // What an output is in is there at the end, whatever is decided.
        let mut stays = EntitySet::<OpId>::new();
        for (id, op) in g.ops().iter().rev() {
            if op.output {
                stays.insert(id);
            }
            if let Some(of) = op.alias.filter(|_| stays.contains(id)) {
                stays.insert(of);
            }
        }
        let values: Vec<OpId> =
            g.runs().filter(|&v| v.index() < later && !stays.contains(v)).collect();
        // These sums are at most those of the graph.
        let time = values.iter().map(|&v| g.ops()[v].time).sum();
        let bytes = values.iter().map(|&v| g.ops()[v].bytes).sum();
        let mut is_value = EntitySet::new();
        is_value.extend(values.iter().copied());
        Closure { g, later, held: EntitySet::new(), values, time, bytes, is_value }
    }

    /// The best choice where a unit of time has one weight, and a byte another; its bound is noted.
    fn solve(&self, hull: &mut Hull, unit: u64, price: u64) -> Residuals {
        let mut network = Network::default();
        let (source, sink) = (network.vertex(), network.vertex());
        // Vertices beside the source are ones. A view is computed again wherever it is needed: it is
        // in memory that is there then.
        let mut needed: SecondaryMap<OpId, u32> = SecondaryMap::new();
        let mut again: SecondaryMap<OpId, Option<u32>> = SecondaryMap::new();
        for &v in &self.values {
            let op = &self.g.ops()[v];
            let n = network.vertex();
            needed[v] = n;
            let bytes = u128::from(op.bytes) * u128::from(price);
            let time = u128::from(op.time) * u128::from(unit);
            network.arc(n, sink, bytes);
            if self.g.users(v).iter().any(|&u| u.index() >= self.later) {
                network.arc(source, n, UNBOUNDED);
            }
            let r = match op.alias {
                Some(_) => n,
                None if op.role == OpRole::Once || self.held.contains(v) => continue,
                // It may pay together with further results.
                None if time >= bytes && self.g.further_bytes(v) == 0 => continue,
                None => {
                    let r = network.vertex();
                    network.arc(source, r, bytes.saturating_sub(time));
                    network.arc(r, sink, time.saturating_sub(bytes));
                    network.arc(r, n, UNBOUNDED);
                    r
                }
            };
            if let Some(of) = op.result_of {
                // A further result is computed again by its operation alone. One that is an output is not decided
                // about; leaving out its time keeps the bound a bound.
                again[of].into_iter().for_each(|first| network.arc(r, first, UNBOUNDED));
            }
            again[v] = Some(r);
            for &p in op.inputs.iter().filter(|&&p| self.is_value.contains(p)) {
                network.arc(r, needed[p], UNBOUNDED);
            }
        }
        let one = network.cut(source, sink);
        let mut chosen = Residuals { recomputed: EntitySet::new(), time: 0, saved: 0 };
        for &v in &self.values {
            let op = &self.g.ops()[v];
            if again[v].is_some_and(|r| one[r as usize]) {
                chosen.recomputed.insert(v);
                chosen.time += if op.alias.is_some() { 0 } else { op.time };
            } else if one[needed[v] as usize] {
                chosen.saved += op.bytes;
            }
        }
        hull.bounds.push(ChoiceBound { unit, price, least: weight(&chosen, unit, price) });
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::super::cost_graph::Operation;
    use super::*;

    /// A random graph of two phases.
    fn graph(random: &mut impl FnMut(u64) -> u64) -> CostGraph {
        let mut g = CostGraph::new();
        let mut ids = vec![g.push(Operation::source("x", 5)).expect("an input")];
        for k in 0..1 + random(9) {
            let any = |random: &mut dyn FnMut(u64) -> u64| ids[random(ids.len() as u64) as usize];
            let reads = [any(random), any(random)];
            let op = Operation::new(format!("f{k}"), random(9), random(9)).reads(&reads);
            let op = match random(8) {
                0 => op.once(),
                1 => op.output(),
                2 => op.view(reads[0]),
                _ => op,
            };
            ids.push(g.push(op).expect("obeys the rules"));
        }
        for k in 0..1 + random(3) {
            let reads =
                [ids[random(ids.len() as u64) as usize], ids[random(ids.len() as u64) as usize]];
            let op = Operation::new(format!("b{k}"), 1, 1).reads(&reads).phase(1);
            g.push(op).expect("obeys the rules");
        }
        g
    }

    /// Time and saved bytes of all choices.
    fn choices(g: &CostGraph) -> Vec<(u64, u64)> {
        let closure = Closure::of(g);
        let free: Vec<OpId> = (closure.values.iter().copied())
            .filter(|&v| g.ops()[v].alias.is_none() && g.ops()[v].role != OpRole::Once)
            .collect();
        let all = 0..1u32 << free.len();
        all.map(|bits| {
            let chosen = |v: OpId| {
                g.ops()[v].alias.is_some()
                    || free.iter().position(|&f| f == v).is_some_and(|k| bits >> k & 1 == 1)
            };
            let (mut time, mut saved) = (0, 0);
            let mut needed = EntitySet::<OpId>::new();
            for (id, op) in g.ops().iter().rev() {
                if op.phase.0 > 0
                    || (needed.contains(id) && closure.is_value.contains(id) && chosen(id))
                {
                    needed.extend(op.inputs.iter().copied());
                    time += if op.phase.0 > 0 || op.alias.is_some() { 0 } else { op.time };
                } else if needed.contains(id) && closure.is_value.contains(id) {
                    saved += op.bytes;
                }
            }
            (time, saved)
        })
        .collect()
    }

    #[test]
    fn the_hull_is_that_of_all_choices() {
        let mut state = 11u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let mut corners = 0;
        for _ in 0..600 {
            let g = graph(&mut random);
            let all = choices(&g);
            let hull = residuals(&g, 1000);
            let found: Vec<(u64, u64)> = hull.points.iter().map(|p| (p.time, p.saved)).collect();
            assert!(found.iter().all(|p| all.contains(p)), "{found:?} of {g:?}");
            // Corners turn, and nothing is beyond the lines between them.
            let side = |a: (u64, u64), b: (u64, u64), c: (u64, u64)| {
                let d = |p: u64, q: u64| p as i64 - q as i64;
                d(b.0, a.0) * d(c.1, a.1) - d(b.1, a.1) * d(c.0, a.0)
            };
            assert!(found.windows(3).all(|w| side(w[0], w[1], w[2]) > 0), "{found:?}");
            for line in found.windows(2) {
                assert!(all.iter().all(|&c| side(line[0], line[1], c) >= 0), "{found:?} of {g:?}");
            }
            assert_eq!(found.first().copied(), all.iter().copied().min());
            assert_eq!(found.last().map(|p| (p.1, p.0)), all.iter().map(|&(t, s)| (s, t)).min());
            // Bounds are bounds, and exact at corners.
            for saved in 0..60 {
                let least = all.iter().filter(|c| c.1 <= saved).map(|c| c.0).min();
                if let Some(least) = least {
                    assert!(hull.least_time(saved) <= least, "{saved}: {g:?}");
                    assert!(hull.gap(saved).is_some_and(|gap| gap >= 0.0));
                }
            }
            for &(time, saved) in &found {
                assert_eq!((hull.least_time(saved), hull.gap(saved)), (time, Some(0.0)));
            }
            // With fewer cuts there are fewer corners and lower bounds.
            let few = residuals(&g, 3);
            assert!((0..60).all(|s| few.least_time(s) <= hull.least_time(s)));
            corners += found.len();
        }
        assert!(corners > 1200, "{corners}");
    }
}

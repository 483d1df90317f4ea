//! Properties of plans for random problems.

mod common;

use adfuse_memplan::{
    BufferId, BufferSpec, Gap, Offset, PackOptions, Packing, PlacementOrder, PlanError, Problem,
    Share, check, check_offsets, plan, plan_in_order, plan_in_orders,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A buffer with times up to `end` and sizes up to `most`.
fn buffer(end: u64, most: u64) -> impl Strategy<Value = BufferSpec> {
    let gap = prop_oneof![4 => Just(None), 1 => (0..100u64, 0..100u64).prop_map(Some)];
    (0..end, 0..end, 0..=most, 0..3u32, gap).prop_map(|(s, t, size, align, gap)| {
        let live = s.min(t)..s.max(t) + 1;
        let mut buffer = BufferSpec::new(live.clone(), size).with_align(1 << align);
        if let Some((from, to)) = gap {
            let length = live.end - live.start;
            let (from, to) = (live.start + from % length, live.start + to % length);
            buffer = buffer.with_gap(Gap { live: from.min(to)..from.max(to), window: None });
        }
        buffer
    })
}

/// Buffers with every in-place pair that `picks` selects of those that meet, and some that must share.
fn problem(count: usize, end: u64, most: u64) -> impl Strategy<Value = Problem> {
    let buffers = prop::collection::vec(buffer(end, most), 0..count);
    let must =
        prop::option::weighted(0.3, (any::<prop::sample::Index>(), any::<prop::sample::Index>()));
    (buffers, any::<u64>(), must).prop_map(|(buffers, picks, must)| {
        let mut problem = Problem { buffers: buffers.into_iter().collect(), ..Problem::new() };
        let ids: Vec<BufferId> = problem.buffers.keys().collect();
        common::pair_up(&mut problem, picks);
        if let Some((a, b)) = must.filter(|_| ids.len() > 1) {
            problem.must_share(ids[a.index(ids.len())], ids[b.index(ids.len())]);
        }
        problem
    })
}

/// Whether some packing has a peak below `peak`, by trying every offset for every buffer.
fn has_packing_below(problem: &Problem, peak: u64) -> bool {
    fn go(problem: &Problem, ids: &[BufferId], offsets: &mut Vec<Offset>, peak: u64) -> bool {
        // Only the buffers that have offsets so far, and the shares among them.
        let placed = &ids[..offsets.len()];
        let named = |share: &Share| share.buffers().iter().all(|id| placed.contains(id));
        let part = Problem {
            buffers: placed.iter().map(|&id| problem.buffers[id].clone()).collect(),
            shares: problem.shares.iter().copied().filter(named).collect(),
            capacity: Some(peak - 1),
        };
        if check_offsets(&part, &offsets.iter().copied().collect()).is_err() {
            return false;
        }
        let Some(&next) = ids.get(offsets.len()) else { return true };
        let buffer = &problem.buffers[next];
        let idle = buffer.size == 0 || buffer.live.is_empty();
        (0..peak).step_by(buffer.align as usize).any(|offset| {
            if offset + buffer.size >= peak && !idle {
                return false;
            }
            offsets.push(Offset(offset));
            let found = go(problem, ids, offsets, peak);
            offsets.pop();
            found
        })
    }
    let ids: Vec<BufferId> = problem.buffers.keys().collect();
    peak > 0 && go(problem, &ids, &mut Vec::new(), peak)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, rng_seed: RngSeed::Fixed(0), ..ProptestConfig::default() })]

    #[test]
    fn plans_are_sound_and_never_worse_than_an_order(problem in problem(40, 30, 100)) {
        let options = PackOptions { effort: 3_000, ..PackOptions::default() };
        let packing = plan(&problem, &options).unwrap();
        prop_assert_eq!(check(&problem, &packing), Ok(()));
        prop_assert!(packing.steps <= options.effort);
        for order in PlacementOrder::ALL {
            let greedy = plan_in_order(&problem, order).unwrap();
            prop_assert_eq!(check(&problem, &greedy), Ok(()));
            prop_assert!(packing.peak <= greedy.peak, "{} above {:?}", packing.peak, order);
            prop_assert!(packing.lower_bound <= greedy.peak);
        }
        let [first, others @ ..] = PlacementOrder::ALL;
        let best = plan_in_orders(&problem, first, &others).unwrap();
        let each = PlacementOrder::ALL.map(|order| plan_in_order(&problem, order).unwrap());
        // Each of them is one placement; the best of all is found by as many as are tried.
        let least = each.iter().min_by_key(|packing| packing.peak).unwrap();
        let tried = best.placements;
        prop_assert_eq!(&best, &Packing { placements: tried, ..least.clone() });
        let reached = each.iter().position(Packing::is_optimal).map_or(each.len(), |at| at + 1);
        prop_assert_eq!(tried, reached as u64);
        prop_assert_eq!(&plan(&problem, &options).unwrap(), &packing);
    }

    #[test]
    fn a_capacity_is_kept_or_refused(problem in problem(20, 20, 50), share in 50..120u64) {
        let options = PackOptions { effort: 3_000, ..PackOptions::default() };
        let free = plan(&problem, &options).unwrap();
        let capacity = free.peak * share / 100;
        let tight = Problem { capacity: Some(capacity), ..problem };
        match plan(&tight, &options) {
            Ok(packing) => prop_assert_eq!(check(&tight, &packing), Ok(())),
            Err(PlanError::DoesNotFit { capacity: stated, least_peak, lower_bound }) => {
                prop_assert_eq!(stated, capacity);
                prop_assert!(capacity < least_peak && lower_bound <= least_peak);
                // What fits without a capacity fits with it.
                prop_assert!(capacity < free.peak);
            }
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn small_problems_reach_the_optimum(problem in problem(6, 8, 3)) {
        let packing = plan(&problem, &PackOptions::default()).unwrap();
        prop_assert_eq!(check(&problem, &packing), Ok(()));
        prop_assert!(!has_packing_below(&problem, packing.peak), "{:?}", problem);
        prop_assert!(packing.is_optimal(), "not proven: {:?}", problem);
    }

    #[test]
    fn small_problems_with_fixed_offsets_reach_the_optimum(
        mut problem in problem(6, 8, 3),
        fixed in 0..6u64,
    ) {
        if let Some(id) = problem.buffers.keys().next() {
            problem.shares.clear();
            problem.buffers[id].align = 1;
            problem.buffers[id].fixed = Some(Offset(fixed));
        }
        let packing = plan(&problem, &PackOptions::default()).unwrap();
        prop_assert_eq!(check(&problem, &packing), Ok(()));
        prop_assert!(!has_packing_below(&problem, packing.peak), "{:?}", problem);
        prop_assert!(packing.is_optimal(), "not proven: {:?}", problem);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, rng_seed: RngSeed::Fixed(0), ..ProptestConfig::default() })]

    #[test]
    fn threads_change_no_plan(problem in problem(400, 40, 1000)) {
        let one = PackOptions { effort: 500, ..PackOptions::default() };
        for threads in [2, 3, 16] {
            let more = PackOptions { threads, ..one.clone() };
            prop_assert_eq!(plan(&problem, &one).unwrap(), plan(&problem, &more).unwrap());
        }
    }
}

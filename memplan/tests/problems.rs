//! What a problem can ask for, and how malformed problems are refused.

use std::time::{Duration, Instant};

use adfuse_memplan::{
    BufferId, BufferSpec, Gap, Method, Offset, PackOptions, Packing, PlacementOrder, PlanError,
    Problem, check, plan, plan_in_order,
};

fn planned(problem: &Problem) -> Packing {
    let packing = plan(problem, &PackOptions::default()).unwrap();
    check(problem, &packing).unwrap();
    packing
}

fn refused(problem: &Problem) -> PlanError {
    let error = plan(problem, &PackOptions::default()).unwrap_err();
    assert_eq!(plan_in_order(problem, PlacementOrder::Size).unwrap_err(), error);
    error
}

fn one(buffer: BufferSpec) -> Problem {
    let mut problem = Problem::new();
    problem.push(buffer);
    problem
}

fn id(index: u32) -> BufferId {
    BufferId::from_u32(index)
}

#[test]
fn nothing_needs_nothing() {
    let packing = planned(&Problem::new());
    assert_eq!((packing.peak, packing.method), (0, Method::Trivial));
    assert!(packing.is_optimal());
}

#[test]
fn empty_buffers_take_no_room_and_get_an_offset() {
    let mut problem = Problem::new();
    problem.push(BufferSpec::new(3..3, 100));
    problem.push(BufferSpec::new(0..9, 0).with_align(64).with_fixed(Offset(640)));
    problem.push(BufferSpec::new(0..9, 7));
    let all_gap = Gap { live: 0..9, window: None };
    problem.push(BufferSpec::new(0..9, 5).with_gap(all_gap));
    let packing = planned(&problem);
    assert_eq!(packing.peak, 7);
    assert_eq!(packing.offsets[id(1)], Offset(640));
}

#[test]
fn alignment_is_kept_and_its_waste_is_in_the_bound() {
    let mut problem = Problem::new();
    for _ in 0..3 {
        problem.push(BufferSpec::new(0..4, 100).with_align(64));
    }
    let packing = planned(&problem);
    assert_eq!(packing.peak, 128 + 128 + 100);
    assert!(packing.is_optimal());
}

#[test]
fn a_chain_in_place_takes_one_slot() {
    let mut problem = Problem::new();
    let ids: Vec<BufferId> =
        (0..50).map(|i| problem.push(BufferSpec::new(2 * i..2 * i + 3, 1000 + i % 7))).collect();
    assert_eq!(planned(&problem).peak, 2011);
    for pair in ids.windows(2) {
        problem.may_share(pair[1], pair[0]);
    }
    let packing = planned(&problem);
    assert_eq!(packing.peak, 1006);
    assert!(packing.is_optimal());
}

#[test]
fn only_one_child_is_born_in_place() {
    let mut problem = Problem::new();
    let parent = problem.push(BufferSpec::new(0..4, 10));
    let small = problem.push(BufferSpec::new(3..8, 10));
    let large = problem.push(BufferSpec::new(3..8, 10));
    problem.may_share(small, parent);
    problem.may_share(large, parent);
    let packing = planned(&problem);
    assert_eq!(packing.peak, 20);
    assert_ne!(packing.offsets[small], packing.offsets[large]);
}

#[test]
fn a_donated_input_is_its_output() {
    let mut problem = Problem::new();
    let input = problem.push(BufferSpec::new(0..5, 64).with_align(64).with_fixed(Offset(128)));
    let other = problem.push(BufferSpec::new(0..20, 128));
    let output = problem.push(BufferSpec::new(8..20, 64));
    problem.must_share(input, output);
    let packing = planned(&problem);
    assert_eq!(packing.offsets[output], Offset(128));
    assert_eq!((packing.offsets[other], packing.peak), (Offset(0), 192));
}

#[test]
fn a_gap_lets_others_in() {
    let mut problem = Problem::new();
    let gap = Gap { live: 3..6, window: None };
    problem.push(BufferSpec::new(0..9, 10).with_gap(gap));
    problem.push(BufferSpec::new(3..6, 10));
    assert_eq!(planned(&problem).peak, 10);
    problem.buffers[id(0)].gaps[0].window = Some(0..4);
    assert_eq!(planned(&problem).peak, 14);
}

#[test]
fn a_capacity_too_small_is_refused_with_the_numbers() {
    let mut problem = Problem::new();
    problem.push(BufferSpec::new(0..2, 6));
    problem.push(BufferSpec::new(1..3, 6));
    for capacity in [12, 13, u64::MAX] {
        problem.capacity = Some(capacity);
        assert_eq!(planned(&problem).peak, 12);
    }
    for capacity in [0, 11] {
        problem.capacity = Some(capacity);
        let error = refused(&problem);
        assert_eq!(error, PlanError::DoesNotFit { capacity, least_peak: 12, lower_bound: 12 });
        let message = format!(
            "the buffers do not fit {capacity} bytes: the least peak found is 12, and no packing is \
             below 12"
        );
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_deadline_in_the_past_still_gives_the_best_order() {
    let mut problem = Problem::new();
    for i in 0..40u64 {
        problem.push(BufferSpec::new(i * 7 % 31..i * 7 % 31 + 2 + i % 9, 10 + i * 13 % 37));
    }
    let deadline = Instant::now().checked_sub(Duration::from_secs(1));
    let late = plan(&problem, &PackOptions { deadline, ..PackOptions::default() }).unwrap();
    check(&problem, &late).unwrap();
    for order in PlacementOrder::ALL {
        assert!(late.peak <= plan_in_order(&problem, order).unwrap().peak);
    }
    assert!(late.steps < 10_000);
}

/// Where no order can be done in time there is still a packing, and before long. The orders take minutes.
#[test]
fn a_deadline_holds_for_buffers_beyond_count() {
    let mut problem = Problem::new();
    for i in 0..200_000u64 {
        let (birth, size) = (i * 7919 % 150_001, 1 + i * 104_729 % 65_537);
        let mut buffer = BufferSpec::new(birth..birth + 1 + i * 31 % 50_000, size);
        buffer.align = 1 << (i % 7);
        if i % 1000 == 0 {
            buffer.fixed = Some(Offset(i * 100_000));
        }
        problem.push(buffer);
    }
    let begun = Instant::now();
    let deadline = Some(begun + Duration::from_millis(200));
    let packing =
        plan(&problem, &PackOptions { deadline, effort: u64::MAX, ..PackOptions::default() })
            .unwrap();
    // What the deadline does not cover, reading the problem and that pass, is by the number of buffers.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(packing.method, Method::Sweep);
    check(&problem, &packing).unwrap();
}

#[test]
fn malformed_buffers_are_refused() {
    let backwards = std::ops::Range { start: 5, end: 2 };
    assert_eq!(
        refused(&one(BufferSpec::new(backwards, 1))),
        PlanError::ReversedLife { buffer: id(0), lower: 5, upper: 2 }
    );
    for align in [0, 3, u64::MAX] {
        let problem = one(BufferSpec::new(0..1, 1).with_align(align));
        assert_eq!(refused(&problem), PlanError::Alignment { buffer: id(0), align });
    }
    let misaligned = one(BufferSpec::new(0..1, 1).with_align(8).with_fixed(Offset(4)));
    assert_eq!(
        refused(&misaligned),
        PlanError::FixedMisaligned { buffer: id(0), offset: Offset(4), align: 8 }
    );
    let gap = |live, window| Gap { live, window };
    for gaps in [
        vec![gap(0..11, None)],
        vec![gap(4..6, None), gap(5..7, None)],
        vec![gap(4..6, Some(0..9))],
    ] {
        let bad = gaps.len() - 1;
        let problem = one(BufferSpec { gaps, ..BufferSpec::new(0..10, 8) });
        assert_eq!(refused(&problem), PlanError::Gap { buffer: id(0), gap: bad });
    }
}

#[test]
fn absurd_sizes_are_refused_and_never_overflow() {
    let huge = [
        one(BufferSpec::new(0..1, u64::MAX)),
        one(BufferSpec::new(0..1, 1).with_align(1 << 63)),
        one(BufferSpec::new(0..1, 1).with_fixed(Offset(u64::MAX))),
        one(BufferSpec::new(0..1, 1 << 62)),
    ];
    for problem in huge {
        assert_eq!(refused(&problem), PlanError::TooLarge { buffer: id(0) });
    }
    let mut problem = one(BufferSpec::new(0..1, 1 << 61));
    problem.push(BufferSpec::new(5..6, 1 << 61));
    assert_eq!(refused(&problem), PlanError::TooLarge { buffer: id(1) });
    // As large as is allowed, over all of time.
    let problem = one(BufferSpec::new(0..u64::MAX, (1 << 62) - 1));
    assert_eq!(planned(&problem).peak, (1 << 62) - 1);
}

#[test]
fn malformed_shares_are_refused() {
    let mut problem = Problem::new();
    let a = problem.push(BufferSpec::new(0..4, 8));
    let b = problem.push(BufferSpec::new(2..6, 8));
    let with = |change: &dyn Fn(&mut Problem)| {
        let mut problem = problem.clone();
        change(&mut problem);
        refused(&problem)
    };
    let stray = BufferId::from_u32(2);
    assert_eq!(with(&|p| p.must_share(a, stray)), PlanError::UnknownBuffer { buffer: stray });
    // The parent lives on, and the child is not born after the parent.
    for (child, parent) in [(b, a), (a, b), (a, a)] {
        let error = with(&|p| p.may_share(child, parent));
        assert_eq!(error, PlanError::ShareTimes { child, parent });
    }
    let windowed = with(&|p| {
        p.buffers[a].gaps.push(Gap { live: 0..1, window: Some(0..1) });
        p.must_share(a, b);
    });
    assert_eq!(windowed, PlanError::ShareWindow { buffer: a });
    let apart = with(&|p| {
        p.buffers[a].fixed = Some(Offset(0));
        p.buffers[b].fixed = Some(Offset(8));
        p.must_share(a, b);
    });
    assert_eq!(apart, PlanError::FixedApart { a, b });
    let misaligned = with(&|p| {
        p.buffers[a].fixed = Some(Offset(8));
        p.buffers[b].align = 16;
        p.must_share(a, b);
    });
    assert_eq!(misaligned, PlanError::FixedMisaligned { buffer: a, offset: Offset(8), align: 16 });
    let overlap = with(&|p| {
        p.buffers[a].fixed = Some(Offset(0));
        p.buffers[b].fixed = Some(Offset(7));
    });
    assert_eq!(overlap, PlanError::FixedOverlap { a, b });
}

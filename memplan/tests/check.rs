//! `check` finds every fault that is put into a sound packing.

mod instances;

use adfuse_memplan::{
    BufferId, BufferSpec, Gap, Offset, PackOptions, Packing, Problem, Violation, check,
    check_offsets, plan,
};
use instances::{Random, Recipe};

fn planned(problem: &Problem) -> Packing {
    let packing = plan(problem, &PackOptions { effort: 2_000, ..PackOptions::default() }).unwrap();
    check(problem, &packing).unwrap();
    packing
}

/// The overlaps of a packing without gaps and shares, by looking at every pair.
fn overlaps(problem: &Problem, packing: &Packing) -> Vec<Violation> {
    let mut found = Vec::new();
    for (a, x) in problem.buffers.iter() {
        for (b, y) in problem.buffers.iter().filter(|(b, _)| *b > a) {
            let time = x.live.start.max(y.live.start)..x.live.end.min(y.live.end);
            let (at, to) = (packing.offsets[a].bytes(), packing.offsets[b].bytes());
            let bytes = at.max(to)..(at + x.size).min(to + y.size);
            if !time.is_empty() && !bytes.is_empty() {
                found.push(Violation::Overlap { a, b, time, bytes });
            }
        }
    }
    found
}

#[test]
fn every_overlap_put_in_is_found_and_named() {
    let mut random = Random(5);
    let mut tried = 0;
    for seed in 0..8 {
        let recipe = Recipe { holes: 5 * seed, ..Recipe::plain(seed, 60) };
        let problem = recipe.problem();
        let packing = planned(&problem);
        assert_eq!(overlaps(&problem, &packing), []);
        for (id, buffer) in problem.buffers.iter() {
            for _ in 0..4 {
                let mut moved = packing.clone();
                moved.offsets[id] = Offset(random.below(recipe.height - buffer.size + 1));
                let real = overlaps(&problem, &moved);
                let found = check_offsets(&problem, &moved.offsets);
                match &found {
                    Ok(_) => assert_eq!(real, []),
                    Err(violation) => {
                        assert!(real.contains(violation), "{violation} is not among {real:?}");
                        tried += 1;
                    }
                }
            }
        }
    }
    assert!(tried > 1000, "only {tried} mutations overlapped");
}

#[test]
fn one_byte_and_one_time_unit_are_enough() {
    let mut problem = Problem::new();
    let a = problem.push(BufferSpec::new(0..5, 10));
    let b = problem.push(BufferSpec::new(4..9, 10));
    let offsets = [Offset(0), Offset(10)].into_iter().collect();
    assert_eq!(check_offsets(&problem, &offsets), Ok(20));
    let offsets = [Offset(0), Offset(9)].into_iter().collect();
    let overlap = Violation::Overlap { a, b, time: 4..5, bytes: 9..10 };
    assert_eq!(check_offsets(&problem, &offsets), Err(overlap));
    problem.buffers[b].live = 5..9;
    assert_eq!(check_offsets(&problem, &offsets), Ok(19));
}

#[test]
fn overlaps_with_gaps_and_windows_are_found() {
    let mut problem = Problem::new();
    let gap = Gap { live: 3..6, window: Some(0..4) };
    problem.push(BufferSpec::new(0..9, 10).with_gap(gap));
    problem.push(BufferSpec::new(3..6, 6));
    let at = |offset| check_offsets(&problem, &[Offset(0), Offset(offset)].into_iter().collect());
    assert_eq!(at(4), Ok(10));
    assert!(matches!(at(3), Err(Violation::Overlap { bytes, .. }) if bytes == (3..4)));
}

#[test]
fn sharing_is_allowed_as_declared_and_no_further() {
    let mut problem = Problem::new();
    let parent = problem.push(BufferSpec::new(0..4, 8));
    let child = problem.push(BufferSpec::new(3..9, 8));
    let other = problem.push(BufferSpec::new(3..9, 8));
    let offsets = |at: [u64; 3]| at.into_iter().map(Offset).collect();
    assert!(check_offsets(&problem, &offsets([0, 0, 8])).is_err());
    problem.may_share(child, parent);
    assert_eq!(check_offsets(&problem, &offsets([0, 0, 8])), Ok(16));
    // The same bytes, but not the same offset.
    assert!(check_offsets(&problem, &offsets([0, 4, 16])).is_err());
    // Not declared for this one.
    let overlap = Violation::Overlap { a: parent, b: other, time: 3..4, bytes: 0..8 };
    assert_eq!(check_offsets(&problem, &offsets([0, 8, 0])), Err(overlap));
    problem.must_share(child, other);
    assert_eq!(check_offsets(&problem, &offsets([8, 0, 0])), Ok(16));
    let apart = Violation::NotShared { a: child, b: other };
    assert_eq!(check_offsets(&problem, &offsets([0, 8, 16])), Err(apart));
}

#[test]
fn faults_other_than_overlaps_are_found() {
    let mut problem = Problem::new();
    let a = problem.push(BufferSpec::new(0..5, 10).with_align(8));
    let b = problem.push(BufferSpec::new(0..5, 10).with_fixed(Offset(32)));
    let good = planned(&problem);
    let with = |change: &dyn Fn(&mut Packing)| {
        let mut packing = good.clone();
        change(&mut packing);
        check(&problem, &packing).unwrap_err()
    };
    assert_eq!(
        with(&|p| p.offsets[a] = Offset(4)),
        Violation::Misaligned { buffer: a, offset: Offset(4), align: 8 }
    );
    assert_eq!(
        with(&|p| p.offsets[b] = Offset(33)),
        Violation::NotFixed { buffer: b, offset: Offset(33), fixed: Offset(32) }
    );
    let far = Offset(u64::MAX - 7);
    assert_eq!(with(&|p| p.offsets[a] = far), Violation::Overflow { buffer: a, offset: far });
    assert_eq!(with(&|p| p.peak += 1), Violation::Peak { stated: 43, actual: 42 });
    assert_eq!(with(&|p| p.lower_bound = 43), Violation::Bound { lower_bound: 43, peak: 42 });
    assert_eq!(
        with(&|p| {
            p.offsets.push(Offset(0));
        }),
        Violation::Count { expected: 2, found: 3 }
    );
    let small = Problem { capacity: Some(41), ..problem.clone() };
    assert_eq!(check(&small, &good), Err(Violation::Capacity { capacity: 41, peak: 42 }));
    let mut odd = problem.clone();
    odd.must_share(a, BufferId::from_u32(9));
    assert_eq!(check(&odd, &good), Err(Violation::MalformedShare { share: 0 }));
}

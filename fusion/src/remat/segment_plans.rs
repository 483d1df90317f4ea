//! Plans of a function that is divided into [checkpoint segments](crate::prepass::segments).
//!
//! Schedules of groups compute again what groups leave. A long chain without products is few kernels, each of which reads all
//! at once of what the one before leaves; in a divided function instructions of the way back and of what is computed again
//! for it share kernels from the start, so that a segment may be one kernel there and leave nothing but its gradient.

use super::pruning::{KnownPoints, PlanEvaluator};
use crate::memory::engine::EngineModel;
use crate::plan::options::{Effort, PlanOptions};
use crate::prepass::checkpoint::has_policies;
use crate::prepass::segments::{SegmentPlaces, SegmentedFunction, Spine, segmented};
use crate::remat::frontier::undominated;
use crate::remat::loop_choice::{DecidedLoops, WaysBack, decided_as};
use crate::remat::unbudgeted::plan_among;
use crate::search::blocks::block_plans;
use crate::search::fastest::fastest;
use crate::search::parallel::each;
use crate::search::point::PlanPoint;
use adfuse_ir::{Diagnostic, Function, Phase};
use hashbrown::HashSet;

/// Instructions of all divided functions together, about, and the fewest functions that are tried.
const DIVIDED_INSTS: usize = 80_000;
const FEWEST: usize = 32;

/// The next number of segments is larger by one and by a fifth.
const PART: usize = 5;

/// Numbers of segments whose segments are divided into as many again.
const TWICE: [usize; 5] = [2, 3, 4, 6, 8];

/// The most divided functions that are planned with the wanted effort, too.
const IMPROVED: usize = 8;

/// A divided function, as it is planned.
#[derive(Clone)]
pub(super) struct DividedFunction {
    pub(super) segmented: SegmentedFunction,
    /// Loops without a way back are merged as those of every function are.
    pub(super) decided: DecidedLoops,
}

/// A plan of a divided function.
struct DividedPlan<'s> {
    of: &'s DividedFunction,
    point: PlanPoint,
}

impl AsRef<PlanPoint> for DividedPlan<'_> {
    fn as_ref(&self) -> &PlanPoint {
        &self.point
    }
}

/// Divided functions, each with plans that no known one beats.
///
/// # Errors
/// As [`plan`](crate::plan()), and those of the engine.
pub(super) fn segment_plans(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
    known: &KnownPoints,
) -> Result<Vec<(DividedFunction, Vec<PlanPoint>)>, Diagnostic> {
    let is_differentiated = f.body_insts().iter().any(|&i| f.inst(i).phase > Phase::PRIMAL);
    if options.effort == Effort::Off || !is_differentiated || has_policies(f) {
        return Ok(Vec::new());
    }
    let divided = divided(f)?;
    let quick = PlanOptions { effort: Effort::Quick, ..options.clone() };
    let points = each(&divided, |of| -> Result<Option<PlanPoint>, Diagnostic> {
        let g = &of.decided.function;
        let evaluator = PlanEvaluator::of(g, options, engine, known)?;
        let blocks = block_plans(g, &quick, engine)?;
        evaluator.measured(&fastest(g, &quick, &blocks, (evaluator.base(), engine))?)
    });
    let points = points.into_iter().collect::<Result<Vec<Option<PlanPoint>>, Diagnostic>>()?;
    let with_point = |(of, point): (_, Option<PlanPoint>)| Some(DividedPlan { of, point: point? });
    let found = undominated(divided.iter().zip(points).filter_map(with_point).collect());
    let numbered: Vec<(usize, &DividedPlan<'_>)> = found.iter().enumerate().collect();
    let last = found.len().saturating_sub(1);
    let made = each(&numbered, |&(k, DividedPlan { of, point })| -> Result<_, Diagnostic> {
        let g = &of.decided.function;
        let evaluator = PlanEvaluator::of(g, options, engine, known)?;
        let mut points = vec![point.clone()];
        // Evenly between the lowest and the fastest.
        let is_improved = last < IMPROVED || (0..IMPROVED).any(|n| n * last / (IMPROVED - 1) == k);
        if is_improved && options.effort > Effort::Quick {
            points.extend(evaluator.measured(&plan_among(g, options, engine)?.plan)?);
        }
        points.iter().for_each(|point| evaluator.add(point));
        evaluator.packed(points)
    });
    let made = made.into_iter().collect::<Result<Vec<Vec<PlanPoint>>, Diagnostic>>()?;
    Ok(found.iter().map(|plan| plan.of.clone()).zip(made).collect())
}

/// The function in segments of one level and of two, in different numbers. The last segment is kept whole, or is computed again
/// like the others: then the kernel that computes the results need not leave all that the way back reads.
fn divided(f: &Function) -> Result<Vec<DividedFunction>, Diagnostic> {
    let most = (DIVIDED_INSTS / f.inst_count().max(1)).max(FEWEST);
    let mut counts = TWICE.map(|count| vec![count, count]).to_vec();
    let mut count = 2;
    // Each is tried with and without a last segment that is kept whole.
    while 2 * count <= f.inst_count() && 2 * counts.len() < most {
        counts.push(vec![count]);
        count += 1 + count / PART;
    }
    let spine = Spine::of(f);
    let places = SegmentPlaces::of(&spine);
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for counts in counts {
        let Some(levels) = places.equal_ends(&counts) else { continue };
        for levels in [places.with_last_segment(levels.clone()), levels] {
            if seen.insert(levels.clone()) {
                let segmented = segmented(&spine, &levels)?;
                let ways = WaysBack::of(&segmented.function);
                let decided = decided_as(&segmented.function, &ways, Vec::new())?;
                all.push(DividedFunction { segmented, decided });
            }
        }
    }
    Ok(all)
}

//! Plans of a function that is divided into [checkpoint segments](crate::prepass::segments).
//!
//! Schedules of groups compute again what groups leave. A long chain without products is few kernels, each of which reads all
//! at once of what the one before leaves; in a divided function instructions of the way back and of what is computed again
//! for it share kernels from the start, so that a segment may be one kernel there and leave nothing but its gradient.

use super::pruning::{KnownPoints, PlanEvaluator};
use crate::memory::engine::EngineModel;
use crate::plan::options::{Effort, PlanOptions};
use crate::prepass::segments::{SegmentedFunction, closed, equal_ends, is_divisible, segmented};
use crate::remat::frontier::undominated;
use crate::remat::unbudgeted::plan_among;
use crate::search::blocks::block_plans;
use crate::search::fastest::fastest;
use crate::search::parallel::each;
use crate::search::point::PlanPoint;
use adfuse_ir::{Diagnostic, Function, Phase};
use hashbrown::HashSet;

/// Instructions of all divided functions together, about, and the fewest functions.
const DIVIDED_INSTS: usize = 80_000;
const FEWEST: usize = 32;

/// A number of segments is followed by one that is larger by this part of it (1 over the number), and by one.
const PART: usize = 5;

/// Numbers of segments whose segments are divided into as many again.
const TWICE: [usize; 5] = [2, 3, 4, 6, 8];

/// The most divided functions whose plans are improved.
const IMPROVED: usize = 8;

/// A plan of a divided function.
struct DividedPlan<'s> {
    of: &'s SegmentedFunction,
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
) -> Result<Vec<(SegmentedFunction, Vec<PlanPoint>)>, Diagnostic> {
    let is_differentiated = f.body_insts().iter().any(|&i| f.inst(i).phase > Phase::PRIMAL);
    if options.effort == Effort::Off || !is_differentiated || !is_divisible(f) {
        return Ok(Vec::new());
    }
    let divided = divided(f)?;
    let quick = PlanOptions { effort: Effort::Quick, ..options.clone() };
    let points = each(&divided, |of| -> Result<Option<PlanPoint>, Diagnostic> {
        let g = &of.function;
        let evaluator = PlanEvaluator::of(g, options, engine, known)?;
        let blocks = block_plans(g, &quick, engine)?;
        evaluator.measured(&fastest(g, &quick, &blocks, (evaluator.base(), engine))?)
    });
    let points = points.into_iter().collect::<Result<Vec<Option<PlanPoint>>, Diagnostic>>()?;
    let found = divided
        .iter()
        .zip(points)
        .filter_map(|(of, point)| Some(DividedPlan { of, point: point? }));
    let found = undominated(found.collect());
    let step = found.len().div_ceil(IMPROVED).max(1);
    let improved: Vec<DividedPlan<'_>> = found.into_iter().step_by(step).collect();
    let made = each(&improved, |DividedPlan { of, point }| -> Result<Vec<PlanPoint>, Diagnostic> {
        let evaluator = PlanEvaluator::of(&of.function, options, engine, known)?;
        let mut points = vec![point.clone()];
        if options.effort > Effort::Quick {
            let plan = plan_among(&of.function, options, engine)?.plan;
            points.extend(evaluator.measured(&plan)?);
        }
        points.iter().for_each(|point| evaluator.add(point));
        evaluator.packed(points)
    });
    let made = made.into_iter().collect::<Result<Vec<Vec<PlanPoint>>, Diagnostic>>()?;
    Ok(improved.iter().zip(made).map(|(plan, points)| (plan.of.clone(), points)).collect())
}

/// The function in segments of one level and of two, in different numbers. The last segment is kept whole, or is computed again
/// like the others: then the kernel that computes the results need not leave all that the way back reads.
fn divided(f: &Function) -> Result<Vec<SegmentedFunction>, Diagnostic> {
    let most = (DIVIDED_INSTS / f.inst_count().max(1)).max(FEWEST);
    let mut counts = TWICE.map(|count| vec![count, count]).to_vec();
    let mut count = 2;
    // Each is tried with and without a last segment that is kept whole.
    while 2 * count <= f.inst_count() && 2 * counts.len() < most {
        counts.push(vec![count]);
        count += 1 + count / PART;
    }
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for counts in counts {
        let Some(levels) = equal_ends(f, &counts) else { continue };
        for levels in [closed(f, levels.clone()), levels] {
            if seen.insert(levels.clone()) {
                all.push(segmented(f, &levels)?);
            }
        }
    }
    Ok(all)
}

//! The frontier of plans of a function with ways back over loops: the points of all decisions about them together.

use super::loop_choice::{DecidedLoops, WaysBack, decide_loops, too_large};
use super::plan_frontier;
use crate::memory::engine::EngineModel;
use crate::plan::loop_choice::LoopChoice;
use crate::plan::options::PlanOptions;
use crate::search::point::PlanPoint;
use adfuse_ir::{Diagnostic, Function};
use std::sync::Arc;

/// A point of a frontier, with the function that its plan is of.
#[derive(Clone, Debug)]
pub struct LoopFrontierPoint {
    /// The plan, with its cost.
    pub point: PlanPoint,
    /// The function, and what was decided for its loops.
    pub decided: Arc<DecidedLoops>,
}

/// The most numbers of checkpoints that are tried beside one.
const MOST_LEVELS: u32 = 8;

/// Plans a [prepared](crate::prepare()) function for all budgets at once, with every decision about its loops that
/// [`decide_loops`] may make and some numbers of checkpoints: peaks rise and seconds fall, both strictly.
///
/// # Errors
/// As [`decide_loops`].
pub fn loop_frontier(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<Vec<LoopFrontierPoint>, Diagnostic> {
    let ways = WaysBack::of(f);
    let mut candidates = match ways.is_empty() {
        true => vec![Vec::new()],
        false => ways.candidates(f),
    };
    let most = ways.most_checkpoints().max(1);
    let levels = most.ilog2().min(MOST_LEVELS);
    for level in 1..=levels {
        let c = most >> (levels - level);
        let choices = ways.all_of(f, |_| LoopChoice::Checkpoints(c));
        if !candidates.contains(&choices) {
            candidates.push(choices);
        }
    }
    let (mut points, mut refused) = (Vec::new(), None);
    for choices in candidates {
        let made = match ways.is_empty() {
            true => decide_loops(f, options, None, engine),
            false => ways.decided(f, choices),
        };
        let planned = made.and_then(|decided| {
            let frontier = plan_frontier(&decided.function, options, engine)?;
            Ok((Arc::new(decided), frontier))
        });
        match planned {
            Ok((decided, frontier)) => points.extend(frontier.points().iter().map(|point| {
                LoopFrontierPoint { point: point.clone(), decided: Arc::clone(&decided) }
            })),
            Err(d) => too_large(d, &mut refused)?,
        }
    }
    points.sort_by(|a, b| {
        a.point.peak.cmp(&b.point.peak).then(a.point.seconds.total_cmp(&b.point.seconds))
    });
    let mut best: Vec<LoopFrontierPoint> = Vec::new();
    for point in points {
        if best.last().is_none_or(|last| point.point.seconds < last.point.seconds) {
            best.push(point);
        }
    }
    match (best.is_empty(), refused) {
        (true, Some(d)) => Err(d),
        _ => Ok(best),
    }
}

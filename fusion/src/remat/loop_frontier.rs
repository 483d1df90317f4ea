//! The frontier of plans of a function with ways back over loops: the points of all decisions about them together.

use super::loop_choice::{DecidedLoops, WaysBack, decide_loops, that_fit};
use super::{plan_frontier, undominated};
use crate::memory::engine::{EngineModel, MemoEngine};
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
    // Plans of one function have most groups in common.
    let engine: &dyn EngineModel = &MemoEngine::new(engine, &options.device);
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
    let planned = that_fit(candidates, |choices| match ways.is_empty() {
        true => {
            let decided = decide_loops(f, options, None, engine)?;
            let frontier = plan_frontier(&decided.function, options, engine)?;
            Ok((decided, frontier))
        }
        false => ways.planned(f, choices, options, engine),
    })?;
    let mut points = Vec::new();
    for (decided, frontier) in planned {
        let decided = Arc::new(decided);
        points.extend(frontier.points().iter().map(|point| LoopFrontierPoint {
            point: point.clone(),
            decided: Arc::clone(&decided),
        }));
    }
    Ok(undominated(points, |point| &point.point))
}

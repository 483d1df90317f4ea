//! Plans that differ from the fastest plan in one decision. The planner is greedy and does not try all of them; some
//! are better.

use super::decisions::ALIKE;
use super::pruning::PlanEvaluator;
use super::value_changes::ValueChanges;
use crate::search::point::PlanPoint;
use adfuse_ir::{Diagnostic, Function, Value};

/// Instructions, about, of all plans together that are tried so.
const TRIED: usize = 20_000;

/// The most of them.
const MOST: usize = 320;

/// What is found from a plan by deciding otherwise about one value after the other, the largest first, and
/// going on from whatever is faster, until no value's other choices are or enough have been tried. What
/// takes less memory is told, too, unless it is no faster and leaves more to later phases: a mask of bits
/// is not to give way to what it is made of because of a few bytes at one moment.
pub(crate) fn decided_otherwise(
    f: &Function,
    start: &PlanPoint,
    evaluator: &PlanEvaluator<'_>,
) -> Result<Vec<PlanPoint>, Diagnostic> {
    let mut left = (TRIED / f.inst_count().max(1)).clamp(1, MOST);
    let mut found: Vec<PlanPoint> = Vec::new();
    let mut here = start.clone();
    // Values that were looked at since the plan was last replaced.
    let mut settled: Vec<Value> = Vec::new();
    loop {
        let plan = here.plan.clone();
        let changes = ValueChanges::of(f, &plan)?;
        let mut next = None;
        for (v, _) in changes.by_size() {
            if left == 0 {
                return Ok(found);
            }
            if settled.contains(&v) {
                continue;
            }
            settled.push(v);
            let tried = changes.alternatives(v, evaluator)?;
            left = left.saturating_sub(tried.len());
            // A plan that is beaten is no faster than where this began, which is the fastest.
            let points: Vec<PlanPoint> = tried.into_iter().flatten().collect();
            let best = points.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
            let faster = best.filter(|b| b.seconds < here.seconds * (1.0 - ALIKE)).cloned();
            let told =
                |p: &PlanPoint| p.saved <= here.saved || p.seconds < here.seconds * (1.0 - ALIKE);
            let from = found.len();
            found.extend(points.into_iter().filter(told));
            found[from..].iter().for_each(|point| evaluator.add(point));
            if faster.is_some() {
                next = faster;
                break;
            }
        }
        let Some(better) = next else { return Ok(found) };
        (here, settled) = (better, Vec::new());
    }
}

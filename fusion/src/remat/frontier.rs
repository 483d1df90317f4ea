//! The frontier of plans, and what budgets select from it.

use super::compile_budget::PlanBudget;
use crate::search::point::PlanPoint;
use adfuse_ir::{At, Diagnostic, Kind};

/// The frontier of plans: peaks rise and seconds fall, both strictly.
#[derive(Clone, Debug)]
pub struct PlanFrontier {
    pub(super) points: Vec<PlanPoint>,
    /// Those that no other beats in memory, time and time to compile, in the order in which they were made.
    pub(super) compact: Vec<PlanPoint>,
    /// The largest buffer at the peak moment of the point that takes least.
    pub(super) binding: String,
    /// The name of the function.
    pub(super) func: String,
}

impl PlanFrontier {
    /// The points. There is at least one.
    pub fn points(&self) -> &[PlanPoint] {
        &self.points
    }

    /// The points, and plans beside them that take less time to compile, in the order in which they were made.
    pub(crate) fn compact(&self) -> &[PlanPoint] {
        &self.compact
    }

    /// The fastest point.
    pub fn fastest(&self) -> Option<&PlanPoint> {
        self.points.last()
    }

    /// The fastest point within a budget, in bytes.
    ///
    /// # Errors
    /// [`Kind::Limit`] if there is none: the error says what the least budget is, and which buffer is
    /// in the way.
    pub fn at(&self, budget: u64) -> Result<&PlanPoint, Diagnostic> {
        let fit = self.points.partition_point(|p| p.peak <= budget);
        fit.checked_sub(1).map(|k| &self.points[k]).ok_or_else(|| {
            let least = self.points.first().map_or(0, |p| p.peak);
            let m = format!(
                "no plan within {budget} bytes was found: the least takes {least}, and `%{}` is the largest \
                 buffer at its peak",
                self.binding
            );
            let at = At { func: Some(self.func.clone()), ..At::default() };
            Diagnostic::new(at, Kind::Limit, m)
        })
    }

    /// The fastest plan within a budget of memory and of the time to compile. So a larger budget never has a slower
    /// plan.
    ///
    /// # Errors
    /// As [`PlanFrontier::at`]; and [`Kind::Limit`] if none compiles as fast, which says how long the least takes.
    pub fn within(&self, budget: &PlanBudget) -> Result<&PlanPoint, Diagnostic> {
        let Some(seconds) = budget.compile_seconds else {
            return self.at(budget.memory.unwrap_or(u64::MAX));
        };
        if let Some(bytes) = budget.memory {
            self.at(bytes)?;
        }
        let memory = PlanBudget { compile_seconds: None, ..*budget };
        let fit = || self.compact().iter().filter(|point| memory.has_room_for(point));
        let found = fit().filter(|point| budget.has_room_for(point));
        found.min_by(|a, b| a.seconds.total_cmp(&b.seconds)).ok_or_else(|| {
            let least = fit().map(|point| point.compile.seconds).fold(f64::INFINITY, f64::min);
            let beside = match budget.memory {
                Some(bytes) => format!(" and {bytes} bytes"),
                None => String::new(),
            };
            let m = format!(
                "no plan within {:.3} ms to compile{beside} was found: the least takes {:.3} ms",
                seconds * 1e3,
                least * 1e3
            );
            let at = At { func: Some(self.func.clone()), ..At::default() };
            Diagnostic::new(at, Kind::Limit, m)
        })
    }
}

/// Of plans in the order in which they were made, those that no other beats in memory, time and time to compile: the
/// first of those that are equal in all three. Those of `kept`, by number, stay.
pub(super) fn undominated(points: &[PlanPoint], kept: &[bool]) -> Vec<PlanPoint> {
    let figures = |p: &PlanPoint| [p.seconds, p.peak as f64, p.compile.seconds];
    let beats = |(j, a): (usize, &PlanPoint), (k, b): (usize, &PlanPoint)| {
        let (a, b) = (figures(a), figures(b));
        a.iter().zip(&b).all(|(a, b)| a <= b) && (a != b || j < k)
    };
    let best = |&(k, b): &(usize, &PlanPoint)| {
        kept[k] || !points.iter().enumerate().any(|(j, a)| j != k && beats((j, a), (k, b)))
    };
    points.iter().enumerate().filter(best).map(|(_, point)| point.clone()).collect()
}

//! Budgets of memory and of the time to compile.

use super::PlanFrontier;
use crate::search::point::PlanPoint;
use adfuse_ir::{At, Diagnostic, Kind};

/// What a plan may take.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PlanBudget {
    /// The most bytes at once; any without it.
    pub memory: Option<u64>,
    /// The most predicted seconds to compile; any without it.
    pub compile_seconds: Option<f64>,
}

impl PlanBudget {
    /// Whether it asks for nothing.
    pub fn is_free(&self) -> bool {
        self.memory.is_none() && self.compile_seconds.is_none()
    }

    /// Whether a plan is within it.
    pub fn has_room_for(&self, point: &PlanPoint) -> bool {
        self.memory.is_none_or(|most| point.peak <= most)
            && self.compile_seconds.is_none_or(|most| point.compile.seconds <= most)
    }
}

/// A budget of memory alone.
impl From<u64> for PlanBudget {
    fn from(bytes: u64) -> PlanBudget {
        PlanBudget { memory: Some(bytes), compile_seconds: None }
    }
}

impl PlanFrontier {
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

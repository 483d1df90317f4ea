//! The frontier of plans, and what budgets select from it.

use super::compile_budget::PlanBudget;
use crate::memory::size::in_bytes;
use crate::search::point::PlanPoint;
use adfuse_ir::{At, Diagnostic, Kind};

/// The frontier of plans: peaks rise, and seconds fall by more than a millionth.
#[derive(Clone, Debug)]
pub struct PlanFrontier<T = PlanPoint> {
    pub(super) points: Vec<T>,
    /// Those that no other beats in memory, time and time to compile, in the order in which they were made.
    pub(super) compact: Vec<T>,
    /// The largest buffer at the peak moment of the point that takes least.
    pub(super) binding: String,
    /// The name of the function.
    pub(super) func: String,
}

impl<T: AsRef<PlanPoint>> PlanFrontier<T> {
    /// The points. There is at least one.
    pub fn points(&self) -> &[T] {
        &self.points
    }

    /// The points, and plans beside them that take less time to compile, in the order in which they were made.
    pub(crate) fn compact(&self) -> &[T] {
        &self.compact
    }

    /// The fastest point.
    pub fn fastest(&self) -> Option<&T> {
        self.points.last()
    }

    /// The fastest point within a budget, in bytes.
    ///
    /// # Errors
    /// [`Kind::Limit`] if there is none: the error says what the least budget is, and which buffer is
    /// in the way.
    pub fn at(&self, budget: u64) -> Result<&T, Diagnostic> {
        let fit = self.points.partition_point(|p| p.as_ref().peak <= budget);
        fit.checked_sub(1).map(|k| &self.points[k]).ok_or_else(|| {
            let least = self.points.first().map_or(0, |p| p.as_ref().peak);
            let m = format!(
                "no plan within {} was found: the least takes {least}, and `%{}` is the largest buffer at its peak",
                in_bytes(budget),
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
    pub fn within(&self, budget: &PlanBudget) -> Result<&T, Diagnostic> {
        let Some(seconds) = budget.compile_seconds else {
            return self.at(budget.memory.unwrap_or(u64::MAX));
        };
        if let Some(bytes) = budget.memory {
            self.at(bytes)?;
        }
        let memory = PlanBudget { compile_seconds: None, ..*budget };
        let fit = || self.compact().iter().filter(|point| memory.has_room_for((*point).as_ref()));
        let found = fit().filter(|point| budget.has_room_for((*point).as_ref())).collect();
        undominated(found).pop().ok_or_else(|| {
            let compiled = fit().map(|point| point.as_ref().compile.seconds);
            let least = compiled.fold(f64::INFINITY, f64::min);
            let beside = match budget.memory {
                Some(bytes) => format!(" and {}", in_bytes(bytes)),
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

/// Plans of a function that may be on a frontier.
pub(super) struct FoundPlans<T = PlanPoint> {
    /// Those of the frontier.
    pub(super) points: Vec<T>,
    /// Those that no other beats in memory, time and time to compile, in the order in which they were made.
    pub(super) compact: Vec<T>,
    /// Whether some kernel leaves more than a few values to others, so that what kernels leave says too little of what might be
    /// computed again.
    pub(super) is_coarse: bool,
}

/// Times that differ by a smaller part than this are equal: they are sums of the same seconds, rounded in another order.
const ROUNDING: f64 = 1e-6;

/// The points that no other beats in both peak and time, by their peaks. Of points that are equally fast but for rounding
/// it is the one of the lowest peak, and of equal ones that which leaves least to later phases.
pub(super) fn undominated<T: AsRef<PlanPoint>>(mut points: Vec<T>) -> Vec<T> {
    points.sort_by(|a, b| {
        let (a, b) = (a.as_ref(), b.as_ref());
        a.peak.cmp(&b.peak).then(a.seconds.total_cmp(&b.seconds)).then(a.saved.cmp(&b.saved))
    });
    let mut best: Vec<T> = Vec::new();
    for point in points {
        let faster = |last: &T| point.as_ref().seconds < last.as_ref().seconds * (1.0 - ROUNDING);
        if best.last().is_none_or(faster) {
            best.push(point);
        }
    }
    best
}

impl<T: AsRef<PlanPoint> + Clone> FoundPlans<T> {
    /// Those of some plans that are on their frontier, and those beside them that take less time to compile.
    pub(super) fn of(points: Vec<T>) -> FoundPlans<T> {
        let numbered = points.iter().enumerate().map(|(k, p)| NumberedPoint(k, p.as_ref()));
        let best: Vec<usize> = undominated(numbered.collect()).iter().map(|p| p.0).collect();
        let mut kept = vec![false; points.len()];
        best.iter().for_each(|&k| kept[k] = true);
        let compact = compact(&points, &kept);
        let points = best.iter().map(|&k| points[k].clone()).collect();
        FoundPlans { points, compact, is_coarse: false }
    }
}

/// A point with its place in a list.
struct NumberedPoint<'p>(usize, &'p PlanPoint);

impl AsRef<PlanPoint> for NumberedPoint<'_> {
    fn as_ref(&self) -> &PlanPoint {
        self.1
    }
}

/// Of plans in the order in which they were made, those that no other beats in memory, time and time to compile: the
/// first of those that are equal in all three. Those of `kept`, by number, stay.
fn compact<T: AsRef<PlanPoint> + Clone>(points: &[T], kept: &[bool]) -> Vec<T> {
    let figures = |p: &PlanPoint| [p.seconds, p.peak as f64, p.compile.seconds];
    let beats = |(j, a): (usize, &T), (k, b): (usize, &T)| {
        let (a, b) = (figures(a.as_ref()), figures(b.as_ref()));
        a.iter().zip(&b).all(|(a, b)| a <= b) && (a != b || j < k)
    };
    let best = |&(k, b): &(usize, &T)| {
        kept[k] || !points.iter().enumerate().any(|(j, a)| j != k && beats((j, a), (k, b)))
    };
    points.iter().enumerate().filter(best).map(|(_, point)| point.clone()).collect()
}

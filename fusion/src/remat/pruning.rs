//! Plans that are dropped before their memory is planned: of most plans it is known by then that another is better.

use crate::memory::engine::EngineModel;
use crate::plan::Plan;
use crate::plan::options::PlanOptions;
use crate::search::point::{PlanPoint, PricedPlan, priced};
use adfuse_ir::{Diagnostic, Function};
use std::sync::{Mutex, PoisonError};

/// What is known of the points of a frontier so far. Threads share it; which of them comes first changes what is measured
/// and not what the frontier is, since what is dropped is beaten by what stays.
#[derive(Default)]
pub(crate) struct KnownPoints(Mutex<Vec<KnownPoint>>);

#[derive(Clone, Copy)]
struct KnownPoint {
    peak: u64,
    seconds: f64,
    compile: f64,
}

impl KnownPoint {
    /// Whether a point beats all that take so much or more, in memory, in time and in time to compile.
    fn beats(&self, least: &KnownPoint) -> bool {
        self.peak <= least.peak && self.seconds < least.seconds && self.compile <= least.compile
    }
}

impl KnownPoints {
    /// Notes a point, which the frontier is chosen from.
    pub(super) fn add(&self, point: &PlanPoint) {
        let PlanPoint { peak, seconds, compile, .. } = point;
        let new = KnownPoint { peak: *peak, seconds: *seconds, compile: compile.seconds };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.iter().any(|point| point.beats(&new)) {
            known.retain(|point| !new.beats(point));
            known.push(new);
        }
    }

    /// Whether a point beats a plan, wherever its buffers will be.
    fn beat(&self, plan: &PricedPlan) -> bool {
        let PricedPlan { seconds, compile, .. } = plan;
        let least =
            KnownPoint { peak: plan.least_peak(), seconds: *seconds, compile: compile.seconds };
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().any(|point| point.beats(&least))
    }

    /// The cost of a plan; none where a known point is better in all.
    ///
    /// # Errors
    /// As [`lower`](crate::lower()), and those of the engine.
    pub(super) fn measured(
        &self,
        f: &Function,
        plan: Plan,
        options: &PlanOptions,
        engine: &dyn EngineModel,
    ) -> Result<MaybeMeasured, Diagnostic> {
        let priced = priced(f, plan, options, engine)?;
        if self.beat(&priced) {
            return Ok(MaybeMeasured::Beaten);
        }
        Ok(MaybeMeasured::Point(Box::new(priced.measured(f, options, engine)?.point)))
    }
}

/// A plan's cost, as far as it matters.
pub(super) enum MaybeMeasured {
    /// Another plan is better in all.
    Beaten,
    /// Its cost.
    Point(Box<PlanPoint>),
}

impl MaybeMeasured {
    /// The cost, where the plan may be better than others.
    pub(super) fn point(self) -> Option<PlanPoint> {
        match self {
            MaybeMeasured::Beaten => None,
            MaybeMeasured::Point(point) => Some(*point),
        }
    }
}

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
    /// Whether a point beats every plan that takes at least this memory, time and time to compile.
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

    /// The cost of a plan; `None` where a known point beats it.
    ///
    /// # Errors
    /// As [`lower`](crate::lower()), and those of the engine.
    pub(super) fn measured(
        &self,
        f: &Function,
        plan: Plan,
        options: &PlanOptions,
        engine: &dyn EngineModel,
    ) -> Result<Option<PlanPoint>, Diagnostic> {
        let priced = priced(f, plan, options, engine)?;
        if self.beat(&priced) {
            return Ok(None);
        }
        Ok(Some(priced.measured(f, options, engine)?.point))
    }
}

//! The price of a state.

use super::space::PlanSpace;
use super::state::PlanState;
use crate::lower::lowered;
use crate::memory::memory_beside;
use crate::memory::residuals::saved_bytes;
use crate::plan::Plan;
use crate::plan::options::Effort;
use adfuse_ir::kernel::{Program, verify};

/// The cost of a plan.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlanPrice {
    /// Seconds, measured or predicted.
    pub seconds: f64,
    /// The most bytes at once.
    pub peak: u64,
    /// Bytes that a phase leaves to a later one.
    pub saved: u64,
}

impl PlanSpace<'_> {
    /// What a state costs; `None` where it is no plan. Memory is packed quickly, so that a peak may be
    /// somewhat more than that of the finished plan.
    pub fn price(&self, state: &PlanState) -> Option<PlanPrice> {
        self.price_at(&self.plan(state), Effort::Quick)
    }

    /// As [`PlanSpace::price`], of a plan whose memory is packed with an effort.
    pub(super) fn price_at(&self, plan: &Plan, effort: Effort) -> Option<PlanPrice> {
        let program = self.program(plan)?;
        let sized = self.engine.sized(&program).ok()?;
        let memory = memory_beside(&program, effort, sized.scratch()).ok()?;
        let seconds = self.measure.seconds(self.facts.f, plan, &program);
        Some(PlanPrice {
            seconds: seconds
                .unwrap_or_else(|| self.engine.cost(&program, &self.options.device).seconds),
            peak: sized.peak(&memory).ok()?,
            saved: saved_bytes(self.facts.f, plan).ok()?,
        })
    }

    /// Whether what is measured has nothing against one plan in place of another.
    pub(super) fn confirms(&self, before: &Plan, after: &Plan) -> bool {
        let (Some(a), Some(b)) = (self.program(before), self.program(after)) else { return false };
        let found = self.measure.confirms(self.facts.f, (before, &a), (after, &b));
        found.unwrap_or(true)
    }

    pub(super) fn is_legal(&self, state: &PlanState) -> bool {
        self.program(&self.plan(state)).is_some()
    }

    /// The program of a plan, as the verifier accepts it.
    pub(super) fn program(&self, plan: &Plan) -> Option<Program> {
        let program = lowered(self.facts.f, plan, &self.options.device).ok()?;
        Some(verify(program).ok()?.into_inner())
    }
}

/// What keeping a value for a later phase is taken to cost beside moving it, as multiples of that: the
/// higher, the more of what elementwise instructions compute is computed again by its readers.
pub(crate) const PRICES: [f64; 3] = [0.0, 4.0, 32.0];

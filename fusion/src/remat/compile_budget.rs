//! Budgets of memory and of the time to compile.

use crate::search::point::PlanPoint;

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

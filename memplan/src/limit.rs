//! How much work may be spent: steps, which are the same on every machine, and a point in time, which
//! is not.

use std::time::Instant;

/// Work left.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    spent: u64,
    most: u64,
    deadline: Option<Instant>,
    late: bool,
}

impl Limit {
    pub(crate) fn new(most: u64, deadline: Option<Instant>) -> Self {
        Self { spent: 0, most, deadline, late: false }
    }

    /// Spends `steps`; says whether there were that many left.
    pub(crate) fn spend(&mut self, steps: u64) -> bool {
        if self.is_reached() {
            return false;
        }
        let before = self.spent / CLOCK;
        self.spent = self.spent.saturating_add(steps).min(self.most);
        // Asking for the time takes longer than a step.
        if self.spent / CLOCK != before {
            self.late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        }
        !self.late
    }

    /// Whether nothing is left.
    pub(crate) fn is_reached(&self) -> bool {
        self.late || self.spent >= self.most
    }

    /// Steps spent.
    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    /// Steps left.
    pub(crate) fn left(&self) -> u64 {
        if self.late { 0 } else { self.most - self.spent }
    }

    /// Lets `work` spend at most `steps` of what is left.
    pub(crate) fn within<T>(&mut self, steps: u64, work: impl FnOnce(&mut Limit) -> T) -> T {
        let most = self.most;
        self.most = most.min(self.spent.saturating_add(steps));
        let result = work(self);
        self.most = most;
        result
    }
}

/// The deadline is looked at once in so many steps.
const CLOCK: u64 = 256;

//! Limits on the work: a number of steps, which is the same on every machine, and a deadline, which is not.

use std::time::Instant;

/// Work left.
///
/// What is planned with depends on `most` alone, which [`Limit::within`] sets, and not on `end`: so all
/// work up to the end is what any later end would begin with, and more effort never gives a worse result.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    spent: u64,
    /// Where the part of the work that is under way ends.
    most: u64,
    /// Where all work ends.
    end: u64,
    deadline: Option<Instant>,
    late: bool,
    /// Places looked at since the time was last asked for.
    looked: usize,
}

impl Limit {
    pub(crate) fn new(end: u64, deadline: Option<Instant>) -> Self {
        Self { spent: 0, most: u64::MAX, end, deadline, late: false, looked: 0 }
    }

    /// Spends `steps`; says whether there were that many left.
    pub(crate) fn spend(&mut self, steps: u64) -> bool {
        if self.is_reached() {
            return false;
        }
        let before = self.spent / CLOCK;
        self.spent = self.spent.saturating_add(steps).min(self.most).min(self.end);
        // Asking for the time takes longer than a step.
        if self.spent / CLOCK != before {
            self.ask();
        }
        !self.late
    }

    /// Notes work that is no search and costs no steps, but takes its time; says whether there is time
    /// for more.
    pub(crate) fn look(&mut self, places: usize) -> bool {
        self.looked += places;
        if self.looked >= LOOKED {
            self.looked = 0;
            self.ask();
        }
        !self.late
    }

    /// Notes that time ended for work beside this.
    pub(crate) fn join(&mut self, other: &Limit) {
        self.late |= other.late;
    }

    fn ask(&mut self) {
        self.late |= self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
    }

    /// Whether the deadline has passed.
    pub(crate) fn is_late(&self) -> bool {
        self.late
    }

    /// Whether the limit is exhausted.
    pub(crate) fn is_over(&self) -> bool {
        self.late || self.spent >= self.end
    }

    /// Whether nothing is left of the work under way.
    pub(crate) fn is_reached(&self) -> bool {
        self.is_over() || self.spent >= self.most
    }

    /// Steps spent.
    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    /// Steps left of the work under way, were there no end.
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

/// The deadline is looked at once in this many steps.
const CLOCK: u64 = 256;

/// The clock is read once for this many places, which take about a millisecond.
const LOOKED: usize = 1 << 18;

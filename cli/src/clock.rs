//! The durations of a command's phases.

use std::time::{Duration, Instant};

/// Records consecutive phases.
#[derive(Clone)]
pub(super) struct Clock {
    since: Instant,
    /// The phases so far, in order.
    pub(super) phases: Vec<(&'static str, Duration)>,
}

impl Clock {
    /// Begins the first phase.
    pub(super) fn new() -> Clock {
        Clock { since: Instant::now(), phases: Vec::new() }
    }

    /// Begins a phase; the time since the last one ended belongs to none.
    pub(super) fn begin(&mut self) {
        self.since = Instant::now();
    }

    /// Ends a phase, or a part of it, and begins the next.
    pub(super) fn end(&mut self, name: &'static str) {
        let now = Instant::now();
        self.add(name, now - self.since);
        self.since = now;
    }

    /// Adds to a phase that may have been recorded before.
    fn add(&mut self, name: &'static str, took: Duration) {
        match self.phases.iter_mut().find(|(known, _)| *known == name) {
            Some((_, all)) => *all += took,
            None => self.phases.push((name, took)),
        }
    }

    /// The same without a phase.
    pub(super) fn without(&self, name: &str) -> Clock {
        let others = self.phases.iter().filter(|(known, _)| *known != name);
        Clock { since: self.since, phases: others.copied().collect() }
    }

    /// Ends two phases, of which the second took so long.
    pub(super) fn end_both(&mut self, [first, last]: [&'static str; 2], took: Duration) {
        let begun = self.phases.len();
        self.end(first);
        for (_, both) in &mut self.phases[begun..] {
            *both = both.saturating_sub(took);
        }
        self.phases.push((last, took));
    }

    /// All phases together.
    pub(super) fn total(&self) -> Duration {
        self.phases.iter().map(|(_, took)| *took).sum()
    }
}

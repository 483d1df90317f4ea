//! Traces: what happened when during a run.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A trace of a run: steps, and the tasks of each.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Trace {
    /// Steps in order, each followed by its tasks, those of one thread together.
    pub spans: Vec<TimedSpan>,
}

/// When one step of a traced run began and ended, in time since the run began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedSpan {
    /// The number of the step, among those that run.
    pub step: usize,
    /// The thread; 0 is the caller's.
    pub thread: usize,
    /// The number of the task among those that were shared out together; the whole step where there is
    /// none.
    pub task: Option<u64>,
    /// Since the run began.
    pub begin: Duration,
    /// Since the run began.
    pub end: Duration,
}

/// Takes spans down during a run, those of each thread apart.
pub(crate) struct SpanRecorder {
    start: Instant,
    steps: Vec<TimedSpan>,
    tasks: Vec<Mutex<Vec<TimedSpan>>>,
}

impl SpanRecorder {
    /// For this many threads; the run begins now.
    pub(crate) fn new(threads: usize) -> SpanRecorder {
        let tasks = (0..threads).map(|_| Mutex::default()).collect();
        SpanRecorder { start: Instant::now(), steps: Vec::new(), tasks }
    }

    /// The time since the run began.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// A step that began then is done.
    pub(crate) fn step(&mut self, step: usize, begin: Duration) {
        self.steps.push(TimedSpan { step, thread: 0, task: None, begin, end: self.now() });
    }

    /// A task that began then is done.
    pub(crate) fn task(&self, step: usize, thread: usize, task: i64, begin: Duration) {
        let task = Some(task.unsigned_abs());
        if let Some(spans) = self.tasks.get(thread) {
            let mut spans = spans.lock().unwrap_or_else(PoisonError::into_inner);
            spans.push(TimedSpan { step, thread, task, begin, end: self.now() });
        }
    }

    /// All of it.
    pub(crate) fn finish(self) -> Trace {
        let mut spans = self.steps;
        for tasks in self.tasks {
            spans.extend(tasks.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
        // Stable: a step before its tasks, tasks of a thread in the order in which they ended.
        spans.sort_by_key(|s| s.step);
        Trace { spans }
    }
}

//! How the points of a kernel are divided into tasks, and what a task costs.
//!
//! Costs are counted in primitives of elementwise code, of which a thread does some sixteen a nanosecond.

/// Fewer primitives than this are one task: in less time no other thread takes part.
const ALONE: i64 = 1 << 18;

/// The fewest primitives of a task, some ten microseconds.
pub(super) const FEWEST: i64 = 1 << 17;

/// The most: longer tasks leave threads without work at the end.
const MOST: i64 = 1 << 20;

/// Tasks that a kernel has for each thread, where it has work for them.
const TASKS: i64 = 4;

/// The primitives of an element that is read, handled and stored.
const ELEMENT: i64 = 8;

/// Multiply-adds in the time of a primitive: some sixty-four a nanosecond.
const PRODUCTS: i64 = 4;

/// The primitives of a step for which one thread is woken: some twenty microseconds, as long as it takes to wake.
const PER_WOKEN_THREAD: i64 = 1 << 18;

/// What tasks of a kernel follow from.
#[derive(Clone, Copy, Debug)]
pub(super) struct PointTasks {
    pub(super) points: i64,
    /// The primitives of a point.
    pub(super) work: i64,
    /// What tasks begin at multiples of; `None` where a kernel is one task.
    pub(super) grain: Option<i64>,
}

/// Tasks of equal cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskCount {
    pub(super) count: i64,
    /// The primitives of a task.
    pub(super) work: i64,
}

impl TaskCount {
    /// A task that no other thread takes part in.
    pub(super) const ONE: TaskCount = TaskCount { count: 1, work: 0 };

    /// Tasks that each go over this many elements by code that is not compiled for the step.
    pub(super) fn of(count: i64, elements: i64) -> TaskCount {
        TaskCount { count, work: elements.saturating_mul(ELEMENT) }
    }

    /// Tasks that each take this many multiply-adds.
    pub(super) fn of_products(count: i64, products: i64) -> TaskCount {
        TaskCount { count, work: products / PRODUCTS }
    }

    /// How many threads that sleep may be woken for them.
    pub(super) fn worth_waking(&self) -> usize {
        let all = self.count.saturating_mul(self.work);
        usize::try_from(all / PER_WOKEN_THREAD).unwrap_or(0)
    }
}

impl PointTasks {
    /// The points of a task where it has the least work.
    pub(super) fn shortest(&self) -> i64 {
        self.task(i64::MAX / TASKS)
    }

    /// Whether it is one task for any number of threads.
    pub(super) fn is_one(&self) -> bool {
        self.shortest() >= self.points
    }

    /// The points of a task for this number of threads, at least one.
    pub(super) fn task(&self, threads: i64) -> i64 {
        let all = self.points.saturating_mul(self.work);
        let Some(grain) = self.grain.filter(|_| all > ALONE) else { return self.points.max(1) };
        let primitives = (all / (TASKS * threads.max(1))).clamp(FEWEST, MOST);
        let wanted = (primitives / self.work.max(1)).max(1);
        (wanted - 1) / grain * grain + grain
    }

    /// The tasks for this number of threads.
    pub(super) fn count(&self, threads: i64) -> TaskCount {
        let task = self.task(threads);
        let count = (self.points + task - 1) / task;
        TaskCount { count, work: task.saturating_mul(self.work) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_kernels_have_tasks_for_all_threads() {
        for (points, work, grain) in [(1 << 20, 20, 1), (1 << 16, 9, 64), (64, 1 << 15, 1)] {
            let tasks = PointTasks { points, work, grain: Some(grain) };
            for threads in [1, 2, 8, 16, 64] {
                let task = tasks.task(threads);
                assert_eq!(task % grain, 0, "{tasks:?}, {threads}");
                assert!(task >= tasks.task(2 * threads), "{tasks:?}, {threads}");
                let TaskCount { count, work } = tasks.count(threads);
                assert!((count - 1) * task < points && count * task >= points);
                let due = (points * tasks.work / FEWEST).min(threads);
                assert!(count >= due, "{tasks:?}, {threads}: {count} tasks of {work}");
            }
        }
    }

    #[test]
    fn short_kernels_are_one_task() {
        for grain in [None, Some(1)] {
            let tasks = PointTasks { points: ALONE / 8, work: 8, grain };
            assert_eq!(tasks.count(16).count, 1);
        }
        assert_eq!(PointTasks { points: 1 << 30, work: 8, grain: None }.count(16).count, 1);
        assert_eq!(PointTasks { points: 0, work: 8, grain: Some(1) }.task(2), 1);
    }
}

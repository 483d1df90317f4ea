//! How the points of a kernel are divided into tasks, and what a task costs.
//!
//! Costs are counted in primitives of elementwise code, of which a thread does some sixteen a nanosecond. Code of many primitives an element
//! reads and writes little for each: of those beyond [`LIGHT`] it does three times as many.

/// Fewer primitives than this are one task: in less time no other thread takes part.
const ALONE: i64 = 1 << 18;

/// The fewest primitives of a task, some ten microseconds.
pub(super) const FEWEST: i64 = 1 << 17;

/// The most: longer tasks leave threads without work at the end.
const MOST: i64 = 1 << 20;

/// Tasks that a kernel has for each thread, where it has work for them.
const TASKS: i64 = 4;

/// Up to this number of primitives an element, traffic takes the time.
const LIGHT: i64 = 32;

/// How long an element of this many primitives takes, in primitives of light code.
pub(super) fn time_of(work: i64) -> i64 {
    work.min(LIGHT).saturating_add((work - LIGHT).max(0) / 3)
}

/// The primitives of an element that is read, handled and stored.
const ELEMENT: i64 = 8;

/// The primitives of an element that is packed: some ten a nanosecond.
const PACKED: i64 = 2;

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
    /// How long a point takes, in primitives of light code.
    pub(super) time: i64,
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

    /// Tasks that each pack this many elements.
    pub(super) fn of_packing(count: i64, elements: i64) -> TaskCount {
        TaskCount { count, work: elements.saturating_mul(PACKED) }
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
        self.is_short() || self.shortest() >= self.points
    }

    /// Whether it is over before another thread takes part. What other threads compute is also further away for the next step: a
    /// kernel of 6 us at each step of a loop takes 18 by three threads.
    fn is_short(&self) -> bool {
        self.points.saturating_mul(self.time) <= ALONE
    }

    /// The points of a task of a run by this number of threads, at least one. Prices are of [`PointTasks::shortest`], on every host.
    pub(super) fn of_run(&self, threads: i64) -> i64 {
        if self.is_short() { self.points.max(1) } else { self.task(threads) }
    }

    /// The points of a task for this number of threads, at least one.
    fn task(&self, threads: i64) -> i64 {
        let all = self.points.saturating_mul(self.work);
        let Some(grain) = self.grain.filter(|_| all > ALONE) else { return self.points.max(1) };
        let primitives = (all / (TASKS * threads.max(1))).clamp(FEWEST, MOST);
        let wanted = (primitives / self.work.max(1)).max(1);
        (wanted - 1) / grain * grain + grain
    }

    /// The tasks of a run by this number of threads.
    pub(super) fn count(&self, threads: i64) -> TaskCount {
        let task = self.of_run(threads);
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
            let tasks = PointTasks { points, work, time: work, grain: Some(grain) };
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
            let tasks = PointTasks { points: ALONE / 8, work: 8, time: 8, grain };
            assert_eq!(tasks.count(16).count, 1);
        }
        let of = |points, grain| PointTasks { points, work: 8, time: 8, grain };
        assert_eq!(of(1 << 30, None).count(16).count, 1);
        assert_eq!(of(0, Some(1)).task(2), 1);
    }

    /// Gates of a small recurrent layer, five exponentials an element: 6 us.
    #[test]
    fn short_kernels_of_heavy_code_are_one_task() {
        let work = 150;
        let gates = PointTasks { points: 2048, work, time: time_of(work), grain: Some(1) };
        assert!(gates.shortest() < gates.points && gates.is_one());
        assert_eq!((gates.of_run(16), gates.count(16).count), (2048, 1));
        let more = PointTasks { points: 8192, ..gates };
        assert!(!more.is_one() && more.count(16).count > 4);
        assert_eq!([8, LIGHT].map(time_of), [8, LIGHT]);
    }
}

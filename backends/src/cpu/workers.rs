//! The workers of a run: each has its table of pointers and memory of its own.
#![allow(unsafe_code)]

use super::machine_code::{Code, SweepId};
use super::point_tasks::TaskCount;
use super::thread_pool::ThreadPool;
use crate::runtime::trace::SpanRecorder;
use std::array::from_fn;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A worker: a table of pointers, and memory of its own.
pub(super) struct Worker {
    /// Pointers to the buffers, then to the slots of the step that runs.
    pub(super) table: Vec<*mut u8>,
    /// How many of them are buffers'.
    pub(super) buffers: usize,
    /// Its own memory.
    pub(super) own: *mut u8,
    /// Memory of all workers.
    pub(super) shared: *mut u8,
}

/// An array of a worker, and the slot in which sweeps find it.
#[derive(Clone, Copy)]
pub(super) struct OwnArray {
    pub(super) slot: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl OwnArray {
    /// Where element 0 would be, if element `first` is where the array begins.
    pub(super) fn begins(&self, worker: &Worker, first: i64) -> *mut u8 {
        let back = first.wrapping_mul(self.bytes as i64);
        worker.at(self.offset).wrapping_offset((back as isize).wrapping_neg())
    }
}

// SAFETY: a worker is used by one thread at a time; that tasks touch disjoint memory is what chunks are cut for.
unsafe impl Send for Worker {}

impl Worker {
    /// Puts an array in a slot: element `first` of the slot is at `at`.
    pub(super) fn set(&mut self, slot: u32, at: *mut u8, first: i64, bytes: u64) {
        let back = first.wrapping_mul(bytes as i64);
        if let Some(entry) = self.table.get_mut(self.buffers + slot as usize) {
            *entry = at.wrapping_offset((back as isize).wrapping_neg());
        }
    }

    /// An address in the worker's own memory.
    pub(super) fn at(&self, offset: u64) -> *mut u8 {
        self.own.wrapping_add(offset as usize)
    }

    /// An address in the memory of all.
    pub(super) fn all(&self, offset: u64) -> *mut u8 {
        self.shared.wrapping_add(offset as usize)
    }

    /// Runs a sweep over places.
    pub(super) fn sweep(&mut self, code: &Code, id: SweepId, begin: i64, end: i64) {
        // SAFETY: steps set the slots that their sweeps name before they run them, with room for the
        // places that they ask for; buffers are set for the whole run, or for each turn of a loop, with the
        // sizes that the plan was checked for. The verifier has proven that accesses at places of the extents stay inside.
        unsafe { code.run(id, &mut self.table, begin, end) }
    }
}

/// The most shares that tasks are divided into.
const SHARES: usize = 64;

/// The tasks of a step, a range of neighbours for each thread.
///
/// A thread begins with the same range in every run and in every step of as many tasks, so that it finds what it has written in its own cache,
/// and in memory that it has touched first. A thread that is done with its range helps others with theirs.
struct TaskShares {
    /// Those that are used come first.
    all: [TaskShare; SHARES],
    shares: usize,
}

/// Each on a cache line of its own, so that threads share one only when they help.
#[repr(align(64))]
struct TaskShare {
    /// Its next task.
    next: AtomicI64,
    /// One past its last task.
    end: i64,
}

impl TaskShares {
    fn new(count: i64, threads: usize) -> TaskShares {
        let shares = threads.clamp(1, SHARES);
        let mut begin = 0;
        let share = |k| {
            let end = if k < shares { start_of(k + 1, count, shares) } else { count };
            TaskShare { next: AtomicI64::new(std::mem::replace(&mut begin, end)), end }
        };
        TaskShares { all: from_fn(share), shares }
    }

    /// A task that nobody has taken: of the thread's own share first.
    fn take(&self, thread: usize) -> Option<i64> {
        (0..self.shares).find_map(|k| {
            let TaskShare { next, end } = &self.all[(thread + k) % self.shares];
            // Shares of which nothing is left are only read.
            let left = next.load(Ordering::Relaxed) < *end;
            let k = left.then(|| next.fetch_add(1, Ordering::Relaxed))?;
            (k < *end).then_some(k)
        })
    }
}

/// Where a share begins.
fn start_of(share: usize, count: i64, shares: usize) -> i64 {
    (i128::from(count) * share as i128 / shares as i128) as i64
}

/// The workers, and how many of them there are.
pub(super) struct WorkerSet<'a> {
    pub(super) code: &'a Code,
    /// One for each thread.
    pub(super) workers: &'a [Mutex<Worker>],
    /// The threads in addition to the caller's, unless another run uses them.
    pub(super) pool: Option<&'a mut ThreadPool>,
    /// The step that runs.
    pub(super) step: usize,
    /// Records when tasks run, on request.
    pub(super) recorder: Option<&'a SpanRecorder>,
}

impl WorkerSet<'_> {
    /// Runs tasks `0..count`, each once, in any order.
    pub(super) fn each(&mut self, tasks: TaskCount, task: impl Fn(&Code, &mut Worker, i64) + Sync) {
        let count = tasks.count;
        let (code, step, recorder) = (self.code, self.step, self.recorder);
        let task = |thread: usize, worker: &mut Worker, k| match recorder {
            None => task(code, worker, k),
            Some(recorder) => {
                let begin = recorder.now();
                task(code, worker, k);
                recorder.task(step, thread, k, begin);
            }
        };
        let pool = self.pool.as_deref_mut().filter(|_| count > 1 && self.workers.len() > 1);
        let Some(pool) = pool else {
            let worker = &mut *self.worker(0);
            return (0..count).for_each(|k| task(0, worker, k));
        };
        // More threads than tasks would find none.
        let threads = self.workers.len().min(usize::try_from(count).unwrap_or(usize::MAX));
        let (workers, shares) = (self.workers, TaskShares::new(count, threads));
        pool.run(threads - 1, tasks.worth_waking(), &|thread| {
            let Some(worker) = workers.get(thread) else { return };
            let worker = &mut *worker.lock().unwrap_or_else(PoisonError::into_inner);
            while let Some(k) = shares.take(thread) {
                task(thread, worker, k);
            }
        });
    }

    /// Threads that run tasks, the caller's among them.
    pub(super) fn threads(&self) -> usize {
        if self.pool.is_some() { self.workers.len() } else { 1 }
    }

    /// The worker of a thread, while no task runs.
    pub(super) fn worker(&self, thread: usize) -> MutexGuard<'_, Worker> {
        self.workers[thread].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_taken_once_and_own_ones_first() {
        for (count, threads) in [(1, 1), (5, 2), (16, 16), (7, 64), (1000, 100), (3, 200)] {
            let shares = TaskShares::new(count, threads);
            let mut taken = vec![0; count as usize];
            // The last thread comes alone: it takes its own share, then all others.
            let first = shares.take(threads - 1).expect("there is a task");
            let own = (threads - 1) % shares.shares;
            let begin = start_of(own, count, shares.shares);
            assert!(first == begin || begin == start_of(own + 1, count, shares.shares));
            taken[first as usize] += 1;
            while let Some(k) = shares.take(threads - 1) {
                taken[k as usize] += 1;
            }
            assert!(taken.iter().all(|&n| n == 1), "{count}, {threads}: {taken:?}");
            assert_eq!(shares.take(0), None);
        }
    }
}

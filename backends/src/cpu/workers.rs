//! The workers of a run: each has its table of pointers and memory of its own.
#![allow(unsafe_code)]

use super::machine_code::{Code, SweepId};
use super::thread_pool::ThreadPool;
use crate::runtime::trace::SpanRecorder;
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
    pub(super) fn each(&mut self, count: i64, task: impl Fn(&Code, &mut Worker, i64) + Sync) {
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
        let (workers, next) = (self.workers, AtomicI64::new(0));
        pool.run(&|thread| {
            let Some(worker) = workers.get(thread) else { return };
            let worker = &mut *worker.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                let k = next.fetch_add(1, Ordering::Relaxed);
                if k >= count {
                    break;
                }
                task(thread, worker, k);
            }
        });
    }

    /// The worker of a thread, while no task runs.
    pub(super) fn worker(&self, thread: usize) -> MutexGuard<'_, Worker> {
        self.workers[thread].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

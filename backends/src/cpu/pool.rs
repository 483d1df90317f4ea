//! Threads that wait for work: a short while spinning, then asleep.
#![allow(unsafe_code)]

use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, park, spawn, yield_now};

/// Turns of a loop before a thread that waits goes to sleep: some ten microseconds, about what it
/// takes to wake it.
const SPINS: u32 = 4000;

/// What all threads do once for each call of [`Pool::run`], with their numbers.
type Job<'a> = &'a (dyn Fn(usize) + Sync);

struct Shared {
    /// Counts the calls.
    call: AtomicU64,
    job: Mutex<Option<Job<'static>>>,
    /// Threads that have not finished the call.
    busy: AtomicUsize,
    failed: AtomicBool,
    stop: AtomicBool,
}

/// Threads beside the caller's.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// So many threads beside the caller's; fewer where the system gives no more.
    pub(super) fn new(beside: usize) -> Pool {
        let shared = Arc::new(Shared {
            call: AtomicU64::new(0),
            job: Mutex::new(None),
            busy: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let thread = |k: usize| {
            let shared = Arc::clone(&shared);
            spawn(move || shared.wait(k + 1))
        };
        Pool { threads: (0..beside).map(thread).collect(), shared }
    }

    /// Runs a job on all threads, the caller's being number 0, and returns when all are done.
    ///
    /// # Panics
    /// When a thread's part of the job did.
    pub(super) fn run(&mut self, job: Job<'_>) {
        if self.threads.is_empty() {
            return job(0);
        }
        // SAFETY: no thread uses the job after it has counted itself out, and this does not return,
        // nor unwind, before all have.
        let job_of_all = unsafe { std::mem::transmute::<Job<'_>, Job<'static>>(job) };
        *self.shared.job.lock().unwrap_or_else(PoisonError::into_inner) = Some(job_of_all);
        self.shared.busy.store(self.threads.len(), Ordering::Relaxed);
        self.shared.call.fetch_add(1, Ordering::Release);
        self.threads.iter().for_each(|t| t.thread().unpark());
        let own = catch_unwind(AssertUnwindSafe(|| job(0)));
        let mut turns = 0;
        while self.shared.busy.load(Ordering::Acquire) != 0 {
            turns += 1;
            if turns < SPINS { spin_loop() } else { yield_now() }
        }
        *self.shared.job.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let failed = self.shared.failed.swap(false, Ordering::Relaxed);
        if let Err(panic) = own {
            std::panic::resume_unwind(panic);
        }
        assert!(!failed, "a thread of the pool panicked");
    }
}

impl Shared {
    fn wait(&self, number: usize) {
        let mut seen = 0;
        loop {
            let mut turns = 0;
            while self.call.load(Ordering::Acquire) == seen {
                if self.stop.load(Ordering::Acquire) {
                    return;
                }
                turns += 1;
                if turns < SPINS { spin_loop() } else { park() }
            }
            seen += 1;
            let job = *self.job.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(job) = job
                && catch_unwind(AssertUnwindSafe(|| job(number))).is_err()
            {
                self.failed.store(true, Ordering::Relaxed);
            }
            self.busy.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_runs_every_job_once() {
        let mut pool = Pool::new(3);
        for call in 0..200 {
            let counts: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
            pool.run(&|k| {
                counts[k].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1), "{call}");
            if call % 50 == 0 {
                // Long enough to fall asleep.
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
    }

    #[test]
    fn a_panic_comes_back() {
        let mut pool = Pool::new(1);
        let caught = catch_unwind(AssertUnwindSafe(|| pool.run(&|k| assert_ne!(k, 1))));
        assert!(caught.is_err());
        pool.run(&|_| {});
    }
}

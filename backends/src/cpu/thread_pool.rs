//! A pool of threads, which spin for a short while and then sleep until there is work.
#![allow(unsafe_code)]

use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, park, yield_now};

/// Turns of a loop before a thread that waits goes to sleep: some ten microseconds, about what it
/// takes to wake it.
const SPINS: u32 = 4000;

/// What threads do for a call of [`ThreadPool::run`], with their numbers.
type Job<'a> = &'a (dyn Fn(usize) + Sync);

struct PoolState {
    /// Counts the calls.
    call: AtomicU64,
    job: Mutex<Option<Job<'static>>>,
    /// Threads that have taken the job and not finished it. Counted up with the job locked only.
    busy: AtomicUsize,
    failed: AtomicBool,
    stop: AtomicBool,
}

/// Threads in addition to the caller's.
pub(super) struct ThreadPool {
    shared: Arc<PoolState>,
    threads: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// This many threads in addition to the caller's; fewer if the system refuses more.
    pub(super) fn new(beside: usize) -> ThreadPool {
        let shared = Arc::new(PoolState {
            call: AtomicU64::new(0),
            job: Mutex::new(None),
            busy: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let thread = |k: usize| {
            let shared = Arc::clone(&shared);
            Builder::new().spawn(move || shared.wait(k + 1)).ok()
        };
        ThreadPool { threads: (0..beside).filter_map(thread).collect(), shared }
    }

    /// Runs a job on the caller's thread, as number 0, and on those others that come before that is done
    /// with it: each takes its part of the work while there is some, and nobody waits for a thread that
    /// has not begun. Returns when all that did are done.
    ///
    /// # Panics
    /// When a thread's part of the job did.
    pub(super) fn run(&mut self, job: Job<'_>) {
        if self.threads.is_empty() {
            return job(0);
        }
        // SAFETY: a thread that takes the job counts itself in while it has it locked, and out when it is
        // done. This takes the job back and then waits for all to be out, before it returns or unwinds.
        let job_of_all = unsafe { std::mem::transmute::<Job<'_>, Job<'static>>(job) };
        {
            let mut job = self.shared.job.lock().unwrap_or_else(PoisonError::into_inner);
            *job = Some(job_of_all);
            self.shared.call.fetch_add(1, Ordering::Release);
        }
        self.threads.iter().for_each(|t| t.thread().unpark());
        let own = catch_unwind(AssertUnwindSafe(|| job(0)));
        *self.shared.job.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut turns = 0;
        while self.shared.busy.load(Ordering::Acquire) != 0 {
            turns += 1;
            if turns < SPINS { spin_loop() } else { yield_now() }
        }
        let failed = self.shared.failed.swap(false, Ordering::Relaxed);
        if let Err(panic) = own {
            std::panic::resume_unwind(panic);
        }
        assert!(!failed, "a thread of the pool panicked");
    }
}

impl PoolState {
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
            let (call, job) = self.take();
            seen = call;
            let Some(job) = job else { continue };
            if catch_unwind(AssertUnwindSafe(|| job(number))).is_err() {
                self.failed.store(true, Ordering::Relaxed);
            }
            self.busy.fetch_sub(1, Ordering::Release);
        }
    }
}

impl PoolState {
    /// The call and its job, if that has not been taken back, counting the thread in.
    fn take(&self) -> (u64, Option<Job<'static>>) {
        let job = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        if job.is_some() {
            self.busy.fetch_add(1, Ordering::Relaxed);
        }
        (self.call.load(Ordering::Relaxed), *job)
    }
}

impl Drop for ThreadPool {
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
    fn no_thread_runs_a_job_twice() {
        let mut pool = ThreadPool::new(3);
        for call in 0..200 {
            let counts: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
            pool.run(&|k| {
                counts[k].fetch_add(1, Ordering::Relaxed);
            });
            let counts: Vec<usize> = counts.iter().map(|c| c.load(Ordering::Relaxed)).collect();
            assert!(counts[0] == 1 && counts.iter().all(|&n| n <= 1), "{call}: {counts:?}");
            if call % 50 == 0 {
                // Long enough to fall asleep.
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
    }

    #[test]
    fn a_panic_comes_back() {
        let mut pool = ThreadPool::new(1);
        let begun = AtomicBool::new(false);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.run(&|k| {
                begun.fetch_or(k == 1, Ordering::Relaxed);
                while !begun.load(Ordering::Relaxed) {
                    yield_now();
                }
                assert_ne!(k, 1);
            });
        }));
        assert!(caught.is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| pool.run(&|k| assert_ne!(k, 0)))).is_err());
        pool.run(&|_| {});
    }
}

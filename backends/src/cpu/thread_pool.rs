//! A pool of threads, which spin for a short while and then sleep until there is work.
//!
//! Each thread has a line of the cache of its own in which jobs are offered to it, so that a call costs one write for each
//! thread that it wants, and threads that are not wanted see nothing of it.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{Builder, JoinHandle, park, yield_now};

/// Turns of a loop before a thread that waits goes to sleep: some ten microseconds, about what it
/// takes to wake it.
const SPINS: u32 = 4000;

/// What threads do for a call of [`ThreadPool::run`], with their numbers.
type Job<'a> = &'a (dyn Fn(usize) + Sync);

/// What a thread does: it looks for an offer.
const WAITS: u32 = 0;
/// It sleeps, or is about to.
const SLEEPS: u32 = 1;
/// A job is offered, and may be taken back.
const OFFERED: u32 = 2;
/// It runs the job.
const RUNS: u32 = 3;

/// Where a thread and its callers meet.
#[repr(align(128))]
struct OfferSlot {
    state: AtomicU32,
    failed: AtomicBool,
    /// Written by the caller before it offers, read by the thread between taking the offer and being done.
    job: UnsafeCell<Option<Job<'static>>>,
}

// SAFETY: the job is written while the thread waits or sleeps and read while it runs, which `state` tells apart.
unsafe impl Sync for OfferSlot {}

struct PoolState {
    slots: Vec<OfferSlot>,
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
        let slot = |_| OfferSlot {
            state: AtomicU32::new(WAITS),
            failed: AtomicBool::new(false),
            job: UnsafeCell::new(None),
        };
        let slots = (0..beside).map(slot).collect();
        let shared = Arc::new(PoolState { slots, stop: AtomicBool::new(false) });
        let thread = |k: usize| {
            let shared = Arc::clone(&shared);
            Builder::new().spawn(move || shared.serve(k)).ok()
        };
        // Threads have the first numbers, also where one is refused.
        ThreadPool { threads: (0..beside).map_while(thread).collect(), shared }
    }

    /// Runs a job on the caller's thread, as number 0, and offers it to at most `others` more. A thread that has not begun
    /// when the caller is done is not waited for.
    ///
    /// # Panics
    /// When a thread's part of the job did.
    pub(super) fn run(&mut self, others: usize, job: Job<'_>) {
        // SAFETY: the job is called only by threads that take it while it is offered. Offers are taken back below, and
        // threads that took one are waited for, before this returns or unwinds.
        let job_of_all = unsafe { std::mem::transmute::<Job<'_>, Job<'static>>(job) };
        let wanted = &self.shared.slots[..others.min(self.threads.len())];
        for (slot, thread) in wanted.iter().zip(&self.threads) {
            // SAFETY: no job is offered, since runs end with all offers taken back or done.
            unsafe { *slot.job.get() = Some(job_of_all) };
            if slot.state.swap(OFFERED, Ordering::AcqRel) == SLEEPS {
                thread.thread().unpark();
            }
        }
        let own = catch_unwind(AssertUnwindSafe(|| job(0)));
        let mut failed = false;
        for slot in wanted {
            slot.settle();
            failed |= slot.failed.swap(false, Ordering::Relaxed);
        }
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        assert!(!failed, "a thread of the pool panicked");
    }
}

impl OfferSlot {
    /// Takes the offer back, or waits until the thread that has taken it is done.
    fn settle(&self) {
        let back = self.state.compare_exchange(OFFERED, WAITS, Ordering::AcqRel, Ordering::Acquire);
        if back.is_ok() {
            return;
        }
        let mut turns = 0;
        while self.state.load(Ordering::Acquire) == RUNS {
            turns += 1;
            if turns < SPINS { spin_loop() } else { yield_now() }
        }
    }

    /// Takes an offer if there is one.
    fn take(&self) -> Option<Job<'static>> {
        let taken = self.state.compare_exchange(OFFERED, RUNS, Ordering::AcqRel, Ordering::Relaxed);
        // SAFETY: the caller wrote the job before it offered it, and leaves it until the thread is done.
        taken.ok().and_then(|_| unsafe { *self.job.get() })
    }
}

impl PoolState {
    /// What the thread of a slot does until the pool is dropped.
    fn serve(&self, number: usize) {
        let slot = &self.slots[number];
        let mut turns = 0;
        while !self.stop.load(Ordering::Acquire) {
            if slot.state.load(Ordering::Relaxed) == OFFERED
                && let Some(job) = slot.take()
            {
                if catch_unwind(AssertUnwindSafe(|| job(number + 1))).is_err() {
                    slot.failed.store(true, Ordering::Relaxed);
                }
                slot.state.store(WAITS, Ordering::Release);
                turns = 0;
                continue;
            }
            turns += 1;
            if turns < SPINS {
                spin_loop();
                continue;
            }
            let sleep = (WAITS, SLEEPS);
            let asleep =
                slot.state.compare_exchange(sleep.0, sleep.1, Ordering::AcqRel, Ordering::Relaxed);
            // An offer, or the end, that comes from here on wakes the thread.
            while asleep.is_ok()
                && slot.state.load(Ordering::Acquire) == SLEEPS
                && !self.stop.load(Ordering::Acquire)
            {
                park();
            }
            turns = 0;
        }
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
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn no_thread_runs_a_job_twice() {
        let mut pool = ThreadPool::new(3);
        for call in 0..200 {
            let counts: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
            pool.run(call % 4, &|k| {
                counts[k].fetch_add(1, Ordering::Relaxed);
            });
            let counts: Vec<usize> = counts.iter().map(|c| c.load(Ordering::Relaxed)).collect();
            assert!(counts[0] == 1 && counts.iter().all(|&n| n <= 1), "{call}: {counts:?}");
            assert!(counts[call % 4 + 1..].iter().all(|&n| n == 0), "{call}: {counts:?}");
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
            pool.run(1, &|k| {
                begun.fetch_or(k == 1, Ordering::Relaxed);
                while !begun.load(Ordering::Relaxed) {
                    yield_now();
                }
                assert_ne!(k, 1);
            });
        }));
        assert!(caught.is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| pool.run(1, &|k| assert_ne!(k, 0)))).is_err());
        pool.run(1, &|_| {});
    }
}

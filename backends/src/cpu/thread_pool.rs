//! A pool of threads, which spin for a short while and then sleep until there is work.
//!
//! Each thread has a line of the cache of its own in which jobs are offered to it, so that a call costs one write for each
//! thread that it wants, and threads that are not wanted see nothing of it.
#![allow(unsafe_code)]

use super::numa::NumaDomains;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle, Thread, park, yield_now};

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
/// It sleeps, and whoever is about to run the job wakes it first.
const TO_WAKE: u32 = 4;

/// The most threads that a thread wakes: waking one takes microseconds, so threads share that.
const WOKEN: usize = 2;

/// Where a thread and its callers meet.
#[repr(align(128))]
struct OfferSlot {
    state: AtomicU32,
    failed: AtomicBool,
    /// Written by the caller before it offers, read by the thread between taking the offer and being done.
    job: UnsafeCell<Option<Job<'static>>>,
    /// Its thread, once that has begun.
    thread: OnceLock<Thread>,
}

// SAFETY: the job is written while the thread waits or sleeps and read while it runs, which `state` tells apart.
unsafe impl Sync for OfferSlot {}

struct PoolState {
    slots: Vec<OfferSlot>,
    /// About how many threads are still to be woken for the job.
    to_wake: AtomicUsize,
    stop: AtomicBool,
}

/// Threads in addition to the caller's.
pub(super) struct ThreadPool {
    shared: Arc<PoolState>,
    threads: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// This many threads in addition to the caller's; fewer if the system refuses more. On a host with several NUMA nodes each thread stays on
    /// one; the caller's stays where it is.
    pub(super) fn new(beside: usize) -> ThreadPool {
        let slot = |_| OfferSlot {
            state: AtomicU32::new(WAITS),
            failed: AtomicBool::new(false),
            job: UnsafeCell::new(None),
            thread: OnceLock::new(),
        };
        let slots = (0..beside).map(slot).collect();
        let shared = Arc::new(PoolState {
            slots,
            to_wake: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let nodes = if beside > 0 { NumaDomains::of_host() } else { NumaDomains::default() };
        let thread = |k: usize| {
            let (pool, nodes) = (Arc::clone(&shared), nodes.clone());
            let serve = move || {
                nodes.settle(k + 1, beside + 1);
                pool.serve(k);
            };
            let thread = Builder::new().spawn(serve).ok()?;
            let _ = shared.slots[k].thread.set(thread.thread().clone());
            Some(thread)
        };
        // Threads have the first numbers, also where one is refused.
        ThreadPool { threads: (0..beside).map_while(thread).collect(), shared }
    }

    /// Runs a job on the caller's thread, as number 0, and offers it to at most `others` more, of which at most `wakes` are
    /// woken for it. A thread that has not begun when the caller is done is not waited for.
    ///
    /// # Panics
    /// When a thread's part of the job did.
    pub(super) fn run(&mut self, others: usize, wakes: usize, job: Job<'_>) {
        // SAFETY: the job is called only by threads that take it while it is offered. Offers are taken back below, and
        // threads that took one are waited for, before this returns or unwinds.
        let job_of_all = unsafe { std::mem::transmute::<Job<'_>, Job<'static>>(job) };
        let wanted = &self.shared.slots[..others.min(self.threads.len())];
        let mut to_wake = 0;
        for slot in wanted {
            // SAFETY: no job is offered, since runs end with all offers taken back or done.
            unsafe { *slot.job.get() = Some(job_of_all) };
            let offered = |from, to| {
                slot.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            };
            if !offered(WAITS, OFFERED) && wakes > to_wake && offered(SLEEPS, TO_WAKE) {
                to_wake += 1;
            }
        }
        self.shared.to_wake.store(to_wake, Ordering::Relaxed);
        self.shared.wake();
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
        let back = |from, to| {
            self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        if back(TO_WAKE, SLEEPS) || back(OFFERED, WAITS) {
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
    /// Wakes some of the threads that are to be woken for the job.
    fn wake(&self) {
        if self.to_wake.load(Ordering::Relaxed) == 0 {
            return;
        }
        let woken = |slot: &&OfferSlot| {
            let change = || {
                slot.state.compare_exchange(TO_WAKE, OFFERED, Ordering::AcqRel, Ordering::Relaxed)
            };
            slot.state.load(Ordering::Relaxed) == TO_WAKE && change().is_ok()
        };
        for slot in self.slots.iter().filter(woken).take(WOKEN) {
            self.to_wake.fetch_sub(1, Ordering::Relaxed);
            slot.thread.get().inspect(|thread| thread.unpark());
        }
    }

    /// What the thread of a slot does until the pool is dropped.
    fn serve(&self, number: usize) {
        let slot = &self.slots[number];
        let mut turns = 0;
        while !self.stop.load(Ordering::Acquire) {
            if slot.state.load(Ordering::Relaxed) == OFFERED
                && let Some(job) = slot.take()
            {
                self.wake();
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
                && matches!(slot.state.load(Ordering::Acquire), SLEEPS | TO_WAKE)
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
            pool.run(call % 4, call % 3, &|k| {
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

    /// Threads wake each other, no more of them than are worth it. The others stay asleep, and a later run can wake them.
    #[test]
    fn threads_are_woken_for_what_is_worth_it() {
        let mut pool = ThreadPool::new(7);
        let asleep = |pool: &ThreadPool| {
            let sleeps = |s: &&OfferSlot| s.state.load(Ordering::Relaxed) == SLEEPS;
            pool.shared.slots.iter().filter(sleeps).count()
        };
        for wakes in [0, 1, 3, 7, 0, 7] {
            while asleep(&pool) < 7 {
                yield_now();
            }
            let ran = AtomicUsize::new(0);
            pool.run(7, wakes, &|_| {
                ran.fetch_add(1, Ordering::Relaxed);
                while ran.load(Ordering::Relaxed) < wakes + 1 {
                    yield_now();
                }
            });
            assert_eq!(ran.into_inner(), wakes + 1);
        }
    }

    #[test]
    fn a_panic_comes_back() {
        let mut pool = ThreadPool::new(1);
        let begun = AtomicBool::new(false);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.run(1, 1, &|k| {
                begun.fetch_or(k == 1, Ordering::Relaxed);
                while !begun.load(Ordering::Relaxed) {
                    yield_now();
                }
                assert_ne!(k, 1);
            });
        }));
        assert!(caught.is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| pool.run(1, 1, &|k| assert_ne!(k, 0)))).is_err());
        pool.run(1, 1, &|_| {});
    }
}

//! Runs work on many items on all cores, for long tests.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What `work` gives for each item, in their order. A panic is passed on.
pub(crate) fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(n) else { return done };
            done.push((n, work(item)));
        }
    };
    let threads = thread::available_parallelism().map_or(2, |n| n.get()).min(items.len());
    let mut all: Vec<(usize, R)> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
        let joined =
            running.into_iter().flat_map(|r| r.join().unwrap_or_else(|e| resume_unwind(e)));
        joined.collect()
    });
    all.sort_by_key(|(n, _)| *n);
    all.into_iter().map(|(_, result)| result).collect()
}

//! Work on a list by several threads, with results in the order of the list.

use adfuse_ir::Function;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, available_parallelism, scope};

/// The most threads: plans that are compared take memory.
const MOST_THREADS: usize = 16;

/// Bytes of a thread's stack: expressions are followed to their operands, however deep.
const STACK: usize = 256 << 20;

/// What `make` makes of each item, in their order, whichever thread it is that makes it.
pub(crate) fn each<T: Sync, R: Send>(items: &[T], make: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = threads().min(items.len());
    if threads < 2 {
        return items.iter().map(make).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let k = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(k) else { return done };
            done.push((k, make(item)));
        }
    };
    let mut all = scope(|scope| {
        let spawn = |_| Builder::new().stack_size(STACK).spawn_scoped(scope, work).ok();
        // Where there are no more threads, those that are there do the work.
        let spawned: Vec<_> = (1..threads).filter_map(spawn).collect();
        let mut all = work();
        for thread in spawned {
            match thread.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_by_key(|(k, _)| *k);
    all.into_iter().map(|(_, made)| made).collect()
}

/// Instructions of a function from which on it is worth beginning a thread for one of its plans.
const WORTH_A_THREAD: usize = 256;

/// As [`each`], for work on plans of a function: a small one has all done by this thread.
pub(crate) fn each_of<T: Sync, R: Send>(
    f: &Function,
    items: &[T],
    make: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    match f.inst_count() < WORTH_A_THREAD {
        true => items.iter().map(make).collect(),
        false => each(items, make),
    }
}

/// What two pieces of work on a function give. The first is done by another thread where there is a core for it and the function
/// is not small; else `other` is not done, and the answer has `None` for it.
pub(crate) fn beside<A: Send, B>(
    f: &Function,
    other: impl FnOnce() -> A + Send,
    own: impl FnOnce() -> B,
) -> (Option<A>, B) {
    if cores() < 2 || f.inst_count() < WORTH_A_THREAD {
        return (None, own());
    }
    scope(|scope| {
        let spawned = Builder::new().stack_size(STACK).spawn_scoped(scope, other).ok();
        let own = own();
        let other = spawned.map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        (other, own)
    })
}

/// How many threads work on a list that is long enough.
pub(crate) fn threads() -> usize {
    cores().min(MOST_THREADS)
}

fn cores() -> usize {
    // Asking takes as long as planning a small group: files are read for it.
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| available_parallelism().map_or(1, usize::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order() {
        for count in [0, 1, 2, 100] {
            let items: Vec<u64> = (0..count).collect();
            let squares: Vec<u64> = items.iter().map(|n| n * n).collect();
            assert_eq!(each(&items, |n| n * n), squares);
        }
    }

    #[test]
    fn a_small_function_begins_no_thread() {
        let small = adfuse_ir::text::parse("func @f(%x: f32[4]) -> f32[4] { return %x }");
        let module = small.expect("parses");
        let f = module.find("f").expect("it");
        assert_eq!(beside(f, || 1, || 2), (None, 2));
    }
}

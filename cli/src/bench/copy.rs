//! A copy of memory, as the measure of the machine's bandwidth.

use adfuse::ir::{At, Diagnostic, Kind};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::yield_now;
use std::time::{Duration, Instant};

/// Bytes from which on another thread is worth its while.
const PIECE: usize = 256 << 10;

/// Bytes of a copy at least and at most, what is read and what is written together.
const RANGE: [u64; 2] = [4 << 10, 1 << 30];

/// Turns of a loop before a thread that waits lets others go first.
const SPINS: u32 = 1000;

/// Bytes that are copied again and again.
pub(super) struct CopyBenchmark {
    from: Vec<u8>,
    to: Vec<u8>,
    threads: usize,
}

impl CopyBenchmark {
    /// A copy that reads and writes this many bytes together, on this many threads at most.
    pub(super) fn new(working_set: u64, threads: usize) -> Result<CopyBenchmark, Diagnostic> {
        let bytes = (working_set.clamp(RANGE[0], RANGE[1]) / 2) as usize;
        let buffer = |value: u8| {
            let mut all = Vec::new();
            let no_memory = |_| {
                let m = format!("out of memory: a copy of {bytes} bytes");
                Diagnostic::new(At::default(), Kind::Limit, m)
            };
            all.try_reserve_exact(bytes).map_err(no_memory)?;
            all.resize(bytes, value);
            Ok::<Vec<u8>, Diagnostic>(all)
        };
        let threads = threads.min(bytes / PIECE).max(1);
        Ok(CopyBenchmark { from: buffer(1)?, to: buffer(2)?, threads })
    }

    /// Bytes read and written.
    pub(super) fn bytes(&self) -> u64 {
        2 * self.from.len() as u64
    }

    /// Copies so often and gives the time from the first thread's beginning to the last one's end:
    /// starting threads is not counted.
    pub(super) fn run(&mut self, times: u32) -> Duration {
        let each = self.from.len().div_ceil(self.threads);
        let there = AtomicUsize::new(0);
        let all = self.threads;
        let task = |from: &[u8], to: &mut [u8]| {
            there.fetch_add(1, Ordering::AcqRel);
            let mut turns = 0;
            while there.load(Ordering::Acquire) < all {
                turns += 1;
                if turns < SPINS { spin_loop() } else { yield_now() }
            }
            let begin = Instant::now();
            for _ in 0..times {
                black_box(&mut *to).copy_from_slice(black_box(from));
            }
            (begin, Instant::now())
        };
        let mut pieces = self.from.chunks(each).zip(self.to.chunks_mut(each));
        let Some((first_from, first_to)) = pieces.next() else { return Duration::ZERO };
        let spans: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
            let task = &task;
            let others: Vec<_> =
                pieces.map(|(from, to)| scope.spawn(move || task(from, to))).collect();
            let mut spans = vec![task(first_from, first_to)];
            spans.extend(others.into_iter().filter_map(|t| t.join().ok()));
            spans
        });
        let begin = spans.iter().map(|(begin, _)| *begin).min();
        let end = spans.iter().map(|(_, end)| *end).max();
        begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_copied_by_every_number_of_threads() {
        for (bytes, threads, used) in [(0, 1, 1), (5000, 4, 1), (4 << 20, 3, 3), (1 << 20, 9, 2)] {
            let mut copy = CopyBenchmark::new(bytes, threads).unwrap();
            assert_eq!(copy.threads, used, "{bytes} {threads}");
            assert!(copy.run(2) > Duration::ZERO);
            assert!(copy.to.iter().all(|&x| x == 1));
            assert!(copy.bytes() >= bytes.min(RANGE[1]) / 2 * 2);
        }
    }
}

//! How the result of a product is divided: into pieces that fit the cache, and tasks of threads.

use super::kernel::TaskGranularity;
use super::shape::gcd;
use crate::reference::order::CONTRACT_CHUNK;

/// The most bytes of the sums of a piece: they fit L2 together with the operands.
const PIECE: i64 = 256 << 10;

/// Columns of a piece, unless there are few rows.
const COLUMNS: i64 = 256;

/// Bytes of the columns of a chunk, at most, where pieces have whole lines because what follows the sums
/// walks memory along them: packed for each piece, they fit L2 together with the sums.
const PACKED: i64 = 512 << 10;

/// What rows and columns of pieces are a multiple of.
const GRAIN: i64 = 64;

/// Rows of a piece at least, where there are many threads, whose speeds differ: what is waited for at the end of a step is a task.
const FINE: i64 = 32;

/// The most products of a task. Pieces of few columns would pack their rows, and pieces of few rows their columns, more often.
const PRODUCTS: i64 = 1 << 26;

/// Products of a task of several short matrices of a batch.
const TOGETHER: i64 = 1 << 20;

/// The fewest products of a task: first where there are few threads, then where there are many.
const FEWEST: [i64; 2] = [1 << 21, 1 << 19];

/// Contractions of fewer products, which take some twenty microseconds, are one task.
const ALONE: i64 = 1 << 21;

/// Fewer columns take as long as this many, unless there are fewer rows.
const NARROW: i64 = 32;

/// How many times faster dot-product instructions are than other products.
const DOT_RATE: i64 = 8;

/// Tasks that a contraction has for each thread, where it has work for them.
const TASKS: i64 = 4;

/// Up to this number of threads, tasks are those of one thread.
const FEW_THREADS: i64 = 2;

/// Elements that are packed in the time in which what follows the sums is called once. Pieces of parts of lines call it for each
/// of their rows.
const CALL: i64 = 128;

/// The fewest products that are divided along the depth too, and the most bytes of the sums of all chunks.
const DEEP: i64 = 1 << 22;
const CHUNKS: i64 = 4 << 20;

/// How the result is cut. Rows are those of all batches, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskSplit {
    /// Rows and columns of a task.
    pub(super) task: [i64; 2],
    /// Rows of a piece: what is multiplied at once, of one batch.
    pub(super) rows: i64,
}

/// Chunks of this depth.
pub(super) fn chunks_of(depth: i64) -> i64 {
    (depth + CONTRACT_CHUNK as i64 - 1) / CONTRACT_CHUNK as i64
}

/// Sums of all chunks of a product whose depth is divided among threads: one of few rows and columns.
pub(super) fn chunk_sums([batch, rows, cols, depth]: [i64; 4], bytes: i64) -> Option<i64> {
    let results = batch.checked_mul(rows)?.checked_mul(cols)?;
    let parts = |n: i64| (n + GRAIN - 1) / GRAIN;
    let few = batch.checked_mul(parts(rows) * parts(cols))? <= TASKS * FEW_THREADS;
    let sums = results.checked_mul(chunks_of(depth))?;
    let deep = chunks_of(depth) > 1 && results.checked_mul(depth)? >= DEEP;
    (few && deep && sums.checked_mul(bytes)? <= CHUNKS).then_some(sums)
}

/// What each piece of a product packs of its operands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PiecePacking {
    /// The columns: pieces with more rows pack less.
    Columns,
    /// Rows and columns: square pieces pack least.
    Both,
    /// Nothing. Operands are packed for dot-product instructions before, which are faster than other products.
    Nothing,
}

/// What tasks of a product follow from.
#[derive(Clone, Copy)]
pub(super) struct ProductTasks {
    /// Batch, rows, columns, depth.
    pub(super) size: [i64; 4],
    /// Where what follows the sums may be cut.
    pub(super) cuts: TaskGranularity,
    /// Whether anything is computed of the sums.
    pub(super) followed: bool,
    /// Of a sum.
    pub(super) bytes: i64,
    pub(super) packing: PiecePacking,
}

impl ProductTasks {
    /// Pieces that fit the cache, and tasks of as many as are worth waking a thread. Since every result is a sum of its
    /// own, they change no bit. Pieces for more threads have no more rows and no more columns: what loses first is decided
    /// by the pieces of one thread.
    pub(super) fn split(&self, threads: i64) -> TaskSplit {
        let [rows, columns] =
            [true, false].map(|rows_first| self.overhead(self.cut(1, rows_first)));
        let rows_first = rows[0].saturating_mul(columns[1]) < columns[0].saturating_mul(rows[1]);
        self.cut(threads, rows_first)
    }

    /// What a piece costs beside its products, in packed elements, and how many results it has.
    fn overhead(&self, cut: TaskSplit) -> [i128; 2] {
        let [_, _, cols, depth] = self.size.map(i128::from);
        let [rows, width] = [cut.rows, cut.task[1]].map(i128::from);
        let calls = if self.followed && width < cols { rows } else { 0 };
        let packed = match self.packing {
            PiecePacking::Columns => width,
            PiecePacking::Both => width.saturating_add(rows),
            PiecePacking::Nothing => 0,
        };
        let all = calls.saturating_mul(CALL.into()).saturating_add(packed.saturating_mul(depth));
        [all, rows.saturating_mul(width)]
    }

    /// The same where pieces that are too large lose rows before columns, or columns before rows.
    fn cut(&self, threads: i64, rows_first: bool) -> TaskSplit {
        let ProductTasks { size: [batch, rows, cols, depth], cuts, bytes, packing, .. } = *self;
        let all = batch.saturating_mul(rows).max(1);
        let grained = |n: i64| (n / GRAIN * GRAIN).max(GRAIN);
        let cols = cols.max(1);
        // What follows sees lines of all columns, unless it may see parts of them.
        let words = cols % cuts.bits == 0 && GRAIN % cuts.bits == 0;
        let parts = words && cuts.lines.is_some_and(|l| l % cols == 0);
        let most = (PIECE / bytes.max(1)).max(1);
        let mut width = cols;
        let chunk = depth.clamp(1, CONTRACT_CHUNK as i64);
        let packed = cols.saturating_mul(chunk).saturating_mul(bytes);
        let whole = self.followed && packed <= PACKED && cols.saturating_mul(GRAIN) <= most;
        if parts && !whole && cols > 2 * COLUMNS {
            width = COLUMNS.max(grained(most / rows.max(1))).min(cols);
        }
        let mut height = grained(most / width).min(rows.max(1));
        let work =
            |a: i64, b: i64| a.saturating_mul(b.max(NARROW.min(rows))).saturating_mul(depth.max(1));
        let many = threads > FEW_THREADS;
        let tasks = if many { TASKS * threads } else { TASKS };
        let rate = if packing == PiecePacking::Nothing { DOT_RATE } else { 1 };
        let split = many && work(all, cols) >= ALONE.saturating_mul(rate);
        let fewest = FEWEST[usize::from(split)].saturating_mul(rate);
        let products = (work(all, cols) / tasks).clamp(fewest, PRODUCTS.saturating_mul(rate));
        let square = parts && packing != PiecePacking::Columns;
        while rows_first && height > GRAIN && work(height, width) > products {
            height = grained(height / 2);
        }
        while square && width.min(height) > GRAIN && work(height, width) > products {
            match width > height {
                true => width = grained(width / 2),
                false => height = grained(height / 2),
            }
        }
        while parts && width > GRAIN && work(height, width) > products {
            width = grained(width / 2);
        }
        while height > GRAIN && work(height, width) > products {
            height = grained(height / 2);
        }
        // Rows of which a task has a multiple.
        let unit = cuts.grain.map(|grain| grain / gcd(grain, cols));
        let fine = split && packing != PiecePacking::Nothing;
        let fine = fine && unit.is_some_and(|rows| FINE % rows == 0);
        if fine && height > FINE && work(height, width) > products {
            height = FINE;
        }
        // Short batches go together.
        let together = (TOGETHER / work(height, width).max(1)).max(1);
        let task = height.saturating_mul(together).min(all);
        let task = match unit {
            None => all,
            Some(rows) => (task.saturating_add(rows - 1) / rows).saturating_mul(rows),
        };
        TaskSplit { task: [task.max(1), width], rows: height }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [[i64; 4]; 7] = [
        [1, 128, 1024, 784],
        [1, 1024, 256, 256],
        [32, 128, 128, 64],
        [1, 1024, 1024, 1024],
        [1, 16, 4096, 150],
        [1, 33, 65, 7],
        [1, 70, 5, 100_000],
    ];

    fn tasks(size: [i64; 4], packing: PiecePacking, followed: bool) -> ProductTasks {
        ProductTasks { size, cuts: TaskGranularity::default(), followed, bytes: 4, packing }
    }

    /// What pieces need is planned for one thread.
    #[test]
    fn more_threads_have_no_larger_pieces() {
        for size in SIZES {
            for packing in [PiecePacking::Columns, PiecePacking::Both, PiecePacking::Nothing] {
                for followed in [false, true] {
                    let of = tasks(size, packing, followed);
                    let mut last = of.split(1);
                    for threads in [2, 3, 4, 8, 16, 64] {
                        let split = of.split(threads);
                        assert!(split.rows <= last.rows, "{size:?}, {threads}");
                        assert!(split.task[1] <= last.task[1], "{size:?}, {threads}");
                        last = split;
                    }
                }
            }
        }
    }

    #[test]
    fn a_tenth_of_a_gflop_is_work_for_sixteen_threads() {
        for size in SIZES.into_iter().filter(|s| s.iter().product::<i64>() >= 50_000_000) {
            let [height, width] = tasks(size, PiecePacking::Columns, false).split(16).task;
            let parts = |n: i64, each: i64| (n + each - 1) / each;
            let count = parts(size[0] * size[1], height) * parts(size[2], width);
            assert!(count >= 16, "{size:?}: {count} tasks");
        }
    }

    /// A call for each part of a line takes longer than packing columns again for fewer rows, unless those are deep.
    #[test]
    fn what_follows_shallow_sums_has_whole_lines() {
        let piece = |size, followed, threads| {
            let split = tasks(size, PiecePacking::Columns, followed).split(threads);
            [split.rows, split.task[1]]
        };
        assert_eq!(piece([1, 512, 256, 64], true, 1), [128, 256]);
        assert_eq!(piece([1, 512, 256, 64], false, 1), [256, 128]);
        assert_eq!(piece([1, 1024, 256, 1024], true, 4), [256, 64]);
    }

    /// Pieces of many threads are short where tasks would be fewer than four for each thread, but end where folds and words do.
    #[test]
    fn last_tasks_of_many_threads_are_short() {
        let of = |grain| {
            let cuts = TaskGranularity { grain, ..TaskGranularity::default() };
            let tasks = ProductTasks { cuts, ..tasks(SIZES[0], PiecePacking::Columns, true) };
            tasks.split(16).task
        };
        assert_eq!(of(Some(1)), [FINE, 64]);
        assert_eq!(of(Some(64)), [FINE, 64]);
        assert_eq!(of(Some(64 * 1024)), [64, 64]);
    }

    #[test]
    fn few_columns_are_work_for_several_threads() {
        let split = tasks([1, 128, 10, 1024], PiecePacking::Columns, true).split(16);
        assert_eq!(split.task, [FINE, 10]);
    }

    #[test]
    fn short_products_are_one_task() {
        let split = tasks([1, 120, 84, 64], PiecePacking::Columns, true).split(16);
        assert_eq!(split.task, [120, 84]);
    }

    #[test]
    fn only_few_deep_sums_have_chunks() {
        assert_eq!(chunk_sums([1, 70, 5, 100_000], 4), Some(70 * 5 * 196));
        assert_eq!(chunk_sums([1, 1024, 1024, 1024], 4), None);
        assert_eq!(chunk_sums([1, 64, 64, 512], 4), None);
        assert_eq!(chunk_sums([1, 64, 64, 1 << 40], 4), None);
    }
}

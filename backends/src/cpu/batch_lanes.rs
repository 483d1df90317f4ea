//! Contractions of many small matrices, such as the gradients of a depthwise convolution's kernels: matrices of the batch are
//! multiplied side by side, one in each lane of a vector ([`lanes`]).

use super::computed_operand::{ComputedOperand, DenseAxes};
use super::gemm::lanes::{self, LANES, LaneOperand, LaneRoom};
use super::gemm::window::{Forms, Window, WindowAxis, merged};
use super::kernel::compile::CompileContext;
use super::operand::{WindowOperand, read, windows};
use super::point_tasks::TaskCount;
use super::workers::{Worker, WorkerSet};
use adfuse_ir::kernel::facts::PassKind;
use adfuse_ir::kernel::{Extents, Feed, Member};
use adfuse_ir::{DType, Diagnostic};
use smallvec::SmallVec;

/// The most sums of a matrix, and the most rows or columns of the side that has fewer: tiles multiply larger ones.
const SUMS: i64 = 64;
const FEW: i64 = 4;

/// The fewest matrices.
const MATRICES: i64 = 8;

/// The most groups of matrices of a task: what is found of a chunk of the depth holds for all of them.
const GROUPS: i64 = 8;

/// The fewest products of a task, some tens of microseconds.
const PRODUCTS: i64 = 1 << 20;

/// Products of matrices side by side.
pub(super) struct LaneProduct {
    sides: [LaneSource; 2],
    /// For [`GROUPS`] groups, in the memory of each worker.
    room: LaneRoom,
    room_at: u64,
    /// All sums, row-major over batch, rows and columns, in the memory of all workers.
    pub(super) sums: u64,
}

/// Where the elements of an operand are.
enum LaneSource {
    Buffer(Box<WindowOperand>),
    /// In an array that is computed first: batch, rows or columns, depth.
    Array(ComputedOperand, Box<Window>),
}

impl LaneSource {
    fn window(&self) -> &Window {
        match self {
            LaneSource::Buffer(w) => &w.window,
            LaneSource::Array(_, w) => w,
        }
    }

    fn operand(&self, worker: &Worker) -> LaneOperand<'_> {
        let at = match self {
            LaneSource::Buffer(w) => worker.table[w.buffer],
            LaneSource::Array(array, _) => worker.all(array.at),
        };
        LaneOperand { window: self.window(), at: at.cast_const() }
    }
}

/// An array of a batch of lines as a window.
fn dense([batch, free, depth]: [i64; 3]) -> Option<Window> {
    let axis = |extent, step| {
        let mut steps = Forms::default();
        steps[0] = step;
        merged([WindowAxis { extent, steps }].into_iter())
    };
    Some(Window {
        first: Forms::default(),
        batch: axis(batch, free.checked_mul(depth)?)?,
        free: axis(free, depth)?,
        depth: axis(depth, 1)?,
        guards: SmallVec::new(),
        elements: batch.checked_mul(free)?.checked_mul(depth)?,
    })
}

impl CompileContext<'_> {
    /// A product of many small matrices of which an operand is windows of a buffer; `None` of others.
    pub(super) fn lane_product(
        &mut self,
        m: &Member,
        [batch, rows, cols, depth]: [i64; 4],
    ) -> Result<Option<LaneProduct>, Diagnostic> {
        let floats = matches!(m.sum, DType::F32 | DType::F64);
        let small = rows.min(cols) <= FEW && rows.saturating_mul(cols) <= SUMS;
        if !floats || !small || batch < MATRICES || depth < 1 {
            return Ok(None);
        }
        let groups = |free| [&m.batch, free, &m.depth];
        let feeds = [(&m.lhs, groups(&m.rows), rows), (&m.rhs, groups(&m.cols), cols)];
        let found = feeds.map(|(f, groups, _)| windows(self.program, f, groups, m.sum));
        let overlaps = found.iter().flatten().any(|w| w.overlaps);
        let matrices =
            feeds.iter().all(|(f, groups, _)| read(self.program, f, *groups, m.sum).is_some());
        if !overlaps || matrices {
            return Ok(None);
        }
        // Whatever is no window is computed, so that the room is known before.
        let arrays = feeds.map(|(.., free)| dense([batch, free, depth]));
        let [Some(left), Some(right)] = arrays else { return Ok(None) };
        let [a, b] = &found;
        let shapes =
            [a.as_ref().map_or(&left, |w| &w.window), b.as_ref().map_or(&right, |w| &w.window)];
        let count = (rows * cols).unsigned_abs();
        let Some(room) = LaneRoom::of(shapes, count, GROUPS.unsigned_abs(), m.sum) else {
            return Ok(None);
        };
        self.note_pass(PassKind::Pack, batch.saturating_mul(depth).saturating_mul(2));
        let mut source = |feed: &Feed, all: [&Extents; 3], found: Option<WindowOperand>, array| {
            Ok::<_, Diagnostic>(match found {
                Some(windows) => LaneSource::Buffer(Box::new(windows)),
                None => {
                    let as_array = (m.sum, DenseAxes::Depth);
                    let computed = self.computed_operand(feed, all, as_array)?;
                    LaneSource::Array(computed, Box::new(array))
                }
            })
        };
        let [(lhs, of_lhs, _), (rhs, of_rhs, _)] = feeds;
        let [a, b] = found;
        let sides = [source(lhs, of_lhs, a, left)?, source(rhs, of_rhs, b, right)?];
        let sums = self.shared.take(batch.saturating_mul(rows * cols), m.sum.bytes())?;
        let bytes = i64::try_from(room.bytes()).unwrap_or(i64::MAX);
        Ok(Some(LaneProduct { sides, room, room_at: self.own.take(bytes, 1)?, sums }))
    }
}

impl LaneProduct {
    /// Computes all sums, of a batch of this size and type.
    pub(super) fn run(
        &self,
        ([batch, rows, cols, depth], dtype): ([i64; 4], DType),
        worker_set: &mut WorkerSet<'_>,
    ) {
        let bytes = dtype.bytes();
        for side in &self.sides {
            if let LaneSource::Array(array, _) = side {
                array.compute(worker_set, bytes);
            }
        }
        let lanes = LANES as i64;
        let all = (batch + lanes - 1) / lanes;
        let group = rows * cols * depth * lanes;
        // Each thread has some, if they are worth it.
        let share = all / worker_set.threads() as i64;
        let groups = share.max(PRODUCTS / group.max(1)).clamp(1, GROUPS);
        let tasks = TaskCount::of_products((all + groups - 1) / groups, groups * group);
        worker_set.each(tasks, |_, worker, k| {
            let from = k * groups * lanes;
            let end = (from + groups * lanes).min(batch);
            let room = worker.at(self.room_at);
            let sides = self.sides.each_ref().map(|side| side.operand(worker));
            let size = [rows, cols, depth].map(|n| n as usize);
            let range = [from, end].map(|n| n as usize);
            // SAFETY: operands are computed in full, or elements of buffers that the verifier has proven to be there where
            // guards hold; the room is the worker's alone, and has been taken for this many groups; each sum is of one task.
            #[allow(unsafe_code)]
            unsafe {
                lanes::found().product(dtype, size, sides, range, (&self.room, room));
                let sums = room.wrapping_add(self.room.sums() as usize);
                let to = worker.all(self.sums);
                match dtype {
                    DType::F64 => stored::<f64>(sums.cast(), size, range, to.cast()),
                    _ => stored::<f32>(sums.cast(), size, range, to.cast()),
                }
            }
        });
    }
}

/// Puts the sums of matrices `from..end` where those of each matrix are neighbours.
///
/// # Safety
/// There are the sums of all their groups, and room for those of the whole batch, in which nobody else uses those of these matrices.
#[allow(unsafe_code)]
unsafe fn stored<T: Copy>(
    sums: *const T,
    [rows, cols, _]: [usize; 3],
    [from, end]: [usize; 2],
    to: *mut T,
) {
    let count = rows * cols;
    for (k, matrix) in (from..end).enumerate() {
        for sum in 0..count {
            // SAFETY: as the caller promises.
            unsafe {
                let x = *sums.add((k / LANES * count + sum) * LANES + k % LANES);
                *to.add(matrix * count + sum) = x;
            }
        }
    }
}

//! Products of many small matrices: a vector has an element of each of sixteen matrices of a batch.
//!
//! A matrix of one row and nine columns fills no tile, and its nine sums are too few for the additions of one to hide behind those
//! of others. The matrices of a batch have nothing in common, so each lane may have its own. Elements of sixteen matrices are
//! interleaved, each once for a chunk of the depth: the windows of a depthwise convolution overlap, and nine columns of 512
//! elements are some six hundred different ones. A table says where each element of a matrix is among them.
#![allow(unsafe_code)]

use super::micro_kernel::FmaType;
use super::window::{Forms, Window, WindowAxis, WindowWalk, plus};
use crate::cpu::codegen::vector_width::Vectors;
use crate::reference::order::CONTRACT_CHUNK;
use adfuse_ir::DType;
use std::array::from_fn;

/// Matrices that are multiplied at once.
pub(in super::super) const LANES: usize = 16;

/// Lanes and elements of the blocks that are transposed in registers. Larger ones make more shuffles than they save.
const BLOCK: usize = 4;

/// Steps along the depth between neighbours, at most: what lies between them is interleaved too.
const STEP: i64 = 4;

/// The fewest neighbours along the depth.
const NEIGHBOURS: i64 = 4;

/// Rows or columns at most: a table has a line for each.
const MOST: i64 = 64;

/// An operand of a batch of matrices.
#[derive(Clone, Copy)]
pub(in super::super) struct LaneOperand<'a> {
    pub(in super::super) window: &'a Window,
    /// The array's first element.
    pub(in super::super) at: *const u8,
}

/// Neighbours along the depth that are one row's or column's: where their table entries are, the places of the first
/// and the last, and from one to the next.
#[derive(Clone, Copy, Default)]
struct DepthRun {
    entry: u32,
    count: u32,
    first: i64,
    step: i64,
}

impl DepthRun {
    /// The lowest place, and one past the highest.
    fn range(&self) -> [i64; 2] {
        let last = self.first + self.step * (i64::from(self.count) - 1);
        [self.first.min(last), self.first.max(last) + 1]
    }
}

/// Memory for one operand while it is multiplied, in bytes: interleaved elements, the table, and runs.
#[derive(Clone, Copy)]
struct OperandRoom {
    elements: u64,
    table: u64,
    runs: u64,
}

impl OperandRoom {
    /// `None` where neighbours along the depth are few or far apart, or where guards depend on the matrix.
    fn of(window: &Window, bytes: u64) -> Option<OperandRoom> {
        let chunk = CONTRACT_CHUNK as i64;
        let axis = window.depth.last()?;
        let product = |axes: &[WindowAxis]| axes.iter().map(|a| a.extent).product::<i64>();
        let [free, depth] = [product(&window.free), product(&window.depth)];
        let step = axis.steps[0].abs();
        let alike = window.batch.iter().all(|a| a.steps[1..].iter().all(|&s| s == 0));
        if axis.extent < NEIGHBOURS || !(1..=STEP).contains(&step) || free > MOST || !alike {
            return None;
        }
        // One run may begin in the middle, and one end there.
        let runs = (chunk.min(depth) / axis.extent + 2).min(depth / axis.extent + 1);
        // Rows or columns whose runs overlap share elements.
        let (mut along, mut apart) = (axis.extent.min(chunk) * step, 1);
        for a in &window.free {
            let reach = (a.extent - 1).checked_mul(a.steps[0].checked_abs()?)?;
            if reach < along { along += reach } else { apart *= a.extent }
        }
        // The first is 0.
        let elements = runs.checked_mul(along)?.checked_mul(apart)?.checked_add(1)?;
        let vector = LANES as u64 * bytes;
        let elements = u64::try_from(elements).ok()?.checked_mul(vector)?;
        let line = |n: u64| n.next_multiple_of(64);
        Some(OperandRoom {
            elements: line(elements),
            table: line(free.unsigned_abs() * CONTRACT_CHUNK as u64 * size_of::<u32>() as u64),
            runs: line((runs * free).unsigned_abs() * size_of::<DepthRun>() as u64),
        })
    }

    fn bytes(&self) -> u64 {
        self.elements + self.table + self.runs
    }
}

/// Memory of a product of some groups of matrices: the operands', then the sums of all groups.
#[derive(Clone, Copy)]
pub(in super::super) struct LaneRoom {
    sides: [OperandRoom; 2],
    sums: u64,
}

impl LaneRoom {
    /// For `groups` groups of matrices with this number of sums each; `None` for operands that are not multiplied so.
    pub(in super::super) fn of(
        windows: [&Window; 2],
        sums: u64,
        groups: u64,
        dtype: DType,
    ) -> Option<LaneRoom> {
        let [left, right] = windows.map(|w| OperandRoom::of(w, dtype.bytes()));
        let sums = sums.checked_mul(groups)?.checked_mul(LANES as u64 * dtype.bytes())?;
        Some(LaneRoom { sides: [left?, right?], sums })
    }

    pub(in super::super) fn bytes(&self) -> u64 {
        self.sides.iter().map(OperandRoom::bytes).sum::<u64>() + self.sums
    }

    /// Where the sums are.
    pub(in super::super) fn sums(&self) -> u64 {
        self.sides.iter().map(OperandRoom::bytes).sum()
    }
}

/// An operand at a chunk of the depth: where elements of all matrices are, once they are interleaved.
#[derive(Clone, Copy)]
struct ChunkTable<'a> {
    operand: LaneOperand<'a>,
    /// The interleaved elements; the first vector is 0.
    elements: *mut u8,
    /// For each row or column, the vectors of its elements: [`CONTRACT_CHUNK`] places each.
    table: *mut u32,
    /// Neighbours in the array: each begins at the vector that its `entry` names.
    runs: *mut DepthRun,
    count: usize,
}

impl<'a> ChunkTable<'a> {
    fn new(operand: LaneOperand<'a>, room: &OperandRoom, at: *mut u8) -> ChunkTable<'a> {
        let [table, runs] = [room.elements, room.elements + room.table].map(|n| n as usize);
        ChunkTable {
            operand,
            elements: at,
            table: at.wrapping_add(table).cast(),
            runs: at.wrapping_add(runs).cast(),
            count: 0,
        }
    }

    /// Finds the elements of a chunk: `depth` of each row or column, from `from` on.
    ///
    /// # Safety
    /// The room is that of the operand's window, and nobody else uses it.
    unsafe fn find(&mut self, free: usize, from: usize, depth: usize) {
        let w = self.operand.window;
        let steps = w.depth.last().map_or(Forms::default(), |a| a.steps);
        let (mut across, mut count) = (WindowWalk::new(&w.free, 0), 0);
        for f in 0..free {
            // SAFETY: the room has a line for each row or column, and for their runs.
            unsafe {
                let line = self.table.add(f * CONTRACT_CHUNK);
                let mut along = WindowWalk::new(&w.depth, from);
                let mut done = 0;
                while done < depth {
                    let n = along.along().min(depth - done);
                    let first = plus(plus(w.first, across.forms), along.forms);
                    let [low, high] = w.inside(&first, &steps, n);
                    for k in (done..done + low).chain(done + high..done + n) {
                        *line.add(k) = 0;
                    }
                    if low < high {
                        *self.runs.add(count) = DepthRun {
                            entry: (f * CONTRACT_CHUNK + done + low) as u32,
                            count: (high - low) as u32,
                            first: first[0] + steps[0] * low as i64,
                            step: steps[0],
                        };
                        count += 1;
                    }
                    along.go(n);
                    done += n;
                }
            }
            across.go(1);
        }
        // SAFETY: as many runs were written.
        unsafe { self.merge(count) };
    }

    /// Fills the table, and merges runs that overlap.
    ///
    /// # Safety
    /// There are this many runs.
    unsafe fn merge(&mut self, count: usize) {
        // SAFETY: as the caller promises; a run is read before what it becomes is written, at its place or before.
        let runs = unsafe { std::slice::from_raw_parts_mut(self.runs, count) };
        runs.sort_unstable_by_key(|run| (run.range(), run.entry));
        let (mut merged, mut next) = (0usize, 1u32);
        for k in 0..count {
            let run = runs[k];
            let [low, end] = run.range();
            let last = merged.checked_sub(1).map(|last| &mut runs[last]);
            let at = match last {
                Some(last) if low <= last.first + i64::from(last.count) => {
                    let more = end - last.first - i64::from(last.count);
                    let more = u32::try_from(more).unwrap_or(0);
                    (last.count, next) = (last.count + more, next + more);
                    last.entry + (run.first - last.first) as u32
                }
                _ => {
                    let all = (end - low) as u32;
                    runs[merged] = DepthRun { entry: next, count: all, first: low, step: 1 };
                    (merged, next) = (merged + 1, next + all);
                    runs[merged - 1].entry + (run.first - low) as u32
                }
            };
            for j in 0..run.count {
                let vector = i64::from(at) + i64::from(j) * run.step;
                // SAFETY: the entries of runs are of the table.
                unsafe { *self.table.add((run.entry + j) as usize) = vector as u32 };
            }
        }
        self.count = merged;
    }

    /// Interleaves the elements of matrices `from..from + count` of the batch, from 1 to [`LANES`]. Lanes beyond them have the last one's.
    ///
    /// # Safety
    /// The array has the elements that guards let through, of type `T`; nobody writes them meanwhile.
    #[inline(always)]
    unsafe fn interleave<T: FmaType>(&self, from: usize, count: usize) {
        let to = self.elements.cast::<T>();
        let w = self.operand.window;
        let start = |lane: usize| WindowWalk::new(&w.batch, from + lane.min(count - 1)).forms[0];
        let lanes: [i64; LANES] = from_fn(start);
        // SAFETY: as the caller promises; `find` has counted the vectors.
        unsafe {
            *to.cast::<[T; LANES]>() = [T::default(); LANES];
            let runs = std::slice::from_raw_parts(self.runs, self.count);
            for run in runs {
                let to = to.add(run.entry as usize * LANES);
                for lane in (0..LANES).step_by(BLOCK) {
                    let from: [*const T; BLOCK] = from_fn(|l| {
                        let place = (lanes[lane + l] + run.first) as isize;
                        self.operand.at.cast::<T>().wrapping_offset(place)
                    });
                    transposed(from, run.count as usize, to.add(lane));
                }
            }
        }
    }
}

/// Puts elements of some lanes side by side: `count` of each, from these places on.
///
/// # Safety
/// There must be as many elements, and room for as many vectors of all lanes at `to`.
// A block is read across its lines.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn transposed<T: Copy>(from: [*const T; BLOCK], count: usize, to: *mut T) {
    let mut k = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while k + BLOCK <= count {
            let block: [[T; BLOCK]; BLOCK] =
                from_fn(|l| from[l].add(k).cast::<[T; BLOCK]>().read_unaligned());
            for x in 0..BLOCK {
                let across: [T; BLOCK] = from_fn(|l| block[l][x]);
                to.add((k + x) * LANES).cast::<[T; BLOCK]>().write_unaligned(across);
            }
            k += BLOCK;
        }
        for k in k..count {
            for l in 0..BLOCK {
                *to.add(k * LANES + l) = *from[l].add(k);
            }
        }
    }
}

/// The products of a row and `N` columns: their elements are where tables say. The sums of a chunk are put to `to`, or added there: the
/// first chunk is not added to +0, since its sum may be -0.
///
/// # Safety
/// Both tables have `depth` entries for the row and for each column, and `to` has room for `N` vectors.
// Iterators in place of the numbers keep the sums in memory.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn sums<T: FmaType, const N: usize>(
    depth: usize,
    (row, rows): (*const u32, *const T),
    (column, columns): (*const u32, *const T),
    (to, first): (*mut [T; LANES], bool),
) {
    let mut sums = [[T::default(); LANES]; N];
    // SAFETY: as the caller promises.
    unsafe {
        for k in 0..depth {
            let a = *rows.add(*row.add(k) as usize * LANES).cast::<[T; LANES]>();
            for j in 0..N {
                let at = *column.add(j * CONTRACT_CHUNK + k) as usize * LANES;
                let b = &*columns.add(at).cast::<[T; LANES]>();
                for l in 0..LANES {
                    sums[j][l] = T::fused(a[l], b[l], sums[j][l]);
                }
            }
        }
        for (j, sums) in sums.iter().enumerate() {
            let to = &mut *to.add(j);
            for (to, &sum) in to.iter_mut().zip(sums) {
                *to = if first { sum } else { to.plus(sum) };
            }
        }
    }
}

/// The products of matrices `from..end` of a batch; `N` columns at a time at most.
///
/// # Safety
/// As of [`LaneKernel::product`], for elements of this type.
#[inline(always)]
unsafe fn product<T: FmaType, const N: usize>(
    [rows, cols, depth]: [usize; 3],
    sides: [LaneOperand<'_>; 2],
    [from, end]: [usize; 2],
    (of, room): (&LaneRoom, *mut u8),
    interleave: unsafe fn(&ChunkTable<'_>, usize, usize),
) {
    let [lhs, rhs] = sides;
    let mut left = ChunkTable::new(lhs, &of.sides[0], room);
    let right = room.wrapping_add(of.sides[0].bytes() as usize);
    let mut right = ChunkTable::new(rhs, &of.sides[1], right);
    let all = room.wrapping_add(of.sums() as usize).cast::<[T; LANES]>();
    let parts = cols.div_ceil(N);
    for k in (0..depth).step_by(CONTRACT_CHUNK) {
        let deep = CONTRACT_CHUNK.min(depth - k);
        // SAFETY: as the caller promises; the room has that of both operands and of all sums.
        unsafe {
            left.find(rows, k, deep);
            right.find(cols, k, deep);
            for (group, first) in (from..end).step_by(LANES).enumerate() {
                let count = LANES.min(end - first);
                interleave(&left, first, count);
                interleave(&right, first, count);
                for part in 0..rows * parts {
                    let row = part / parts;
                    // Columns are divided evenly, since few sums take as long as many.
                    let [col, last] = [part % parts, part % parts + 1].map(|p| p * cols / parts);
                    let row = left.table.add(row * CONTRACT_CHUNK).cast_const();
                    let row = (row, left.elements.cast_const().cast::<T>());
                    let column = right.table.add(col * CONTRACT_CHUNK).cast_const();
                    let column = (column, right.elements.cast_const().cast::<T>());
                    let to = (all.add((group * rows + part / parts) * cols + col), k == 0);
                    match last - col {
                        1 => sums::<T, 1>(deep, row, column, to),
                        2 => sums::<T, 2>(deep, row, column, to),
                        3 => sums::<T, 3>(deep, row, column, to),
                        4 if N >= 4 => sums::<T, 4>(deep, row, column, to),
                        5 if N >= 5 => sums::<T, 5>(deep, row, column, to),
                        6 if N >= 6 => sums::<T, 6>(deep, row, column, to),
                        7 if N >= 7 => sums::<T, 7>(deep, row, column, to),
                        8 if N >= 8 => sums::<T, 8>(deep, row, column, to),
                        9 if N >= 9 => sums::<T, 9>(deep, row, column, to),
                        10 if N >= 10 => sums::<T, 10>(deep, row, column, to),
                        11 if N >= 11 => sums::<T, 11>(deep, row, column, to),
                        _ => sums::<T, N>(deep, row, column, to),
                    }
                }
            }
        }
    }
}

/// Adds the products of a chunk of the depth to the sums of a group of matrices.
type LaneMultiply =
    unsafe fn(DType, [usize; 3], [LaneOperand<'_>; 2], [usize; 2], (&LaneRoom, *mut u8));

/// Products by one instruction set.
pub(in super::super) struct LaneKernel {
    pub(in super::super) name: &'static str,
    product: LaneMultiply,
}

/// An instance for an instruction set, with the columns of 8 and of 4 bytes that are multiplied at a time, and the one that interleaves: of
/// small blocks the compiler makes better code without AVX-512.
macro_rules! lanes {
    ($set:ident, $name:literal, [$c8:literal, $c4:literal], $by:ident $(, $features:literal)?) => {
        mod $set {
            use super::*;

            pub(super) static LANES: LaneKernel = LaneKernel { name: $name, product: run };

            /// # Safety
            /// As of [`LaneKernel::product`], on a processor that has these features.
            $(#[target_feature(enable = $features)])?
            unsafe fn run(
                dtype: DType,
                size: [usize; 3],
                sides: [LaneOperand<'_>; 2],
                batch: [usize; 2],
                room: (&LaneRoom, *mut u8),
            ) {
                // SAFETY: as the caller promises.
                unsafe {
                    match dtype {
                        DType::F64 => {
                            let interleave = super::$by::interleave::<f64>;
                            product::<f64, $c8>(size, sides, batch, room, interleave);
                        }
                        _ => {
                            let interleave = super::$by::interleave::<f32>;
                            product::<f32, $c4>(size, sides, batch, room, interleave);
                        }
                    }
                }
            }

            /// # Safety
            /// As of [`ChunkTable::interleave`], on a processor that has these features.
            #[allow(dead_code)]
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn interleave<T: FmaType>(
                table: &ChunkTable<'_>,
                from: usize,
                count: usize,
            ) {
                // SAFETY: as the caller promises.
                unsafe { table.interleave::<T>(from, count) }
            }
        }
    };
}

lanes!(any, "lanes", [3, 6], any);
#[cfg(target_arch = "x86_64")]
lanes!(avx2, "lanes, avx2", [3, 6], avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
lanes!(avx512, "lanes, avx512f", [12, 12], avx2, "avx512f,avx2,fma");

/// The instances that the host can run, the fastest first.
pub(super) fn all() -> impl Iterator<Item = &'static LaneKernel> {
    Vectors::runnable(&[
        (Vectors::Narrow, &any::LANES),
        #[cfg(target_arch = "x86_64")]
        (Vectors::Avx2, &avx2::LANES),
        #[cfg(target_arch = "x86_64")]
        (Vectors::Avx512, &avx512::LANES),
    ])
    .into_iter()
}

/// The fastest of the host's.
pub(in super::super) fn found() -> &'static LaneKernel {
    all().next().unwrap_or(&any::LANES)
}

impl LaneKernel {
    /// Multiplies matrices `from..end` of a batch, each of `[rows, cols, depth]`, and leaves their sums in the room: for each group of
    /// [`LANES`] matrices and each sum, row-major, a vector with an element of each matrix.
    ///
    /// # Safety
    /// The room is that of the windows for as many groups and sums, aligned to vectors, and nobody else uses it. The arrays have the
    /// elements that the windows' guards let through, of this type, `f32` or `f64`, and nobody writes them meanwhile.
    pub(in super::super) unsafe fn product(
        &self,
        dtype: DType,
        size: [usize; 3],
        sides: [LaneOperand<'_>; 2],
        batch: [usize; 2],
        room: (&LaneRoom, *mut u8),
    ) {
        // SAFETY: as the caller promises; only instances that the host can run are given out.
        unsafe { (self.product)(dtype, size, sides, batch, room) }
    }
}

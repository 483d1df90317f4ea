//! Slabs: parts of operands, copied into memory of the thread with the depth dense.
//!
//! The library broadcasts the elements of one operand in place, four rows at a time. If neighbours along the depth have
//! a large stride, as in the gradient of weights, each of them is in a cache line and a page of its own, and those
//! lines fall into a few cache sets.
#![allow(unsafe_code)]

use super::MatrixView;
use std::arch::x86_64::*;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Elements between lines of a slab, so that lines do not begin at the same place of their pages.
pub(super) const GAP: usize = 16;

/// Lines of one length, as far from each other as each other pair of neighbours.
#[derive(Clone, Copy)]
pub(super) struct StridedLines<T> {
    at: *mut T,
    count: usize,
    length: usize,
    step: usize,
}

impl<T> StridedLines<T> {
    /// # Safety
    /// The lines must have been written, and nobody may write to them.
    pub(super) unsafe fn each(&self) -> impl Iterator<Item = &[T]> {
        // SAFETY: as the caller promises.
        (0..self.count).map(|i| unsafe { from_raw_parts(self.at.add(i * self.step), self.length) })
    }

    /// # Safety
    /// The lines must have been written, and be used by nobody else.
    pub(super) unsafe fn each_mut(&mut self) -> impl Iterator<Item = &mut [T]> {
        let StridedLines { at, count, length, step } = *self;
        // SAFETY: as the caller promises; lines do not overlap.
        (0..count).map(move |i| unsafe { from_raw_parts_mut(at.add(i * step), length) })
    }
}

/// An element that is moved in vectors.
pub(super) trait SlabElement: Copy {
    /// Elements on a side of the blocks that are transposed in registers.
    const SIDE: usize;

    /// Writes the columns of a block as rows, `line` apart.
    ///
    /// # Safety
    /// The host has AVX2; rows of `SIDE` elements, `step` apart, are at `from`, and room for as many at `to`.
    unsafe fn transposed(from: *const Self, step: isize, to: *mut Self, line: usize);
}

impl SlabElement for f32 {
    const SIDE: usize = 8;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn transposed(from: *const f32, step: isize, to: *mut f32, line: usize) {
        // SAFETY: as the caller promises.
        unsafe {
            let row = |k: isize| _mm256_loadu_ps(from.offset(k * step));
            // Pairs, then fours of neighbours within halves, then halves.
            let pair = |k| {
                let (a, b) = (row(k), row(k + 1));
                [_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)]
            };
            let four = |k| {
                let ([a, b], [c, d]) = (pair(k), pair(k + 2));
                [
                    _mm256_shuffle_ps::<0x44>(a, c),
                    _mm256_shuffle_ps::<0xEE>(a, c),
                    _mm256_shuffle_ps::<0x44>(b, d),
                    _mm256_shuffle_ps::<0xEE>(b, d),
                ]
            };
            let (low, high) = (four(0), four(4));
            for i in 0..4 {
                let (a, b) = (low[i], high[i]);
                _mm256_storeu_ps(to.add(i * line), _mm256_permute2f128_ps::<0x20>(a, b));
                _mm256_storeu_ps(to.add((i + 4) * line), _mm256_permute2f128_ps::<0x31>(a, b));
            }
        }
    }
}

impl SlabElement for f64 {
    const SIDE: usize = 4;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn transposed(from: *const f64, step: isize, to: *mut f64, line: usize) {
        // SAFETY: as the caller promises.
        unsafe {
            let row = |k: isize| _mm256_loadu_pd(from.offset(k * step));
            let pair = |k| {
                let (a, b) = (row(k), row(k + 1));
                [_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b)]
            };
            let (low, high) = (pair(0), pair(2));
            for i in 0..2 {
                let (a, b) = (low[i], high[i]);
                _mm256_storeu_pd(to.add(i * line), _mm256_permute2f128_pd::<0x20>(a, b));
                _mm256_storeu_pd(to.add((i + 2) * line), _mm256_permute2f128_pd::<0x31>(a, b));
            }
        }
    }
}

/// A matrix with its rows dense, [`GAP`] elements between them.
///
/// # Safety
/// The host has AVX2; the matrix has these rows and columns, and `to` room for them and the gaps.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn rows<T: SlabElement>(
    from: MatrixView,
    [rows, cols]: [usize; 2],
    to: *mut T,
) -> (MatrixView, StridedLines<T>) {
    let line = cols + GAP;
    // SAFETY: as the caller promises, for all that follows.
    unsafe {
        if from.column == 1 {
            for i in 0..rows {
                from.place::<T>(i, 0).copy_to_nonoverlapping(to.add(i * line), cols);
            }
        } else {
            let side = if from.row == 1 { T::SIDE } else { usize::MAX };
            let (high, wide) = (rows / side * side, cols / side * side);
            for k in (0..wide).step_by(side) {
                for i in (0..high).step_by(side) {
                    let block = from.place::<T>(i, k).cast_const();
                    T::transposed(block, from.column, to.add(i * line + k), line);
                }
            }
            for i in 0..rows {
                let done = if i < high { wide } else { 0 };
                for k in done..cols {
                    *to.add(i * line + k) = *from.place::<T>(i, k);
                }
            }
        }
    }
    let lines = StridedLines { at: to, count: rows, length: cols, step: line };
    (MatrixView { at: to.cast(), row: line as isize, column: 1 }, lines)
}

/// A matrix whose lines are dense, along the axis along which the given one's are.
///
/// # Safety
/// The matrix has these rows and columns, and `to` room for them.
pub(super) unsafe fn kept<T: SlabElement>(
    from: MatrixView,
    [rows, cols]: [usize; 2],
    to: *mut T,
) -> (MatrixView, StridedLines<T>) {
    let turn = from.row == 1 && from.column != 1;
    let (m, count, length) =
        if turn { (from.transposed(), cols, rows) } else { (from, rows, cols) };
    for i in 0..count {
        // SAFETY: as the caller promises.
        unsafe {
            let to = to.add(i * length);
            if m.column == 1 {
                m.place::<T>(i, 0).copy_to_nonoverlapping(to, length);
            } else {
                (0..length).for_each(|j| *to.add(j) = *m.place::<T>(i, j));
            }
        }
    }
    let dense = MatrixView { at: to.cast(), row: length as isize, column: 1 };
    let lines = StridedLines { at: to, count, length, step: length };
    (if turn { dense.transposed() } else { dense }, lines)
}

//! Packs operands into panels: some lines of a matrix, with their elements of a step of the depth one after the other.
#![allow(unsafe_code)]

use super::MatrixView;
use super::register_tile::MOST_COLUMNS;
use std::arch::x86_64::*;
use std::array::from_fn;

/// Bytes of a line of the caches.
const LINE: usize = 64;

/// Lines of the depth that are fetched before they are copied.
const AHEAD: usize = 2;

/// An element that is packed in vectors.
pub(super) trait PanelElement: Copy + Default {
    /// Elements on a side of the blocks that are transposed in registers. What is behind a panel may be overwritten that far.
    const SIDE: usize;

    /// Writes `SIDE` elements of each of `SIDE` lines to as many lines of a panel, from the first one on.
    ///
    /// # Safety
    /// The host has AVX2; `SIDE` places are at `lines`, with as many elements `skip` elements behind each, and there is room for
    /// `SIDE` elements at each multiple of `width` from `to` on.
    unsafe fn transpose(lines: *const *const Self, skip: usize, to: *mut Self, width: usize);
}

impl PanelElement for f32 {
    const SIDE: usize = 8;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn transpose(lines: *const *const f32, skip: usize, to: *mut f32, width: usize) {
        // SAFETY: as the caller promises.
        unsafe {
            // Four elements of a line, and of the fourth line after it: no shuffle crosses halves then.
            let halves = |k: usize, at: usize| {
                let [low, high] = [k, k + 4].map(|k| _mm_loadu_ps((*lines.add(k)).add(skip + at)));
                _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(low), high)
            };
            for at in [0, 4] {
                let [a, b] = [halves(0, at), halves(1, at)];
                let [c, d] = [halves(2, at), halves(3, at)];
                let [ab, cd] = [_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d)];
                let [high_ab, high_cd] = [_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d)];
                let to = |k: usize| to.add((at + k) * width);
                // In this order, since what is written behind a line is the next one's.
                _mm256_storeu_ps(to(0), _mm256_shuffle_ps::<0x44>(ab, cd));
                _mm256_storeu_ps(to(1), _mm256_shuffle_ps::<0xEE>(ab, cd));
                _mm256_storeu_ps(to(2), _mm256_shuffle_ps::<0x44>(high_ab, high_cd));
                _mm256_storeu_ps(to(3), _mm256_shuffle_ps::<0xEE>(high_ab, high_cd));
            }
        }
    }
}

impl PanelElement for f64 {
    const SIDE: usize = 4;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn transpose(lines: *const *const f64, skip: usize, to: *mut f64, width: usize) {
        // SAFETY: as the caller promises.
        unsafe {
            let halves = |k: usize, at: usize| {
                let [low, high] = [k, k + 2].map(|k| _mm_loadu_pd((*lines.add(k)).add(skip + at)));
                _mm256_insertf128_pd::<1>(_mm256_castpd128_pd256(low), high)
            };
            for at in [0, 2] {
                let [a, b] = [halves(0, at), halves(1, at)];
                _mm256_storeu_pd(to.add(at * width), _mm256_unpacklo_pd(a, b));
                _mm256_storeu_pd(to.add((at + 1) * width), _mm256_unpackhi_pd(a, b));
            }
        }
    }
}

/// How lines are divided into panels.
#[derive(Clone, Copy)]
pub(super) struct PanelWidths {
    /// Lines of each panel but the last, a multiple of `unit`.
    pub(super) lines: usize,
    /// What widths are multiples of: places beyond the last line hold anything finite or what lines hold.
    pub(super) unit: usize,
}

impl PanelWidths {
    /// The panels of this many lines: the first line of each, its lines, and its width.
    pub(super) fn each(self, lines: usize) -> impl DoubleEndedIterator<Item = [usize; 3]> {
        (0..lines).step_by(self.lines).map(move |first| {
            let count = self.lines.min(lines - first);
            [first, count, count.next_multiple_of(self.unit)]
        })
    }

    /// The last panel, if it has fewer lines.
    fn last(self, lines: usize) -> Option<[usize; 3]> {
        self.each(lines).next_back().filter(|[_, count, _]| *count < self.lines)
    }

    /// Elements of all panels for each step of the depth.
    pub(super) fn across(self, lines: usize) -> usize {
        lines.next_multiple_of(self.unit)
    }
}

/// Packs the rows of a matrix. The panel that begins with a line is that number times the depth behind `to`.
///
/// # Safety
/// The host has AVX2; the matrix has these rows and columns, which nobody writes meanwhile, and `to` has room for all panels and `SIDE`
/// elements more.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn pack<T: PanelElement>(
    from: MatrixView,
    [lines, depth]: [usize; 2],
    widths: PanelWidths,
    to: *mut T,
) {
    let PanelWidths { lines: each, .. } = widths;
    // SAFETY: as the caller promises, for all that follows.
    unsafe {
        if from.row == 1 && from.column != 1 {
            let whole = lines / each;
            // Memory is read in order.
            for k in 0..depth {
                let line = from.place::<T>(0, k).cast_const();
                let next = from.place::<T>(0, k + AHEAD).cast_const();
                (0..lines).step_by(LINE / size_of::<T>()).for_each(|l| {
                    _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(l).cast());
                });
                for p in 0..whole {
                    copy(line.add(p * each), each, to.add(p * each * depth + k * each));
                }
                if let Some([first, count, width]) = widths.last(lines) {
                    let to = to.add(first * depth + k * width);
                    let zeros = [T::default(); MOST_COLUMNS];
                    to.add(count).copy_from_nonoverlapping(zeros.as_ptr(), width - count);
                    copy(line.add(first), count, to);
                }
            }
            return;
        }
        let side = if from.column == 1 { T::SIDE } else { usize::MAX };
        let deep = depth / side * side;
        for [first, count, width] in widths.each(lines) {
            let (from, to) = (from.from::<T>(first, 0), to.add(first * depth));
            // In place of lines that are not there is the last one.
            let lines: [*const T; MOST_COLUMNS] =
                from_fn(|l| from.place::<T>(l.min(count - 1), 0).cast_const());
            for begin in (0..deep).step_by(LINE / size_of::<T>()) {
                let end = deep.min(begin + LINE / size_of::<T>());
                // The last lines come first: what they write too much, the first ones overwrite.
                for l in (0..width.div_ceil(side)).rev().map(|l| l * side) {
                    let mut k = begin;
                    while k < end {
                        T::transpose(lines.as_ptr().add(l), k, to.add(k * width + l), width);
                        k += side;
                    }
                }
            }
            for k in deep..depth {
                for l in 0..width {
                    *to.add(k * width + l) = *from.place::<T>(l.min(count - 1), k);
                }
            }
        }
    }
}

/// Copies elements in vectors, of which the last overlaps with the one before it.
///
/// # Safety
/// As of a copy of this many elements; the host has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn copy<T: PanelElement>(from: *const T, count: usize, to: *mut T) {
    // SAFETY: as the caller promises; 32 bytes are `SIDE` elements.
    unsafe {
        let vector = |l: usize| {
            let x = _mm256_loadu_si256(from.add(l).cast());
            _mm256_storeu_si256(to.add(l).cast(), x);
        };
        if count < T::SIDE {
            (0..count).for_each(|l| *to.add(l) = *from.add(l));
            return;
        }
        let mut l = 0;
        while l + T::SIDE <= count {
            vector(l);
            l += T::SIDE;
        }
        if l < count {
            vector(count - T::SIDE);
        }
    }
}

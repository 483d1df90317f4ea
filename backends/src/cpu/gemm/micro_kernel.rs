//! The innermost loops of products: the sums of a tile stay in registers over a chunk of the depth. This is plain Rust: arrays with
//! one element for each column of a tile become vectors of the instruction set that a function is compiled for.
#![allow(unsafe_code)]

use super::MatrixView;
use crate::reference::order::CONTRACT_CHUNK;
use std::array::from_fn;
use std::ops::Range;

/// What is multiplied and added up.
pub(super) trait FmaType: Copy + Default {
    /// `a * b + sum`, rounded once.
    fn fused(a: Self, b: Self, sum: Self) -> Self;

    fn plus(self, other: Self) -> Self;
}

macro_rules! elements {
    ($($t:ty: |$a:ident, $b:ident, $s:ident| $fused:expr, $plus:expr;)*) => {
        $(impl FmaType for $t {
            #[inline(always)]
            fn fused($a: $t, $b: $t, $s: $t) -> $t { $fused }
            #[inline(always)]
            fn plus(self, other: $t) -> $t { $plus(self, other) }
        })*
    };
}

elements! {
    f64: |a, b, s| a.mul_add(b, s), std::ops::Add::add;
    f32: |a, b, s| a.mul_add(b, s), std::ops::Add::add;
    i64: |a, b, s| s.wrapping_add(a.wrapping_mul(b)), i64::wrapping_add;
    i32: |a, b, s| s.wrapping_add(a.wrapping_mul(b)), i32::wrapping_add;
    i8: |a, b, s| s.wrapping_add(a.wrapping_mul(b)), i8::wrapping_add;
}

/// Multiples of a number: offsets of lines of that length.
pub(super) struct Multiples<const N: usize>;

impl<const N: usize> Multiples<N> {
    pub(super) const ALL: [isize; CONTRACT_CHUNK] = {
        let mut all = [0; CONTRACT_CHUNK];
        let mut k = 0;
        while k < CONTRACT_CHUNK {
            all[k] = (k * N) as isize;
            k += 1;
        }
        all
    };
}

/// The rows of a tile: where each begins, and the distance in elements from there at each step of the depth.
pub(super) struct TileRows<'a, T, const R: usize> {
    pub(super) begin: [*const T; R],
    pub(super) along: &'a [isize],
}

impl<'a, T, const R: usize> TileRows<'a, T, R> {
    /// The first rows.
    #[inline(always)]
    pub(super) fn top<const H: usize>(&self) -> TileRows<'a, T, H> {
        TileRows { begin: from_fn(|i| self.begin[i]), along: self.along }
    }
}

/// The products of `R` rows and `C` columns, which are lines of `C` elements that begin `line` from each other.
///
/// # Safety
/// Every row must have an element at each step of its depth, and there must be as many lines. Nobody writes them meanwhile.
// Iterators in place of the numbers keep the sums in memory, which is fifteen times as slow.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
pub(super) unsafe fn tile<T: FmaType, const R: usize, const C: usize>(
    rows: &TileRows<'_, T, R>,
    (columns, line): (*const T, isize),
) -> [[T; C]; R] {
    let mut sums = [[T::default(); C]; R];
    let mut at = columns;
    for &along in rows.along {
        // SAFETY: as the caller promises; arrays are aligned as their elements are.
        let b = unsafe { &*at.cast::<[T; C]>() };
        at = at.wrapping_offset(line);
        for i in 0..R {
            // SAFETY: as the caller promises.
            let a = unsafe { *rows.begin[i].wrapping_offset(along) };
            for j in 0..C {
                sums[i][j] = T::fused(a, b[j], sums[i][j]);
            }
        }
    }
    sums
}

/// The products of `R` rows and two vectors of `L` columns, each of which has a place and offsets from there along the depth. They
/// are put where they go from registers: copies of them would take as long as a short depth.
///
/// # Safety
/// As of [`tile`] and [`put`]; each vector has an offset for each step of the depth.
// As above.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
pub(super) unsafe fn tile_of_vectors<T: FmaType, const R: usize, const L: usize>(
    rows: &TileRows<'_, T, R>,
    [(left, by_left), (right, by_right)]: [(*const T, &[isize]); 2],
    to: &TileResult<'_, 2>,
) {
    let (mut lefts, mut rights) = ([[T::default(); L]; R], [[T::default(); L]; R]);
    for ((&along, &of_left), &of_right) in rows.along.iter().zip(by_left).zip(by_right) {
        // SAFETY: as the caller promises; arrays are aligned as their elements are.
        let [b, c] = unsafe {
            [left.wrapping_offset(of_left), right.wrapping_offset(of_right)]
                .map(|at| &*at.cast::<[T; L]>())
        };
        for i in 0..R {
            // SAFETY: as the caller promises.
            let a = unsafe { *rows.begin[i].wrapping_offset(along) };
            for j in 0..L {
                lefts[i][j] = T::fused(a, b[j], lefts[i][j]);
            }
            for j in 0..L {
                rights[i][j] = T::fused(a, c[j], rights[i][j]);
            }
        }
    }
    // SAFETY: as the caller promises.
    unsafe {
        put(&lefts, to, 0);
        put(&rights, to, 1);
    }
}

/// Where the sums of a tile go: rows from the first on, and parts of its columns.
pub(super) struct TileResult<'a, const N: usize> {
    /// Rows that are wanted.
    pub(super) rows: usize,
    /// Of each part, the columns that are wanted, and where the first of these goes.
    pub(super) parts: [(&'a Range<usize>, MatrixView); N],
    /// Whether these sums are of the first chunk.
    pub(super) first: bool,
}

/// Puts the sums of a chunk where a part of them goes, or adds them there: the first chunk is not added to +0, since its sum may
/// be -0.
///
/// # Safety
/// The result must have as many rows and columns as are written, at most `R` and `C`, with elements of this type, and
/// nobody else uses them during the call.
#[inline(always)]
pub(super) unsafe fn put<T: FmaType, const R: usize, const C: usize, const N: usize>(
    sums: &[[T; C]; R],
    to: &TileResult<'_, N>,
    part: usize,
) {
    let TileResult { rows, first, .. } = *to;
    let (columns, out) = (to.parts[part].0.clone(), to.parts[part].1);
    if out.column == 1 && columns.len() == C {
        for (i, sums) in sums.iter().enumerate() {
            if i < rows {
                // SAFETY: as the caller promises.
                let to = unsafe { &mut *out.place::<T>(i, 0).cast::<[T; C]>() };
                for (to, &sum) in to.iter_mut().zip(sums) {
                    *to = if first { sum } else { to.plus(sum) };
                }
            }
        }
        return;
    }
    // Sums at an index that is not known before would be in memory from the start: only a copy of them is.
    let mut copy = [[T::default(); C]; R];
    for (copy, sums) in copy.iter_mut().zip(sums) {
        for (copy, &sum) in copy.iter_mut().zip(sums) {
            *copy = sum;
        }
    }
    // Rows of the result may be neighbours: then a line of the cache is written at once.
    let (outer, inner) = match out.row {
        1 => (columns.len(), rows),
        _ => (rows, columns.len()),
    };
    for a in 0..outer {
        for b in 0..inner {
            let (i, j) = if out.row == 1 { (b, a) } else { (a, b) };
            let sum = copy[i][columns.start + j];
            // SAFETY: as the caller promises.
            unsafe {
                let to = out.place::<T>(i, j);
                *to = if first { sum } else { (*to).plus(sum) };
            }
        }
    }
}

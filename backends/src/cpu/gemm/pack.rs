//! Packs the columns of a matrix one tile's width at a time. Columns whose rows are neighbours are transposed in registers.
#![allow(unsafe_code)]

use super::MatrixView;
use std::array::from_fn;

/// Elements on a side of the blocks that are transposed in registers.
const BLOCK: usize = 8;

/// Columns of the blocks that are left of that.
const HALF: usize = 4;

/// Packs a matrix of `depth` rows: `C` columns, then the next `C`, where absent ones are 0.
///
/// # Safety
/// The matrix must have elements of this type in `depth` rows of `cols` columns, which nobody writes meanwhile, and
/// `to` room for as many rows of `cols` columns, rounded up to a multiple of `C`, which nobody else uses.
#[inline(always)]
pub(super) unsafe fn pack<T: Copy + Default, const C: usize>(
    from: MatrixView,
    depth: usize,
    cols: usize,
    to: *mut T,
) {
    for j in (0..cols).step_by(C) {
        let (n, to) = (C.min(cols - j), to.wrapping_add(j * depth));
        // SAFETY: as the caller promises, the matrix has these rows and columns, and `to` room for the
        // depth and all columns, those that are absent too.
        unsafe {
            let line = |k: usize| to.wrapping_add(k * C);
            if n < C {
                for k in 0..depth {
                    *line(k).cast::<[T; C]>() = [T::default(); C];
                }
            }
            match (from.column, from.row) {
                (1, _) if n == C => {
                    for k in 0..depth {
                        *line(k).cast::<[T; C]>() = *from.place::<T>(k, j).cast::<[T; C]>();
                    }
                }
                (_, 1) => {
                    let mut c = 0;
                    while c + BLOCK <= n {
                        columns::<T, BLOCK>(from.from::<T>(0, j + c), depth, line(0).add(c), C);
                        c += BLOCK;
                    }
                    while c + HALF <= n {
                        columns::<T, HALF>(from.from::<T>(0, j + c), depth, line(0).add(c), C);
                        c += HALF;
                    }
                    for c in c..n {
                        columns::<T, 1>(from.from::<T>(0, j + c), depth, line(0).add(c), C);
                    }
                }
                _ => {
                    for k in 0..depth {
                        for c in 0..n {
                            *line(k).add(c) = *from.place::<T>(k, j + c);
                        }
                    }
                }
            }
        }
    }
}

/// Copies `B` columns whose rows are neighbours to lines that begin `line` elements from each other: blocks are transposed
/// in registers.
///
/// # Safety
/// As of [`pack`], for these columns.
// A block is read across its lines.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn columns<T: Copy + Default, const B: usize>(
    from: MatrixView,
    depth: usize,
    to: *mut T,
    line: usize,
) {
    let mut k = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while k + BLOCK <= depth {
            let read = |c| *from.place::<T>(k, c).cast::<[T; BLOCK]>();
            let block: [[T; BLOCK]; B] = from_fn(read);
            for x in 0..BLOCK {
                let across: [T; B] = from_fn(|c| block[c][x]);
                *to.add((k + x) * line).cast::<[T; B]>() = across;
            }
            k += BLOCK;
        }
        for k in k..depth {
            for c in 0..B {
                *to.add(k * line + c) = *from.place::<T>(k, c);
            }
        }
    }
}

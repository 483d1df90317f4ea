//! The loops around a micro-kernel: chunks of the depth, blocks of columns that are packed, tiles of rows; and what each of them
//! packs or reads where it is.
#![allow(unsafe_code)]

use super::indirect::{ColumnVector, ColumnVectors, DepthOffsets};
use super::micro_kernel::{FmaType, Multiples, TileResult, TileRows, put, tile, tile_of_vectors};
use super::orientation::{COLUMNS, Orientation, TileExtents};
use super::pack::pack;
use super::window::{CopyLines, PlacedWindow};
use super::{GemmSide, MatrixView, Size};
use crate::reference::order::CONTRACT_CHUNK;
use std::array::from_fn;

/// The most bytes of the packed columns of a chunk: they stay in L2.
const PACKED: usize = 512 << 10;

/// Columns of elements of type `T` that are packed at a time, in tiles of `C`.
const fn packed_columns<T, const C: usize>() -> usize {
    let fit = PACKED / (CONTRACT_CHUNK * size_of::<T>());
    let most = if fit < COLUMNS { fit } else { COLUMNS };
    most / C * C
}

/// Bytes for the packed columns and rows of a product of this size, either way round.
pub(super) fn room<T, const R: usize, const C: usize>([rows, cols, depth]: Size) -> u64 {
    let wide = rows.max(cols).next_multiple_of(C).min(packed_columns::<T, C>());
    ((wide + R) * depth.min(CONTRACT_CHUNK) * size_of::<T>()) as u64
}

/// The columns of a chunk that are multiplied at a time.
#[derive(Clone, Copy)]
struct PackedColumns<T> {
    /// Where they are packed, unless they are read where they are.
    packed: *const T,
    bare: Option<MatrixView>,
    count: usize,
    depth: usize,
    /// Whether this is the first chunk.
    first: bool,
}

/// Calls a function for a tile of the least height that has this many rows: `R`, or one of the parts of it that end a product.
macro_rules! of_height {
    ($high:expr, $f:ident, [$t:ident, $c:ident], $args:tt) => {
        if $high <= U {
            $f::<$t, U, $c> $args
        } else if $high <= S {
            $f::<$t, S, $c> $args
        } else if $high <= W {
            $f::<$t, W, $c> $args
        } else {
            $f::<$t, R, $c> $args
        }
    };
}

/// Where the rows of a tile are, for as many steps as the depth has. A window with offsets is read in place where all of it is
/// there; what is not dense is packed in lines of `R`. Absent rows are the last one once more, or 0.
///
/// # Safety
/// The left operand must have as many rows as are asked for, at least one and at most `R`, of this depth, which nobody writes
/// meanwhile. `room` has that of `R` rows.
#[inline(always)]
unsafe fn rows<'a, T: FmaType, I: CopyLines, const R: usize>(
    (lhs, offsets): (GemmSide<'_>, Option<&DepthOffsets<'a>>),
    (rows, depth): (usize, usize),
    room: *mut T,
) -> TileRows<'a, T, R> {
    let dense = |m: MatrixView| TileRows {
        begin: from_fn(|i| m.place::<T>(i.min(rows - 1), 0).cast_const()),
        along: &Multiples::<1>::ALL[..depth],
    };
    let packed = TileRows {
        begin: from_fn(|i| room.wrapping_add(i).cast_const()),
        along: &Multiples::<R>::ALL[..depth],
    };
    // SAFETY: as the caller promises; the rows of a tile are as many columns.
    unsafe {
        match lhs {
            GemmSide::Matrix(m) if m.column == 1 => dense(m),
            GemmSide::Matrix(m) => {
                pack::<T, R>(m.transposed(), depth, rows, room);
                packed
            }
            GemmSide::Window(w) => {
                if let Some(by) = offsets
                    && let Some(begin) = by.rows::<T, R>(&w, rows)
                {
                    return TileRows { begin, along: by.all };
                }
                if w.deep() {
                    I::copy(w, true, [rows, depth], room, depth);
                    return dense(MatrixView { at: room.cast(), row: depth as isize, column: 1 });
                }
                panel::<T, I, R>(w, depth, rows, room);
                packed
            }
        }
    }
}

/// The sums of a tile's rows and all these columns.
///
/// # Safety
/// Rows and columns must be there, and the result have room for them, which nobody else uses meanwhile.
#[inline(always)]
unsafe fn panels<T: FmaType, const H: usize, const C: usize>(
    tall: &TileRows<'_, T, H>,
    rows: usize,
    columns: PackedColumns<T>,
    out: MatrixView,
) {
    for j in (0..columns.count).step_by(C) {
        let (from, line) = match columns.bare {
            Some(bare) => (bare.place::<T>(0, j).cast_const(), bare.row),
            None => (columns.packed.wrapping_add(j * columns.depth), C as isize),
        };
        // SAFETY: as the caller promises.
        unsafe {
            let parts = [(&(0..C.min(columns.count - j)), out.from::<T>(0, j))];
            let to = TileResult { rows, parts, first: columns.first };
            let sums: [[T; C]; H] = tile(tall, (from, line));
            put(&sums, &to, 0);
        }
    }
}

/// Two vectors of columns of a window, each with where it begins and its offsets from there.
struct VectorPair<'a, T> {
    columns: [ColumnVector; 2],
    places: [(*const T, &'a [isize]); 2],
    /// Whether this is the first chunk.
    first: bool,
}

/// The sums of a tile's rows and two vectors of columns.
///
/// # Safety
/// As of [`panels`].
#[inline(always)]
unsafe fn vector_rows<T: FmaType, const H: usize, const L: usize>(
    tall: &TileRows<'_, T, H>,
    rows: usize,
    pair: &VectorPair<'_, T>,
    out: MatrixView,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let parts = [0, 1].map(|k| {
            let vector = &pair.columns[k];
            (&vector.columns, out.from::<T>(0, vector.at))
        });
        let to = TileResult { rows, parts, first: pair.first };
        tile_of_vectors::<T, H, L>(tall, pair.places, &to);
    }
}

/// The product of dense rows and columns of a window that are read in place, in vectors of `L`. Vectors of which an element
/// is not there are packed.
///
/// # Safety
/// As of [`product`]; rows have neighbours along the depth.
#[inline(always)]
unsafe fn vectors<
    T: FmaType,
    I: CopyLines,
    const R: usize,
    const W: usize,
    const S: usize,
    const U: usize,
    const L: usize,
>(
    [m, n, depth]: Size,
    (lhs, w): (MatrixView, PlacedWindow<'_>),
    out: MatrixView,
    room: *mut T,
) {
    let mut table = [0; CONTRACT_CHUNK];
    for k in (0..depth).step_by(CONTRACT_CHUNK) {
        let w = w.from(0, k);
        let by = DepthOffsets::of(&w, depth - k, &mut table);
        let deep = by.all.len();
        let Some(mut all) = ColumnVectors::<L>::of(w, n) else { return };
        while let Some(left) = all.next() {
            // Where no other is left, the second vector is the first one, and none of its columns are wanted.
            let right = all.next().unwrap_or_else(|| left.without_columns());
            let columns = [left, right];
            let places = from_fn(|side| match all.place::<T>(&columns[side], &by) {
                Some(at) => (at, by.all),
                None => {
                    let to = room.wrapping_add(side * L * deep);
                    // SAFETY: as the caller promises, the room has that of two vectors for a chunk.
                    unsafe { all.pack::<T, I>(&columns[side], deep, to) };
                    (to.cast_const(), &Multiples::<L>::ALL[..deep])
                }
            });
            let pair = VectorPair { columns, places, first: k == 0 };
            for i in (0..m).step_by(R) {
                let (lhs, out, high) = (lhs.from::<T>(i, k), out.from::<T>(i, 0), R.min(m - i));
                let lhs = (GemmSide::Matrix(lhs), None);
                // SAFETY: as the caller promises.
                unsafe {
                    let tall = rows::<T, I, R>(lhs, (high, deep), room);
                    of_height!(high, vector_rows, [T, L], (&tall.top(), high, &pair, out));
                }
            }
        }
    }
}

/// Packs columns of a window, at most `C`, where absent ones are 0.
///
/// # Safety
/// As of [`CopyLines::copy`]; `to` has room for `depth` lines of `C` elements.
#[inline(always)]
unsafe fn panel<T: FmaType, I: CopyLines, const C: usize>(
    w: PlacedWindow<'_>,
    depth: usize,
    n: usize,
    to: *mut T,
) {
    // SAFETY: as the caller promises.
    unsafe {
        if n < C {
            for k in 0..depth {
                *to.add(k * C).cast::<[T; C]>() = [T::default(); C];
            }
        }
        I::copy(w, false, [n, depth], to, C);
    }
}

/// The product, in tiles of the shape that takes least.
///
/// # Safety
/// As of [`ProductKernel::windows`](super::tiles::ProductKernel::windows), for elements of this type; `room` is that of [`room`] for `R` and `C`.
#[inline(always)]
pub(super) unsafe fn product<
    T: FmaType,
    I: CopyLines,
    const R: usize,
    const W: usize,
    const S: usize,
    const U: usize,
    const C: usize,
    const L: usize,
>(
    [m, n, depth]: Size,
    [lhs, rhs]: [GemmSide<'_>; 2],
    out: MatrixView,
    room: *mut T,
) {
    if depth == 0 {
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            // SAFETY: as the caller promises.
            unsafe { *out.place::<T>(i, j) = T::default() };
        }
        return;
    }
    let shape = TileExtents { heights: [R, W, S, U], columns: [C, L] };
    let how = Orientation::of([m, n, depth], [&lhs, &rhs], out, shape);
    let (size, lhs, rhs, out) = match how.turned {
        false => ([m, n, depth], lhs, rhs, out),
        true => ([n, m, depth], rhs.transposed(), lhs.transposed(), out.transposed()),
    };
    // SAFETY: as the caller promises.
    unsafe {
        if L < C {
            if let (GemmSide::Matrix(lhs), GemmSide::Window(w)) = (lhs, rhs)
                && how.columns_in_place
            {
                return vectors::<T, I, R, W, S, U, L>(size, (lhs, w), out, room);
            }
            if how.narrow {
                let sides = [lhs, rhs];
                return blocks::<T, I, R, W, S, U, L>(size, sides, how.rows_in_place, (out, room));
            }
        }
        blocks::<T, I, R, W, S, U, C>(size, [lhs, rhs], how.rows_in_place, (out, room));
    }
}

/// The product in tiles of `C` columns, which are packed, a block of columns and a chunk of the depth at a time.
///
/// # Safety
/// As of [`product`].
#[inline(always)]
unsafe fn blocks<
    T: FmaType,
    I: CopyLines,
    const R: usize,
    const W: usize,
    const S: usize,
    const U: usize,
    const C: usize,
>(
    [m, n, depth]: Size,
    [lhs, rhs]: [GemmSide<'_>; 2],
    rows_in_place: bool,
    (out, room): (MatrixView, *mut T),
) {
    let wide = packed_columns::<T, C>();
    let beside = n.next_multiple_of(C).min(wide) * depth.min(CONTRACT_CHUNK);
    let beside = room.wrapping_add(beside);
    let mut table = [0; CONTRACT_CHUNK];
    for j in (0..n).step_by(wide) {
        let count = wide.min(n - j);
        for k in (0..depth).step_by(CONTRACT_CHUNK) {
            let deep = CONTRACT_CHUNK.min(depth - k);
            // SAFETY: as the caller promises.
            let bare = unsafe { columns::<T, I, R, C>((m, deep, count), rhs, (j, k), room) };
            let columns = PackedColumns { packed: room, bare, count, depth: deep, first: k == 0 };
            let offsets = match &lhs {
                GemmSide::Window(w) if rows_in_place => {
                    Some(DepthOffsets::of(&w.from(0, k), deep, &mut table))
                }
                _ => None,
            };
            for i in (0..m).step_by(R) {
                let lhs = match lhs {
                    GemmSide::Matrix(m) => GemmSide::Matrix(m.from::<T>(i, k)),
                    GemmSide::Window(w) => GemmSide::Window(w.from(i, k)),
                };
                let (out, high) = (out.from::<T>(i, j), R.min(m - i));
                // SAFETY: as the caller promises.
                unsafe {
                    let tall = rows::<T, I, R>((lhs, offsets.as_ref()), (high, deep), beside);
                    of_height!(high, panels, [T, C], (&tall.top(), high, columns, out));
                }
            }
        }
    }
}

/// Packs columns of a chunk of the depth, unless they are better read where they are, which is said.
///
/// # Safety
/// As of [`product`]; `room` has that of these columns.
#[inline(always)]
unsafe fn columns<T: FmaType, I: CopyLines, const R: usize, const C: usize>(
    (m, deep, count): (usize, usize, usize),
    rhs: GemmSide<'_>,
    (j, k): (usize, usize),
    room: *mut T,
) -> Option<MatrixView> {
    match rhs {
        GemmSide::Matrix(rhs) => {
            let from = rhs.from::<T>(k, j);
            // Columns that are read once are not worth packing.
            let bare = (m <= R && from.column == 1 && count % C == 0).then_some(from);
            if bare.is_none() {
                // SAFETY: as the caller promises.
                unsafe { pack::<T, C>(from, deep, count, room) };
            }
            bare
        }
        GemmSide::Window(w) => {
            for c in (0..count).step_by(C) {
                let (from, to) = (w.from(j + c, k), room.wrapping_add(c * deep));
                // SAFETY: as the caller promises.
                unsafe { panel::<T, I, C>(from, deep, C.min(count - c), to) };
            }
            None
        }
    }
}

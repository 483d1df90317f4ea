//! Products in tiles: the sums of a few rows and columns stay in registers for a chunk of the depth.
//!
//! Columns of the right operand are packed, one tile's width and one chunk of the depth at a time, so that a tile reads
//! them contiguously. Rows of the left operand are read in place, or packed if their depth is not dense. This is plain
//! Rust: arrays with one element for each column of a tile become vectors of the instruction set that a function is
//! compiled for.
#![allow(unsafe_code)]

use super::pack::pack;
use super::window::PlacedWindow;
use super::{Gemm, GemmArgs, MatrixView, Size};
use crate::reference::order::CONTRACT_CHUNK;
use adfuse_ir::DType;
use std::array::from_fn;

/// The most bytes of the packed columns of a chunk: they stay in L2.
const PACKED: usize = 512 << 10;

/// Columns that are packed at a time, at most.
const COLUMNS: usize = 256;

/// Rows of the tiles that end a product with few rows left: parts of this many.
const SHORT: [usize; 2] = [2, 3];

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

/// Columns of elements of type `T` that are packed at a time, in tiles of `C`.
const fn packed_columns<T, const C: usize>() -> usize {
    let fit = PACKED / (CONTRACT_CHUNK * size_of::<T>());
    let most = if fit < COLUMNS { fit } else { COLUMNS };
    most / C * C
}

/// Bytes for the packed columns and rows of a product of this size, either way round.
fn room<T, const R: usize, const C: usize>([rows, cols, depth]: Size) -> u64 {
    let wide = rows.max(cols).next_multiple_of(C).min(packed_columns::<T, C>());
    ((wide + R) * depth.min(CONTRACT_CHUNK) * size_of::<T>()) as u64
}

/// The products of `R` rows and `C` columns: row `i` begins at `rows[i]`, and steps by `along` with the
/// depth; the columns are lines of `C` elements, `line` from each other.
///
/// # Safety
/// Every row must have `depth` elements, `along` from each other, and there must be `depth` lines. Nobody writes
/// them meanwhile.
// Iterators in place of the numbers keep the sums in memory, which is fifteen times as slow.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn tile<T: FmaType, const R: usize, const C: usize>(
    depth: usize,
    (rows, along): ([*const T; R], usize),
    (columns, line): (*const T, isize),
) -> [[T; C]; R] {
    let mut sums = [[T::default(); C]; R];
    for k in 0..depth {
        // SAFETY: as the caller promises; arrays are aligned as their elements are.
        let b = unsafe { &*columns.wrapping_offset(k as isize * line).cast::<[T; C]>() };
        for i in 0..R {
            // SAFETY: as the caller promises.
            let a = unsafe { *rows[i].add(k * along) };
            for j in 0..C {
                sums[i][j] = T::fused(a, b[j], sums[i][j]);
            }
        }
    }
    sums
}

/// Puts the sums of a chunk where they go, or adds them there: the first chunk is not added to +0, since
/// its sum may be -0.
///
/// # Safety
/// The result must have as many rows and columns as are written, at most `R` and `C`, with elements of this type, and
/// nobody else uses them during the call.
#[inline(always)]
unsafe fn put<T: FmaType, const R: usize, const C: usize>(
    sums: &[[T; C]; R],
    [rows, cols]: [usize; 2],
    out: MatrixView,
    first: bool,
) {
    for (i, sums) in sums.iter().enumerate().take(rows) {
        // SAFETY: as the caller promises.
        unsafe {
            if out.column == 1 && cols == C {
                let to = &mut *out.place::<T>(i, 0).cast::<[T; C]>();
                for (to, &sum) in to.iter_mut().zip(sums) {
                    *to = if first { sum } else { to.plus(sum) };
                }
                continue;
            }
            for (j, &sum) in sums.iter().enumerate().take(cols) {
                let to = out.place::<T>(i, j);
                *to = if first { sum } else { (*to).plus(sum) };
            }
        }
    }
}

/// An operand: a matrix, or what is copied from where forms say.
#[derive(Clone, Copy)]
pub(in super::super) enum GemmSide<'a> {
    /// Of rows and depth, or of depth and columns.
    Matrix(MatrixView),
    /// The same, whichever of the two.
    Window(PlacedWindow<'a>),
}

impl GemmSide<'_> {
    fn transposed(self) -> Self {
        match self {
            GemmSide::Matrix(m) => GemmSide::Matrix(m.transposed()),
            window => window,
        }
    }
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

/// The sums of `rows` rows, at most `R`, and all these columns.
///
/// # Safety
/// The left operand must have as many rows as are multiplied, at least one, of the columns' depth; the columns must be there, packed
/// or bare; the result must have room for them. `room` has that of `R` packed rows. Nobody else uses the result and
/// the room meanwhile, nor writes the operands.
#[inline(always)]
unsafe fn rows<T: FmaType, const R: usize, const C: usize>(
    lhs: GemmSide<'_>,
    rows: usize,
    columns: PackedColumns<T>,
    out: MatrixView,
    room: *mut T,
) {
    let depth = columns.depth;
    // Rows that are read where they are, or have been copied one after the other.
    let dense = match lhs {
        GemmSide::Matrix(m) if m.column == 1 => Some(m),
        GemmSide::Matrix(m) => {
            // SAFETY: as the caller promises; the rows of a tile are as many columns.
            unsafe { pack::<T, R>(m.transposed(), depth, rows, room) };
            None
        }
        GemmSide::Window(w) if w.deep() => {
            // SAFETY: as the caller promises.
            unsafe { w.rows(depth, rows, room, depth) };
            Some(MatrixView { at: room.cast(), row: depth as isize, column: 1 })
        }
        GemmSide::Window(w) => {
            // SAFETY: as the caller promises.
            unsafe { panel::<T, R>(w, depth, rows, room) };
            None
        }
    };
    for j in (0..columns.count).step_by(C) {
        let from = match columns.bare {
            Some(bare) => (bare.place::<T>(0, j).cast_const(), bare.row),
            None => (columns.packed.wrapping_add(j * depth), C as isize),
        };
        // SAFETY: as the caller promises. Rows that are absent are the last one once more, or 0.
        unsafe {
            let sums: [[T; C]; R] = if let Some(m) = dense {
                let row = |i: usize| m.place::<T>(i.min(rows - 1), 0).cast_const();
                tile(depth, (from_fn(row), 1), from)
            } else {
                tile(depth, (from_fn(|i| room.wrapping_add(i).cast_const()), R), from)
            };
            let size = [rows, C.min(columns.count - j)];
            put(&sums, size, out.from::<T>(0, j), columns.first);
        }
    }
}

/// Packs columns of a window, at most `C`, where absent ones are 0.
///
/// # Safety
/// As of [`PlacedWindow::columns`]; `to` has room for `depth` lines of `C` elements.
#[inline(always)]
unsafe fn panel<T: FmaType, const C: usize>(
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
        w.columns(depth, n, to, C);
    }
}

/// Whether rows and columns are exchanged: tiles have `R` rows and `C` columns, or `S` or `U` rows where no more are left.
fn turns<const R: usize, const S: usize, const U: usize, const C: usize>(
    [m, n]: [usize; 2],
    [lhs, rhs]: [&GemmSide<'_>; 2],
    out: MatrixView,
) -> bool {
    // What is computed for each step of the depth, also where tiles stand out. Packing a line of a window, of a tile's rows
    // or columns, takes about as long as the products of a tile; rows whose depth is contiguous are packed faster.
    let lines = |side: &GemmSide<'_>, n: usize, wide: usize| match side {
        GemmSide::Window(w) if wide == C || !w.deep() => n.div_ceil(wide) * R * C,
        GemmSide::Window(_) => n * C / 2,
        GemmSide::Matrix(_) => 0,
    };
    let tiled = |m: usize, n: usize, [lhs, rhs]: [&GemmSide<'_>; 2]| {
        let left = match m % R {
            0 => 0,
            left if left <= U => U,
            left if left <= S => S,
            _ => R,
        };
        let products = (m / R * R + left).saturating_mul(n.next_multiple_of(C));
        products.saturating_add(lines(lhs, m, R)).saturating_add(lines(rhs, n, C))
    };
    let (upright, turned) = (tiled(m, n, [lhs, rhs]), tiled(n, m, [rhs, lhs]));
    turned < upright || (turned == upright && out.column != 1 && out.row == 1)
}

/// The product, in tiles of `R` rows and `C` columns, or of `S` or `U` rows where no more are left.
///
/// # Safety
/// As of [`ProductKernel::windows`], for elements of this type; `room` is that of [`room`] for `R` and `C`.
#[inline(always)]
unsafe fn product<T: FmaType, const R: usize, const S: usize, const U: usize, const C: usize>(
    [m, n, depth]: Size,
    [lhs, rhs]: [GemmSide<'_>; 2],
    out: MatrixView,
    room: *mut T,
) {
    let turn = turns::<R, S, U, C>([m, n], [&lhs, &rhs], out);
    let (m, n, lhs, rhs, out) = match turn {
        false => (m, n, lhs, rhs, out),
        true => (n, m, rhs.transposed(), lhs.transposed(), out.transposed()),
    };
    if depth == 0 {
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            // SAFETY: as the caller promises.
            unsafe { *out.place::<T>(i, j) = T::default() };
        }
        return;
    }
    let wide = packed_columns::<T, C>();
    let beside = n.next_multiple_of(C).min(wide) * depth.min(CONTRACT_CHUNK);
    let beside = room.wrapping_add(beside);
    for j in (0..n).step_by(wide) {
        let count = wide.min(n - j);
        for k in (0..depth).step_by(CONTRACT_CHUNK) {
            let deep = CONTRACT_CHUNK.min(depth - k);
            let mut bare = None;
            match rhs {
                GemmSide::Matrix(rhs) => {
                    let from = rhs.from::<T>(k, j);
                    // Columns that are read once are not worth packing.
                    bare = (m <= R && from.column == 1 && count % C == 0).then_some(from);
                    if bare.is_none() {
                        // SAFETY: as the caller promises.
                        unsafe { pack::<T, C>(from, deep, count, room) };
                    }
                }
                GemmSide::Window(w) => {
                    for c in (0..count).step_by(C) {
                        let (from, to) = (w.from(j + c, k), room.wrapping_add(c * deep));
                        // SAFETY: as the caller promises.
                        unsafe { panel::<T, C>(from, deep, C.min(count - c), to) };
                    }
                }
            }
            let columns = PackedColumns { packed: room, bare, count, depth: deep, first: k == 0 };
            for i in (0..m).step_by(R) {
                let lhs = match lhs {
                    GemmSide::Matrix(m) => GemmSide::Matrix(m.from::<T>(i, k)),
                    GemmSide::Window(w) => GemmSide::Window(w.from(i, k)),
                };
                let (out, high) = (out.from::<T>(i, j), R.min(m - i));
                // SAFETY: as the caller promises.
                unsafe {
                    if high <= U {
                        rows::<T, U, C>(lhs, high, columns, out, beside)
                    } else if high <= S {
                        rows::<T, S, C>(lhs, high, columns, out, beside)
                    } else {
                        rows::<T, R, C>(lhs, high, columns, out, beside)
                    }
                }
            }
        }
    }
}

/// Products by one instruction set.
pub(in super::super) struct ProductKernel {
    name: &'static str,
    room: fn(DType, Size) -> u64,
    product: unsafe fn(DType, Size, [GemmSide<'_>; 2], MatrixView, *mut u8),
}

/// An instance for an instruction set, with a tile's rows, a part of them, and its columns of 8 bytes, of
/// 4, and of 1.
macro_rules! tiles {
    ($set:ident, $name:literal, [$r:literal, $c8:literal, $c4:literal, $c1:literal] $(, $features:literal)?) => {
        mod $set {
            use super::*;

            pub(in super::super) static TILES: ProductKernel = ProductKernel { name: $name, room, product: run };

            fn room(dtype: DType, size: Size) -> u64 {
                match dtype.bytes() {
                    8 => super::room::<u64, $r, $c8>(size),
                    4 => super::room::<u32, $r, $c4>(size),
                    _ => super::room::<u8, $r, $c1>(size),
                }
            }

            /// # Safety
            /// As of [`ProductKernel::windows`], on a processor that has these features.
            $(#[target_feature(enable = $features)])?
            unsafe fn run(
                dtype: DType,
                size: Size,
                sides: [GemmSide<'_>; 2],
                out: MatrixView,
                room: *mut u8,
            ) {
                const R: usize = $r;
                const S: usize = R / SHORT[0];
                const U: usize = R / SHORT[1];
                // SAFETY: as the caller promises.
                unsafe {
                    match dtype {
                        DType::F64 => product::<f64, R, S, U, $c8>(size, sides, out, room.cast()),
                        DType::F32 => product::<f32, R, S, U, $c4>(size, sides, out, room.cast()),
                        DType::I64 => product::<i64, R, S, U, $c8>(size, sides, out, room.cast()),
                        DType::I32 | DType::U32 => {
                            product::<i32, R, S, U, $c4>(size, sides, out, room.cast())
                        }
                        _ => product::<i8, R, S, U, $c1>(size, sides, out, room.cast()),
                    }
                }
            }
        }
    };
}

// Heights are no powers of two: of those the compiler makes gathers.
tiles!(any, "tiles", [6, 8, 16, 32]);
#[cfg(target_arch = "x86_64")]
tiles!(avx2, "tiles, avx2", [6, 8, 16, 32], "avx2,fma");
#[cfg(target_arch = "x86_64")]
tiles!(avx512, "tiles, avx512f", [12, 16, 32, 32], "avx512f,avx2,fma");

/// The instances that the host can run, the fastest first.
pub(super) fn all() -> impl Iterator<Item = &'static ProductKernel> {
    #[cfg(target_arch = "x86_64")]
    let wide = {
        let short = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let long = short && is_x86_feature_detected!("avx512f");
        [long.then_some(&avx512::TILES), short.then_some(&avx2::TILES)]
    };
    #[cfg(not(target_arch = "x86_64"))]
    let wide = [None; 2];
    wide.into_iter().flatten().chain([&any::TILES])
}

/// The fastest of the host's.
pub(in super::super) fn found() -> &'static ProductKernel {
    all().next().unwrap_or(&any::TILES)
}

impl ProductKernel {
    /// As [`Gemm::product`], of operands that are copied from where they are.
    ///
    /// # Safety
    /// As of [`Gemm::product`]; a window's elements must be there where its guards hold.
    pub(in super::super) unsafe fn windows(
        &self,
        dtype: DType,
        size: Size,
        sides: [GemmSide<'_>; 2],
        out: MatrixView,
        room: *mut u8,
    ) {
        // SAFETY: as the caller promises; only instances that the host can run are given out.
        unsafe { (self.product)(dtype, size, sides, out, room) }
    }
}

impl Gemm for ProductKernel {
    fn name(&self, _: DType) -> &'static str {
        self.name
    }

    fn room(&self, dtype: DType, size: Size, _: bool) -> u64 {
        (self.room)(dtype, size)
    }

    unsafe fn product(
        &self,
        dtype: DType,
        size: Size,
        lhs: MatrixView,
        rhs: MatrixView,
        out: MatrixView,
        aid: GemmArgs<'_>,
    ) {
        // SAFETY: as the caller promises; only instances that the host can run are given out.
        unsafe {
            (self.product)(
                dtype,
                size,
                [GemmSide::Matrix(lhs), GemmSide::Matrix(rhs)],
                out,
                aid.room,
            )
        }
    }
}

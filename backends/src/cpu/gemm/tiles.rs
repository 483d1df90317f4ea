//! Products in tiles: the sums of a few rows and columns stay in registers for a chunk of the depth.
//!
//! Columns of the right operand are packed, one tile's width and one chunk of the depth at a time, so that a tile reads
//! them contiguously. Rows of the left operand are read in place, or packed if their depth is not dense. Windows are read in
//! place by tables of offsets ([`indirect`](super::indirect)) where the other operand is too small to make packing them worthwhile.
#![allow(unsafe_code)]

use super::macro_kernel::{self, product};
use super::orientation::TileExtents;
use super::window::{CopyLines, PlacedWindow};
use super::{Gemm, GemmArgs, GemmSide, MatrixView, Size};
use crate::cpu::codegen::vector_width::Vectors;
use adfuse_ir::DType;

/// Products by one instruction set.
pub(in super::super) struct ProductKernel {
    name: &'static str,
    room: fn(DType, Size) -> u64,
    product: unsafe fn(DType, Size, [GemmSide<'_>; 2], MatrixView, *mut u8),
}

/// Products by tiles of these heights: a function for each type, with the columns of a tile and of a narrow one.
macro_rules! products {
    ($heights:tt, $features:tt; $($name:ident: $t:ty, $c:literal, $l:literal;)*) => {
        $(products! { @one $name, $t, $heights, [$c, $l], $features })*
    };
    (
        @one $name:ident, $t:ty, [$r:literal, $w:literal, $s:literal, $u:literal],
        [$c:literal, $l:literal], [$($features:literal)?]
    ) => {
        /// # Safety
        /// As of `run`.
        $(#[target_feature(enable = $features)])?
        unsafe fn $name(size: Size, sides: [GemmSide<'_>; 2], out: MatrixView, room: *mut u8) {
            // SAFETY: as the caller promises.
            unsafe {
                product::<$t, Set, $r, $w, $s, $u, $c, $l>(size, sides, out, room.cast());
            }
        }
    };
}

/// An instance for an instruction set: its lanes of 32 bits, the rows of its tiles from most to least, the columns of a tile for
/// elements of 8, 4 and 1 bytes, and the columns of a narrow tile, which is a vector, for elements of 8 and 4 bytes.
macro_rules! tiles {
    (
        $set:ident, $name:literal, $lanes:literal, [$r:literal, $($less:literal),*],
        [$c8:literal, $c4:literal, $c1:literal], [$l8:literal, $l4:literal] $(, $features:literal)?
    ) => {
        mod $set {
            use super::*;

            pub(in super::super) static TILES: ProductKernel = ProductKernel { name: $name, room, product: run };

            fn room(dtype: DType, size: Size) -> u64 {
                match dtype.bytes() {
                    8 => macro_kernel::room::<u64, $r, $c8>(size),
                    4 => macro_kernel::room::<u32, $r, $c4>(size),
                    _ => macro_kernel::room::<u8, $r, $c1>(size),
                }
            }

            // What prices say of tiles holds for these.
            const _: () = {
                let (wide, narrow) = (TileExtents::of_lanes($lanes, 8), TileExtents::of_lanes($lanes, 4));
                assert!(wide.columns[0] == $c8 && wide.columns[1] == $l8);
                assert!(narrow.columns[0] == $c4 && narrow.columns[1] == $l4);
                let heights = [$r, $($less),*];
                let mut k = 0;
                while k < heights.len() {
                    assert!(wide.heights[k] == heights[k]);
                    k += 1;
                }
            };

            /// The set itself.
            struct Set;

            impl CopyLines for Set {
                unsafe fn copy<T: Copy + Default>(
                    w: PlacedWindow<'_>,
                    deep: bool,
                    size: [usize; 2],
                    to: *mut T,
                    line: usize,
                ) {
                    /// # Safety
                    /// As of [`CopyLines::copy`].
                    $(#[target_feature(enable = $features)])?
                    unsafe fn compiled<T: Copy + Default>(
                        w: PlacedWindow<'_>,
                        deep: bool,
                        size: [usize; 2],
                        to: *mut T,
                        line: usize,
                    ) {
                        // SAFETY: as the caller promises.
                        unsafe { w.copy(deep, size, to, line) }
                    }
                    // SAFETY: as the caller promises.
                    unsafe { compiled(w, deep, size, to, line) }
                }
            }

            // A function for each type: together they take the compiler several times as long.
            products! {
                [$r, $($less),*], [$($features)?];
                float64: f64, $c8, $l8;
                float32: f32, $c4, $l4;
                // Integers have no narrow tiles.
                int64: i64, $c8, $c8;
                int32: i32, $c4, $c4;
                int8: i8, $c1, $c1;
            }

            /// # Safety
            /// As of [`ProductKernel::windows`], on a processor that has these features.
            unsafe fn run(
                dtype: DType,
                size: Size,
                sides: [GemmSide<'_>; 2],
                out: MatrixView,
                room: *mut u8,
            ) {
                let run = match dtype {
                    DType::F64 => float64,
                    DType::F32 => float32,
                    DType::I64 => int64,
                    DType::I32 | DType::U32 => int32,
                    _ => int8,
                };
                // SAFETY: as the caller promises.
                unsafe { run(size, sides, out, room) }
            }
        }
    };
}

// Of 7 and of 8 rows the compiler makes gathers, which are forty times as slow; of 12 it leaves some sums in memory.
tiles!(any, "tiles", 4, [6, 4, 3, 2], [8, 16, 32], [4, 8]);
#[cfg(target_arch = "x86_64")]
tiles!(avx2, "tiles, avx2", 8, [5, 4, 3, 2], [8, 16, 32], [4, 8], "avx2,fma");
#[cfg(target_arch = "x86_64")]
tiles!(avx512, "tiles, avx512f", 16, [10, 9, 6, 4], [16, 32, 32], [8, 16], "avx512f,avx2,fma");

/// The instances that the host can run, the fastest first.
pub(super) fn all() -> impl Iterator<Item = &'static ProductKernel> {
    Vectors::runnable(&[
        (Vectors::Narrow, &any::TILES),
        #[cfg(target_arch = "x86_64")]
        (Vectors::Avx2, &avx2::TILES),
        #[cfg(target_arch = "x86_64")]
        (Vectors::Avx512, &avx512::TILES),
    ])
    .into_iter()
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

    fn room(&self, dtype: DType, size: Size) -> u64 {
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

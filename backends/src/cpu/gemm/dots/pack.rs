//! Packs operands into tiles.
//!
//! A tile is 16 by 16 groups of four bytes, neighbours along the depth. In tiles of the left operand a line of groups is a row
//! of the matrix; in those of the right operand it is a step of the depth. One is the other transposed, so that either is
//! made from memory whichever of its axes is dense.

use super::{DEEP, DotKernel, LINES, Side, TILE, tiles};
use crate::cpu::gemm::MatrixView;
use adfuse_ir::DType;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// 16 by 16 groups.
type Groups = [[u32; LINES]; LINES];

/// A tile as it is made.
#[repr(C, align(64))]
struct PackedTile(Groups);

impl DotKernel {
    /// Packs a panel: `lines` lines, 16 at most, `depth` elements of each. `from` has lines as rows, whichever operand it is.
    ///
    /// # Safety
    /// The matrix has these lines and this depth, of this kernel's elements; `to` has room for a panel, aligned to cache
    /// lines, which nobody else uses. The host has the extension.
    pub(in crate::cpu) unsafe fn pack(
        &self,
        side: Side,
        from: MatrixView,
        [lines, depth]: [usize; 2],
        to: *mut u8,
    ) {
        // SAFETY: as the caller promises; `all` has only kernels of hosts with AVX-512.
        unsafe {
            match self.element() {
                DType::BF16 => pack::<u16>(self, side, from, [lines, depth], to),
                _ => pack::<u8>(self, side, from, [lines, depth], to),
            }
        }
    }
}

/// # Safety
/// As of [`DotKernel::pack`], for elements of type `T`.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f,avx512bw,avx512vl"))]
unsafe fn pack<T: Copy + Into<u32>>(
    kernel: &DotKernel,
    side: Side,
    from: MatrixView,
    [lines, depth]: [usize; 2],
    to: *mut u8,
) {
    let each = DEEP / size_of::<T>();
    let flip = if kernel.flipped == Some(side) { 0x8080_8080 } else { 0 };
    let mut sums = [0u32; LINES];
    let count = tiles(kernel.element(), depth);
    for t in 0..count {
        let k = t * each;
        let deep = each.min(depth - k);
        // SAFETY: as the caller promises.
        unsafe {
            let (mut tile, made) = read::<T>(from.from::<T>(0, k), [lines, deep]);
            if made != side {
                transpose(&mut tile.0);
            }
            if flip != 0 {
                tile.0.iter_mut().flatten().for_each(|x| *x ^= flip);
            }
            if kernel.flipped.is_some_and(|flipped| flipped != side) {
                add_up(&tile.0, side, &mut sums);
            }
            to.add(t * TILE).cast::<PackedTile>().write(tile);
        }
    }
    // SAFETY: the sums follow the tiles.
    unsafe { to.add(count * TILE).cast::<[u32; LINES]>().write(sums) };
}

/// A tile of a matrix, where absent lines and elements are 0, and which operand's it is.
///
/// # Safety
/// The matrix has these lines and elements.
#[inline(always)]
unsafe fn read<T: Copy + Into<u32>>(
    from: MatrixView,
    [lines, deep]: [usize; 2],
) -> (PackedTile, Side) {
    let group = 4 / size_of::<T>();
    let bits = 8 * size_of::<T>();
    let mut tile = PackedTile([[0; LINES]; LINES]);
    // SAFETY: as the caller promises.
    unsafe {
        if from.column == 1 {
            for (i, row) in tile.0.iter_mut().enumerate().take(lines) {
                let (from, to) = (from.place::<T>(i, 0), row.as_mut_ptr().cast::<T>());
                match deep * size_of::<T>() {
                    DEEP => *row = from.cast::<[u32; LINES]>().read_unaligned(),
                    _ => from.copy_to_nonoverlapping(to, deep),
                }
            }
            return (tile, Side::Left);
        }
        let whole = lines == LINES && from.row == 1;
        for (g, row) in tile.0.iter_mut().enumerate().take(deep.div_ceil(group)) {
            for e in 0..group.min(deep - g * group) {
                let k = g * group + e;
                if whole {
                    let line = from.place::<T>(0, k).cast::<[T; LINES]>().read_unaligned();
                    for (to, x) in row.iter_mut().zip(line) {
                        *to |= x.into() << (e * bits);
                    }
                    continue;
                }
                for (i, to) in row.iter_mut().enumerate().take(lines) {
                    *to |= (*from.place::<T>(i, k)).into() << (e * bits);
                }
            }
        }
    }
    (tile, Side::Right)
}

/// Adds up the elements of each line, which are unsigned in the left operand and signed in the right one.
#[inline(always)]
fn add_up(tile: &Groups, side: Side, sums: &mut [u32; LINES]) {
    for (i, row) in tile.iter().enumerate() {
        for (j, &group) in row.iter().enumerate() {
            match side {
                Side::Left => {
                    sums[i] += group.to_le_bytes().into_iter().map(u32::from).sum::<u32>()
                }
                Side::Right => {
                    let all: i32 =
                        group.to_le_bytes().into_iter().map(|b| i32::from(b as i8)).sum();
                    sums[j] = sums[j].wrapping_add_signed(all);
                }
            }
        }
    }
}

/// Transposes groups: pairs of rows, then fours, then quarters of vectors.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(tile: &mut Groups) {
    let load = |k: usize| {
        // SAFETY: a row has the bytes of a vector.
        unsafe { _mm512_loadu_si512(tile[k].as_ptr().cast()) }
    };
    let rows: [__m512i; LINES] = std::array::from_fn(load);
    let pairs: [__m512i; LINES] = std::array::from_fn(|k| {
        let (a, b) = (rows[k / 2 * 2], rows[k / 2 * 2 + 1]);
        if k % 2 == 0 { _mm512_unpacklo_epi32(a, b) } else { _mm512_unpackhi_epi32(a, b) }
    });
    // Of four rows `4q ..`: column `c` of each quarter.
    let fours: [__m512i; LINES] = std::array::from_fn(|k| {
        let (q, c) = (k / 4, k % 4);
        let (a, b) = (pairs[4 * q + c / 2], pairs[4 * q + 2 + c / 2]);
        if c % 2 == 0 { _mm512_unpacklo_epi64(a, b) } else { _mm512_unpackhi_epi64(a, b) }
    });
    for c in 0..4 {
        let quarters = [fours[c], fours[4 + c], fours[8 + c], fours[12 + c]];
        let [a, b, d, e] = quarters;
        let (low, high) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xDD>(a, b));
        let (low2, high2) =
            (_mm512_shuffle_i32x4::<0x88>(d, e), _mm512_shuffle_i32x4::<0xDD>(d, e));
        let columns = [
            _mm512_shuffle_i32x4::<0x88>(low, low2),
            _mm512_shuffle_i32x4::<0x88>(high, high2),
            _mm512_shuffle_i32x4::<0xDD>(low, low2),
            _mm512_shuffle_i32x4::<0xDD>(high, high2),
        ];
        for (q, column) in columns.into_iter().enumerate() {
            // SAFETY: a row has the bytes of a vector.
            unsafe { _mm512_storeu_si512(tile[4 * q + c].as_mut_ptr().cast(), column) };
        }
    }
}

/// Transposes groups.
#[cfg(not(target_arch = "x86_64"))]
fn transpose(tile: &mut Groups) {
    *tile = std::array::from_fn(|i| std::array::from_fn(|j| tile[j][i]));
}

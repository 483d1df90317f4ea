//! Packs operands into tiles.
//!
//! A tile is 16 by 16 groups of four bytes, neighbours along the depth. In tiles of the left operand a line of groups is a row
//! of the matrix; in those of the right operand it is a step of the depth. One is the other transposed, so that either is
//! made from memory whichever of its axes is dense.

use super::{DEEP, DotKernel, LINES, OperandSide, SIDE, STRIPE, TILE, tiles};
use crate::cpu::gemm::MatrixView;
use adfuse_ir::DType;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// 16 by 16 groups.
type TileGroups = [[u32; LINES]; LINES];

impl DotKernel {
    /// Packs a stripe: `lines` lines, [`STRIPE`] at most, `depth` elements of each. `from` has lines as rows, whichever operand it is.
    ///
    /// # Safety
    /// The matrix has these lines and this depth, of this kernel's elements; `to` has room for their panels, aligned to cache
    /// lines, which nobody else uses. The host has the extension.
    pub(in crate::cpu) unsafe fn pack(
        &self,
        side: OperandSide,
        from: MatrixView,
        size: [usize; 2],
        to: *mut u8,
    ) {
        // SAFETY: as the caller promises; `all` has only kernels of hosts with AVX-512.
        unsafe {
            match self.element() {
                DType::BF16 => pack::<u16>(self, side, from, size, to),
                _ => pack::<u8>(self, side, from, size, to),
            }
        }
    }
}

/// # Safety
/// As of [`DotKernel::pack`], for elements of type `T`.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f,avx512bw,avx512vl"))]
unsafe fn pack<T: Copy + Into<u32>>(
    kernel: &DotKernel,
    side: OperandSide,
    from: MatrixView,
    [lines, depth]: [usize; 2],
    to: *mut u8,
) {
    let each = DEEP / size_of::<T>();
    let flip = if kernel.flipped == Some(side) { 0x8080_8080 } else { 0 };
    let adds = kernel.flipped.is_some_and(|flipped| flipped != side);
    let count = tiles(kernel.element(), depth);
    let panel = kernel.panel(depth);
    #[cfg(target_arch = "x86_64")]
    if size_of::<T>() == 2 && from.row == 1 {
        // SAFETY: as the caller promises.
        return unsafe { pack_pairs(side, from, [lines, depth], (to, panel)) };
    }
    let mut sums = [[0u32; LINES]; STRIPE / LINES];
    // All panels of a step of the depth, since the lines of a stripe lie side by side in some matrices.
    for t in 0..count {
        let k = t * each;
        let deep = each.min(depth - k);
        for (n, line) in (0..lines).step_by(LINES).enumerate() {
            // SAFETY: as the caller promises; all bits are groups.
            unsafe {
                let tile = &mut *to.add(n * panel + t * TILE).cast::<TileGroups>();
                let size = [LINES.min(lines - line), deep];
                if read::<T>(from.from::<T>(line, k), size, tile) != side {
                    transpose(tile);
                }
                if flip != 0 {
                    tile.iter_mut().flatten().for_each(|x| *x ^= flip);
                }
                if adds {
                    add_up(tile, side, &mut sums[n]);
                }
            }
        }
    }
    for (n, sums) in sums.iter().enumerate().take(lines.div_ceil(LINES)) {
        // SAFETY: the sums follow the tiles.
        unsafe { to.add(n * panel + count * TILE).cast::<[u32; LINES]>().write(*sums) };
    }
}

/// Packs lines of 16-bit elements that lie side by side: of 32 lines at once, two steps of the depth become vectors of pairs. Absent lines
/// and elements are 0.
///
/// # Safety
/// As of [`DotKernel::pack`], for 16-bit elements whose lines are neighbours.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn pack_pairs(
    side: OperandSide,
    from: MatrixView,
    [lines, depth]: [usize; 2],
    (to, panel): (*mut u8, usize),
) {
    /// Elements of the depth in a tile.
    const EACH: usize = DEEP / 2;
    /// Element `i / 2` of the first vector, then of the second, whose elements are numbered from 32 on.
    const fn places(first: u16) -> [u16; SIDE] {
        let mut all = [0; SIDE];
        let mut i = 0;
        while i < SIDE {
            all[i] = first + (i / 2) as u16 + (i % 2 * SIDE) as u16;
            i += 1;
        }
        all
    }
    const PLACES: [[u16; SIDE]; 2] = [places(0), places(LINES as u16)];
    let count = depth.div_ceil(EACH);
    // SAFETY: as the caller promises. Elements that the masks leave out are not read.
    unsafe {
        let places = PLACES.each_ref().map(|p| _mm512_loadu_si512(p.as_ptr().cast()));
        for t in 0..count {
            for group in 0..LINES {
                let k = t * EACH + 2 * group;
                let steps = [k, k + 1].map(|k| (k < depth, from.place::<u16>(0, k).cast::<i16>()));
                for n in (0..lines).step_by(SIDE) {
                    let there = u32::MAX >> SIDE.saturating_sub(lines - n);
                    let [x, y] = steps.map(|(is_there, at)| {
                        let mask = if is_there { there } else { 0 };
                        _mm512_maskz_loadu_epi16(mask, at.wrapping_add(n))
                    });
                    let tile = to.add(n / LINES * panel + t * TILE + group * DEEP);
                    _mm512_storeu_si512(tile.cast(), _mm512_permutex2var_epi16(x, places[0], y));
                    if lines - n > LINES {
                        let second = _mm512_permutex2var_epi16(x, places[1], y);
                        _mm512_storeu_si512(tile.add(panel).cast(), second);
                    }
                }
            }
            if side == OperandSide::Left {
                for n in 0..lines.div_ceil(LINES) {
                    transpose(&mut *to.add(n * panel + t * TILE).cast::<TileGroups>());
                }
            }
        }
    }
}

/// Writes a tile of a matrix, in which absent lines and elements are 0, and says which operand's it is.
///
/// # Safety
/// The matrix has these lines and elements.
#[inline(always)]
unsafe fn read<T: Copy + Into<u32>>(
    from: MatrixView,
    [lines, deep]: [usize; 2],
    tile: &mut TileGroups,
) -> OperandSide {
    let group = 4 / size_of::<T>();
    let bits = 8 * size_of::<T>();
    let whole = deep * size_of::<T>() == DEEP;
    // SAFETY: as the caller promises.
    unsafe {
        if from.column == 1 {
            for (i, row) in tile.iter_mut().enumerate() {
                let from = from.place::<T>(i, 0);
                if i < lines && whole {
                    *row = from.cast::<[u32; LINES]>().read_unaligned();
                    continue;
                }
                *row = [0; LINES];
                if i < lines {
                    from.copy_to_nonoverlapping(row.as_mut_ptr().cast(), deep);
                }
            }
            return OperandSide::Left;
        }
        let whole = lines == LINES && from.row == 1;
        for (g, row) in tile.iter_mut().enumerate() {
            let mut groups = [0; LINES];
            for e in 0..group.min(deep.saturating_sub(g * group)) {
                let k = g * group + e;
                if whole {
                    let line = from.place::<T>(0, k).cast::<[T; LINES]>().read_unaligned();
                    for (to, x) in groups.iter_mut().zip(line) {
                        *to |= x.into() << (e * bits);
                    }
                    continue;
                }
                for (i, to) in groups.iter_mut().enumerate().take(lines) {
                    *to |= (*from.place::<T>(i, k)).into() << (e * bits);
                }
            }
            *row = groups;
        }
    }
    OperandSide::Right
}

/// Adds up the elements of each line, which are unsigned in the left operand and signed in the right one.
#[inline(always)]
fn add_up(tile: &TileGroups, side: OperandSide, sums: &mut [u32; LINES]) {
    for (i, row) in tile.iter().enumerate() {
        for (j, &group) in row.iter().enumerate() {
            match side {
                OperandSide::Left => {
                    sums[i] += group.to_le_bytes().into_iter().map(u32::from).sum::<u32>()
                }
                OperandSide::Right => {
                    let all: i32 =
                        group.to_le_bytes().into_iter().map(|b| i32::from(b as i8)).sum();
                    sums[j] = sums[j].wrapping_add_signed(all);
                }
            }
        }
    }
}

/// Transposes groups: pairs of rows, then fours, then quarters of vectors.
///
/// # Safety
/// The processor has AVX-512.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(tile: &mut TileGroups) {
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
fn transpose(tile: &mut TileGroups) {
    *tile = std::array::from_fn(|i| std::array::from_fn(|j| tile[j][i]));
}

//! Products by dot-product instructions, which multiply pairs of `bf16` or fours of 8-bit integers and add them to sums
//! of 32 bits: AMX, `AVX512_BF16` and `AVX512_VNNI`.
//!
//! All of these instructions read the same layout, so operands are packed once and shared by all threads: tiles of
//! 16 lines and 64 bytes of the depth (`pack`). Rows that are dense along the depth are read where they are. A kernel computes the sums of
//! two tiles of rows by two of columns.
//! Integers are exact in every order, so their products are used in every mode. The orders of `bf16` are those of the
//! instructions (`docs/fp.md`), so their products are not used in the strict mode.
#![allow(unsafe_code)]
// Other hosts have no kernels.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod dot_kernel;
mod pack;
#[cfg(all(test, target_arch = "x86_64"))]
mod tests;

pub(in crate::cpu) use dot_kernel::{DotKernel, LINES, OperandSide};

use super::MatrixView;
use adfuse_ir::DType;
use dot_kernel::{DEEP, DotBlock, TILE};
use std::array::from_fn;

/// Lines that are packed at once.
pub(in crate::cpu) const STRIPE: usize = 4 * LINES;

/// Bytes after the tiles of a panel: the sum of each of its lines.
const SUMS: usize = LINES * 4;

/// Bytes after which places in the first cache repeat.
const PAGE: usize = 4096;

/// Rows and columns of the sums that a kernel computes at once.
const SIDE: usize = 2 * LINES;

/// Tiles of a panel that are multiplied at a time. Fewer would stay in the first cache, but sums would be read and written more often,
/// which takes longer.
const CHUNK: usize = 32;

/// The kernels, for each type of elements the fastest first.
#[cfg(target_arch = "x86_64")]
static KERNELS: [DotKernel; 6] =
    [amx::BF16, avx512::BF16, amx::I8, avx512::I8, amx::U8, avx512::U8];
#[cfg(not(target_arch = "x86_64"))]
static KERNELS: [DotKernel; 0] = [];

/// Rows, columns and elements of the depth from which on packing pays.
const FEWEST: [i64; 3] = [8, 8, 32];

/// Whether products of these elements and of this size are candidates for such kernels, whatever the host has.
pub(in crate::cpu) fn candidate(element: DType, sum: DType, size: [i64; 3]) -> bool {
    let typed = match element {
        DType::BF16 => sum == DType::F32,
        DType::I8 | DType::U8 => {
            matches!(sum, DType::I8 | DType::U8 | DType::I32 | DType::U32)
        }
        _ => false,
    };
    typed && size.iter().zip(FEWEST).all(|(&n, fewest)| n >= fewest)
}

/// All kernels that the host has, for all types of elements.
pub(in crate::cpu) fn all() -> impl Iterator<Item = &'static DotKernel> {
    KERNELS.iter().filter(|k| (k.available)())
}

/// The fastest kernel of the host for these elements; none in the strict mode, unless every order has the same bits.
pub(in crate::cpu) fn find(element: DType, strict: bool) -> Option<&'static DotKernel> {
    let fits = |k: &&DotKernel| k.element == element && (k.pays)();
    all().find(fits).filter(|_| !strict || element != DType::BF16)
}

/// Tiles of a panel: this many bytes of the depth, rounded up.
fn tiles(element: DType, depth: usize) -> usize {
    depth.saturating_mul(element.bytes() as usize).div_ceil(DEEP)
}

/// Bytes of a panel of 16 lines, or the largest number where they cannot be counted.
fn panel(element: DType, depth: usize) -> usize {
    tiles(element, depth).saturating_mul(TILE).saturating_add(SUMS)
}

/// Bytes of a packed operand of this many matrices, lines and elements of the depth; `None` where that is too many.
pub(in crate::cpu) fn packed_bytes(element: DType, size: [i64; 3]) -> Option<i64> {
    let count = |n: i64| usize::try_from(n).ok();
    let (batch, lines, depth) = (count(size[0])?, count(size[1])?, count(size[2])?);
    let panels = lines.div_ceil(LINES).checked_mul(batch)?;
    i64::try_from(panel(element, depth).checked_mul(panels)?).ok()
}

/// Bytes that each thread needs for [`DotKernel::product`].
pub(in crate::cpu) const ROOM: u64 = (SIDE * SIDE * 4) as u64;

/// Sums of a block in memory of the thread.
type BlockSums<T> = [[T; SIDE]; SIDE];

/// Ranges of rows and of columns.
pub(in crate::cpu) type BlockRange = [[usize; 2]; 2];

/// Where the tiles of an operand are.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct OperandTiles {
    at: *const u8,
    /// Bytes from a panel to the next, from a tile of a panel to the next, and from a line of a tile to the next.
    panel: usize,
    tile: usize,
    line: usize,
}

impl OperandTiles {
    /// Rows of the left operand as they are, dense along the depth and this many bytes apart.
    pub(in crate::cpu) fn in_place(at: *const u8, apart: usize) -> Self {
        OperandTiles { at, panel: LINES * apart, tile: DEEP, line: apart }
    }

    /// The panel that begins at this line and the one after it, or one of them twice where no line before the end is in the second.
    fn two(self, line: usize, end: usize) -> [*const u8; 2] {
        let last = (end - 1) / LINES;
        from_fn(|k| self.at.wrapping_add((line / LINES + k).min(last) * self.panel))
    }
}

impl DotKernel {
    /// The extension.
    pub(in crate::cpu) fn name(&self) -> &'static str {
        self.name
    }

    /// Bytes from one panel to the next.
    pub(in crate::cpu) fn panel(&self, depth: usize) -> usize {
        panel(self.element, depth)
    }

    /// An operand of this depth that has been packed.
    pub(in crate::cpu) fn packed(&self, at: *const u8, depth: usize) -> OperandTiles {
        OperandTiles { at, panel: self.panel(depth), tile: TILE, line: DEEP }
    }

    /// Whether rows of this many elements may be read where they are, this many bytes apart: whole tiles of whole panels, whose elements
    /// the kernel takes as they are. Lines that are whole pages apart share their places in the first cache.
    pub(in crate::cpu) fn reads_in_place(&self, [rows, depth]: [usize; 2], apart: usize) -> bool {
        let bytes = depth * self.element.bytes() as usize;
        let whole = rows.is_multiple_of(LINES) && bytes.is_multiple_of(DEEP);
        whole && self.flipped.is_none() && !apart.is_multiple_of(PAGE)
    }

    /// The type of the elements.
    pub(in crate::cpu) fn element(&self) -> DType {
        self.element
    }

    /// The sums of these rows and columns of packed operands.
    ///
    /// # Safety
    /// The operands have been packed for this kernel, with this depth, or the left one [may be read in place](Self::reads_in_place), and
    /// have these rows and columns; `out` has room for the sums in this type, and `room` has [`ROOM`] bytes, aligned to cache lines.
    /// Nobody else uses the two. The host has the extension, as it has for all that [`all`] gives.
    pub(in crate::cpu) unsafe fn product(
        &self,
        (range, depth): (BlockRange, usize),
        [left, right]: [OperandTiles; 2],
        (out, sum): (MatrixView, DType),
        room: *mut u8,
    ) {
        let [rows, cols] = range;
        let count = tiles(self.element, depth);
        let steps = [left.tile, left.line];
        let blocks = |[from, end]: [usize; 2]| (from / LINES * LINES..end).step_by(SIDE);
        let inside = |at: usize, [from, end]: [usize; 2]| at >= from && at + SIDE <= end;
        let in_place = sum.bytes() == 4 && out.column == 1 && self.flipped.is_none();
        // SAFETY: as the caller promises.
        unsafe {
            (self.begin)();
            for j in blocks(cols) {
                let right = right.two(j, cols[1]);
                let direct = |i: usize| in_place && inside(i, rows) && inside(j, cols);
                for from in (0..count).step_by(CHUNK) {
                    for i in blocks(rows).filter(|&i| direct(i)) {
                        (self.block)(&DotBlock {
                            left: left.two(i, rows[1]).map(|p| p.add(from * left.tile)),
                            steps,
                            right: right.map(|p| p.add(from * TILE)),
                            tiles: CHUNK.min(count - from),
                            adds: from > 0,
                            out: out.place::<u32>(i - rows[0], j - cols[0]).cast(),
                            row: out.row as usize * 4,
                        });
                    }
                }
                for i in blocks(rows).filter(|&i| !direct(i)) {
                    let left = left.two(i, rows[1]);
                    let (adds, row) = (false, SIDE * 4);
                    let tiles = count;
                    (self.block)(&DotBlock { left, steps, right, tiles, adds, out: room, row });
                    let sums = &mut *room.cast::<BlockSums<u32>>();
                    self.correct(sums, [left, right], count);
                    put_block(sums, [i, j], range, (out, sum));
                }
            }
            (self.end)();
        }
    }

    /// Takes back what flipped signs have added to the sums of a block: `a = a' - 128` for each element of the left operand,
    /// or `b = b' + 128` for each of the right one.
    ///
    /// # Safety
    /// The panels have been packed for this kernel, with this many tiles.
    unsafe fn correct(
        &self,
        sums: &mut BlockSums<u32>,
        [left, right]: [[*const u8; 2]; 2],
        count: usize,
    ) {
        let of = |panels: [*const u8; 2]| -> [u32; SIDE] {
            // SAFETY: as the caller promises: the sums of its lines follow the tiles of a panel.
            let all =
                panels.map(|p| unsafe { *p.wrapping_add(count * TILE).cast::<[u32; LINES]>() });
            from_fn(|k| all[k / LINES][k % LINES].wrapping_mul(128))
        };
        match self.flipped {
            None => {}
            Some(OperandSide::Left) => {
                let columns = of(right);
                for row in sums {
                    row.iter_mut().zip(&columns).for_each(|(s, c)| *s = s.wrapping_sub(*c));
                }
            }
            Some(OperandSide::Right) => {
                for (row, more) in sums.iter_mut().zip(of(left)) {
                    row.iter_mut().for_each(|s| *s = s.wrapping_add(more));
                }
            }
        }
    }
}

/// Writes what is asked for of a block that begins at this row and column, as elements of the type of the sums.
///
/// # Safety
/// As of [`DotKernel::product`].
unsafe fn put_block(
    sums: &BlockSums<u32>,
    at: [usize; 2],
    range: BlockRange,
    (out, sum): (MatrixView, DType),
) {
    let part = |k: usize| [at[k].max(range[k][0]), (at[k] + SIDE).min(range[k][1])];
    let inside = from_fn(|k| part(k).map(|n| n - at[k]));
    let [i, j] = from_fn(|k| part(k)[0] - range[k][0]);
    // SAFETY: as the caller promises.
    unsafe {
        match sum.bytes() {
            4 => put(sums, inside, out.from::<u32>(i, j), |s| s),
            _ => put(sums, inside, out.from::<u8>(i, j), |s| s as u8),
        }
    }
}

/// Writes these rows and columns of a block, as elements of type `T`.
///
/// # Safety
/// `out` has room for them, and nobody else uses it.
unsafe fn put<T>(
    sums: &BlockSums<u32>,
    [rows, cols]: BlockRange,
    out: MatrixView,
    as_element: impl Fn(u32) -> T,
) {
    for (i, line) in sums[rows[0]..rows[1]].iter().enumerate() {
        for (j, &sum) in line[cols[0]..cols[1]].iter().enumerate() {
            // SAFETY: as the caller promises.
            unsafe { out.place::<T>(i, j).write(as_element(sum)) };
        }
    }
}

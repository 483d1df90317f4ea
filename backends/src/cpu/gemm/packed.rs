//! Products of floats: blocks of both operands are packed into panels that the caches hold, and multiplied tile by tile.
//!
//! Each sum is a chain in a register for a chunk of the depth, so the order is the defined one however a product is divided.
#![allow(unsafe_code)]

use super::panels::{PanelElement, PanelWidths, pack};
use super::register_tile::{
    MOST_COLUMNS, MOST_ROWS, NARROW_F32, NARROW_F64, RegisterTiles, TileOperands, WIDE_F32,
    WIDE_F64,
};
use super::subnormal::{FloatBits, MagnitudeRange, factors, matters, slow_on_host};
use super::tiles::found as tiles;
use super::{Gemm, GemmArgs, MatrixView, Size, TouchedNext};
use crate::cpu::codegen::vector_width::Vectors;
use crate::reference::order::CONTRACT_CHUNK;
use adfuse_ir::DType;
use std::mem::MaybeUninit;
use std::ops::Add;
use std::ptr::{null, null_mut};
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::OnceLock;

/// Bytes of the packed columns and rows of a chunk, at most: both fit a second cache of 1 MiB.
const COLUMNS: usize = 512 << 10;
const ROWS: usize = 280 << 10;

/// So few rows read columns in place, if all of these span no more bytes than this: packing would take a tenth of the product's time.
const FEW_ROWS: usize = 64;
const NEAR: usize = 512 << 10;

/// So few columns read rows in place. Others do where the depth is dense, unless rows begin at the same place of their pages and so
/// share the sets of the first cache.
const FEW_COLUMNS: usize = 128;
const PAGE: usize = 4096;

/// Products by an instruction set.
#[derive(Clone, Copy)]
pub(super) struct PackedGemm {
    name: &'static str,
    of_f32: &'static RegisterTiles<f32>,
    of_f64: &'static RegisterTiles<f64>,
    /// Whether subnormal operands are slow on the host.
    wary: bool,
}

/// The instances that the host can run, the fastest first.
pub(super) fn all(wary: bool) -> impl Iterator<Item = PackedGemm> {
    let narrow =
        PackedGemm { name: "packed tiles, avx2", of_f32: &NARROW_F32, of_f64: &NARROW_F64, wary };
    let wide =
        PackedGemm { name: "packed tiles, avx512f", of_f32: &WIDE_F32, of_f64: &WIDE_F64, wary };
    Vectors::runnable(&[(Vectors::Avx2, narrow), (Vectors::Avx512, wide)]).into_iter()
}

/// Those that know whether subnormals are slow on the host.
pub(super) fn all_of_host() -> &'static [PackedGemm] {
    static FOUND: OnceLock<Vec<PackedGemm>> = OnceLock::new();
    FOUND.get_or_init(|| all(slow_on_host()).collect())
}

/// The fastest of the host's.
pub(super) fn found() -> Option<&'static PackedGemm> {
    all_of_host().first()
}

/// An element of products by register tiles.
trait PackedElement: PanelElement + FloatBits + Add<Output = Self> + 'static {
    fn tiles(gemm: &PackedGemm) -> &'static RegisterTiles<Self>;

    /// It, or the canonical NaN where it is any.
    fn canonical(self) -> Self;
}

impl PackedElement for f32 {
    fn tiles(gemm: &PackedGemm) -> &'static RegisterTiles<f32> {
        gemm.of_f32
    }

    fn canonical(self) -> f32 {
        if self.is_nan() { f32::NAN } else { self }
    }
}

impl PackedElement for f64 {
    fn tiles(gemm: &PackedGemm) -> &'static RegisterTiles<f64> {
        gemm.of_f64
    }

    fn canonical(self) -> f64 {
        if self.is_nan() { f64::NAN } else { self }
    }
}

/// Lines of blocks that are equally large, at most `most`.
fn balanced(lines: usize, most: usize) -> usize {
    lines.div_ceil(lines.div_ceil(most).max(1)).max(1)
}

/// Room for blocks of a product of this size, or of a smaller one, either way round: elements of columns, and of rows.
fn room<T: PackedElement>(tiles: &RegisterTiles<T>, [rows, cols, depth]: Size) -> [usize; 2] {
    let (wide, each) = (rows.max(cols), CONTRACT_CHUNK * size_of::<T>());
    let columns = wide.next_multiple_of(2 * tiles.lanes).min(COLUMNS / each);
    let deep = depth.min(CONTRACT_CHUNK);
    [columns * deep, wide.min(ROWS / each) * deep + T::SIDE]
}

/// A block of an operand: where its lines are, as rows, and where they are packed unless they are read in place.
struct BlockSide<T> {
    from: MatrixView,
    packed: *mut T,
    in_place: bool,
    /// Lines and depth.
    size: [usize; 2],
    widths: PanelWidths,
}

impl<T: PackedElement> BlockSide<T> {
    /// Packs what is not read in place.
    ///
    /// # Safety
    /// As of [`pack`].
    unsafe fn pack(&self) {
        if !self.in_place {
            // SAFETY: as the caller promises.
            unsafe { pack(self.from, self.size, self.widths, self.packed) };
        }
    }

    /// Elements of what is packed.
    fn elements(&self) -> usize {
        self.widths.across(self.size[0]) * self.size[1]
    }

    /// # Safety
    /// The host has AVX2, all of the block is packed, and nobody writes it.
    unsafe fn span(&self) -> MagnitudeRange {
        // SAFETY: as the caller promises; panels lie one after the other.
        unsafe { T::span(from_raw_parts(self.packed, self.elements()), MagnitudeRange::NONE) }
    }

    /// # Safety
    /// The host has AVX2, all of the block is packed, and nobody else uses it.
    unsafe fn scale(&self, by: T) {
        // SAFETY: as the caller promises.
        unsafe { T::scale(from_raw_parts_mut(self.packed, self.elements()), by) };
    }
}

/// Scales both blocks if they have enough subnormals that it pays, and no bit of their product changes. Whether it did.
///
/// # Safety
/// Both are packed, and nobody else uses them; the host has AVX2.
unsafe fn scale<T: PackedElement>([left, right]: [&BlockSide<T>; 2]) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let spans = [left.span(), right.span()];
        if !matters::<T>([left.size[0], right.size[0], left.size[1]], spans[0], spans[1]) {
            return false;
        }
        let Some([of_left, of_right]) = factors::<T>(spans[0], spans[1]) else { return false };
        left.scale(of_left);
        right.scale(of_right);
        true
    }
}

/// A product, and how it is divided into blocks.
struct BlockedProduct<'a, T: PackedElement> {
    tiles: &'a RegisterTiles<T>,
    size: Size,
    /// The right operand with its columns as rows, as it is packed.
    sides: [MatrixView; 2],
    /// For blocks of rows and of columns.
    rooms: [*mut T; 2],
    out: MatrixView,
    /// Whether operands are looked at for subnormals, and so are packed in any case.
    looked_at: bool,
    /// What is added to the sums when all chunks are.
    added: Option<MatrixView>,
    /// What is touched when all chunks are.
    next: TouchedNext,
}

/// Where the sums of a block go.
struct BlockTarget {
    out: MatrixView,
    /// Whether they are of the first chunk of the depth.
    first: bool,
    /// What is added, and what is touched, after the last chunk.
    added: Option<MatrixView>,
    next: TouchedNext,
}

impl<T: PackedElement> BlockedProduct<'_, T> {
    /// Rows and columns of a block.
    fn block_extents(&self) -> [usize; 2] {
        let ([rows, cols, _], each) = (self.size, CONTRACT_CHUNK * size_of::<T>());
        let columns = balanced(cols, COLUMNS / each);
        [balanced(rows, ROWS / each), columns.next_multiple_of(2 * self.tiles.lanes)]
    }

    fn left(&self, at: usize, lines: usize, [k, depth]: [usize; 2]) -> BlockSide<T> {
        let from = self.sides[0];
        let step = from.row.unsigned_abs().saturating_mul(size_of::<T>());
        let aligned = step.is_multiple_of(PAGE);
        let few = self.size[1] <= FEW_COLUMNS;
        let bare = from.column == 1 && (few || !aligned) || from.row == 1 && few;
        let widths = PanelWidths { lines: balanced(lines, self.tiles.by_rows.len()), unit: 1 };
        BlockSide {
            from: from.from::<T>(at, k),
            packed: self.rooms[0],
            in_place: bare && !self.looked_at,
            size: [lines, depth],
            widths,
        }
    }

    fn right(&self, at: usize, lines: usize, [k, depth]: [usize; 2]) -> BlockSide<T> {
        let lanes = self.tiles.lanes;
        BlockSide {
            from: self.sides[1].from::<T>(at, k),
            packed: self.rooms[1],
            in_place: self.sides[1].row == 1 && !self.looked_at,
            size: [lines, depth],
            widths: PanelWidths { lines: 2 * lanes, unit: lanes },
        }
    }

    /// Whether columns that are read in place are copied meanwhile, for further rows.
    fn copies(&self) -> bool {
        let [rows, _, depth] = self.size;
        let step = self.sides[1].column.unsigned_abs();
        let span = depth.min(CONTRACT_CHUNK).saturating_mul(step).saturating_mul(size_of::<T>());
        rows > self.tiles.by_rows.len() && (rows > FEW_ROWS || span > NEAR)
    }

    /// Multiplies, and tells whether operands have been scaled.
    ///
    /// # Safety
    /// As of [`Gemm::product`], for a depth that is not 0; rooms are those of [`room`].
    unsafe fn run(&self) -> bool {
        let [rows, cols, depth] = self.size;
        let ([high, wide], copies) = (self.block_extents(), self.copies());
        let mut some = false;
        for k in (0..depth).step_by(CONTRACT_CHUNK) {
            let deep = [k, CONTRACT_CHUNK.min(depth - k)];
            // The first of the rows that are packed.
            let mut packed_rows = None;
            for j in (0..cols).step_by(wide) {
                let right = self.right(j, wide.min(cols - j), deep);
                let mut packed_columns = false;
                for i in (0..rows).step_by(high) {
                    let left = self.left(i, high.min(rows - i), deep);
                    // SAFETY: as the caller promises; the host has AVX2, as all instances need it.
                    unsafe {
                        if !packed_columns {
                            right.pack();
                        }
                        if packed_rows != Some(i) {
                            left.pack();
                        }
                        let scaled = self.looked_at && scale([&left, &right]);
                        // What is scaled is not what others multiply.
                        (packed_columns, packed_rows) = (!scaled, (!scaled).then_some(i));
                        some |= scaled;
                        let last = k + CONTRACT_CHUNK >= depth;
                        let to = BlockTarget {
                            out: self.out.from::<T>(i, j),
                            first: k == 0,
                            added: self.added.filter(|_| last).map(|all| all.from::<T>(i, j)),
                            next: self.next.map(|all| Some(all.filter(|_| last)?.from::<T>(i, j))),
                        };
                        self.block([&left, &right], &to, copies.then_some(i == 0));
                    }
                }
            }
        }
        some
    }

    /// The product of two blocks: the first chunk of the depth or a further one. Columns in place are copied, if they are at all, by the
    /// first tiles of the first block.
    ///
    /// # Safety
    /// The operands are packed unless they are read in place, and the result has room for their product, which nobody else uses.
    unsafe fn block(
        &self,
        [left, right]: [&BlockSide<T>; 2],
        to: &BlockTarget,
        copies: Option<bool>,
    ) {
        let &BlockTarget { out, first, added, next } = to;
        let fetched = next.iter().flatten().count();
        let depth = left.size[1];
        for [i, high, _] in left.widths.each(left.size[0]) {
            let deep = left.in_place && left.from.column == 1;
            let (rows, stride) = match (left.in_place, deep) {
                (false, _) => (left.packed.wrapping_add(i * depth), high as isize),
                (true, true) => (left.from.place::<T>(i, 0), left.from.row),
                (true, false) => (left.from.place::<T>(i, 0), left.from.column),
            };
            for [j, count, width] in right.widths.each(right.size[0]) {
                let packed = right.packed.wrapping_add(j * depth);
                let copying = right.in_place && copies == Some(true) && i == 0;
                let (columns, line) = match right.in_place && (copying || copies.is_none()) {
                    true => (right.from.place::<T>(j, 0), right.from.column),
                    false => (packed, width as isize),
                };
                let out = out.from::<T>(i, j);
                let added = added.map(|all| all.from::<T>(i, j));
                let operands = TileOperands {
                    depth,
                    rows: rows.cast_const(),
                    stride,
                    columns: columns.cast_const(),
                    line,
                    last: count - (width - self.tiles.lanes),
                    copy: if copying { packed } else { null_mut() },
                    out: out.at.cast(),
                    out_row: out.row,
                    first,
                    added: added.map_or(null(), |all| all.at.cast::<T>().cast_const()),
                    added_row: added.map_or(0, |all| all.row),
                    next: next.map(|all| match all {
                        Some(all) => (all.place::<T>(i, j).cast_const(), all.row),
                        None => (null(), 0),
                    }),
                    fetched,
                };
                let tile = self.tiles.by_rows[high - 1][usize::from(width > self.tiles.lanes)];
                let tile = tile[usize::from(deep)];
                // SAFETY: as the caller promises; only instances that the host can run are given out.
                unsafe {
                    if out.column == 1 {
                        tile(&operands);
                    } else {
                        let mut sums = [MaybeUninit::<T>::uninit(); MOST_ROWS * MOST_COLUMNS];
                        let at = sums.as_mut_ptr().cast::<T>();
                        let out_row = width as isize;
                        let own = TileOperands { out: at, out_row, first: true, ..operands };
                        tile(&TileOperands { added: null(), ..own });
                        let sums = MatrixView { at: at.cast(), row: out_row, column: 1 };
                        put::<T>(sums, [high, count], out, (first, added));
                    }
                }
            }
        }
    }
}

/// Puts sums where they go, or adds them there, and adds other elements if there are any.
///
/// # Safety
/// Both have these rows and columns, and nobody else uses them.
unsafe fn put<T: PackedElement>(
    sums: MatrixView,
    [rows, cols]: [usize; 2],
    out: MatrixView,
    (first, added): (bool, Option<MatrixView>),
) {
    for i in 0..rows {
        for j in 0..cols {
            // SAFETY: as the caller promises.
            unsafe {
                let (to, sum) = (out.place::<T>(i, j), *sums.place::<T>(i, j));
                let sum = if first { sum } else { *to + sum };
                *to = added.map_or(sum, |all| *all.place::<T>(i, j) + sum).canonical();
            }
        }
    }
}

impl PackedGemm {
    /// The product, with vectors along the rows of the result.
    ///
    /// # Safety
    /// As of [`Gemm::product`], for a depth that is not 0.
    unsafe fn upright<T: PackedElement>(
        &self,
        size: Size,
        [lhs, rhs]: [MatrixView; 2],
        out: MatrixView,
        aid: GemmArgs<'_>,
    ) {
        let (tiles, at) = (T::tiles(self), aid.room.cast::<T>());
        let rooms = [at.wrapping_add(room(tiles, size)[0]), at];
        let looked_at = self.wary && aid.met.expects();
        let sides = [lhs, rhs.transposed()];
        let product = BlockedProduct {
            tiles,
            size,
            sides,
            rooms,
            out,
            looked_at,
            added: aid.added,
            next: aid.touched_next,
        };
        // SAFETY: as the caller promises.
        let run = || unsafe { product.run() };
        match (looked_at, self.wary) {
            (true, _) => aid.met.note(run()),
            (false, true) => aid.met.watch(|| _ = run()),
            (false, false) => _ = run(),
        }
    }
}

impl Gemm for PackedGemm {
    fn name(&self, dtype: DType) -> &'static str {
        match dtype {
            DType::F32 | DType::F64 => self.name,
            _ => tiles().name(dtype),
        }
    }

    fn finishes(&self) -> bool {
        true
    }

    fn room(&self, dtype: DType, size: Size) -> u64 {
        let elements = match (dtype, size[2]) {
            (DType::F32, 1..) => room(self.of_f32, size),
            (DType::F64, 1..) => room(self.of_f64, size),
            _ => return tiles().room(dtype, size),
        };
        elements.into_iter().sum::<usize>() as u64 * dtype.bytes()
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
        let [rows, cols, depth] = size;
        let upright = match (dtype, depth) {
            (DType::F32, 1..) => Self::upright::<f32>,
            (DType::F64, 1..) => Self::upright::<f64>,
            // SAFETY: as the caller promises.
            _ => return unsafe { tiles().product(dtype, size, lhs, rhs, out, aid) },
        };
        // SAFETY: as the caller promises.
        unsafe {
            // Vectors go along the axis along which results are neighbours.
            match out.row.unsigned_abs() < out.column.unsigned_abs() {
                false => upright(self, size, [lhs, rhs], out, aid),
                true => {
                    let sides = [rhs.transposed(), lhs.transposed()];
                    let turned = |all: Option<MatrixView>| all.map(MatrixView::transposed);
                    let touched_next = aid.touched_next.map(turned);
                    let aid = GemmArgs { added: turned(aid.added), touched_next, ..aid };
                    upright(self, [cols, rows, depth], sides, out.transposed(), aid);
                }
            }
        }
    }
}

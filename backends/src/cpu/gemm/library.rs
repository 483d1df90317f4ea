//! Float products by `private-gemm-x86`. Its order is the defined one under the conditions of `docs/fp.md`: a pinned
//! version, `Accum::Replace`, alpha 1, full results, strides along the depth that are not negative, and at least one
//! product. All other products use tiles.
#![allow(unsafe_code)]

use super::slab::{GAP, SlabElement};
use super::subnormal::{FloatBits, MagnitudeRange, SubnormalState, factors, matters, slow_on_host};
use super::tiles::found as tiles;
use super::{Gemm, GemmArgs, MatrixView, Size, needs_copy, slab};
use crate::cpu::codegen::vector_width::Vectors;
use crate::reference::order::CONTRACT_CHUNK;
use adfuse_ir::DType;
use private_gemm_x86 as gemm;
use std::ptr::null;
use std::sync::OnceLock;

/// The library with an instruction set.
pub(super) struct GemmLibrary {
    set: gemm::InstrSet,
    /// Whether subnormal operands are slow on the host.
    pub(super) wary: bool,
}

/// Rows of the operand that is broadcast, and columns of the other one, that are copied at a time, at most: both
/// fit the second cache. Kernels of the library are 96 columns of `f32` wide, or 48 of `f64`.
const ROWS: usize = 128;
const COLUMNS: usize = 288;

/// Fewer columns are multiplied sooner than rows are copied.
const FEW: usize = 32;

/// Machine code of kernels spills with instructions that keep the upper halves of registers, which
/// is slow where those are in use.
///
/// # Safety
/// The processor must have AVX, which both sets of instructions of the library include.
#[target_feature(enable = "avx")]
fn zero_upper_halves() {
    std::arch::x86_64::_mm256_zeroupper();
}

pub(super) fn found() -> Option<&'static GemmLibrary> {
    static FOUND: OnceLock<Option<GemmLibrary>> = OnceLock::new();
    let found = || GemmLibrary::new(slow_on_host());
    FOUND.get_or_init(found).as_ref()
}

impl GemmLibrary {
    /// The fastest instruction set of the host, if it has one that the library needs.
    pub(super) fn new(wary: bool) -> Option<GemmLibrary> {
        let set = match Vectors::of_processor() {
            Vectors::Avx512 => gemm::InstrSet::Avx512,
            Vectors::Avx2 => gemm::InstrSet::Avx256,
            Vectors::Narrow => return None,
        };
        Some(GemmLibrary { set, wary })
    }

    /// Writes the product, or adds it to what there is.
    ///
    /// # Safety
    /// As of [`Gemm::product`], for a depth that is not 0.
    unsafe fn call<T: LibraryElement>(
        &self,
        [rows, cols, depth]: Size,
        lhs: MatrixView,
        rhs: MatrixView,
        out: MatrixView,
        accum: gemm::Accum,
    ) {
        // SAFETY: as the caller promises, and the host has the instructions.
        unsafe {
            gemm::gemm(
                T::KIND,
                gemm::IType::U64,
                self.set,
                rows,
                cols,
                depth,
                out.at.cast(),
                out.row,
                out.column,
                null(),
                null(),
                gemm::DstKind::Full,
                accum,
                lhs.at.cast_const().cast(),
                lhs.row,
                lhs.column,
                false,
                null(),
                0,
                rhs.at.cast_const().cast(),
                rhs.row,
                rhs.column,
                false,
                (&T::ONE as *const T).cast(),
                1,
            );
        }
    }

    /// A product of floats by one call, whatever its operands are like.
    ///
    /// # Safety
    /// As of [`Gemm::product`], for a depth that is not 0.
    pub(super) unsafe fn whole(
        &self,
        dtype: DType,
        size: Size,
        lhs: MatrixView,
        rhs: MatrixView,
        out: MatrixView,
    ) {
        let call = match dtype {
            DType::F64 => Self::call::<f64>,
            _ => Self::call::<f32>,
        };
        // SAFETY: as the caller promises.
        unsafe {
            call(self, size, lhs, rhs, out, gemm::Accum::Replace);
            zero_upper_halves();
        }
    }

    /// The product of an operand that the library broadcasts from where it is, and one that it packs.
    ///
    /// # Safety
    /// As of [`Gemm::product`].
    unsafe fn multiplied<T: LibraryElement>(
        &self,
        size: Size,
        lhs: MatrixView,
        rhs: MatrixView,
        out: MatrixView,
        aid: GemmArgs<'_>,
    ) {
        let [_, cols, depth] = size;
        let looked_at = self.wary && aid.met.expects();
        let whole = || {
            // SAFETY: as the caller promises.
            unsafe {
                if cols >= FEW && needs_copy(depth, lhs.column as i64, size_of::<T>() as u64) {
                    self.in_slabs::<T>(size, lhs, rhs, out, aid.room, None);
                } else {
                    self.call::<T>(size, lhs, rhs, out, gemm::Accum::Replace);
                }
            }
        };
        match (looked_at, self.wary) {
            // SAFETY: as the caller promises.
            (true, _) => unsafe {
                self.in_slabs::<T>(size, lhs, rhs, out, aid.room, Some(aid.met));
            },
            (false, true) => aid.met.watch(whole),
            (false, false) => whole(),
        }
    }

    /// The product by chunks of the depth, as the library itself goes, of rows that are copied, and of columns that
    /// are if they are looked at for subnormals.
    ///
    /// # Safety
    /// As of [`Gemm::product`]; there is room for slabs.
    unsafe fn in_slabs<T: LibraryElement>(
        &self,
        [rows, cols, depth]: Size,
        lhs: MatrixView,
        rhs: MatrixView,
        out: MatrixView,
        room: *mut u8,
        met: Option<&SubnormalState>,
    ) {
        let room = room.cast::<T>();
        let wide = if met.is_some() { COLUMNS } else { cols.max(1) };
        let beside = ROWS.min(rows) * (CONTRACT_CHUNK.min(depth) + GAP);
        let mut some = false;
        for i in (0..rows).step_by(ROWS) {
            for j in (0..cols).step_by(wide) {
                for k in (0..depth).step_by(CONTRACT_CHUNK) {
                    let [m, n] = [ROWS.min(rows - i), wide.min(cols - j)];
                    let deep = CONTRACT_CHUNK.min(depth - k);
                    let accum = match k {
                        0 => gemm::Accum::Replace,
                        _ => gemm::Accum::Add,
                    };
                    // SAFETY: as the caller promises; the copies lie one after the other, and the host has AVX2, as
                    // the library needs it.
                    unsafe {
                        let (left, mut x) = slab::rows(lhs.from::<T>(i, k), [m, deep], room);
                        let mut right = rhs.from::<T>(k, j);
                        if met.is_some() {
                            let to = room.wrapping_add(beside);
                            let (copied, mut y) = slab::kept(right, [deep, n], to);
                            right = copied;
                            let span = |all: &slab::StridedLines<T>| {
                                all.each().fold(MagnitudeRange::NONE, |s, l| T::span(l, s))
                            };
                            let (spans, size) = ([span(&x), span(&y)], [m, n, deep]);
                            let factors = match matters::<T>(size, spans[0], spans[1]) {
                                true => factors::<T>(spans[0], spans[1]),
                                false => None,
                            };
                            some |= factors.is_some();
                            if let Some([of_left, of_right]) = factors {
                                x.each_mut().for_each(|l| T::scale(l, of_left));
                                y.each_mut().for_each(|l| T::scale(l, of_right));
                            }
                        }
                        self.call::<T>([m, n, deep], left, right, out.from::<T>(i, j), accum);
                    }
                }
            }
        }
        if let Some(met) = met {
            met.note(some);
        }
    }
}

/// What the library multiplies.
trait LibraryElement: SlabElement + FloatBits {
    const KIND: gemm::DType;
    const ONE: Self;
}

impl LibraryElement for f32 {
    const KIND: gemm::DType = gemm::DType::F32;
    const ONE: f32 = 1.0;
}

impl LibraryElement for f64 {
    const KIND: gemm::DType = gemm::DType::F64;
    const ONE: f64 = 1.0;
}

impl Gemm for GemmLibrary {
    fn name(&self, dtype: DType) -> &'static str {
        match dtype {
            DType::F32 | DType::F64 => "private-gemm-x86",
            _ => tiles().name(dtype),
        }
    }

    fn room(&self, dtype: DType, size: Size, needs_copy: bool) -> u64 {
        let [rows, cols, depth] = size;
        match (dtype, depth) {
            (DType::F32 | DType::F64, 1..) => {
                let (wide, deep) = (rows.max(cols), depth.min(CONTRACT_CHUNK));
                let rows = wide.min(ROWS) * (deep + GAP);
                let columns = if self.wary { wide.min(COLUMNS) * deep } else { 0 };
                match needs_copy || self.wary {
                    true => (rows + columns) as u64 * dtype.bytes(),
                    false => 0,
                }
            }
            _ => tiles().room(dtype, size, needs_copy),
        }
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
        let kind = match (dtype, depth) {
            (DType::F32, 1..) => Self::multiplied::<f32>,
            (DType::F64, 1..) => Self::multiplied::<f64>,
            // SAFETY: as the caller promises.
            _ => return unsafe { tiles().product(dtype, size, lhs, rhs, out, aid) },
        };
        // SAFETY: as the caller promises.
        unsafe {
            // The library broadcasts the operand along whose free axis results lie apart.
            match out.row.unsigned_abs() < out.column.unsigned_abs() {
                false => kind(self, size, lhs, rhs, out, aid),
                true => {
                    let size = [cols, rows, depth];
                    kind(self, size, rhs.transposed(), lhs.transposed(), out.transposed(), aid);
                }
            }
            zero_upper_halves();
        }
    }
}

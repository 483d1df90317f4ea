//! Views of matrices in memory, and the interface of products.
#![allow(unsafe_code)]

use super::SubnormalState;
use super::window::PlacedWindow;
use adfuse_ir::DType;

/// Scratch memory and state of a product.
// Packed tiles alone read what is not scratch memory.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
#[derive(Clone, Copy)]
pub(in crate::cpu) struct GemmArgs<'a> {
    /// Scratch memory of [`Gemm::room`] bytes, aligned to cache lines.
    pub(in crate::cpu) room: *mut u8,
    /// What earlier products of the same step have met.
    pub(in crate::cpu) met: &'a SubnormalState,
    /// Elements that are added to sums when all of these are there ([`Gemm::finishes`]). They are neighbours where results are, and may be
    /// the results' own.
    pub(in crate::cpu) added: Option<MatrixView>,
    /// What is touched next at each sum, elements of its type: tiles fetch it meanwhile.
    pub(in crate::cpu) touched_next: TouchedNext,
}

impl<'a> GemmArgs<'a> {
    /// Of a product of which nothing else becomes than its sums.
    pub(in crate::cpu) fn new(room: *mut u8, met: &'a SubnormalState) -> GemmArgs<'a> {
        GemmArgs { room, met, added: None, touched_next: [None; 2] }
    }
}

/// At most two arrays that are read or written once sums are there. Only their places are used, so that they may be anything.
pub(in crate::cpu) type TouchedNext = [Option<MatrixView>; 2];

/// A matrix of `f32` or `f64`, or of integers.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct MatrixView {
    pub(in crate::cpu) at: *mut u8,
    /// Elements from one row to the next.
    pub(in crate::cpu) row: isize,
    /// Elements from one column to the next.
    pub(in crate::cpu) column: isize,
}

impl MatrixView {
    pub(in crate::cpu) fn place<T>(&self, i: usize, j: usize) -> *mut T {
        self.at.cast::<T>().wrapping_offset(i as isize * self.row + j as isize * self.column)
    }

    /// From this row and column on.
    pub(in crate::cpu) fn from<T>(self, i: usize, j: usize) -> MatrixView {
        MatrixView { at: self.place::<T>(i, j).cast(), ..self }
    }

    /// With rows for columns.
    pub(in crate::cpu) fn transposed(self) -> MatrixView {
        MatrixView { row: self.column, column: self.row, ..self }
    }
}

/// An operand: a matrix, or what is copied from where forms say.
#[derive(Clone, Copy)]
pub(in crate::cpu) enum GemmSide<'a> {
    /// Of rows and depth, or of depth and columns.
    Matrix(MatrixView),
    /// The same, whichever of the two.
    Window(PlacedWindow<'a>),
}

impl GemmSide<'_> {
    pub(super) fn transposed(self) -> Self {
        match self {
            GemmSide::Matrix(m) => GemmSide::Matrix(m.transposed()),
            window => window,
        }
    }
}

/// `[rows, cols, depth]`
pub(in crate::cpu) type Size = [usize; 3];

/// What multiplies matrices: `out = lhs * rhs`, every bit of it defined.
pub(in crate::cpu) trait Gemm: Sync {
    /// What computes sums of this type.
    fn name(&self, dtype: DType) -> &'static str;

    /// Bytes that it needs beside the matrices for a product of this size, or a smaller one.
    fn room(&self, dtype: DType, size: Size) -> u64;

    /// Whether it adds other elements to sums, and makes every NaN of floats the canonical one.
    fn finishes(&self) -> bool {
        false
    }

    /// Writes all of `out`, also where there are no products.
    ///
    /// # Safety
    /// The matrices must have elements of this type at all places of the size, and `out` be used by
    /// nobody else. The steps of operands along the depth are not negative. The room is used by nobody else.
    unsafe fn product(
        &self,
        dtype: DType,
        size: Size,
        lhs: MatrixView,
        rhs: MatrixView,
        out: MatrixView,
        aid: GemmArgs<'_>,
    );
}

/// Makes every NaN the canonical one.
///
/// # Safety
/// As for the result of [`Gemm::product`].
pub(in crate::cpu) unsafe fn canonical(dtype: DType, size: [usize; 2], out: MatrixView) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: as the caller promises; the host has the instructions.
        return unsafe { canonical_avx2(dtype, size, out) };
    }
    // SAFETY: as the caller promises.
    unsafe { canonical_elements(dtype, size, out) }
}

/// As [`canonical`], compiled for vectors that are twice as wide.
///
/// # Safety
/// As there; the host has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn canonical_avx2(dtype: DType, size: [usize; 2], out: MatrixView) {
    // SAFETY: as the caller promises.
    unsafe { canonical_elements(dtype, size, out) }
}

/// As [`canonical`].
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn canonical_elements(dtype: DType, size: [usize; 2], out: MatrixView) {
    // SAFETY: as the caller promises.
    unsafe {
        match dtype {
            DType::F64 => replace(size, out, f64::is_nan, f64::NAN),
            DType::F32 => replace(size, out, f32::is_nan, f32::NAN),
            _ => {}
        }
    }
}

/// Puts an element in place of each of a kind. Lines that have none, which are nearly all, are only read.
///
/// # Safety
/// `out` must have these rows and columns of elements of type `T`, and nobody else uses them during the call.
#[inline(always)]
unsafe fn replace<T: Copy>(
    [rows, cols]: [usize; 2],
    out: MatrixView,
    wrong: impl Fn(T) -> bool,
    right: T,
) {
    // Along what is close together.
    let (mut outer, mut inner, m) = match out.column <= out.row {
        true => (rows, cols, out),
        false => (cols, rows, out.transposed()),
    };
    // Lines without gaps are one line.
    if m.column == 1 && usize::try_from(m.row) == Ok(inner) {
        (outer, inner) = (1, outer * inner);
    }
    for i in 0..outer {
        if m.column == 1 {
            // SAFETY: as the caller promises.
            let line = unsafe { std::slice::from_raw_parts_mut(m.place::<T>(i, 0), inner) };
            // Without an early end this is a loop over vectors.
            if line.iter().fold(false, |any, &x| any | wrong(x)) {
                line.iter_mut().filter(|x| wrong(**x)).for_each(|x| *x = right);
            }
            continue;
        }
        for j in 0..inner {
            // SAFETY: as the caller promises.
            unsafe {
                let x = m.place::<T>(i, j);
                if wrong(*x) {
                    *x = right;
                }
            }
        }
    }
}

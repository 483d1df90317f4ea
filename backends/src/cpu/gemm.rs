//! Products of matrices in the order of contractions: chunks of 512 products, each a chain of fused
//! multiply-adds from +0, added up one after the other.
#![allow(unsafe_code)]

use crate::reference::order::CONTRACT_CHUNK;
use adfuse_ir::DType;

/// A matrix of `f32` or `f64`, or of integers.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    pub(super) at: *mut u8,
    /// Elements from one row to the next.
    pub(super) row: isize,
    /// Elements from one column to the next.
    pub(super) column: isize,
}

impl Matrix {
    fn place<T>(&self, i: usize, j: usize) -> *mut T {
        self.at.cast::<T>().wrapping_offset(i as isize * self.row + j as isize * self.column)
    }
}

/// `[rows, cols, depth]`
pub(super) type Size = [usize; 3];

/// What multiplies matrices: `out = lhs * rhs`, every bit of it defined.
pub(super) trait Gemm: Sync {
    /// What computes sums of this type.
    fn name(&self, dtype: DType) -> &'static str;

    /// Writes all of `out`, also where there are no products.
    ///
    /// # Safety
    /// The matrices must have elements of this type at all places of the size, and `out` be used by
    /// nobody else.
    unsafe fn product(&self, dtype: DType, size: Size, lhs: Matrix, rhs: Matrix, out: Matrix);
}

/// One sum after the other.
pub(super) struct Plain;

impl Gemm for Plain {
    fn name(&self, _: DType) -> &'static str {
        "rust"
    }

    unsafe fn product(&self, dtype: DType, size: Size, lhs: Matrix, rhs: Matrix, out: Matrix) {
        // SAFETY: as the caller promises.
        unsafe {
            match dtype {
                DType::F64 => floats::<f64>(size, lhs, rhs, out, f64::mul_add),
                DType::F32 => floats::<f32>(size, lhs, rhs, out, f32::mul_add),
                DType::I64 => ints(size, lhs, rhs, out, |s: i64, a, b| {
                    s.wrapping_add(i64::wrapping_mul(a, b))
                }),
                DType::I32 | DType::U32 => ints(size, lhs, rhs, out, |s: i32, a, b| {
                    s.wrapping_add(i32::wrapping_mul(a, b))
                }),
                _ => {
                    ints(size, lhs, rhs, out, |s: i8, a, b| s.wrapping_add(i8::wrapping_mul(a, b)))
                }
            }
        }
    }
}

unsafe fn floats<T: Copy + Default + std::ops::Add<Output = T>>(
    [rows, cols, depth]: Size,
    lhs: Matrix,
    rhs: Matrix,
    out: Matrix,
    fma: impl Fn(T, T, T) -> T,
) {
    for i in 0..rows {
        for j in 0..cols {
            let mut total = T::default();
            for from in (0..depth).step_by(CONTRACT_CHUNK) {
                let mut sum = T::default();
                for k in from..depth.min(from + CONTRACT_CHUNK) {
                    // SAFETY: as the caller promises.
                    let (a, b) = unsafe { (*lhs.place::<T>(i, k), *rhs.place::<T>(k, j)) };
                    sum = fma(a, b, sum);
                }
                // The first is not added to +0: it may be -0.
                total = if from == 0 { sum } else { total + sum };
            }
            // SAFETY: as the caller promises.
            unsafe { *out.place::<T>(i, j) = total };
        }
    }
}

unsafe fn ints<T: Copy + Default>(
    [rows, cols, depth]: Size,
    lhs: Matrix,
    rhs: Matrix,
    out: Matrix,
    step: impl Fn(T, T, T) -> T,
) {
    for i in 0..rows {
        for j in 0..cols {
            // SAFETY: as the caller promises.
            unsafe {
                let term = |s, k| step(s, *lhs.place::<T>(i, k), *rhs.place::<T>(k, j));
                *out.place::<T>(i, j) = (0..depth).fold(T::default(), term);
            }
        }
    }
}

/// Makes every NaN the canonical one.
///
/// # Safety
/// As for the result of [`Gemm::product`].
pub(super) unsafe fn canonical(dtype: DType, [rows, cols]: [usize; 2], out: Matrix) {
    // SAFETY: as the caller promises.
    unsafe {
        match dtype {
            DType::F64 => each(rows, cols, out, |x: f64| if x.is_nan() { f64::NAN } else { x }),
            DType::F32 => each(rows, cols, out, |x: f32| if x.is_nan() { f32::NAN } else { x }),
            _ => {}
        }
    }
}

unsafe fn each<T: Copy>(rows: usize, cols: usize, out: Matrix, f: impl Fn(T) -> T) {
    // Along what is close together.
    let (outer, inner, m) = match out.column <= out.row {
        true => (rows, cols, out),
        false => (cols, rows, Matrix { row: out.column, column: out.row, ..out }),
    };
    for i in 0..outer {
        if m.column == 1 {
            // SAFETY: as the caller promises.
            let line = unsafe { std::slice::from_raw_parts_mut(m.place::<T>(i, 0), inner) };
            line.iter_mut().for_each(|x| *x = f(*x));
            continue;
        }
        for j in 0..inner {
            // SAFETY: as the caller promises.
            unsafe { *m.place::<T>(i, j) = f(*m.place::<T>(i, j)) };
        }
    }
}

/// The fastest of those that the host has.
pub(super) fn best() -> &'static dyn Gemm {
    #[cfg(target_arch = "x86_64")]
    if let Some(library) = library::found() {
        return library;
    }
    &Plain
}

#[cfg(target_arch = "x86_64")]
mod library {
    //! Floats by `private-gemm-x86`, whose order is the defined one under the conditions of
    //! `docs/fp.md`: a pinned version, `Accum::Replace`, alpha 1, full results, steps along the depth that
    //! are not negative, and at least one product.

    use super::{Gemm, Matrix, Plain, Size};
    use adfuse_ir::DType;
    use private_gemm_x86 as gemm;
    use std::ptr::null;

    pub(super) struct Library(gemm::InstrSet);

    static SHORT: Library = Library(gemm::InstrSet::Avx256);
    static LONG: Library = Library(gemm::InstrSet::Avx512);

    /// Machine code of kernels spills with instructions that keep the upper halves of registers, which
    /// is slow where those are in use.
    #[target_feature(enable = "avx")]
    fn clean() {
        std::arch::x86_64::_mm256_zeroupper();
    }

    pub(super) fn found() -> Option<&'static Library> {
        let long = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        let short = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        match (short, long) {
            (true, true) => Some(&LONG),
            (true, false) => Some(&SHORT),
            _ => None,
        }
    }

    impl Gemm for Library {
        fn name(&self, dtype: DType) -> &'static str {
            match dtype {
                DType::F32 | DType::F64 => "private-gemm-x86",
                _ => Plain.name(dtype),
            }
        }

        unsafe fn product(&self, dtype: DType, size: Size, lhs: Matrix, rhs: Matrix, out: Matrix) {
            let [rows, cols, depth] = size;
            let kind = match dtype {
                DType::F32 => gemm::DType::F32,
                DType::F64 => gemm::DType::F64,
                // SAFETY: as the caller promises.
                _ => return unsafe { Plain.product(dtype, size, lhs, rhs, out) },
            };
            if depth == 0 || lhs.column < 0 || rhs.row < 0 {
                // SAFETY: as the caller promises.
                return unsafe { Plain.product(dtype, size, lhs, rhs, out) };
            }
            let one = match dtype {
                DType::F32 => (&1.0f32 as *const f32).cast(),
                _ => (&1.0f64 as *const f64).cast(),
            };
            // SAFETY: as the caller promises, and the host has the instructions.
            unsafe {
                gemm::gemm(
                    kind,
                    gemm::IType::U64,
                    self.0,
                    rows,
                    cols,
                    depth,
                    out.at.cast(),
                    out.row,
                    out.column,
                    null(),
                    null(),
                    gemm::DstKind::Full,
                    gemm::Accum::Replace,
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
                    one,
                    1,
                );
                clean();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers<T>(n: usize, of: impl Fn(f64) -> T) -> Vec<T> {
        (0..n).map(|i| of(((i * 7919 % 1013) as f64 - 500.0) * 0.37)).collect()
    }

    fn matrix<T>(at: &[T], row: isize, column: isize) -> Matrix {
        Matrix { at: at.as_ptr().cast_mut().cast(), row, column }
    }

    /// The host's best against one sum after the other, in every layout.
    fn agrees<T: Copy + PartialEq + Default + std::fmt::Debug>(dtype: DType, of: fn(f64) -> T) {
        let sizes = [1, 2, 3, 5, 17, 64, 97];
        for depth in [0, 1, 2, 3, 7, 64, 511, 512, 513, 1024, 1025, 1500] {
            for (a, &rows) in sizes.iter().enumerate() {
                let cols = sizes[(a * 3 + depth) % sizes.len()];
                let (x, y) = (numbers(rows * depth, of), numbers(depth * cols, of));
                for layout in 0..8 {
                    let by = |bit: usize, rows: usize, cols: usize| match layout >> bit & 1 {
                        0 => (cols as isize, 1),
                        _ => (1, rows as isize),
                    };
                    let run = |gemm: &dyn Gemm| {
                        let mut out = vec![T::default(); rows * cols];
                        let (xl, yl, ol) =
                            (by(0, rows, depth), by(1, depth, cols), by(2, rows, cols));
                        let to = Matrix { at: out.as_mut_ptr().cast(), row: ol.0, column: ol.1 };
                        let (x, y) = (matrix(&x, xl.0, xl.1), matrix(&y, yl.0, yl.1));
                        // SAFETY: the vectors have these sizes.
                        unsafe { gemm.product(dtype, [rows, cols, depth], x, y, to) };
                        out
                    };
                    let (found, wanted) = (run(best()), run(&Plain));
                    assert!(found == wanted, "{rows} x {cols} x {depth}, layout {layout}");
                }
            }
        }
    }

    #[test]
    fn the_library_keeps_the_order() {
        agrees::<f32>(DType::F32, |x| x as f32);
        agrees::<f64>(DType::F64, |x| x);
    }

    #[test]
    fn products_that_underflow_keep_their_sign() {
        let (x, y) = ([-1e-30f32], [1e-30f32]);
        let mut out = [1.0f32];
        let to = Matrix { at: out.as_mut_ptr().cast(), row: 1, column: 1 };
        // SAFETY: one element each.
        unsafe { best().product(DType::F32, [1; 3], matrix(&x, 1, 1), matrix(&y, 1, 1), to) };
        assert_eq!(out[0].to_bits(), 0x8000_0000);
    }
}

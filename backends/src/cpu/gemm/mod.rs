//! Products of matrices in the order of contractions: chunks of 512 products, each a chain of fused
//! multiply-adds from +0, added up one after the other.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod library;
#[cfg(test)]
mod tests;
mod tiles;
mod window;

pub(super) use tiles::{Side, Tiles, found as tiles};
pub(super) use window::{Axis, Forms, GUARDS, Window, merged as merged_axes};

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

    /// From this row and column on.
    fn from<T>(self, i: usize, j: usize) -> Matrix {
        Matrix { at: self.place::<T>(i, j).cast(), ..self }
    }

    /// With rows for columns.
    fn transposed(self) -> Matrix {
        Matrix { row: self.column, column: self.row, ..self }
    }
}

/// `[rows, cols, depth]`
pub(super) type Size = [usize; 3];

/// What multiplies matrices: `out = lhs * rhs`, every bit of it defined.
pub(super) trait Gemm: Sync {
    /// What computes sums of this type.
    fn name(&self, dtype: DType) -> &'static str;

    /// Bytes that it needs beside the matrices for a product of this size, or a smaller one.
    fn room(&self, dtype: DType, size: Size) -> u64;

    /// Writes all of `out`, also where there are no products.
    ///
    /// # Safety
    /// The matrices must have elements of this type at all places of the size, and `out` be used by
    /// nobody else. The steps of operands along the depth are not negative. `room` has as many bytes as
    /// [`Gemm::room`] says, begins at a line of the cache and is used by nobody else.
    unsafe fn product(
        &self,
        dtype: DType,
        size: Size,
        lhs: Matrix,
        rhs: Matrix,
        out: Matrix,
        room: *mut u8,
    );
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
    tiles::found()
}

//! The matrix library without the engine, as a baseline for measurements.
#![allow(unsafe_code)]

use super::MatrixView;
use super::library::GemmLibrary;
use adfuse_ir::DType;

/// Dense matrices and their products, one for each element of a batch.
pub struct LibraryProduct {
    library: GemmLibrary,
    dtype: DType,
    batch: usize,
    size: [usize; 3],
    /// Whether operands have their columns dense in place of their rows.
    turned: [bool; 2],
    /// Operands and result, as words.
    arrays: [Vec<u64>; 3],
}

impl LibraryProduct {
    /// Matrices of ones, of these numbers of rows, columns and products of a sum; `None` where the host or the library has
    /// no such product.
    pub fn new(
        dtype: DType,
        batch: usize,
        size: [usize; 3],
        turned: [bool; 2],
    ) -> Option<LibraryProduct> {
        let one = match dtype {
            DType::F32 => 0x3F80_0000_3F80_0000,
            DType::F64 => 0x3FF0_0000_0000_0000,
            _ => return None,
        };
        let library = GemmLibrary::new(false).filter(|_| size[2] > 0)?;
        let [rows, cols, depth] = size;
        let words = |n: usize| vec![one; (batch * n * dtype.bytes() as usize).div_ceil(8)];
        let arrays = [words(rows * depth), words(depth * cols), words(rows * cols)];
        Some(LibraryProduct { library, dtype, batch, size, turned, arrays })
    }

    /// Multiplies on this thread, each element of the batch by one call of the library.
    pub fn run(&mut self) {
        let [rows, cols, depth] = self.size;
        let bytes = self.dtype.bytes() as usize;
        let [x, y, out] = &mut self.arrays;
        for b in 0..self.batch {
            let matrix = |all: &mut Vec<u64>, turned: bool, rows: usize, cols: usize| {
                let at = all.as_mut_ptr().cast::<u8>().wrapping_add(b * rows * cols * bytes);
                let (row, column) = if turned { (1, rows) } else { (cols, 1) };
                MatrixView { at, row: row as isize, column: column as isize }
            };
            let lhs = matrix(x, self.turned[0], rows, depth);
            let rhs = matrix(y, self.turned[1], depth, cols);
            let out = matrix(out, false, rows, cols);
            // SAFETY: the arrays have these sizes, and whole products need no room.
            unsafe { self.library.whole(self.dtype, self.size, lhs, rhs, out) };
        }
    }
}

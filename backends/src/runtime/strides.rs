//! Strides of buffers, and whether a buffer is dense and row-major.

use adfuse_ir::kernel::{BufferData, Extents, Storage};

/// The strides of a buffer, in elements.
pub(crate) fn strides(data: &BufferData) -> Extents {
    data.strides.clone().unwrap_or_else(|| row_major(&data.dims))
}

/// The strides of a dense row-major tensor.
pub(crate) fn row_major(extents: &[i64]) -> Extents {
    let mut strides: Extents = extents.iter().map(|_| 1).collect();
    for k in (1..extents.len()).rev() {
        strides[k - 1] = strides[k].wrapping_mul(extents[k]);
    }
    strides
}

/// Whether a buffer's elements are at their row-major places.
pub(crate) fn dense(data: &BufferData) -> bool {
    let wanted = row_major(&data.dims);
    let long = |k: usize| data.dims[k] > 1;
    data.storage == Storage::Plain
        && strides(data).iter().zip(&wanted).enumerate().all(|(k, (a, b))| a == b || !long(k))
}

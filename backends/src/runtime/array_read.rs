//! Arrays read from files: memory grows as data arrives, whatever the extents promise.

use super::array::Array;
use super::bytes::Bytes;
use super::element::{Element, canonical_nans};
use adfuse_ir::{DType, TensorType};
use std::io::{self, Read};

/// Bytes that are asked for at first.
const FIRST: usize = 1 << 20;

impl Array {
    /// Reads an array of a type's elements, little-endian and row-major. What follows them is not read.
    ///
    /// # Errors
    /// Those of `from`; [`io::ErrorKind::UnexpectedEof`] where it ends too early; [`io::ErrorKind::InvalidData`] for a
    /// truth value that is neither 0 nor 1; [`io::ErrorKind::InvalidInput`] for a type that no tensor may have;
    /// [`io::ErrorKind::OutOfMemory`] when there is no memory for what was read.
    pub fn read_le(dtype: DType, dims: &[u64], from: &mut impl Read) -> io::Result<Array> {
        let ty = TensorType::of(dtype, dims);
        let refused = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        if let Some(why) = ty.excess() {
            return Err(refused(why));
        }
        let n = ty.elements().and_then(|n| usize::try_from(n).ok());
        let n = n.ok_or_else(|| refused(format!("{ty} is too large")))?;
        let mut bytes = match dtype.bytes() {
            8 => Bytes::Words8(words(n, from)?),
            4 => Bytes::Words4(words(n, from)?),
            2 => Bytes::Words2(words(n, from)?),
            1 => Bytes::Words1(words(n, from)?),
            _ => return Err(refused(format!("a tensor of {dtype} has no elements"))),
        };
        if dtype == DType::Bool {
            bool::valid(&bytes).map_err(|m| io::Error::new(io::ErrorKind::InvalidData, m))?;
        }
        canonical_nans(dtype, &mut bytes);
        Ok(Array::from_bytes(dtype, dims, bytes))
    }
}

/// Reads this many words; each piece is as long as what has been read before.
fn words<T: bytemuck::Pod>(n: usize, from: &mut impl Read) -> io::Result<Vec<T>> {
    let mut all: Vec<T> = Vec::new();
    while all.len() < n {
        let read = all.len();
        let more = (n - read).min(read.max(FIRST / size_of::<T>()));
        all.try_reserve_exact(more).map_err(|_| io::ErrorKind::OutOfMemory)?;
        all.resize(read + more, T::zeroed());
        from.read_exact(bytemuck::cast_slice_mut(&mut all[read..]))?;
    }
    Ok(all)
}

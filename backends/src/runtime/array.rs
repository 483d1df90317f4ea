//! Tensors on the host: a type with known extents, and dense row-major bytes.

use super::bytes::Bytes;
use adfuse_ir::{At, DType, Diagnostic, Kind, Literal, TensorType};
use std::fmt;

/// A dense tensor in host memory, row-major, elements as little-endian bytes. NaNs are canonical.
#[derive(Clone, PartialEq, Eq)]
pub struct Array {
    dtype: DType,
    dims: Vec<u64>,
    bytes: Bytes,
}

impl Array {
    /// An array of elements given as bits (see [`Literal::bits`]).
    ///
    /// # Errors
    /// When the number of elements is not that of the extents, or the extents overflow.
    pub fn from_bits(dtype: DType, dims: &[u64], bits: &[u64]) -> Result<Array, Diagnostic> {
        if TensorType::of(dtype, dims).elements() != Some(bits.len() as u64) {
            let m = format!("{} elements for {}", bits.len(), TensorType::of(dtype, dims));
            return Err(Diagnostic::new(At::default(), Kind::Shape, m));
        }
        let width = dtype.bytes() as usize;
        let mut bytes = Vec::new();
        let size = bits.len().saturating_mul(width);
        bytes.try_reserve_exact(size).map_err(|_| out_of_memory(size as u64))?;
        for &b in bits {
            let b = Literal::from_bits(dtype, b).bits();
            bytes.extend_from_slice(&b.to_le_bytes()[..width]);
        }
        Ok(Array { dtype, dims: dims.to_vec(), bytes: bytes.into() })
    }

    /// An array of numbers, converted to `dtype` (rounded to nearest; integers saturate).
    ///
    /// # Errors
    /// As [`Array::from_bits`].
    pub fn from_f64s(dtype: DType, dims: &[u64], values: &[f64]) -> Result<Array, Diagnostic> {
        let bits: Vec<u64> = values.iter().map(|&x| Literal::from_f64(dtype, x).bits()).collect();
        Array::from_bits(dtype, dims, &bits)
    }

    /// An array of integers, converted to `dtype` (integers wrap).
    ///
    /// # Errors
    /// As [`Array::from_bits`].
    pub fn from_i64s(dtype: DType, dims: &[u64], values: &[i64]) -> Result<Array, Diagnostic> {
        let bits: Vec<u64> = values.iter().map(|&x| Literal::from_i64(dtype, x).bits()).collect();
        Array::from_bits(dtype, dims, &bits)
    }

    /// An `f32` array.
    ///
    /// # Errors
    /// As [`Array::from_bits`].
    pub fn from_f32s(dims: &[u64], values: &[f32]) -> Result<Array, Diagnostic> {
        let bits: Vec<u64> = values.iter().map(|x| x.to_bits().into()).collect();
        Array::from_bits(DType::F32, dims, &bits)
    }

    /// One element repeated.
    ///
    /// # Errors
    /// As [`Array::from_bits`].
    pub fn splat(dims: &[u64], value: Literal) -> Result<Array, Diagnostic> {
        Array::made(value.dtype(), dims, || value.bits())
    }

    /// An array of numbers that are asked for one after the other, converted as by [`Array::from_f64s`].
    ///
    /// # Errors
    /// When it is too large for memory; nothing is asked for then.
    pub fn drawn(
        dtype: DType,
        dims: &[u64],
        mut draw: impl FnMut() -> f64,
    ) -> Result<Array, Diagnostic> {
        Array::made(dtype, dims, || Literal::from_f64(dtype, draw()).bits())
    }

    /// An array of elements whose bits, as literals have them, are asked for one after the other.
    fn made(dtype: DType, dims: &[u64], next: impl FnMut() -> u64) -> Result<Array, Diagnostic> {
        let ty = TensorType::of(dtype, dims);
        let n = ty.elements().filter(|_| ty.excess().is_none());
        let n = n.ok_or_else(|| {
            Diagnostic::new(At::default(), Kind::Limit, format!("{ty} is too large"))
        })?;
        let size = n.saturating_mul(dtype.bytes());
        let mut bytes = Vec::new();
        let room = usize::try_from(size).ok().filter(|&n| bytes.try_reserve_exact(n).is_ok());
        room.ok_or_else(|| out_of_memory(size))?;
        match dtype.bytes() {
            1 => put::<1>(&mut bytes, n, next),
            2 => put::<2>(&mut bytes, n, next),
            4 => put::<4>(&mut bytes, n, next),
            _ => put::<8>(&mut bytes, n, next),
        }
        Ok(Array { dtype, dims: dims.to_vec(), bytes: bytes.into() })
    }

    /// A scalar.
    pub fn scalar(value: Literal) -> Array {
        let width = value.dtype().bytes() as usize;
        let bytes = value.bits().to_le_bytes()[..width].to_vec();
        Array { dtype: value.dtype(), dims: Vec::new(), bytes: bytes.into() }
    }

    /// An array of a type's elements, whose bytes are canonical and as many as it has.
    pub(crate) fn from_bytes(dtype: DType, dims: &[u64], bytes: Bytes) -> Array {
        Array { dtype, dims: dims.to_vec(), bytes }
    }

    /// Its elements, row-major, as little-endian bytes.
    pub(crate) fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }

    /// The type.
    pub fn ty(&self) -> TensorType {
        TensorType::of(self.dtype, &self.dims)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self.dtype.bytes() as usize {
            0 => 0,
            width => self.bytes.len() / width,
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements' little-endian bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Element `i` in row-major order.
    ///
    /// # Panics
    /// If `i` is not below [`Array::len`].
    pub fn get(&self, i: usize) -> Literal {
        let width = self.dtype.bytes() as usize;
        let mut word = [0; 8];
        word[..width].copy_from_slice(&self.bytes[i * width..][..width]);
        Literal::from_bits(self.dtype, u64::from_le_bytes(word))
    }

    /// All elements in row-major order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Literal> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }

    /// All elements as bits.
    pub fn to_bits(&self) -> Vec<u64> {
        self.iter().map(Literal::bits).collect()
    }

    /// All elements as `f64` (exact but for large `i64`).
    pub fn to_f64s(&self) -> Vec<f64> {
        self.iter().map(Literal::to_f64).collect()
    }

    /// The same numbers in another element type.
    pub fn convert(&self, dtype: DType) -> Array {
        if dtype == self.dtype {
            return self.clone();
        }
        let width = dtype.bytes() as usize;
        let word = |l: Literal| l.convert(dtype).bits().to_le_bytes();
        let bytes: Vec<u8> = self.iter().flat_map(|l| word(l).into_iter().take(width)).collect();
        Array { dtype, dims: self.dims.clone(), bytes: bytes.into() }
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [", self.ty())?;
        for (i, l) in self.iter().take(32).enumerate() {
            write!(f, "{}{l}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str(if self.len() > 32 { ", ..]" } else { "]" })
    }
}

/// Appends this many elements of `W` bytes each.
fn put<const W: usize>(bytes: &mut Vec<u8>, n: u64, mut next: impl FnMut() -> u64) {
    for _ in 0..n {
        if let Some(element) = next().to_le_bytes().first_chunk::<W>() {
            bytes.extend_from_slice(element);
        }
    }
}

/// The error for memory that could not be had.
pub(crate) fn out_of_memory(bytes: u64) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::Limit, format!("out of memory: {bytes} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_what_a_list_of_it_makes() {
        let values = [-3.7, 0.1, f64::NAN, 1e39, -0.0, 255.9];
        for &dtype in DType::ALL.iter().filter(|&&d| d != DType::Token) {
            let mut all = values.iter();
            let drawn = Array::drawn(dtype, &[2, 3], || all.next().copied().unwrap_or(0.0));
            let list = Array::from_f64s(dtype, &[2, 3], &values).expect("as many");
            assert_eq!(drawn.expect("fits"), list, "{dtype}");
            assert_eq!(all.len(), 0);
            assert_eq!(Array::drawn(dtype, &[0, 7], || panic!("none")).expect("fits").len(), 0);
        }
        for dims in [&[u64::MAX, 2][..], &[1 << 60]] {
            let refused =
                Array::drawn(DType::F32, dims, || panic!("asked")).expect_err("too large");
            assert_eq!(refused.kind, Kind::Limit);
        }
    }
}

//! Tensors on the host: a type with known extents, and dense row-major bytes that clones share.

use super::bytes::Bytes;
use super::element::{Element, canonical_nans};
use super::truth;
use adfuse_ir::{At, DType, Diagnostic, Kind, Literal, TensorType};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// A dense tensor in host memory, row-major, elements as little-endian bytes. NaNs are canonical.
///
/// A clone takes constant time and shares the memory, which is copied when one of those who share it writes there.
#[derive(Clone, PartialEq, Eq)]
pub struct Array {
    dtype: DType,
    dims: SmallVec<[u64; 4]>,
    bytes: Arc<Bytes>,
}

impl Array {
    /// An array of elements given as bits (see [`Literal::bits`]).
    ///
    /// # Errors
    /// When the number of elements is not that of the extents, or the extents overflow.
    pub fn from_bits(dtype: DType, dims: &[u64], bits: &[u64]) -> Result<Array, Diagnostic> {
        counted(dtype, dims, bits.len())?;
        let mut all = bits.iter();
        let next = &mut || all.next().copied().unwrap_or_default();
        Array::of_bits(dtype, dims, bits.len() as u64, next)
    }

    /// An array of a type whose elements are asked for as bits, one after the other.
    fn of_bits(
        dtype: DType,
        dims: &[u64],
        n: u64,
        next: &mut dyn FnMut() -> u64,
    ) -> Result<Array, Diagnostic> {
        let mut bytes = Bytes::filled(dtype.bytes() as usize, n, next)?;
        match dtype {
            DType::Bool => truth::canonical(&mut bytes),
            _ => canonical_nans(dtype, &mut bytes),
        }
        Ok(Array::from_bytes(dtype, dims, bytes))
    }

    /// An array of elements given as little-endian bytes, as files have them.
    ///
    /// # Errors
    /// When the number of bytes is not that of the extents, the extents overflow, or a truth value is neither 0
    /// nor 1; [`Kind::Limit`] when there is no memory for a copy.
    pub fn from_le_bytes(dtype: DType, dims: &[u64], bytes: &[u8]) -> Result<Array, Diagnostic> {
        let ty = TensorType::of(dtype, dims);
        if ty.bytes() != Some(bytes.len() as u64) {
            let m = format!("{} bytes for {ty}", bytes.len());
            return Err(Diagnostic::new(At::default(), Kind::Shape, m));
        }
        if dtype == DType::Bool {
            let wrong = |m| Diagnostic::new(At::default(), Kind::Literal, m);
            bool::valid(bytes).map_err(wrong)?;
        }
        let mut bytes = Bytes::copied(dtype.bytes() as usize, bytes)?;
        canonical_nans(dtype, &mut bytes);
        Ok(Array::from_bytes(dtype, dims, bytes))
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
        Array::from_slice(values, dims)
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
    fn made(
        dtype: DType,
        dims: &[u64],
        mut next: impl FnMut() -> u64,
    ) -> Result<Array, Diagnostic> {
        let ty = TensorType::of(dtype, dims);
        let n = ty.elements().filter(|_| ty.excess().is_none());
        let n = n.ok_or_else(|| {
            Diagnostic::new(At::default(), Kind::Limit, format!("{ty} is too large"))
        })?;
        Array::of_bits(dtype, dims, n, &mut next)
    }

    /// An array of rank 0 with this one element, of the literal's element type.
    pub fn scalar(value: Literal) -> Array {
        let width = value.dtype().bytes() as usize;
        let bytes = value.bits().to_le_bytes()[..width].to_vec();
        Array::from_bytes(value.dtype(), &[], bytes.into())
    }

    /// An array of a type's elements, whose bytes are canonical and as many as it has.
    pub(crate) fn from_bytes(dtype: DType, dims: &[u64], bytes: Bytes) -> Array {
        Array::from_shared(dtype, dims, Arc::new(bytes))
    }

    /// The same with bytes that others may have too. They are copied where they are not aligned for the elements:
    /// those of an array of another type can be.
    pub(crate) fn from_shared(dtype: DType, dims: &[u64], mut bytes: Arc<Bytes>) -> Array {
        let width = dtype.bytes().max(1) as usize;
        if !bytes.as_ptr().addr().is_multiple_of(width) && !bytes.is_empty() {
            let mut words = vec![0u64; bytes.len().div_ceil(8)];
            bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(&bytes);
            bytes = Arc::new(Bytes::Words8(words));
        }
        Array { dtype, dims: SmallVec::from_slice(dims), bytes }
    }

    /// Its elements, row-major, as little-endian bytes; clones have them too.
    pub(crate) fn into_shared(self) -> Arc<Bytes> {
        self.bytes
    }

    /// The elements, which are copied first if clones have them too. What is written must be canonical.
    pub(crate) fn bytes_mut(&mut self) -> Result<&mut [u8], Diagnostic> {
        Bytes::alone(&mut self.bytes)
    }

    /// Whether another array has its memory too.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.bytes) > 1
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }

    /// Element type and extents.
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
        match self.dtype.bytes() {
            8 => self.words(u64::from_le_bytes),
            4 => self.words(|w| u32::from_le_bytes(w).into()),
            2 => self.words(|w| u16::from_le_bytes(w).into()),
            _ => self.bytes.iter().map(|&b| b.into()).collect(),
        }
    }

    /// All elements, each made of its bytes.
    fn words<const W: usize, T>(&self, of: impl Fn([u8; W]) -> T) -> Vec<T> {
        self.bytes.as_chunks::<W>().0.iter().map(|&w| of(w)).collect()
    }

    /// All elements as `f64` (exact but for large `i64`).
    pub fn to_f64s(&self) -> Vec<f64> {
        match self.dtype {
            DType::F64 => self.words(f64::from_le_bytes),
            DType::F32 => self.words(|w| f32::from_le_bytes(w).into()),
            DType::I64 => self.words(|w| i64::from_le_bytes(w) as f64),
            DType::I32 => self.words(|w| i32::from_le_bytes(w).into()),
            DType::U32 => self.words(|w| u32::from_le_bytes(w).into()),
            _ => self.iter().map(Literal::to_f64).collect(),
        }
    }

    /// The same numbers in another element type.
    pub fn convert(&self, dtype: DType) -> Array {
        if dtype == self.dtype {
            return self.clone();
        }
        let mut all = self.iter();
        let mut next = || all.next().map_or(0, |l| l.convert(dtype).bits());
        let made = Bytes::filled(dtype.bytes() as usize, self.len() as u64, &mut next);
        // As every vector does where there is no memory.
        let bytes = made.unwrap_or_else(|d| panic!("{d}"));
        Array::from_bytes(dtype, &self.dims, bytes)
    }
}

/// Refuses another number of elements than the extents have, and extents that are beyond the limits.
pub(crate) fn counted(dtype: DType, dims: &[u64], n: usize) -> Result<(), Diagnostic> {
    let ty = TensorType::of(dtype, dims);
    if ty.elements() != Some(n as u64) {
        let m = match ty.elements() {
            Some(due) => format!("{ty} has {due} elements, found {n}"),
            None => format!("{ty} has more elements than can be counted, found {n}"),
        };
        return Err(Diagnostic::new(At::default(), Kind::Shape, m));
    }
    Ok(())
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

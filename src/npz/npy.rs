//! Arrays in `.npy` files, read and written.

use super::header::MAGIC;
use super::{Header, NpzError, NpzErrorKind};
use crate::backends::Array;
use crate::ir::{DType, TensorType};
use std::borrow::Cow;
use std::io::{self, Read, Write};

/// Reads an array of the element type that the file holds; `from` ends where it does.
///
/// # Errors
/// Those of [`Header::read`] and [`Header::array`].
pub fn read_npy(from: &mut impl Read) -> Result<Array, NpzError> {
    Header::read(from)?.array(from)
}

impl Header {
    /// Reads the elements, to row-major order.
    ///
    /// # Errors
    /// [`NpzErrorKind::ElementType`], [`NpzErrorKind::TooLarge`], [`NpzErrorKind::Short`] where `from` ends too early and
    /// [`NpzErrorKind::Surplus`] where it does not end.
    pub fn array(&self, from: &mut impl Read) -> Result<Array, NpzError> {
        let dtype = self.dtype.ok_or_else(|| NpzErrorKind::ElementType(self.descr.clone()))?;
        let ty = TensorType::of(dtype, &self.shape);
        if let Some(why) = ty.excess() {
            return Err(NpzErrorKind::TooLarge(why).into());
        }
        let in_order = !self.fortran_order || self.shape.len() < 2;
        // Bytes of truth values may be any in these files.
        if in_order && !self.big_endian && dtype != DType::Bool {
            let array = Array::read_le(dtype, &self.shape, from)?;
            return match from.read(&mut [0])? {
                0 => Ok(array),
                _ => Err(NpzErrorKind::Surplus.into()),
            };
        }
        let due = ty.bytes().unwrap_or(u64::MAX);
        // Grows as there is data: a header may promise more than the file has.
        let mut bytes = Vec::new();
        from.take(due).read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < due {
            return Err(NpzErrorKind::Short.into());
        }
        if from.read(&mut [0])? > 0 {
            return Err(NpzErrorKind::Surplus.into());
        }
        let bits = self.bits(dtype, &bytes);
        Array::from_bits(dtype, &self.shape, &bits)
            .map_err(|e| NpzErrorKind::TooLarge(e.to_string()).into())
    }

    /// The elements' bits in row-major order.
    fn bits(&self, dtype: DType, bytes: &[u8]) -> Vec<u64> {
        let width = dtype.bytes() as usize;
        let element = |stored: &[u8]| {
            let mut word = [0; 8];
            word[..width].copy_from_slice(stored);
            if self.big_endian {
                word[..width].reverse();
            }
            let bits = u64::from_le_bytes(word);
            if dtype == DType::Bool { u64::from(bits != 0) } else { bits }
        };
        let count = bytes.len() / width;
        if !self.fortran_order || self.shape.len() < 2 {
            return bytes.chunks_exact(width).map(element).collect();
        }
        let strides = self.shape.iter().scan(1, |step, &extent| {
            let stride = *step;
            *step *= extent;
            Some(stride)
        });
        let axes: Vec<(u64, u64)> = self.shape.iter().copied().zip(strides).collect();
        let place = |mut k: u64| {
            let mut at = 0;
            for &(extent, stride) in axes.iter().rev() {
                at += k % extent * stride;
                k /= extent;
            }
            at as usize
        };
        (0..count as u64).map(|k| element(&bytes[place(k) * width..][..width])).collect()
    }
}

/// Writes an array as a `.npy` file. Equal arrays give equal bytes.
///
/// # Errors
/// Those of `to`.
pub fn write_npy(to: &mut impl Write, array: &Array) -> io::Result<()> {
    let stored = stored(array);
    to.write_all(&header(&stored))?;
    to.write_all(stored.bytes())
}

/// The array as files hold it.
pub(super) fn stored(array: &Array) -> Cow<'_, Array> {
    match array.dtype() {
        DType::BF16 => Cow::Owned(array.convert(DType::F32)),
        _ => Cow::Borrowed(array),
    }
}

/// Magic bytes, version and dictionary; the elements begin at a multiple of 64 bytes.
pub(super) fn header(stored: &Array) -> Vec<u8> {
    const BEFORE: usize = MAGIC.len() + 4;
    let extents: Vec<String> = stored.dims().iter().map(u64::to_string).collect();
    let shape = match extents.as_slice() {
        [one] => format!("({one},)"),
        all => format!("({})", all.join(", ")),
    };
    let descr = descr(stored.dtype());
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let blanks = (BEFORE + text.len() + 1).next_multiple_of(64) - (BEFORE + text.len() + 1);
    text.extend(std::iter::repeat_n(' ', blanks));
    text.push('\n');
    // The rank of an array is bounded, so that its extents take far less than 65,536 bytes.
    let length = u16::try_from(text.len()).expect("a short header");
    [MAGIC, &[1, 0], &length.to_le_bytes(), text.as_bytes()].concat()
}

/// The name that NumPy has for an element type; `bf16` goes as `float32`.
pub fn numpy_name(dtype: DType) -> &'static str {
    names(dtype).0
}

/// How files write an element type.
fn descr(dtype: DType) -> &'static str {
    names(dtype).1
}

fn names(dtype: DType) -> (&'static str, &'static str) {
    match dtype {
        DType::F64 => ("float64", "<f8"),
        DType::F32 | DType::BF16 => ("float32", "<f4"),
        DType::F16 => ("float16", "<f2"),
        DType::I64 => ("int64", "<i8"),
        DType::I32 => ("int32", "<i4"),
        DType::U32 => ("uint32", "<u4"),
        DType::I8 => ("int8", "|i1"),
        DType::U8 => ("uint8", "|u1"),
        DType::Bool | DType::Token => ("bool", "|b1"),
    }
}

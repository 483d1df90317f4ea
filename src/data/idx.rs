//! The IDX format of the MNIST data: element type, extents, and big-endian elements.
//!
//! Elements of 16 bits become `i32`, since adfuse has no type for them.

use super::error::DataErrorKind;
use crate::backends::Array;
use crate::ir::{DType, Diagnostic, TensorType};
use std::io::Read;

/// Reads an array; `from` ends where it does.
///
/// # Errors
/// [`DataErrorKind::Header`], [`DataErrorKind::ElementType`], [`DataErrorKind::TooLarge`], [`DataErrorKind::Short`] and
/// [`DataErrorKind::Surplus`].
pub fn read_from(from: &mut impl Read) -> Result<Array, DataErrorKind> {
    let mut start = [0; 4];
    from.read_exact(&mut start)?;
    let [0, 0, code, rank] = start else {
        return Err(DataErrorKind::Header("it does not begin with two zeros".into()));
    };
    let (dtype, width) = match code {
        0x08 => (DType::U8, 1),
        0x09 => (DType::I8, 1),
        0x0b => (DType::I32, 2),
        0x0c => (DType::I32, 4),
        0x0d => (DType::F32, 4),
        0x0e => (DType::F64, 8),
        other => return Err(DataErrorKind::ElementType(format!("{other:#04x}"))),
    };
    let mut dims = Vec::new();
    for _ in 0..rank {
        let mut extent = [0; 4];
        from.read_exact(&mut extent)?;
        dims.push(u64::from(u32::from_be_bytes(extent)));
    }
    let ty = TensorType::of(dtype, &dims);
    if let Some(why) = ty.excess() {
        return Err(DataErrorKind::TooLarge(why));
    }
    let made = if width == 1 {
        Array::read_le(dtype, &dims, from)?
    } else {
        let due = ty.elements().and_then(|n| n.checked_mul(width));
        let due = due.ok_or_else(|| DataErrorKind::TooLarge(format!("{ty} is too large")))?;
        // Grows as there is data: extents may promise more than the file has.
        let mut bytes = Vec::new();
        from.take(due).read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < due {
            return Err(DataErrorKind::Short);
        }
        let made = match (dtype, width) {
            (DType::F64, _) => turned(&bytes, &dims, f64::from_be_bytes, Array::from_vec),
            (DType::F32, _) => turned(&bytes, &dims, f32::from_be_bytes, Array::from_vec),
            (_, 2) => {
                turned(&bytes, &dims, |b| i16::from_be_bytes(b).into(), Array::from_vec::<i32>)
            }
            _ => turned(&bytes, &dims, i32::from_be_bytes, Array::from_vec),
        };
        made.map_err(|d| DataErrorKind::TooLarge(d.message))?
    };
    match from.read(&mut [0])? {
        0 => Ok(made),
        _ => Err(DataErrorKind::Surplus),
    }
}

/// An array of big-endian elements.
fn turned<'d, const W: usize, E>(
    bytes: &[u8],
    dims: &'d [u64],
    of: impl Fn([u8; W]) -> E,
    made: impl FnOnce(Vec<E>, &'d [u64]) -> Result<Array, Diagnostic>,
) -> Result<Array, Diagnostic> {
    made(bytes.as_chunks::<W>().0.iter().map(|&element| of(element)).collect(), dims)
}

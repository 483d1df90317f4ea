//! Types of elements in Rust, and what elements of arrays may be: every NaN is canonical, truth values are 0 or 1.

use super::bytes::Bytes;
use super::truth;
use adfuse_ir::DType;

mod sealed {
    use super::Bytes;
    use bytemuck::{CheckedBitPattern, NoUninit};

    /// Types of plain numbers: all bit patterns are values, or [`Element::valid`](super::Element::valid) says which.
    pub trait Sealed: CheckedBitPattern + NoUninit {
        /// Takes the memory of a vector.
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn pack(values: Vec<Self>) -> Bytes;

        /// The memory as a vector, where it is one of words of this size; a copy of it otherwise.
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn unpack(bytes: Bytes) -> Vec<Self>;
    }
}

/// A type of elements in Rust.
pub trait Element: sealed::Sealed + Copy + PartialEq + Send + Sync + 'static {
    /// The element type of arrays of these.
    const DTYPE: DType;

    /// Whether all of these bytes are values of the type, or what is wrong.
    ///
    /// # Errors
    /// The first byte that is no value.
    fn valid(_: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

macro_rules! elements {
    ($($t:ty: $dtype:ident in $words:ident;)*) => {$(
        #[allow(private_interfaces)]
        impl sealed::Sealed for $t {
            fn pack(values: Vec<$t>) -> Bytes {
                Bytes::$words(bytemuck::cast_vec(values))
            }

            fn unpack(bytes: Bytes) -> Vec<$t> {
                match bytes {
                    Bytes::$words(words) => bytemuck::cast_vec(words),
                    other => bytemuck::pod_collect_to_vec(&other),
                }
            }
        }
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements! {
    f64: F64 in Words8;
    f32: F32 in Words4;
    half::bf16: BF16 in Words2;
    half::f16: F16 in Words2;
    i64: I64 in Words8;
    i32: I32 in Words4;
    u32: U32 in Words4;
    i8: I8 in Words1;
    u8: U8 in Words1;
}

#[allow(private_interfaces)]
impl sealed::Sealed for bool {
    fn pack(values: Vec<bool>) -> Bytes {
        Bytes::Words1(bytemuck::cast_vec(values))
    }

    fn unpack(bytes: Bytes) -> Vec<bool> {
        match bytes {
            // The standard library collects into the memory that it takes the bytes from.
            Bytes::Words1(bytes) => bytes.into_iter().map(|b| b != 0).collect(),
            other => other.iter().map(|&b| b != 0).collect(),
        }
    }
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn valid(bytes: &[u8]) -> Result<(), String> {
        truth::stray(bytes).map_or(Ok(()), |at| {
            let byte = bytes[at];
            Err(format!("byte {at} of a tensor of bool is {byte}: neither 0 nor 1"))
        })
    }
}

/// Makes all NaNs among these elements the canonical one, as [`Literal`](adfuse_ir::Literal) has them.
pub(crate) fn canonical_nans(dtype: DType, bytes: &mut [u8]) {
    match dtype {
        DType::F64 => {
            for element in bytes.as_chunks_mut::<8>().0 {
                let nan = u64::from_le_bytes(*element) << 1 > 0x7ff0_0000_0000_0000 << 1;
                *element = if nan { 0x7ff8_0000_0000_0000u64.to_le_bytes() } else { *element };
            }
        }
        DType::F32 => {
            for element in bytes.as_chunks_mut::<4>().0 {
                let nan = u32::from_le_bytes(*element) << 1 > 0x7f80_0000 << 1;
                *element = if nan { 0x7fc0_0000u32.to_le_bytes() } else { *element };
            }
        }
        DType::BF16 => canonical_halves(bytes, 0x7f80, 0x7fc0),
        DType::F16 => canonical_halves(bytes, 0x7c00, 0x7e00),
        _ => {}
    }
}

/// The same for elements of two bytes, with the bits of infinity and of the canonical NaN.
fn canonical_halves(bytes: &mut [u8], infinity: u16, nan: u16) {
    for element in bytes.as_chunks_mut::<2>().0 {
        let found = u16::from_le_bytes(*element) << 1 > infinity << 1;
        *element = if found { nan.to_le_bytes() } else { *element };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::Literal;

    #[test]
    fn nans_are_those_of_literals() {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64, DType::I32, DType::Bool] {
            let width = dtype.bytes() as usize;
            let top = 1u64 << (dtype.bytes() * 8 - 1);
            let infinity = match dtype.is_float() {
                true => Literal::from_f64(dtype, f64::INFINITY).bits(),
                false => 1,
            };
            let all = [0, top, infinity, infinity | top, infinity + 1, top - 1, 1, top | (top - 1)];
            let mut bytes: Vec<u8> =
                all.iter().flat_map(|v| v.to_le_bytes()[..width].to_vec()).collect();
            let due: Vec<u8> = match dtype.is_float() {
                true => all
                    .iter()
                    .map(|&v| Literal::from_bits(dtype, v).bits())
                    .flat_map(|v| v.to_le_bytes()[..width].to_vec())
                    .collect(),
                false => bytes.clone(),
            };
            canonical_nans(dtype, &mut bytes);
            assert_eq!(bytes, due, "{dtype}");
        }
    }
}

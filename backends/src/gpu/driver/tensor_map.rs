//! Tensor maps: what the copy engine of a device reads of an array's place, extents and tiles, in a form of the driver's.
#![allow(unsafe_code)]

use super::cuda::{Refused, answered};
use crate::gpu::launches::TensorMap;
use adfuse_ir::DType;
use cudarc::driver::sys::{self, CUdeviceptr, CUresult};
use std::ffi::c_void;

/// A map as entry points are given it.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
pub(crate) struct EncodedMap([u64; TensorMap::BYTES / 8]);

/// The driver's numbers for the types of elements.
const FLOAT16: u32 = 6;
const BFLOAT16: u32 = 9;
/// `f32` of which matrix units read the upper 19 bits.
const TFLOAT32: u32 = 11;

/// The pattern of banks that repeats every 1024 bytes, and the bytes that the cache brings at a time: 256.
const SWIZZLE_128: u32 = 3;
const PROMOTE_256: u32 = 3;

/// Whether this driver makes tensor maps: those from CUDA 12.0 on do.
pub(crate) fn has_maps() -> bool {
    encoder().is_some()
}

type Encode = unsafe extern "C" fn(
    *mut EncodedMap,
    u32,
    u32,
    *mut c_void,
    *const u64,
    *const u64,
    *const u32,
    *const u32,
    u32,
    u32,
    u32,
    u32,
) -> CUresult;

fn encoder() -> Option<Encode> {
    // SAFETY: the library is open (`there`), and the function has had this signature since there is one of this name.
    unsafe { sys::culib().get::<Encode>(b"cuTensorMapEncodeTiled").ok().map(|found| *found) }
}

/// The map of an array that is there.
pub(crate) fn encoded(map: &TensorMap, array: CUdeviceptr) -> Result<EncodedMap, Refused> {
    const CALL: &str = "cuTensorMapEncodeTiled";
    let TensorMap { offset, dtype, extents, strides, tile, .. } = map;
    let place = array + offset;
    let typed = match dtype {
        DType::F16 => FLOAT16,
        DType::BF16 => BFLOAT16,
        _ => TFLOAT32,
    };
    let axes = extents.len();
    if axes == 0 || strides.len() + 1 != axes || tile.len() != axes {
        return answered(CALL, CUresult::CUDA_ERROR_INVALID_VALUE)
            .map(|()| EncodedMap([0; TensorMap::BYTES / 8]));
    }
    let steps = vec![1u32; axes];
    let mut encoded = EncodedMap([0; TensorMap::BYTES / 8]);
    let encode = encoder().ok_or(Refused::missing(CALL))?;
    // SAFETY: every list has as many entries as there are axes, strides one less; the driver reads them and writes 128
    // bytes. It reads nothing of the array.
    let code = unsafe {
        encode(
            &raw mut encoded,
            typed,
            axes as u32,
            std::ptr::with_exposed_provenance_mut(place as usize),
            extents.as_ptr(),
            strides.as_ptr(),
            tile.as_ptr(),
            steps.as_ptr(),
            0,
            SWIZZLE_128,
            PROMOTE_256,
            0,
        )
    };
    answered(CALL, code).map(|()| encoded)
}

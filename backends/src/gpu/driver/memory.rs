//! Memory of the device: blocks taken and given back in the order of its work, pinned memory of the caller's
//! side, and arrays that stay there.
#![allow(unsafe_code)]

use super::cuda::{answered, copy};
use super::device::{Facts, GpuDevice};
use crate::runtime::array::{Array, out_of_memory};
use crate::runtime::bytes::Bytes;
use crate::runtime::element::canonical_nans;
use crate::runtime::resident::DeviceTensor;
use crate::runtime::truth;
use adfuse_ir::{At, DType, Diagnostic, Kind, TensorType};
use cudarc::driver::sys::{self, CUdeviceptr};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, PoisonError};

/// Bytes of the device's memory. What they hold at first is undefined.
pub(crate) struct DeviceBlock {
    device: Arc<GpuDevice>,
    at: CUdeviceptr,
    bytes: u64,
}

impl DeviceBlock {
    /// This many bytes, of `planned` that a run takes in all. They are there for work that is asked for later.
    ///
    /// # Errors
    /// [`Kind::Limit`] with what was planned and what is free, where the device has not as much.
    pub(crate) fn new(
        device: &Arc<GpuDevice>,
        bytes: u64,
        planned: u64,
    ) -> Result<DeviceBlock, Diagnostic> {
        device.enter()?;
        let mut at = 0;
        let size = usize::try_from(bytes).map_err(|_| out_of_memory(bytes))?;
        if size > 0 {
            let take = |at: &mut CUdeviceptr| {
                // SAFETY: the driver writes where the memory begins; the stream lives.
                let code = unsafe { sys::cuMemAllocAsync(at, size, device.stream()) };
                answered("cuMemAllocAsync", code)
            };
            let taken = take(&mut at).or_else(|refused| {
                if !refused.is_memory() {
                    return Err(refused);
                }
                // What is kept at hand may lie in pieces that are too small.
                device.trim();
                take(&mut at)
            });
            taken.map_err(|refused| match refused.is_memory() {
                true => too_much(device, bytes, planned),
                false => refused.into(),
            })?;
        }
        Ok(DeviceBlock { device: Arc::clone(device), at, bytes })
    }

    /// Where it begins.
    pub(crate) fn at(&self) -> CUdeviceptr {
        self.at
    }

    /// How many bytes it has.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills it from its beginning.
    pub(crate) fn upload(&self, from: &[u8]) -> Result<(), Diagnostic> {
        self.upload_at(0, from)
    }

    /// Fills it from there on.
    pub(crate) fn upload_at(&self, at: u64, from: &[u8]) -> Result<(), Diagnostic> {
        let end = at.checked_add(from.len() as u64);
        assert!(end.is_some_and(|end| end <= self.bytes), "more than there is room for");
        self.device.enter()?;
        let mut staging = self.device.staging.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(staging.upload(from, self.at + at, self.device.stream())?)
    }

    /// Reads it from its beginning, after all work that was asked for.
    pub(crate) fn download(&self, to: &mut [u8]) -> Result<(), Diagnostic> {
        assert!(to.len() as u64 <= self.bytes, "more than there is");
        self.device.enter()?;
        let mut staging = self.device.staging.lock().unwrap_or_else(PoisonError::into_inner);
        staging.download(self.at, to, self.device.stream())?;
        self.device.check_link()
    }
}

/// The device has not so much memory.
fn too_much(device: &GpuDevice, bytes: u64, planned: u64) -> Diagnostic {
    let free = match device.free() {
        Ok(free) => format!("{free} are free"),
        Err(_) => "it does not say how many are free".into(),
    };
    let Facts { number, name, .. } = device.facts();
    let m = format!(
        "out of memory on gpu:{number} ({name}): {bytes} bytes of {planned} planned, {free}"
    );
    Diagnostic::new(At::default(), Kind::Limit, m)
}

impl Drop for DeviceBlock {
    fn drop(&mut self) {
        if self.at != 0 && self.device.enter().is_ok() {
            // SAFETY: it was taken once, and work that was asked for before is done when it goes.
            unsafe { sys::cuMemFreeAsync(self.at, self.device.stream()) };
        }
    }
}

/// Bytes of the host's memory that the device reaches itself.
pub(crate) struct Pinned {
    device: Arc<GpuDevice>,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: it is bytes that it owns, and where they begin never changes.
unsafe impl Send for Pinned {}

impl Pinned {
    /// This many bytes.
    pub(crate) fn new(device: &Arc<GpuDevice>, bytes: u64) -> Result<Pinned, Diagnostic> {
        device.enter()?;
        let mut start = std::ptr::null_mut();
        let bytes = usize::try_from(bytes).map_err(|_| out_of_memory(bytes))?;
        if bytes > 0 {
            // SAFETY: the driver writes where the memory begins.
            let code = unsafe { sys::cuMemAllocHost_v2(&raw mut start, bytes) };
            answered("cuMemAllocHost", code)?;
        }
        Ok(Pinned { device: Arc::clone(device), start: start.cast(), bytes })
    }

    /// Where it begins.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// Its bytes from `at` on, while no work is under way.
    pub(crate) fn part(&mut self, at: usize, bytes: usize) -> &mut [u8] {
        assert!(at.checked_add(bytes).is_some_and(|end| end <= self.bytes), "outside");
        match bytes {
            0 => &mut [],
            // SAFETY: the bytes are there, and this is borrowed alone.
            _ => unsafe { std::slice::from_raw_parts_mut(self.start.add(at), bytes) },
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if !self.start.is_null() && self.device.finish().is_ok() {
            // SAFETY: it was taken once, and the device is done with it.
            unsafe { sys::cuMemFreeHost(self.start.cast()) };
        }
    }
}

/// A dense tensor in a device's memory, row-major: what stays there between runs. Results that are the same
/// value share their memory.
pub struct DeviceArray {
    dtype: DType,
    dims: Vec<u64>,
    pub(crate) block: Arc<DeviceBlock>,
}

impl DeviceArray {
    /// A copy of an array.
    ///
    /// # Errors
    /// [`Kind::Limit`] when the device has not enough memory; the array is as it was.
    pub fn upload(device: &Arc<GpuDevice>, array: &Array) -> Result<DeviceArray, Diagnostic> {
        let bytes = array.bytes().len() as u64;
        let made = DeviceArray::undefined(device, array.dtype(), array.dims(), bytes)?;
        made.block.upload(array.bytes())?;
        Ok(made)
    }

    /// Room for an array's elements; `planned` is what the run takes that they are for.
    pub(crate) fn undefined(
        device: &Arc<GpuDevice>,
        dtype: DType,
        dims: &[u64],
        planned: u64,
    ) -> Result<DeviceArray, Diagnostic> {
        let size = TensorType::of(dtype, dims).elements();
        let size = size.and_then(|n| n.checked_mul(dtype.bytes()));
        let size = size.ok_or_else(|| out_of_memory(u64::MAX))?;
        let block = Arc::new(DeviceBlock::new(device, size, planned)?);
        Ok(DeviceArray { dtype, dims: dims.to_vec(), block })
    }

    /// The same elements in the same memory, under the extents of another result.
    pub(crate) fn shared(&self, dims: &[u64]) -> DeviceArray {
        DeviceArray { dtype: self.dtype, dims: dims.to_vec(), block: Arc::clone(&self.block) }
    }

    /// Whether another array has its memory too.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.block) > 1
    }

    /// The array in memory that no other has: its own, or a copy.
    pub(crate) fn alone(self, planned: u64) -> Result<DeviceArray, Diagnostic> {
        if !self.is_shared() {
            return Ok(self);
        }
        let made = DeviceArray::undefined(self.device(), self.dtype, &self.dims, planned)?;
        let (from, to) = (self.block.at(), made.block.at());
        copy(from, to, self.block.bytes(), self.device().stream())?;
        Ok(made)
    }

    /// A copy in the caller's memory, once all work is done that makes it.
    ///
    /// # Errors
    /// What went wrong in that work; [`Kind::Limit`] when there is no memory for it.
    pub fn download(&self) -> Result<Array, Diagnostic> {
        let mut bytes = Bytes::zeroed(self.dtype.bytes() as usize, self.block.bytes())?;
        self.block.download(&mut bytes)?;
        canonical(self.dtype, &mut bytes);
        Ok(Array::from_bytes(self.dtype, &self.dims, bytes))
    }

    /// Element type and extents.
    pub fn ty(&self) -> TensorType {
        TensorType::of(self.dtype, &self.dims)
    }

    /// The same bytes as an array of another type, which has as many.
    pub(crate) fn typed(self, ty: &TensorType, dims: &[u64]) -> DeviceArray {
        DeviceArray { dtype: ty.dtype, dims: dims.to_vec(), block: self.block }
    }

    /// The device in whose memory it is.
    pub fn device(&self) -> &Arc<GpuDevice> {
        &self.block.device
    }
}

impl DeviceTensor for DeviceArray {
    fn ty(&self) -> TensorType {
        self.ty()
    }

    fn share(&self) -> Box<dyn DeviceTensor> {
        Box::new(self.shared(&self.dims))
    }

    fn download(&self) -> Result<Array, Diagnostic> {
        self.download()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Has elements be what arrays hold: all NaNs the same, which on a device are whatever the chip makes, and truth
/// values 0 or 1, which an array that was written over need not have.
pub(crate) fn canonical(dtype: DType, bytes: &mut [u8]) {
    match dtype {
        DType::Bool => truth::canonical(bytes),
        _ => canonical_nans(dtype, bytes),
    }
}

impl fmt::Debug for DeviceArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on gpu:{}", self.ty(), self.block.device.facts().number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::Literal;

    #[test]
    fn elements_are_what_arrays_have() {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64, DType::I32, DType::Bool] {
            let width = dtype.bytes() as usize;
            let top = 1u64 << (dtype.bits() - 1);
            let infinity = match dtype {
                DType::I32 | DType::Bool => 5,
                _ => Literal::from_f64(dtype, f64::INFINITY).bits(),
            };
            let values =
                [0, top, infinity, infinity | top, infinity + 1, top - 1, 1, top | (top - 1)];
            let bytes = |v: u64| v.to_le_bytes()[..width].to_vec();
            let mut found: Vec<u8> = values.into_iter().flat_map(bytes).collect();
            canonical(dtype, &mut found);
            // As arrays make them of any bits.
            let due = Array::from_bits(dtype, &[8], &values).expect("eight");
            assert_eq!(found, due.bytes(), "{dtype}");
        }
    }
}

//! A copy on the device, as the measure of what it moves.

use super::cuda::copy;
use super::device::GpuDevice;
use super::event::Event;
use super::memory::DeviceBlock;
use adfuse_ir::Diagnostic;
use std::sync::Arc;

/// Bytes that are copied again and again.
pub struct Copy {
    device: Arc<GpuDevice>,
    from: DeviceBlock,
    to: DeviceBlock,
}

/// Bytes of a copy at least and at most, what is read and what is written together.
const RANGE: [u64; 2] = [4 << 10, 1 << 30];

impl Copy {
    /// A copy that reads and writes this many bytes together.
    ///
    /// # Errors
    /// [`Kind::Limit`](adfuse_ir::Kind::Limit) when the device has not as much memory.
    pub fn new(device: &Arc<GpuDevice>, working_set: u64) -> Result<Copy, Diagnostic> {
        let bytes = working_set.clamp(RANGE[0], RANGE[1]) / 2;
        let block = || DeviceBlock::new(device, bytes, 2 * bytes);
        Ok(Copy { device: Arc::clone(device), from: block()?, to: block()? })
    }

    /// Bytes read and written.
    pub fn bytes(&self) -> u64 {
        2 * self.from.bytes()
    }

    /// Copies so often, and gives the device's seconds of one.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn timed(&self, times: u32) -> Result<f64, Diagnostic> {
        self.device.enter()?;
        let stream = self.device.stream();
        let (begin, end) = (Event::new(&self.device)?, Event::new(&self.device)?);
        begin.mark(stream)?;
        for _ in 0..times {
            copy(self.from.at(), self.to.at(), self.from.bytes(), stream)?;
        }
        end.mark(stream)?;
        end.wait()?;
        Ok(end.since(&begin)? / f64::from(times.max(1)))
    }
}

impl std::fmt::Debug for Copy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copy").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

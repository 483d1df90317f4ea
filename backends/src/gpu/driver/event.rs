//! Moments of the device's work, and the time between them.
#![allow(unsafe_code)]

use super::cuda::{Refused, answered, elapsed};
use super::device::GpuDevice;
use cudarc::driver::sys::{self, CUevent, CUevent_flags, CUevent_record_flags, CUstream};
use std::sync::Arc;

/// A moment of the device's work.
pub(crate) struct Event {
    device: Arc<GpuDevice>,
    raw: CUevent,
}

// SAFETY: an event is a handle that the driver takes from any thread. Those that several runs record are recorded by one run at
// a time: its executable's memory is locked.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub(crate) fn new(device: &Arc<GpuDevice>) -> Result<Event, Refused> {
        device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the driver writes a handle.
        let code =
            unsafe { sys::cuEventCreate(&raw mut raw, CUevent_flags::CU_EVENT_DEFAULT as u32) };
        answered("cuEventCreate", code)?;
        Ok(Event { device: Arc::clone(device), raw })
    }

    /// Takes the moment down at which a stream has done what it was asked for so far.
    pub(crate) fn mark(&self, stream: CUstream) -> Result<(), Refused> {
        // SAFETY: event and stream are the device's, and live.
        answered("cuEventRecord", unsafe { sys::cuEventRecord(self.raw, stream) })
    }

    /// The same, each time that a graph runs which is being drawn.
    pub(crate) fn mark_in_graph(&self, stream: CUstream) -> Result<(), Refused> {
        let outside = CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: as above.
        let code = unsafe { sys::cuEventRecordWithFlags(self.raw, stream, outside) };
        answered("cuEventRecordWithFlags", code)
    }

    /// Has what a stream is asked for from now on begin after the moment that was taken down last.
    pub(crate) fn hold(&self, stream: CUstream) -> Result<(), Refused> {
        // SAFETY: event and stream are the device's, and live.
        answered("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(stream, self.raw, 0) })
    }

    /// Waits for it.
    pub(crate) fn wait(&self) -> Result<(), Refused> {
        // SAFETY: the event lives.
        answered("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw) })
    }

    /// Seconds from another to this, once both have been.
    pub(crate) fn since(&self, other: &Event) -> Result<f64, Refused> {
        Ok(f64::from(elapsed(other.raw, self.raw)?) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: it was made once; the driver waits for work that it is part of.
            unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}

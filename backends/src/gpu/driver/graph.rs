//! A run as graphs: drawn once for the places of its inputs and outputs, launched as often as one likes.
#![allow(unsafe_code)]

use super::cuda::{Refused, answered, elapsed, update};
use super::device::GpuDevice;
use super::tensor_map::{EncodedMap, encoded};
use super::work::{DeviceLaunch, Pointer, Work, internal};
use adfuse_ir::Diagnostic;
use cudarc::driver::sys::{
    self, CUdeviceptr, CUevent, CUevent_flags, CUevent_record_flags, CUgraphExec, CUstream,
    CUstreamCaptureMode,
};
use std::sync::Arc;

/// What was drawn.
pub(crate) struct Graph {
    device: Arc<GpuDevice>,
    raw: CUgraphExec,
    /// How often it was changed for other places.
    pub(crate) changed: u32,
}

// SAFETY: a graph is a handle that the driver takes from any thread.
unsafe impl Send for Graph {}

/// A moment of the device's work.
pub(crate) struct Event {
    device: Arc<GpuDevice>,
    raw: CUevent,
}

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

/// Asks for work in a stream.
pub(crate) type Draw<'a> = dyn FnMut(CUstream) -> Result<(), Diagnostic> + 'a;

impl Graph {
    /// Draws what is asked for in a stream. A graph that was drawn for other places, and is not needed for them, is
    /// changed where the driver can: that is less work than a new one.
    pub(crate) fn drawn(
        device: &Arc<GpuDevice>,
        other: Option<Graph>,
        draw: &mut Draw<'_>,
    ) -> Result<Graph, Diagnostic> {
        device.enter()?;
        let drawing = device.drawing();
        let stream = drawing.0;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is this call's alone while it is locked.
        let begun = unsafe { sys::cuStreamBeginCapture_v2(stream, mode) };
        answered("cuStreamBeginCapture", begun)?;
        let drawn = draw(stream);
        let mut graph = std::ptr::null_mut();
        // SAFETY: a capture is under way; it is ended whatever became of it.
        let ended = unsafe { sys::cuStreamEndCapture(stream, &raw mut graph) };
        drawn?;
        answered("cuStreamEndCapture", ended)?;
        if let Some(mut other) = other
            && update(other.raw, graph)
        {
            // SAFETY: the graph was just made, and what it says has been taken over.
            unsafe { sys::cuGraphDestroy(graph) };
            other.changed += 1;
            return Ok(other);
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: the graph was just made, and is not needed once there is one to launch.
        let made = unsafe {
            let made = sys::cuGraphInstantiateWithFlags(&raw mut raw, graph, 0);
            sys::cuGraphDestroy(graph);
            made
        };
        answered("cuGraphInstantiate", made)?;
        Ok(Graph { device: Arc::clone(device), raw, changed: 0 })
    }

    /// Launches it, after what was asked for before.
    pub(crate) fn launch(&self) -> Result<(), Refused> {
        // SAFETY: the graph and the stream live, and so do all places it was drawn for: its owner has
        // them.
        answered("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.raw, self.device.stream) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: it was made once; the driver keeps what is under way to its end.
            unsafe { sys::cuGraphExecDestroy(self.raw) };
        }
    }
}

/// Where everything of a program is, for one run or one turn.
#[derive(Clone, Default)]
pub(crate) struct DeviceFrame {
    /// Its buffers.
    pub(crate) all: Vec<CUdeviceptr>,
    /// The caller's arrays.
    pub(crate) inputs: Vec<CUdeviceptr>,
    pub(crate) outputs: Vec<CUdeviceptr>,
    /// The executable's block.
    pub(crate) block: CUdeviceptr,
    /// For a program in a step: the buffers around it, where its outputs go, and the loop's position.
    pub(crate) outer: Vec<CUdeviceptr>,
    pub(crate) results: Vec<CUdeviceptr>,
    pub(crate) position: CUdeviceptr,
}

impl DeviceFrame {
    pub(crate) fn of(&self, pointer: Pointer) -> CUdeviceptr {
        match pointer {
            Pointer::Buffer(b) => self.all[b],
            Pointer::Input(k) => self.inputs[k],
            Pointer::Output(k) => self.outputs[k],
            Pointer::DeviceBlock(offset) => self.block + offset,
            Pointer::Outer(b) => self.outer[b],
            Pointer::Result(k) => self.results[k],
            Pointer::Position => self.position,
        }
    }
}

/// Asks for a step in a stream that is launches, calls and copies alone.
pub(crate) fn ask(
    device: &GpuDevice,
    work: &Work,
    at: &DeviceFrame,
    stream: CUstream,
) -> Result<(), Diagnostic> {
    match work {
        Work::Launches(launches) => launches.iter().try_for_each(|l| launch(l, at, stream))?,
        Work::Product(tuned, buffers, scratch) => {
            // It was there when the product was tuned.
            if let Some(handle) = device.multiplies()? {
                let matrices = buffers.map(|b| at.all[b]);
                tuned.launch(handle, matrices, at.block + scratch, stream)?;
            }
        }
        Work::Copy { from, to, bytes } => copy(at.all[*from], at.all[*to], *bytes, stream)?,
        // Those are driven by the host, between graphs.
        Work::Loop(_) | Work::Branch(_) | Work::Print(_) | Work::Exchange(_) => {
            return Err(internal("a step that the host drives is drawn in a graph"));
        }
    }
    Ok(())
}

/// Asks for a launch.
pub(crate) fn launch(l: &DeviceLaunch, at: &DeviceFrame, stream: CUstream) -> Result<(), Refused> {
    if l.grid.contains(&0) || l.block == 0 {
        return Ok(());
    }
    let values: Vec<CUdeviceptr> = l.args.iter().map(|&a| at.of(a)).collect();
    let maps =
        l.maps.iter().map(|m| encoded(&m.map, at.of(m.pointer))).collect::<Result<Vec<_>, _>>()?;
    launch_given(l, values, maps, stream)
}

/// Asks for a launch that is given these pointers and numbers.
pub(crate) fn launch_with(
    l: &DeviceLaunch,
    values: Vec<CUdeviceptr>,
    stream: CUstream,
) -> Result<(), Refused> {
    launch_given(l, values, Vec::new(), stream)
}

fn launch_given(
    l: &DeviceLaunch,
    mut values: Vec<CUdeviceptr>,
    mut maps: Vec<EncodedMap>,
    stream: CUstream,
) -> Result<(), Refused> {
    let values = values.iter_mut().map(|v| (&raw mut *v).cast());
    let maps = maps.iter_mut().map(|map| (&raw mut *map).cast());
    let mut args: Vec<*mut std::ffi::c_void> = values.chain(maps).collect();
    let [x, y, z] = l.grid;
    // SAFETY: the module is loaded as long as the executable lives. Every argument is a pointer to
    // a buffer with the bytes that the program says, which its verifier has proven every access to stay
    // inside of, a tensor map of such a buffer, or a number that the entry point takes; the driver copies arguments before the call returns.
    let code = unsafe {
        let (args, none) = (args.as_mut_ptr(), std::ptr::null_mut());
        sys::cuLaunchKernel(l.entry.raw, x, y, z, l.block, 1, 1, l.shared, stream, args, none)
    };
    answered("cuLaunchKernel", code)
}

/// Asks for a copy, between whichever memories the places are in.
pub(crate) fn copy(
    from: CUdeviceptr,
    to: CUdeviceptr,
    bytes: u64,
    stream: CUstream,
) -> Result<(), Refused> {
    if bytes == 0 || from == to {
        return Ok(());
    }
    // SAFETY: both places have this many bytes, which lie apart, of the device or pinned.
    let code = unsafe { sys::cuMemcpyAsync(to, from, bytes as usize, stream) };
    answered("cuMemcpyAsync", code)
}

//! A run as CUDA graphs: captured once for the addresses of its inputs and outputs, launched any number of times.
#![allow(unsafe_code)]

use super::call_sink::{CallSink, CapturedCall, GraphChange};
use super::cuda::{Refused, answered, update};
use super::device::GpuDevice;
use adfuse_ir::Diagnostic;
use cudarc::driver::sys::{self, CUgraph, CUgraphExec, CUresult, CUstreamCaptureMode};
use std::sync::Arc;

/// What was drawn.
pub(crate) struct Graph {
    device: Arc<GpuDevice>,
    raw: CUgraphExec,
    /// What it was instantiated from, whose nodes name its own.
    source: CUgraph,
    /// The calls that were captured, with their current places.
    calls: Vec<CapturedCall>,
    /// How often it was changed for other places.
    pub(crate) changed: u32,
    /// How often all was captured again for that, since the places of some call cannot be set.
    pub(crate) redrawn: u32,
}

// SAFETY: a graph is a handle that the driver takes from any thread.
unsafe impl Send for Graph {}

/// Asks for work.
pub(crate) type Draw<'a> = dyn FnMut(&mut CallSink<'_>) -> Result<(), Diagnostic> + 'a;

impl Graph {
    /// Draws what is asked for. A graph of the same work that was drawn for other places, and is not needed for them, is
    /// changed where the driver can: places are set in the nodes that have them, or all is captured again and compared by
    /// the driver.
    pub(crate) fn drawn(
        device: &Arc<GpuDevice>,
        other: Option<Graph>,
        draw: &mut Draw<'_>,
    ) -> Result<Graph, Diagnostic> {
        device.enter()?;
        let other = match other {
            None => None,
            Some(mut other) => match other.change(draw)? {
                true => return Ok(other),
                false => Some(other),
            },
        };
        let (graph, calls) = captured(device, draw)?;
        if let Some(mut other) = other
            && update(other.raw, graph)
        {
            // SAFETY: the graph was just made, and what it says has been taken over.
            unsafe { sys::cuGraphDestroy(graph) };
            other.calls.iter_mut().zip(calls).for_each(|(call, again)| call.moved(again));
            (other.changed, other.redrawn) = (other.changed + 1, other.redrawn + 1);
            return Ok(other);
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: the graph was just made.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut raw, graph, 0) };
        if let Err(refused) = answered("cuGraphInstantiate", made) {
            // SAFETY: nothing was made of it.
            unsafe { sys::cuGraphDestroy(graph) };
            return Err(refused.into());
        }
        let device = Arc::clone(device);
        Ok(Graph { device, raw, source: graph, calls, changed: 0, redrawn: 0 })
    }

    /// Sets the places of what is asked for in the nodes that have others; whether that could be done. What cannot be set
    /// leaves the graph for neither places, until it is drawn again.
    fn change(&mut self, draw: &mut Draw<'_>) -> Result<bool, Diagnostic> {
        let mut change = CallSink::Change(GraphChange::new(self.raw, &mut self.calls));
        draw(&mut change)?;
        let CallSink::Change(change) = change else { return Ok(false) };
        let is_done = change.is_done();
        self.changed += u32::from(is_done);
        Ok(is_done)
    }

    /// Launches it, after what was asked for before.
    pub(crate) fn launch(&self) -> Result<(), Refused> {
        // SAFETY: the graph and the stream live, and so do all places it was drawn for: its owner has
        // them.
        answered("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.raw, self.device.stream()) })
    }
}

/// How often work is captured anew that was invalidated: a kernel of a library that is loaded for the first time may do that to
/// what is captured on any thread, and has been loaded the next time.
const CAPTURES: u32 = 4;

/// What is asked for, captured.
fn captured(
    device: &GpuDevice,
    draw: &mut Draw<'_>,
) -> Result<(CUgraph, Vec<CapturedCall>), Diagnostic> {
    let mut attempts = 1;
    loop {
        let (answer, is_invalidated) = captured_once(device, draw);
        if !is_invalidated || attempts == CAPTURES {
            return answer;
        }
        attempts += 1;
    }
}

/// As [`captured`], once; and whether what was captured was invalidated.
fn captured_once(
    device: &GpuDevice,
    draw: &mut Draw<'_>,
) -> (Result<(CUgraph, Vec<CapturedCall>), Diagnostic>, bool) {
    let drawing = match device.drawing() {
        Ok(drawing) => drawing,
        Err(refused) => return (Err(refused.into()), false),
    };
    let stream = drawing.0;
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the stream is this call's alone while it is locked.
    let begun = unsafe { sys::cuStreamBeginCapture_v2(stream, mode) };
    if let Err(refused) = answered("cuStreamBeginCapture", begun) {
        return (Err(refused.into()), false);
    }
    let mut sink = CallSink::Capture(stream, Vec::new());
    let drawn = draw(&mut sink);
    let mut graph = std::ptr::null_mut();
    // SAFETY: a capture is under way; it is ended whatever became of it.
    let ended = unsafe { sys::cuStreamEndCapture(stream, &raw mut graph) };
    let is_invalidated = ended == CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    let answer = drawn.and_then(|()| Ok(answered("cuStreamEndCapture", ended)?));
    if let Err(refused) = answer {
        if !graph.is_null() {
            // SAFETY: the capture made it, and nothing has it.
            unsafe { sys::cuGraphDestroy(graph) };
        }
        return (Err(refused), is_invalidated);
    }
    let calls = match sink {
        CallSink::Capture(_, calls) => calls,
        CallSink::Stream(_) | CallSink::Change(_) => Vec::new(),
    };
    (Ok((graph, calls)), false)
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: both were made once; the driver keeps what is under way to its end.
            unsafe {
                sys::cuGraphExecDestroy(self.raw);
                sys::cuGraphDestroy(self.source);
            }
        }
    }
}

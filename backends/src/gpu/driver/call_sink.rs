//! What is asked of the device: in a stream at once, captured as a graph, or as changes of a graph that was captured for
//! other places.
//!
//! The same calls are made in the same order in all three cases. A graph remembers the places of each call, so that
//! memory that moved is a matter of the nodes that have it: a step of training, whose batch is elsewhere each time, sets
//! the arguments of a few kernels in place of capturing hundreds again.
#![allow(unsafe_code)]

use super::cublaslt::Tuned;
use super::cuda::{Refused, answered, captured_node, copy, set_copy_node, set_kernel_node};
use super::device::GpuDevice;
use super::device_frame::DeviceFrame;
use super::event::Event;
use super::tensor_map::{EncodedMap, encoded};
use super::work::{DeviceLaunch, Work, internal};
use adfuse_ir::Diagnostic;
use cudarc::driver::sys::{self, CUdeviceptr, CUgraphExec, CUgraphNode, CUstream};
use smallvec::SmallVec;

type CallPlaces = SmallVec<[CUdeviceptr; 8]>;

/// A call that was captured, with the places that it was for.
pub(crate) struct CapturedCall {
    /// Its node, where it is one that can be changed.
    node: Option<CUgraphNode>,
    places: CallPlaces,
}

// SAFETY: a node is a handle that the driver takes from any thread.
unsafe impl Send for CapturedCall {}

impl CapturedCall {
    /// Takes over the places of the same call, captured again.
    pub(crate) fn moved(&mut self, again: CapturedCall) {
        self.places = again.places;
    }
}

/// Where calls go.
pub(crate) enum CallSink<'g> {
    /// To a stream, at once.
    Stream(CUstream),
    /// To a stream that is being captured.
    Capture(CUstream, Vec<CapturedCall>),
    /// To a graph of the same calls, for other places.
    Change(GraphChange<'g>),
}

/// A graph while it is changed.
pub(crate) struct GraphChange<'g> {
    graph: CUgraphExec,
    calls: &'g mut [CapturedCall],
    next: usize,
    /// Whether all calls so far were the same, or could be changed.
    fits: bool,
}

impl<'g> GraphChange<'g> {
    pub(crate) fn new(graph: CUgraphExec, calls: &'g mut [CapturedCall]) -> GraphChange<'g> {
        GraphChange { graph, calls, next: 0, fits: true }
    }

    /// Whether the graph is now for the new places, in all its calls.
    pub(crate) fn is_done(&self) -> bool {
        self.fits && self.next == self.calls.len()
    }

    /// Goes on to the next call; `set` changes its node.
    fn call(&mut self, places: CallPlaces, set: impl FnOnce(CUgraphExec, CUgraphNode) -> bool) {
        let graph = self.graph;
        self.fits &= match self.calls.get_mut(self.next) {
            Some(call) if call.places == places => true,
            Some(call) => {
                call.places = places;
                call.node.is_some_and(|node| set(graph, node))
            }
            None => false,
        };
        self.next += 1;
    }
}

impl CallSink<'_> {
    /// Launches a kernel.
    pub(crate) fn launch(&mut self, l: &DeviceLaunch, at: &DeviceFrame) -> Result<(), Refused> {
        if l.grid.contains(&0) || l.block.contains(&0) {
            return Ok(());
        }
        let values = l.args.iter().map(|&a| at.of(a));
        let places: CallPlaces = values.chain(l.maps.iter().map(|m| at.of(m.pointer))).collect();
        match self {
            CallSink::Stream(stream) => LaunchArguments::of(l, &places)?.launch(l, *stream),
            CallSink::Capture(stream, calls) => {
                LaunchArguments::of(l, &places)?.launch(l, *stream)?;
                calls.push(CapturedCall { node: captured_node(*stream), places });
                Ok(())
            }
            CallSink::Change(change) => {
                let given = places.clone();
                change.call(places, |graph, node| {
                    LaunchArguments::of(l, &given).is_ok_and(|mut a| a.set(l, (graph, node)))
                });
                Ok(())
            }
        }
    }

    /// Has a library multiply the matrices in these buffers. Its kernels are known to it alone, so that they are captured
    /// again where one of the buffers moved.
    fn multiply(
        &mut self,
        tuned: &Tuned,
        (matrices, scratch): ([CUdeviceptr; 3], CUdeviceptr),
        device: &GpuDevice,
    ) -> Result<(), Diagnostic> {
        let places: CallPlaces = matrices.into_iter().chain([scratch]).collect();
        let stream = match self {
            CallSink::Stream(stream) | CallSink::Capture(stream, _) => *stream,
            CallSink::Change(change) => {
                change.call(places, |_, _| false);
                return Ok(());
            }
        };
        // It was there when the product was tuned.
        if let Some(handle) = device.multiplies()? {
            tuned.launch(handle, matrices, scratch, stream)?;
        }
        if let CallSink::Capture(_, calls) = self {
            calls.push(CapturedCall { node: None, places });
        }
        Ok(())
    }

    /// Copies between whichever memories the places are in.
    pub(crate) fn copy(
        &mut self,
        from: CUdeviceptr,
        to: CUdeviceptr,
        bytes: u64,
    ) -> Result<(), Refused> {
        let places = CallPlaces::from_slice(&[from, to]);
        match self {
            CallSink::Stream(stream) => copy(from, to, bytes, *stream),
            CallSink::Capture(stream, calls) => {
                copy(from, to, bytes, *stream)?;
                let is_made = bytes > 0 && from != to;
                let node = if is_made { captured_node(*stream) } else { None };
                calls.push(CapturedCall { node, places });
                Ok(())
            }
            CallSink::Change(change) => {
                let is_made = bytes > 0 && from != to;
                change.call(places, |graph, node| {
                    is_made && set_copy_node((graph, node), (from, to))
                });
                Ok(())
            }
        }
    }

    /// Records an event once all work before it is done.
    pub(crate) fn mark(&mut self, event: &Event) -> Result<(), Refused> {
        match self {
            CallSink::Stream(stream) => event.mark(*stream),
            CallSink::Capture(stream, _) => event.mark_in_graph(*stream),
            // A traced run has events of its own.
            CallSink::Change(change) => {
                change.fits = false;
                Ok(())
            }
        }
    }

    /// Asks for a step that is launches, calls and copies alone.
    pub(crate) fn step(
        &mut self,
        device: &GpuDevice,
        work: &Work,
        at: &DeviceFrame,
    ) -> Result<(), Diagnostic> {
        match work {
            Work::Launches(launches) => launches.iter().try_for_each(|l| self.launch(l, at))?,
            Work::Product(tuned, buffers, scratch) => {
                let matrices = buffers.map(|b| at.all[b]);
                self.multiply(tuned, (matrices, at.block + scratch), device)?;
            }
            Work::Copy { from, to, bytes } => self.copy(at.all[*from], at.all[*to], *bytes)?,
            // Those are driven by the host, between graphs.
            Work::Loop(_) | Work::Branch(_) | Work::Print(_) | Work::Exchange(_) => {
                return Err(internal("a step that the host drives is drawn in a graph"));
            }
        }
        Ok(())
    }
}

/// What an entry point is given.
struct LaunchArguments {
    values: CallPlaces,
    maps: Vec<EncodedMap>,
}

impl LaunchArguments {
    /// Of a launch whose pointers, and then its tensor maps, are at these places.
    fn of(l: &DeviceLaunch, places: &[CUdeviceptr]) -> Result<LaunchArguments, Refused> {
        let (values, mapped) = places.split_at(l.args.len());
        let maps = l.maps.iter().zip(mapped).map(|(m, &at)| encoded(&m.map, at));
        let maps = maps.collect::<Result<Vec<_>, _>>()?;
        Ok(LaunchArguments { values: CallPlaces::from_slice(values), maps })
    }

    /// Pointers to all of them, valid as long as this is borrowed.
    fn pointers(&mut self) -> Vec<*mut std::ffi::c_void> {
        let values = self.values.iter_mut().map(|v| (&raw mut *v).cast());
        values.chain(self.maps.iter_mut().map(|map| (&raw mut *map).cast())).collect()
    }

    fn launch(&mut self, l: &DeviceLaunch, stream: CUstream) -> Result<(), Refused> {
        let mut pointers = self.pointers();
        let ([x, y, z], [a, b, c]) = (l.grid, l.block);
        // SAFETY: the module is loaded as long as the executable lives. Every argument is a pointer to
        // a buffer with the bytes that the program says, which its verifier has proven every access to stay
        // inside of, a tensor map of such a buffer, or a number that the entry point takes, of whose eight bytes the
        // driver reads the low ones; it copies arguments before the call returns. What a user's kernel does with its
        // pointers is the user's to answer for: it reaches memory of the device alone.
        let code = unsafe {
            let (args, none) = (pointers.as_mut_ptr(), std::ptr::null_mut());
            sys::cuLaunchKernel(l.entry.raw, x, y, z, a, b, c, l.shared, stream, args, none)
        };
        answered("cuLaunchKernel", code)
    }

    /// Gives them to the node of a launch in place of others; whether the driver did.
    fn set(&mut self, l: &DeviceLaunch, node: (CUgraphExec, CUgraphNode)) -> bool {
        set_kernel_node(node, (l.entry.raw, l.grid, l.block, l.shared), &mut self.pointers())
    }
}

/// Asks a stream for a launch that is given these pointers and numbers.
pub(crate) fn launch_with(
    l: &DeviceLaunch,
    values: &[CUdeviceptr],
    stream: CUstream,
) -> Result<(), Refused> {
    let mut given = LaunchArguments { values: CallPlaces::from_slice(values), maps: Vec::new() };
    given.launch(l, stream)
}

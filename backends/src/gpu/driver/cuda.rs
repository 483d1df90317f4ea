//! The driver: looked for when it is needed, and its answers as errors.
//!
//! Nothing of it is there when a program is built or started. Its library is opened once, and every
//! function that the engine calls is looked up before the first call, so that an absent or old driver is an
//! error like any other.
#![allow(unsafe_code)]

use adfuse_ir::{At, Diagnostic, Kind};
use cudarc::driver::sys::{self, CUdeviceptr, CUresult, CUstream};
use std::ffi::CStr;
use std::sync::OnceLock;

/// The functions that the engine calls.
const NEEDED: &[&str] = &[
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetDefaultMemPool",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventRecord",
    "cuEventRecordWithFlags",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchKernel",
    "cuLinkAddData_v2",
    "cuLinkComplete",
    "cuLinkCreate_v2",
    "cuLinkDestroy",
    "cuMemAllocAsync",
    "cuMemAllocHost_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemGetInfo_v2",
    "cuMemPoolGetAttribute",
    "cuMemPoolSetAttribute",
    "cuMemPoolTrimTo",
    "cuMemcpyAsync",
    "cuMemsetD32Async",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// What the driver refused, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refused {
    call: &'static str,
    code: CUresult,
}

/// An answer of the driver, as a result.
pub(crate) fn answered(call: &'static str, code: CUresult) -> Result<(), Refused> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(Refused { call, code }),
    }
}

impl Refused {
    /// A call that was not made to its end.
    pub(crate) const fn of(call: &'static str, code: CUresult) -> Refused {
        Refused { call, code }
    }

    /// The driver has no such function.
    pub(crate) fn missing(call: &'static str) -> Refused {
        Refused { call, code: CUresult::CUDA_ERROR_NOT_FOUND }
    }

    /// Whether the device has not as much memory as was asked for.
    pub(crate) fn is_memory(&self) -> bool {
        self.code == CUresult::CUDA_ERROR_OUT_OF_MEMORY
    }

    /// There is no device behind a description of one.
    pub(crate) const fn described() -> Refused {
        Refused { call: "cuDevicePrimaryCtxRetain", code: CUresult::CUDA_ERROR_NO_DEVICE }
    }

    fn text(&self) -> String {
        let said = |ask: unsafe fn(CUresult, *mut *const std::ffi::c_char) -> CUresult| {
            let mut text = std::ptr::null();
            // SAFETY: the driver has the function, as its other functions were looked up with it, and
            // writes a pointer to a text of its own, or none.
            let code = unsafe { ask(self.code, &raw mut text) };
            (code == CUresult::CUDA_SUCCESS && !text.is_null()).then(|| {
                // SAFETY: what it points to ends with 0 and is never freed.
                unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
            })
        };
        let name = said(sys::cuGetErrorName).unwrap_or_else(|| format!("{}", self.code as u32));
        let text = said(sys::cuGetErrorString).unwrap_or_default();
        format!("{}: {name}: {text}", self.call)
    }
}

impl From<Refused> for Diagnostic {
    fn from(refused: Refused) -> Diagnostic {
        if refused == Refused::described() {
            return absent("no GPU: programs are planned for a description of one");
        }
        let kind = if refused.is_memory() { Kind::Limit } else { Kind::Internal };
        Diagnostic::new(At::default(), kind, format!("the GPU's driver refused {}", refused.text()))
    }
}

/// There is no device to run on, and why.
pub(crate) fn absent(why: impl Into<String>) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::NoDevice, why)
}

/// Makes sure that there is a driver with all that is needed. Everything else in this folder is called
/// after this.
///
/// # Errors
/// [`Kind::NoDevice`], which says what is missing.
pub(crate) fn there() -> Result<(), Diagnostic> {
    static FOUND: OnceLock<Result<(), String>> = OnceLock::new();
    FOUND.get_or_init(look).clone().map_err(absent)
}

fn look() -> Result<(), String> {
    // SAFETY: opening the library runs what it does when it is loaded, as every program that uses the
    // device has it.
    if !unsafe { sys::is_culib_present() } {
        return Err("no GPU: there is no CUDA driver (libcuda) on this machine".into());
    }
    // SAFETY: as above, and the library is there.
    let library = unsafe { sys::culib() };
    for name in NEEDED {
        // SAFETY: the symbol is looked up and never called through this type.
        if unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err() {
            return Err(format!("no GPU: the CUDA driver is too old, it has no {name}"));
        }
    }
    // SAFETY: the function is there.
    let begun = answered("cuInit", unsafe { sys::cuInit(0) });
    begun.map_err(|refused| format!("no GPU: {}", refused.text()))
}

/// Milliseconds between two events that have happened.
pub(crate) fn elapsed(from: sys::CUevent, to: sys::CUevent) -> Result<f32, Refused> {
    type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> CUresult;
    let mut ms = 0f32;
    // SAFETY: `there` has found the function, whose signature this has been in all versions; newer ones
    // have a second name for it, which older drivers do not know.
    let code = unsafe {
        match sys::culib().get::<Elapsed>(b"cuEventElapsedTime") {
            Ok(elapsed) => elapsed(&raw mut ms, from, to),
            Err(_) => CUresult::CUDA_ERROR_NOT_FOUND,
        }
    };
    answered("cuEventElapsedTime", code)?;
    Ok(ms)
}

/// Has a graph do what another says, from its next launch on; whether it does. It is the same as before where it
/// does not: the driver is of before CUDA 12, or cannot change what is asked.
pub(crate) fn update(graph: sys::CUgraphExec, to: sys::CUgraph) -> bool {
    type Update = unsafe extern "C" fn(
        sys::CUgraphExec,
        sys::CUgraph,
        *mut sys::CUgraphExecUpdateResultInfo_st,
    ) -> CUresult;
    let mut said = std::mem::MaybeUninit::<sys::CUgraphExecUpdateResultInfo_st>::zeroed();
    // SAFETY: the function has had this signature since there is one of this name. Callers have both
    // graphs, and what is said is written, and not read.
    let code = unsafe {
        match sys::culib().get::<Update>(b"cuGraphExecUpdate_v2") {
            Ok(update) => update(graph, to, said.as_mut_ptr()),
            Err(_) => CUresult::CUDA_ERROR_NOT_FOUND,
        }
    };
    code == CUresult::CUDA_SUCCESS
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

/// The node of what a stream that is being captured was asked for last; none where the driver does not say, and where
/// there are several.
pub(crate) fn captured_node(stream: sys::CUstream) -> Option<sys::CUgraphNode> {
    match captured_ends(stream).as_deref() {
        Ok(&[node]) => Some(node),
        _ => None,
    }
}

/// Whether the driver lets what is captured follow other nodes than the last.
pub(crate) fn has_branches() -> bool {
    // SAFETY: `there` has found the library; the symbols are looked up and never called through this type.
    let has = |name: &[u8]| unsafe { sys::culib().get::<unsafe extern "C" fn()>(name).is_ok() };
    has(b"cuStreamUpdateCaptureDependencies") && has(b"cuStreamGetCaptureInfo_v2")
}

/// Has what a stream is asked for next, while it is captured, follow these nodes and no others.
pub(crate) fn follow(stream: sys::CUstream, nodes: &mut [sys::CUgraphNode]) -> Result<(), Refused> {
    type Set = unsafe extern "C" fn(
        sys::CUstream,
        *mut sys::CUgraphNode,
        usize,
        std::ffi::c_uint,
    ) -> CUresult;
    /// In place of those that there are.
    const SET: std::ffi::c_uint = 1;
    // SAFETY: the function has had this signature since there is one of this name. The nodes are of the graph that the
    // stream is captured into, and the driver copies them before the call returns.
    let code = unsafe {
        match sys::culib().get::<Set>(b"cuStreamUpdateCaptureDependencies") {
            Ok(set) => set(stream, nodes.as_mut_ptr(), nodes.len(), SET),
            Err(_) => CUresult::CUDA_ERROR_NOT_FOUND,
        }
    };
    answered("cuStreamUpdateCaptureDependencies", code)
}

/// The nodes that what a stream is asked for next would follow, while it is captured.
pub(crate) fn captured_ends(stream: sys::CUstream) -> Result<Vec<sys::CUgraphNode>, Refused> {
    type Info = unsafe extern "C" fn(
        sys::CUstream,
        *mut sys::CUstreamCaptureStatus,
        *mut u64,
        *mut sys::CUgraph,
        *mut *const sys::CUgraphNode,
        *mut usize,
    ) -> CUresult;
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut id, mut graph, mut nodes, mut count) = (0, std::ptr::null_mut(), std::ptr::null(), 0);
    let call = "cuStreamGetCaptureInfo";
    // SAFETY: the function has had this signature since there is one of this name. The driver writes all six; the nodes
    // are there until the stream is asked for something else, and are read at once.
    unsafe {
        let info = sys::culib().get::<Info>(b"cuStreamGetCaptureInfo_v2");
        let info = info.map_err(|_| Refused::missing(call))?;
        let said = info(
            stream,
            &raw mut status,
            &raw mut id,
            &raw mut graph,
            &raw mut nodes,
            &raw mut count,
        );
        answered(call, said)?;
        match nodes.is_null() || count == 0 {
            true => Ok(Vec::new()),
            false => Ok(std::slice::from_raw_parts(nodes, count).to_vec()),
        }
    }
}

/// An entry point, blocks of its grid, threads of a block, and bytes of shared memory.
type LaunchShape = (sys::CUfunction, [u32; 3], [u32; 3], u32);

/// Gives a launch of a graph other arguments from its next launch on; whether the driver did.
pub(crate) fn set_kernel_node(
    (graph, node): (sys::CUgraphExec, sys::CUgraphNode),
    (func, [x, y, z], [a, b, c], shared): LaunchShape,
    args: &mut [*mut std::ffi::c_void],
) -> bool {
    type SetLaunch = unsafe extern "C" fn(
        sys::CUgraphExec,
        sys::CUgraphNode,
        *const sys::CUDA_KERNEL_NODE_PARAMS_v2_st,
    ) -> CUresult;
    let params = sys::CUDA_KERNEL_NODE_PARAMS_v2_st {
        func,
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: a,
        blockDimY: b,
        blockDimZ: c,
        sharedMemBytes: shared,
        kernelParams: args.as_mut_ptr(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    };
    // SAFETY: the function has had this signature since there is one of this name. The node is of the graph that this one
    // was instantiated from, which its owner keeps; there are as many arguments as the entry point takes, and the driver
    // copies them before the call returns.
    let code = unsafe {
        match sys::culib().get::<SetLaunch>(b"cuGraphExecKernelNodeSetParams_v2") {
            Ok(set) => set(graph, node, &raw const params),
            Err(_) => CUresult::CUDA_ERROR_NOT_FOUND,
        }
    };
    code == CUresult::CUDA_SUCCESS
}

/// Has a copy of a graph read and write elsewhere from its next launch on; whether the driver takes that.
pub(crate) fn set_copy_node(
    (graph, node): (sys::CUgraphExec, sys::CUgraphNode),
    (from, to): (CUdeviceptr, CUdeviceptr),
) -> bool {
    type GetCopy = unsafe extern "C" fn(sys::CUgraphNode, *mut sys::CUDA_MEMCPY3D) -> CUresult;
    type SetCopy = unsafe extern "C" fn(
        sys::CUgraphExec,
        sys::CUgraphNode,
        *const sys::CUDA_MEMCPY3D,
        sys::CUcontext,
    ) -> CUresult;
    type CurrentContext = unsafe extern "C" fn(*mut sys::CUcontext) -> CUresult;
    // SAFETY: the functions have had these signatures since there are some of these names. The node is of the graph that
    // this one was instantiated from, which its owner keeps, and all that is written is a number or a handle.
    unsafe {
        let library = sys::culib();
        let (Ok(get), Ok(set), Ok(current)) = (
            library.get::<GetCopy>(b"cuGraphMemcpyNodeGetParams"),
            library.get::<SetCopy>(b"cuGraphExecMemcpyNodeSetParams"),
            library.get::<CurrentContext>(b"cuCtxGetCurrent"),
        ) else {
            return false;
        };
        let mut params = std::mem::MaybeUninit::<sys::CUDA_MEMCPY3D>::zeroed();
        let mut context = std::ptr::null_mut();
        if get(node, params.as_mut_ptr()) != CUresult::CUDA_SUCCESS
            || current(&raw mut context) != CUresult::CUDA_SUCCESS
        {
            return false;
        }
        let mut params = params.assume_init();
        // Places of the host's memory are told otherwise; there are none that move.
        let device = |kind| {
            matches!(
                kind,
                sys::CUmemorytype::CU_MEMORYTYPE_DEVICE | sys::CUmemorytype::CU_MEMORYTYPE_UNIFIED
            )
        };
        if !device(params.srcMemoryType) || !device(params.dstMemoryType) {
            return false;
        }
        (params.srcDevice, params.dstDevice) = (from, to);
        set(graph, node, &raw const params, context) == CUresult::CUDA_SUCCESS
    }
}

/// A stream of the device that the thread has entered. Of streams that have work, those of lower numbers have their blocks
/// placed first; numbers are 0 and below, and the driver takes the lowest that it has for lower ones.
pub(crate) fn new_stream(priority: i32) -> Result<CUstream, Refused> {
    let mut made = std::ptr::null_mut();
    let apart = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: the thread has entered a device, and the driver writes a handle.
    let code = unsafe { sys::cuStreamCreateWithPriority(&raw mut made, apart, priority) };
    answered("cuStreamCreateWithPriority", code)?;
    Ok(made)
}

//! Where everything of a program is, for one run or one turn.

use super::work::Pointer;
use cudarc::driver::sys::CUdeviceptr;

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
            Pointer::Number(n) => n,
        }
    }
}

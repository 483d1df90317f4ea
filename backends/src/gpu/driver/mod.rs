//! Runs what was compiled for a GPU: devices, memory, modules, graphs of launches, cuBLASLt and NCCL, through the CUDA driver.
//!
//! Driver and library are loaded when they are first needed; where there is none, that is an error of its own kind.

pub(crate) mod block_memory;
pub(crate) mod branches;
pub(crate) mod call;
pub(crate) mod call_sink;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod cublaslt;
pub(crate) mod cuda;
pub(crate) mod device;
pub(crate) mod device_frame;
pub(crate) mod drawn;
pub(crate) mod engine;
pub(crate) mod entry_points;
pub(crate) mod event;
pub(crate) mod executable;
pub(crate) mod graph;
pub(crate) mod load;
pub(crate) mod memory;
pub(crate) mod memory_range;
pub(crate) mod nccl;
pub(crate) mod overlap;
pub(crate) mod pieces;
pub(crate) mod place;
pub(crate) mod play;
pub(crate) mod prepare;
mod ptxas;
pub(crate) mod shared_library;
pub(crate) mod staging;
pub(crate) mod step_order;
mod step_sizes;
pub(crate) mod tensor_map;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod turn_frame;
pub(crate) mod work;
mod workspace;

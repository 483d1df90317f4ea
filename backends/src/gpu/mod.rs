//! The GPU engine: programs of kernels as graphs of launches on an NVIDIA GPU.
//!
//! Kernels are PTX (`crate::gpu::ptx`), which the driver assembles; in the modes that are not strict a library
//! multiplies matrices, where there is one. Driver and library are looked for when they are needed: a
//! program that holds this starts, and says so, where there is neither. See `docs/gpu.md`.

pub(crate) mod compile;
#[cfg(feature = "gpu")]
pub(crate) mod driver;
pub mod facts;
mod launch_facts;
pub(crate) mod launches;
mod product_trials;
pub mod ptx;
pub(crate) mod schedule;
pub(crate) mod target;
pub(crate) mod turns;

pub use compile::{has_code_for, schedule_for};
#[cfg(feature = "gpu")]
pub use driver::copy::Copy;
#[cfg(feature = "gpu")]
pub use driver::cublaslt::library;
#[cfg(feature = "gpu")]
pub use driver::device::{Facts, GpuDevice};
#[cfg(feature = "gpu")]
pub use driver::engine::GpuEngine;
#[cfg(feature = "gpu")]
pub use driver::executable::GpuExecutable;
#[cfg(feature = "gpu")]
pub use driver::load::KeptCode;
#[cfg(feature = "gpu")]
pub use driver::memory::DeviceArray;
#[cfg(feature = "gpu")]
pub use driver::prepare::{GpuPrepared, Options};
pub use product_trials::{ProductTrial, product_trials};
pub use schedule::capabilities::ATTENTION;

/// What tells plans for the engine from those for others, and names it on the command line.
pub const NAME: &str = "gpu";

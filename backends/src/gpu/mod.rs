//! The GPU engine: programs of kernels as graphs of launches on an NVIDIA GPU.
//!
//! Kernels are PTX (`crate::ptx`), which the driver assembles; in the modes that are not strict a library
//! multiplies matrices, where there is one. Driver and library are looked for when they are needed: a
//! program that holds this starts, and says so, where there is neither. See `docs/gpu.md`.

mod call;
mod copy;
mod device;
mod divide;
mod driver;
mod graph;
mod kept;
mod library;
mod load;
mod memory;
mod place;
mod prepare;
mod product;
mod run;
mod staging;
#[cfg(test)]
mod tests;

pub use copy::Copy;
pub use device::{Device, Facts};
pub use kept::Kept;
pub use library::library;
pub use load::KeptCode;
pub use memory::DeviceArray;
pub use prepare::{Options, Prepared, text};
pub use run::{Executable, MadeStep, MemoryReport};

//! adfuse: a differentiable-programming compiler.
//!
//! A program is an SSA function over tensors, read from `.ir` text or traced from Rust closures.
//! Forward- and reverse-mode differentiation transform it; engines run it.

// The derive macro writes `::adfuse::tree`, in this crate too.
#[allow(unused_extern_crates)]
extern crate self as adfuse;

pub mod budget;
pub mod check;
#[cfg(feature = "data")]
pub mod data;
pub mod device;
pub mod engine;
mod entries;
pub mod frontend;
pub mod functions;
#[cfg(feature = "gpu")]
pub mod kernel_cache;
pub mod measure;
pub mod nn;
#[cfg(feature = "npz")]
pub mod npz;
pub mod optim;
pub mod pipeline;
pub mod plan_cache;
pub mod sample;
pub mod trace;
pub mod train;
pub mod transform;
pub mod tree;
pub mod tune;
pub mod whole;

pub use adfuse_autodiff as autodiff;
pub use adfuse_backends as backends;
pub use adfuse_fusion as fusion;
pub use adfuse_import as import;
pub use adfuse_ir as ir;
pub use adfuse_memplan as memplan;
#[cfg(feature = "report")]
pub use adfuse_report as report;
pub use device::Device;
pub use train::{eval_step, train_step};
pub use transform::{Jit, jit};
pub use tree::Params;

/// What a program that uses adfuse as a library imports.
pub mod prelude {
    pub use crate::backends::reference::{Silent, run};
    pub use crate::backends::{Array, Element, Resident};
    #[cfg(feature = "data")]
    pub use crate::data;
    pub use crate::device::Device;
    pub use crate::engine::Cpu;
    #[cfg(feature = "gpu")]
    pub use crate::engine::Gpu;
    pub use crate::ir::verify::verify;
    pub use crate::ir::{
        Attrs, DType, Diagnostic, Dim, Function, Kind, Module, Op, Symbol, TensorType,
    };
    pub use crate::trace::{
        AttentionMask, Conv, ConvGeneral, Key, Padding, Pool, ReduceWindow, Tensor, Traced, Tracer,
        evaluate, f32s, f64s, i32s, keep, trace,
    };
    pub use crate::transform::{
        grad, hessian, hvp, jacfwd, jacrev, jit, jvp, value_and_grad, vjp, vmap,
    };
    pub use crate::tree::Params;
}

//! The CPU engine: programs of kernels as machine code, made when a program is compiled and run as
//! often as one likes.
//!
//! It gives the bits of the kernel evaluator, at any number of threads. What is computed element by
//! element is machine code (`code`); folds, scans and products of matrices are Rust (`fold`, `order`,
//! `gemm`) over what that leaves in arrays. See `docs/cpu.md`.

mod argsort;
mod call;
mod code;
mod contract;
mod crew;
mod cross;
mod element;
mod engine;
mod fold;
mod gemm;
mod inside;
mod kernel;
mod lower;
mod memory;
mod opaque;
mod operand;
mod order;
mod pool;
mod run;
mod scatter;
mod scratch;
mod shape;
mod store;
mod trace;

pub use crate::layout::ArenaLayout;
pub use call::Handed;
pub use code::{Emitter, Vectors, Why};
pub use cross::{ListedFunction, ListedStep, code_for, listing_for};
pub use engine::Engine;
pub(crate) use engine::{key, take};
#[cfg(target_arch = "x86_64")]
pub use gemm::LibraryProduct;
pub use inside::{MadeStep, MadeSweep, MemoryReport, Texts};
pub(crate) use lower::attend as attention;
pub use run::{Executable, Options};
pub use scratch::{peak, scratch};
pub(crate) use store::Kept;
pub use trace::{Span, Trace};

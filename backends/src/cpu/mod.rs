//! The CPU engine: compiles programs of kernels to machine code.
//!
//! It gives the bits of the kernel evaluator, at any number of threads. Elementwise computation is machine code
//! (`codegen`, `clif`, `x86`). Folds of arrays, scans and matrix products are Rust (`fold`, `strict_folds`, `strict_scans`, `extremum`, `gemm`).
//! See `docs/cpu.md`.

mod accumulate;
pub(crate) mod accumulated;
mod argsort;
mod attend;
pub(crate) mod batch_lanes;
mod block;
pub(crate) mod call;
pub(crate) mod capabilities;
mod carried_stacks;
mod carry_start;
pub(crate) mod clif;
pub(crate) mod codegen;
pub(crate) mod computed_operand;
pub(crate) mod contract;
pub(crate) mod cross_compile;
mod deferred_steps;
mod direct_turn;
pub(crate) mod element;
pub(crate) mod engine;
pub(crate) mod executable;
pub(crate) mod extremum;
pub(crate) mod facts;
pub(crate) mod fold;
pub(crate) mod gemm;
mod host_services;
pub(crate) mod introspect;
pub(crate) mod kernel;
pub(crate) mod legal;
pub(crate) mod library_call;
mod loop_layouts;
pub(crate) mod loop_reverse;
pub(crate) mod loop_run;
pub(crate) mod machine_code;
pub(crate) mod multiply;
mod numa;
pub(crate) mod operand;
pub(crate) mod places;
mod point_tasks;
pub(crate) mod prepare;
pub(crate) mod scalar_loop;
pub(crate) mod scatter;
pub(crate) mod scratch;
pub(crate) mod shape;
pub(crate) mod small_products;
pub(crate) mod sort_lines;
pub(crate) mod step_report;
pub(crate) mod steps;
mod stored_parts;
pub(crate) mod strict_folds;
pub(crate) mod strict_scans;
mod sweep_call;
pub(crate) mod sweep_facts;
pub(crate) mod task_split;
pub(crate) mod thread_pool;
pub(crate) mod tiled_operand;
mod turn_calls;
pub(crate) mod workers;
#[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), path = "no_x86.rs")]
pub(crate) mod x86;

pub use crate::runtime::arena_layout::ArenaLayout;
pub use crate::runtime::trace::{TimedSpan, Trace};
pub use call::CallInput;
pub use codegen::vector_width::{Emitter, Unsupported, Vectors};
pub use cross_compile::{ListedFunction, ListedStep, code_for, listing_for};
pub use engine::CpuEngine;
pub use executable::{CpuExecutable, CpuOptions};
#[cfg(target_arch = "x86_64")]
pub use gemm::alone::tile_rate;
pub use introspect::{CompiledSweep, SweepTexts};
pub use prepare::{peak, scratch};

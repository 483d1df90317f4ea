//! Engines: the reference engine, which defines the bits in strict mode, and code generators for CPUs and GPUs.
#![doc = ""]
#![doc = include_str!("../README.md")]
//!
//! ## Where to begin
//!
//! - [`Array`]: values in the memory of the host; [`Resident`]: values where an engine keeps them;
//! - [`reference`](mod@reference), [`cpu`] and [`gpu`]: the engines; [`ptx`]: the text of GPU kernels, printed without a GPU;
//! - [`Backend`]: what an engine is, for those who write one;
//! - [`functions`]: functions of your own, which programs call by name.

pub mod cpu;
pub mod gpu;
pub mod reference;
mod runtime;

pub use gpu::ptx;
pub use runtime::arena_layout::ArenaLayout;
pub use runtime::arena_layout::check as check_layout;
pub use runtime::array::{self, Array};
pub use runtime::array_text::write_array;
pub use runtime::backend::{self, AnyBackend, Backend};
pub use runtime::counters;
pub use runtime::effects::{
    Effects, ScopedEffects, Silent, WrittenEffects, print_effect, with_effects,
};
pub use runtime::element::Element;
pub use runtime::executable_cache::ExecutableCache;
pub use runtime::functions;
pub use runtime::limits::{self, RunLimits};
pub use runtime::ranks::{self, RankGroup};
pub use runtime::report::{MemoryReport, StepReport};
pub use runtime::resident::{self, Resident};
pub use runtime::trace::{TimedSpan, Trace};

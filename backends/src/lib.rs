//! Engines. `reference` is simple and slow: in strict mode it defines the bits that every other engine must give.

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
pub use runtime::report::{MemoryReport, StepReport};
pub use runtime::resident::{self, Resident};
pub use runtime::trace::{TimedSpan, Trace};

//! What all engines share: arrays and the layout of the arena, the cache of executables, traces and reports, user
//! functions, legalization, and the trait of engines ([`backend`]).
//!
//! Nothing here depends on an engine. A new engine is a folder next to this one, and a row in the facade's registry.

pub(crate) mod arena_layout;
pub mod array;
mod array_read;
pub(crate) mod array_text;
pub mod backend;
pub(crate) mod bytes;
pub(crate) mod call_price;
pub mod counters;
pub(crate) mod effects;
pub(crate) mod element;
pub(crate) mod errors;
pub(crate) mod executable_cache;
pub mod functions;
pub(crate) mod host_memory;
pub(crate) mod layout_text;
pub(crate) mod legalize;
pub(crate) mod library_functions;
pub mod limits;
#[cfg(feature = "ndarray")]
mod ndarray_views;
pub mod ranks;
pub(crate) mod report;
pub mod resident;
pub(crate) mod result_pool;
pub(crate) mod strides;
pub(crate) mod trace;
pub(crate) mod truth;
mod typed_array;
pub(crate) mod user_kernel;

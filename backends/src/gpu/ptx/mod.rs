//! PTX for NVIDIA GPUs: a verified program of kernels as text for the driver, and what to launch.
//!
//! Nothing here needs a GPU, a driver or a toolkit. In strict mode the text gives the bits of the kernel
//! evaluator: scalar programs are the same primitives, and folds are written in the order of `docs/fp.md`,
//! whose 32 lanes are those of a warp. See `docs/gpu.md`.

pub(crate) mod address;
pub(crate) mod asm;
pub(crate) mod async_copy;
pub(crate) mod attend;
pub(crate) mod block_ranges;
pub(crate) mod bundle;
pub(crate) mod code_cache;
pub(crate) mod convert;
pub(crate) mod convolution;
pub(crate) mod cross_warp;
pub(crate) mod elementwise;
pub(crate) mod emit;
pub(crate) mod entry;
pub(crate) mod fast_math;
pub(crate) mod fold;
pub(crate) mod isel;
pub(crate) mod loop_entries;
pub(crate) mod matmul;
pub(crate) mod mbarrier;
pub(crate) mod mma;
pub(crate) mod module;
pub(crate) mod operand_staging;
pub(crate) mod operands;
pub(crate) mod pack;
pub(crate) mod packed_arithmetic;
pub(crate) mod packed_extremes;
pub(crate) mod partial_fold;
pub(crate) mod radix_pass;
pub(crate) mod radix_sort;
pub(crate) mod read_order;
pub(crate) mod remainder;
mod rough_exp;
mod row_group;
pub(crate) mod row_hoist;
pub(crate) mod row_match;
pub(crate) mod row_pieces;
pub(crate) mod row_point;
pub(crate) mod row_registers;
pub(crate) mod row_walk;
pub(crate) mod rows;
pub(crate) mod scan;
pub(crate) mod scatter;
mod scatter_fold;
pub(crate) mod sort;
pub(crate) mod sort_keys;
pub(crate) mod sort_tiles;
pub(crate) mod transpose;
pub(crate) mod tree_fold;
pub(crate) mod user_call;
pub(crate) mod warpgroup;

pub use super::launches::{
    Arg, BlockCode, FILL_THREADS, INDICES_AT, Launch, POSITION_BYTES, POSITION_ENTRY, PtxModule,
    StepCode, TURNS, TensorMap, fill_entry,
};
pub use super::schedule::{BlockBinding, GpuSchedule, ScheduleContext, schedule, schedule_but};
pub use super::target::GpuTarget;
pub use super::turns::{CarryPlace, LoopAction, LoopPlan};
pub use code_cache::{CodeCache, compile, compile_with};
pub use module::print;

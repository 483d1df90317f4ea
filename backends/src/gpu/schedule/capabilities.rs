//! What is launched for a step as it stands, and what is rewritten before.

use crate::runtime::backend::Capabilities;
use crate::runtime::functions::CallSide;
use adfuse_ir::rewrite::AttentionSteps;

/// The most elements of a query or of a value: the sums of a thread's or a warp's rows are in registers.
const MOST_DEPTH: u64 = 128;
/// Elements of `f32` and of 16-bit floats that one copy of 16 bytes has.
const COPIED: [u64; 2] = [4, 8];

/// Threads multiply `f32` in the defined order, matrix units 16-bit floats.
pub const ATTENTION: AttentionSteps =
    AttentionSteps::ByMode { deepest: MOST_DEPTH, defined: COPIED[0], rounded: COPIED[1] };

/// What the engine does itself, where no library multiplies: its entry points copy what callers lay out
/// otherwise.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    attention: ATTENTION,
    any_layout: true,
    schedules: true,
    functions: CallSide::Gpu,
};

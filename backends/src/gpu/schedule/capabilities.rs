//! What is launched for a step as it stands, and what is rewritten before.

use crate::runtime::backend::Capabilities;
use crate::runtime::functions::CallSide;
use adfuse_ir::rewrite::{AttentionSteps, StepElements};

/// Threads multiply `f32` in the defined order, matrix units 16-bit floats.
///
/// The sums of a thread's or a warp's rows are in registers, so that there is a most of elements; a copy has 16 bytes.
pub const ATTENTION: AttentionSteps = AttentionSteps::ByMode {
    defined: StepElements { most: 128, multiple: 4 },
    rounded: StepElements { most: 256, multiple: 8 },
};

/// What the engine does itself, where no library multiplies: its entry points copy what callers lay out
/// otherwise.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    attention: ATTENTION,
    any_layout: true,
    schedules: true,
    functions: CallSide::Gpu,
};

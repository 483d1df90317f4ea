//! What is launched for a step as it stands, and what is rewritten before.

use super::attention::{COPIED, MOST_DEPTH};
use crate::runtime::backend::Capabilities;
use adfuse_ir::rewrite::AttentionSteps;

/// Matrix units multiply 16-bit floats.
pub const ATTENTION: AttentionSteps =
    AttentionSteps::Rounded { deepest: MOST_DEPTH, multiple: COPIED };

/// What the engine does itself, where no library multiplies: its entry points copy what callers lay out
/// otherwise.
pub(crate) const CAPABILITIES: Capabilities =
    Capabilities { attention: ATTENTION, any_layout: true, schedules: true, functions: false };

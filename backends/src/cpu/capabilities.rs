//! The capabilities of the engine: which steps it compiles as they are, and which are rewritten first.

use crate::runtime::backend::Capabilities;
use crate::runtime::functions::CallSide;
use adfuse_ir::rewrite::AttentionSteps;

/// What the engine does itself.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    attention: AttentionSteps::Defined,
    any_layout: false,
    schedules: false,
    functions: CallSide::Host,
};

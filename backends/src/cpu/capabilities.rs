//! What steps are made machine code of as they stand, and what is rewritten before.

use crate::runtime::backend::Capabilities;

/// What the engine does itself.
pub(crate) const CAPABILITIES: Capabilities =
    Capabilities { attention: false, any_layout: false, schedules: false, functions: true };

//! What is launched for a step as it stands, and what is rewritten before.

use crate::runtime::backend::Capabilities;

/// What the engine does itself, where no library multiplies: its entry points copy what callers lay out
/// otherwise.
pub(crate) const CAPABILITIES: Capabilities =
    Capabilities { attention: false, any_layout: true, schedules: true, functions: false };

//! The state of a trace that layers use.

use crate::ir::Value;

/// The state of a trace that layers use.
#[derive(Default)]
pub(super) struct LayerContext {
    /// The seed of random draws, where the trace is of training.
    pub(super) seed: Option<Value>,
    /// How many draws there have been.
    pub(super) draws: i64,
    /// Inputs and what they are next.
    pub(super) updates: Vec<(Value, Value)>,
    /// How many loops are open.
    pub(super) loops: u32,
}

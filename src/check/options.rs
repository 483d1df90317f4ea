//! Options of a check: a seed, tolerances and extents.

use crate::ir::Symbol;
use std::collections::BTreeMap;

/// How to check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Seed of inputs and directions.
    pub seed: u64,
    /// Relative tolerance, per element.
    pub rtol: f64,
    /// Absolute tolerance, per element, scaled by `max(1, |f|)`.
    pub atol: f64,
    /// Extents for symbols; others get 3, 4, 5, .. in order.
    pub extents: BTreeMap<Symbol, u64>,
    /// The function to check; without it, every one of the module.
    pub only: Option<String>,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions { seed: 0, rtol: 1e-5, atol: 1e-9, extents: BTreeMap::new(), only: None }
    }
}

//! Where the effects of a program go.

use crate::runtime::array::Array;

/// Where effects go.
pub trait Effects {
    /// A `debug_print` with its label.
    fn print(&mut self, label: &str, value: &Array);
}

/// A sink that discards effects.
pub struct Silent;

impl Effects for Silent {
    fn print(&mut self, _: &str, _: &Array) {}
}

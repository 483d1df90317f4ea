//! `hello`: the square of a number, and its derivative.

use super::compute::{Computed, Runs, computed, gradient, scalar};
use super::input::number;
use adfuse::prelude::*;
use serde_json::Value;

fn function() -> Result<Traced, Diagnostic> {
    trace("square", |t| t.input("x", f64s([])).square())
}

/// x^2
pub(super) fn square(input: &Value, runs: &Runs) -> Result<Computed, String> {
    computed(function, &[&[number(input, "input")?]], runs, scalar)
}

/// 2 x
pub(super) fn double(input: &Value, runs: &Runs) -> Result<Computed, String> {
    let x = [number(input, "input")?];
    computed(|| gradient(&function()?, &["x"]), &[&x], runs, scalar)
}

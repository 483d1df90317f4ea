//! `lse`: the logarithm of a sum of exponentials, and its gradient.

use super::compute::{Computed, Runs, computed, elements, gradient, list, scalar};
use super::input::Fields;
use adfuse::prelude::*;
use serde_json::Value;

/// The result does not depend on the shift, so that its derivative is left out.
fn function(n: u64) -> Result<Traced, Diagnostic> {
    trace("lse", |t| {
        let x = t.input("x", f64s([n]));
        let most = x.max_over(&[0]).stop_gradient();
        let sum = (&x - most.broadcast_like(&x)).exp().sum(&[0]);
        sum.log() + most
    })
}

fn read(input: &Value) -> Result<(u64, Vec<f64>), String> {
    let x = Fields::of(input, "the input")?.numbers("x")?;
    if x.is_empty() {
        return Err("`x` is empty".into());
    }
    Ok((elements(&[x.len() as u64])?, x))
}

/// log(sum(exp(x)))
pub(super) fn primal(input: &Value, runs: &Runs) -> Result<Computed, String> {
    let (n, x) = read(input)?;
    computed(|| function(n), &[&x], runs, scalar)
}

/// Its gradient.
pub(super) fn gradient_of(input: &Value, runs: &Runs) -> Result<Computed, String> {
    let (n, x) = read(input)?;
    computed(|| gradient(&function(n)?, &["x"]), &[&x], runs, list)
}

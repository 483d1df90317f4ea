//! `llsq`: a polynomial against the sign of its argument, by squares, and its gradient.
//!
//! With `w` about the square root of the number `m` of coefficients, `t^(w a + b)` is `(t^w)^a t^b`. So the polynomial is
//! `sum_a t^(w a) sum_b X[a, b] t^b`: a product of a small matrix with the low powers, and a sum with the high
//! ones. That takes `m n` multiply-adds and `2 w n` powers, where a matrix of all powers would be `m n` numbers.

use super::compute::{Computed, Runs, computed, elements, gradient, list, scalar};
use super::input::Fields;
use adfuse::ir::Attrs;
use adfuse::prelude::*;
use serde_json::Value;

/// The powers t^0, t^step, t^(2 step), .. in rows, of which there are `count`, and `step` is a power of two.
fn powers(t: &Tracer, of: &Tensor, step: u64, count: u64, n: u64) -> Tensor {
    let row = t.iota(TensorType::new(DType::I32, [Dim::Const(count), Dim::Const(n)]), 0);
    let mut factor = of.clone();
    (0..step.ilog2()).for_each(|_| factor = factor.square());
    let mut power = t.full(f64s([count, n]), 1.0);
    // Each bit of the row's number has a factor: the last but one, squared.
    let mut bit = 1;
    while bit < count {
        let has = t.apply(Op::And, &[&row, &t.full(row.ty(), bit as f64)], Attrs::none(), None);
        let factors = factor.broadcast_like(&power);
        power = has.ne(0.0).select(&(&power * factors), &power);
        factor = factor.square();
        bit *= 2;
    }
    power
}

/// Coefficients in a row, and this many rows: powers of two beside numbers that have no fewer in all.
fn split(m: u64) -> (u64, u64) {
    let mut width = 1u64;
    while width * width < m {
        width *= 2;
    }
    (width, m.div_ceil(width))
}

fn function(m: u64, n: u64) -> Result<Traced, Diagnostic> {
    let (width, height) = split(m);
    trace("llsq", |t| {
        let x = t.input("x", f64s([m]));
        // Divided last: a middle that is 0 has to be 0.
        let place = t.iota(f64s([n]), 0);
        let at = place * 2.0 / (n - 1) as f64 - 1.0;
        let missing = [(width * height - m) as i64];
        let pad = Attrs::none()
            .with_ints("low", [0])
            .with_ints("high", missing)
            .with_ints("interior", [0]);
        let zero = t.full(f64s([]), 0.0);
        let x = t.apply(Op::Pad, &[&x, &zero], pad, None).reshape([height, width]);
        let inner = x.dot(&powers(t, &at, 1, width, n));
        let all = inner * powers(t, &at, width, height, n);
        (at.sign() - all.sum(&[0])).square().sum(&[0]) * 0.5
    })
}

fn read(input: &Value) -> Result<(u64, u64, Vec<f64>), String> {
    let fields = Fields::of(input, "the input")?;
    let (x, n) = (fields.numbers("x")?, fields.count("n")?);
    if x.is_empty() || n < 2 {
        return Err("`x` has at least one number, and `n` is at least 2".into());
    }
    let m = elements(&[x.len() as u64])?;
    elements(&[split(m).0, n])?;
    Ok((m, n, x))
}

/// Half the sum of squares.
pub(super) fn primal(input: &Value, runs: &Runs) -> Result<Computed, String> {
    let (m, n, x) = read(input)?;
    computed(|| function(m, n), &[&x], runs, scalar)
}

/// Its gradient.
pub(super) fn gradient_of(input: &Value, runs: &Runs) -> Result<Computed, String> {
    let (m, n, x) = read(input)?;
    computed(|| gradient(&function(m, n)?, &["x"]), &[&x], runs, list)
}

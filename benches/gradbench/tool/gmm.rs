//! `gmm`: the logarithm of the likelihood of a mixture of normal distributions with a Wishart prior, and its gradient.
//!
//! `Q (x - mu)` is `Q x - Q mu`, of which the first, for all components, is one product of matrices.

use super::compute::{Computed, Runs, computed, elements, gradient, rows, scalar};
use super::input::Fields;
use adfuse::ir::attrs::{Attr, Attrs};
use adfuse::prelude::*;
use serde_json::{Value, json};
use std::f64::consts::PI;

/// Extents: coordinates, components, points.
#[derive(Clone, Copy)]
struct Sizes {
    d: u64,
    k: u64,
    n: u64,
}

/// What the function takes, by parameter.
struct Inputs {
    sizes: Sizes,
    arguments: [Vec<f64>; 8],
}

const WRT: [&str; 4] = ["alpha", "mu", "q", "l"];

impl Sizes {
    /// Numbers below the diagonal.
    fn below(self) -> u64 {
        self.d * (self.d - 1) / 2
    }
}

/// log(sum(exp(x))) over the last axis.
fn logsumexp(x: &Tensor) -> Tensor {
    let last = [x.ty().rank() - 1];
    let most = x.max_over(&last).stop_gradient();
    (x - most.spread(&last, x)).exp().sum(&last).log() + most
}

/// The lower triangular factors: exp(q) on the diagonal, and below it `l`, column by column.
fn factors(t: &Tracer, q: &Tensor, l: &Tensor, s: Sizes) -> Tensor {
    let (d, k) = (s.d, s.k);
    let square = TensorType::new(DType::I32, [Dim::Const(d), Dim::Const(d)]);
    let (row, column) = (t.iota(square.clone(), 0), t.iota(square, 1));
    let all = f64s([k, d, d]).shape;
    let diagonal = q.exp().broadcast(&[0, 1], &all);
    let on = row.eq(&column).broadcast(&[1, 2], &all);
    if s.below() == 0 {
        return diagonal;
    }
    // Before column j are j columns, of d - 1, d - 2, .. numbers.
    let before = (&column * (2.0 * d as f64 - 1.0) - &column * &column) / 2.0;
    let place = before + &row - &column - 1.0;
    // What is not below the diagonal is behind the end, where zeros are read.
    let place = row.gt(&column).select(&place, s.below() as f64).reshape([d, d, 1]);
    let pick = Attrs::none()
        .with_ints("offset_dims", [0])
        .with_ints("collapsed", [1])
        .with_ints("start_map", [1])
        .with_ints("sizes", [k as i64, 1])
        .with("mode", Attr::Word("zero"));
    let below = t.apply(Op::Gather, &[l, &place], pick, None);
    on.select(&diagonal, &below)
}

fn function(s: Sizes) -> Result<Traced, Diagnostic> {
    let Sizes { d, k, n } = s;
    trace("gmm", |t| {
        let alpha = t.input("alpha", f64s([k]));
        let mu = t.input("mu", f64s([k, d]));
        let q = t.input("q", f64s([k, d]));
        let l = t.input("l", f64s([k, s.below()]));
        let x = t.input("x", f64s([n, d]));
        let gamma = t.input("gamma", f64s([]));
        let m = t.input("m", f64s([]));
        let rest = t.input("rest", f64s([]));

        let factor = factors(t, &q, &l, s);
        let products = x.dot_general(&factor, (&[], &[]), (&[1], &[2]));
        let centers = factor.dot_general(&mu, (&[0], &[0]), (&[2], &[1]));
        let far = (&products - centers.broadcast_like(&products)).square().sum(&[2]);
        let logs = q.sum(&[1]);
        let terms = (&alpha + &logs).broadcast_like(&far) - far * 0.5;
        let likelihood = logsumexp(&terms).sum(&[0]) - logsumexp(&alpha) * n as f64;

        let norm = (q * 2.0).exp().sum(&[0, 1]) + l.square().sum(&[0, 1]);
        likelihood + m * logs.sum(&[0]) - gamma.square() * norm * 0.5 + rest
    })
}

/// The logarithm of the multivariate gamma function.
fn log_gamma(a: f64, d: u64) -> f64 {
    let each = (0..d).map(|j| ln_gamma(a - j as f64 / 2.0));
    (d * (d - 1)) as f64 / 4.0 * PI.ln() + each.sum::<f64>()
}

/// log(gamma(x)) of a positive multiple of a half, from gamma(1) = 1 and gamma(1/2) = sqrt(pi).
fn ln_gamma(x: f64) -> f64 {
    let (mut at, mut log) = if x.fract() == 0.0 { (1.0, 0.0) } else { (0.5, PI.ln() / 2.0) };
    while at < x {
        log += f64::ln(at);
        at += 1.0;
    }
    log
}

fn read(input: &Value) -> Result<Inputs, String> {
    let fields = Fields::of(input, "the input")?;
    let (d, k, n) = (fields.count("d")?, fields.count("k")?, fields.count("n")?);
    if d == 0 || k == 0 || n == 0 {
        return Err("`d`, `k` and `n` are at least 1".into());
    }
    let (gamma, m) = (fields.number_or("gamma", 1.0)?, fields.count_or("m", 0)?);
    if gamma <= 0.0 || m > 1 << 20 {
        return Err(format!("`gamma` is above 0, `m` at most {}", 1 << 20));
    }
    elements(&[n, k, d])?;
    elements(&[k, d, d])?;
    let sizes = Sizes { d, k, n };
    let alpha = fields.numbers("alpha")?;
    if alpha.len() as u64 != k {
        return Err(format!("`alpha` has {} numbers, not {k}", alpha.len()));
    }
    let freedom = (d + m + 1) as f64;
    let prior = freedom * d as f64 * (gamma.ln() - 2f64.ln() / 2.0) - log_gamma(freedom / 2.0, d);
    let rest = k as f64 * prior - (n * d) as f64 / 2.0 * (2.0 * PI).ln();
    let arguments = [
        alpha,
        fields.rows_of("mu", k, d)?,
        fields.rows_of("q", k, d)?,
        fields.rows_of("l", k, sizes.below())?,
        fields.rows_of("x", n, d)?,
        vec![gamma],
        vec![m as f64],
        vec![rest],
    ];
    Ok(Inputs { sizes, arguments })
}

/// The value.
pub(super) fn objective(input: &Value, runs: &Runs) -> Result<Computed, String> {
    let Inputs { sizes, arguments } = read(input)?;
    computed(|| function(sizes), &arguments.each_ref().map(Vec::as_slice), runs, scalar)
}

/// Its gradient, by parameter.
pub(super) fn jacobian(input: &Value, runs: &Runs) -> Result<Computed, String> {
    let Inputs { sizes, arguments } = read(input)?;
    let make = || gradient(&function(sizes)?, &WRT);
    let out = |found: Vec<Vec<f64>>| {
        let Sizes { d, k, .. } = sizes;
        let widths = [None, Some(d), Some(d), Some(sizes.below())];
        let each = WRT.iter().zip(found).zip(widths).map(|((name, all), width)| {
            (name.to_string(), width.map_or_else(|| json!(all), |w| rows(&all, k, w)))
        });
        Value::Object(each.collect())
    };
    computed(make, &arguments.each_ref().map(Vec::as_slice), runs, out)
}

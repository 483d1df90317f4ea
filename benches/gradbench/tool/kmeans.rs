//! `kmeans`: the cost of centroids, and the step of Newton's method.
//!
//! The nearest centroid is the least `|c|^2 - 2 c.p`, a product of matrices, counted from the mean of the points: far from
//! it, what the centroids differ by would be lost in their squares. The distance to it is then computed from
//! differences. Where centroids are equally near, the first counts.

use super::compute::{Computed, Runs, computed, elements, gradient, rows, scalar};
use super::input::{Fields, Rows};
use adfuse::autodiff::{differentiable, jvp};
use adfuse::ir::attrs::{Attr, Attrs};
use adfuse::prelude::*;
use serde_json::Value;

fn function(n: u64, k: u64, d: u64) -> Result<Traced, Diagnostic> {
    trace("kmeans", |t| {
        let points = t.input("points", f64s([n, d]));
        let centroids = t.input("centroids", f64s([k, d]));
        let mean = points.sum(&[0]) / n as f64;
        let at = &points - mean.spread(&[0], &points);
        let near = &centroids - mean.spread(&[0], &centroids);
        let norms = near.square().sum(&[1]);
        let products = at.dot_general(&near, (&[], &[]), (&[1], &[1]));
        let far = norms.broadcast_like(&products) - products * 2.0;
        // The first place of the least, by two folds in one loop: `argmin` folds what a loop has left.
        // Found in the tiles of the product: `far` is not stored.
        let axis = Attrs::none().with("axis", Attr::Int(1));
        let nearest = t.apply(Op::Argmin, &[&far], axis, None);
        let rows = Attrs::none()
            .with_ints("offset_dims", [1])
            .with_ints("collapsed", [0])
            .with_ints("start_map", [0])
            .with_ints("sizes", [1, d as i64])
            .with("mode", Attr::Word("clip"));
        let own = t.apply(Op::Gather, &[&centroids, &nearest.reshape([n, 1])], rows, None);
        (own - points).square().sum(&[0, 1])
    })
}

/// The gradient over the diagonal of the Hessian, which has nothing else: its product with ones.
fn newton(n: u64, k: u64, d: u64) -> Result<Traced, Diagnostic> {
    let g = gradient(&function(n, k, d)?, &["centroids"])?;
    let both =
        jvp(&Module::single(g.clone()), &g, &differentiable(&g, Some(&["centroids".into()]))?)?;
    trace("newton", |t| {
        let points = t.input("points", f64s([n, d]));
        let centroids = t.input("centroids", f64s([k, d]));
        let ones = t.full(f64s([k, d]), 1.0);
        let found = t.call(&both, &[&points, &centroids, &ones]);
        &found[0] / &found[1]
    })
}

fn read(input: &Value) -> Result<(Rows, Rows), String> {
    let fields = Fields::of(input, "the input")?;
    let (points, centroids) = (fields.rows("points")?, fields.rows("centroids")?);
    if points.elements.is_empty() || centroids.elements.is_empty() {
        return Err("`points` and `centroids` have numbers".into());
    }
    if points.width != centroids.width {
        let (p, c) = (points.width, centroids.width);
        return Err(format!("points have {p} coordinates, centroids {c}"));
    }
    elements(&[points.rows as u64, centroids.rows as u64])?;
    Ok((points, centroids))
}

/// The sum of squared distances to the nearest centroids.
pub(super) fn cost(input: &Value, runs: &Runs) -> Result<Computed, String> {
    let (p, c) = read(input)?;
    let make = || function(p.rows as u64, c.rows as u64, p.width as u64);
    computed(make, &[&p.elements, &c.elements], runs, scalar)
}

/// The step.
pub(super) fn direction(input: &Value, runs: &Runs) -> Result<Computed, String> {
    let (p, c) = read(input)?;
    let (k, d) = (c.rows as u64, c.width as u64);
    let make = || newton(p.rows as u64, k, d);
    let out = |found: Vec<Vec<f64>>| found.first().map_or(Value::Null, |all| rows(all, k, d));
    computed(make, &[&p.elements, &c.elements], runs, out)
}

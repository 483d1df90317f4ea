//! Optimization inside of optimization: ridge regression by gradient descent, tuned by gradients of what it gives.

use super::scalar;
use adfuse::autodiff::grad;
use adfuse::prelude::*;

/// The mean square of the residuals `a theta - y`, and the square of `theta` times the penalty.
fn training(rows: u64) -> Result<Traced, Diagnostic> {
    trace("training", |t| {
        let theta = t.input("theta", f64s([3]));
        let a = t.input("a", f64s([rows, 3]));
        let y = t.input("y", f64s([rows]));
        let penalty = t.input("penalty", scalar());
        (a.dot(&theta) - y).square().mean(&[0]) + penalty * theta.square().sum(&[0])
    })
}

/// The parameters of [`ridge`].
fn ridge_inputs(t: &Tracer) -> [Tensor; 6] {
    let data = [("a", f64s([8, 3])), ("y", f64s([8])), ("b", f64s([6, 3])), ("z", f64s([6]))];
    let data = data.map(|(name, ty)| t.input(name, ty));
    let [a, y, b, z] = data;
    [a, y, b, z, t.input("penalty", scalar()), t.input("rate", scalar())]
}

/// The loss on other data of what `steps` of gradient descent find. Parameters are the data `a`, `[8, 3]`, `y`, `[8]`,
/// the other data `b`, `[6, 3]`, `z`, `[6]`, the penalty and the rate of the descent.
pub(crate) fn ridge(steps: i64) -> Result<Traced, Diagnostic> {
    let loss = training(8)?;
    let slope = grad(&Module::from(loss.clone()), &loss, &[0])?;
    trace("ridge", |t| {
        let [a, y, b, z, penalty, rate] = ridge_inputs(t);
        let start = t.full(f64s([3]), 0.0);
        let theta = t.fori(0..steps, start, |_, theta| {
            let g = t.call(&slope, &[&theta, &a, &y, &penalty]).remove(0);
            &theta - rate.broadcast_like(&g) * g
        });
        (b.dot(&theta) - z).square().mean(&[0])
    })
}

/// As [`ridge`], of a penalty and a rate that `outer` steps of gradient descent have tuned first: a loop whose steps
/// are gradients of loops.
pub(crate) fn outer_descent(steps: i64, outer: i64) -> Result<Traced, Diagnostic> {
    let inner = ridge(steps)?;
    let slope = grad(&Module::from(inner.clone()), &inner, &[4, 5])?;
    trace("outer_descent", |t| {
        let [a, y, b, z, penalty, rate] = ridge_inputs(t);
        let tuned = t.fori(0..outer, (penalty, rate), |_, (penalty, rate)| {
            let g = t.call(&slope, &[&a, &y, &b, &z, &penalty, &rate]);
            (penalty - &g[0] * 0.05, rate - &g[1] * 0.05)
        });
        t.call(&inner, &[&a, &y, &b, &z, &tuned.0, &tuned.1]).remove(0)
    })
}

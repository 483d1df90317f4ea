//! A layer whose output is its own input, differentiated through the steps that find it and by the implicit function
//! theorem.

use super::scalar;
use adfuse::prelude::*;

/// Solves `z = tanh(w z + x)` by repetition, until nothing changes by more than `1e-15`, at most 400 times.
fn solved(t: &Tracer, start: Tensor, layer: impl Fn(&Tensor) -> Tensor) -> Tensor {
    let count = t.full(i32s([]), 0.0);
    let far = t.full(scalar(), 1.0);
    let more = |(count, far, _): (Tensor, Tensor, Tensor)| {
        t.apply(Op::And, &[&count.lt(400.0), &far.gt(1e-15)], Attrs::none(), None)
    };
    let (_, _, z) = t.while_loop((count, far, start), more, |(count, _, z)| {
        let next = layer(&z);
        let far = (&next - &z).abs().max_over(&[0]);
        (count + 1.0, far, next)
    });
    z
}

fn equilibrium(name: &str, by_root: bool) -> Result<Traced, Diagnostic> {
    trace(name, |t| {
        let w = t.input("w", f64s([4, 4]));
        let x = t.input("x", f64s([4]));
        let layer = |z: &Tensor| (w.dot(z) + &x).tanh();
        let start = t.full(f64s([4]), 0.0);
        let z = match by_root {
            false => solved(t, start, layer),
            true => t.custom_root(start, |z| solved(t, z, layer), |z| &z - layer(&z)),
        };
        z.powi(3).sum(&[0])
    })
}

/// The sum of cubes of an equilibrium; gradients go through the steps of its `while`. Parameters are the weights `w`,
/// `[4, 4]`, and the input `x`, `[4]`.
pub(crate) fn equilibrium_by_steps() -> Result<Traced, Diagnostic> {
    equilibrium("equilibrium_by_steps", false)
}

/// As [`equilibrium_by_steps`]; gradients solve a linear system.
pub(crate) fn equilibrium_by_root() -> Result<Traced, Diagnostic> {
    equilibrium("equilibrium_by_root", true)
}

//! Recurrent networks by `scan`.

use adfuse::prelude::*;

/// An LSTM over a sequence: the loss is the sum of squares of the last state. Parameters are `wx` and `wh`,
/// `[units, 4 units]`, `b`, `[4 units]`, and the sequence `xs`, `[steps, batch, units]`.
pub(crate) fn lstm(dtype: DType, batch: u64, units: u64, steps: u64) -> Result<Traced, Diagnostic> {
    let of = |dims: &[u64]| TensorType::of(dtype, dims);
    trace("lstm", |t| {
        let wx = t.input("wx", of(&[units, 4 * units]));
        let wh = t.input("wh", of(&[units, 4 * units]));
        let b = t.input("b", of(&[4 * units]));
        let xs = t.input("xs", of(&[steps, batch, units]));
        let zero = t.full(of(&[batch, units]), 0.0);
        let ((h, _), ()) = t.scan((zero.clone(), zero), xs, |(h, c), x| {
            let z = x.dot(&wx) + h.dot(&wh);
            let gates = (&z + b.broadcast_like(&z)).split(&[units; 4], 1);
            let (i, f, g, o) = (&gates[0], &gates[1], &gates[2], &gates[3]);
            let c = f.logistic() * c + i.logistic() * g.tanh();
            let h = o.logistic() * c.tanh();
            ((h, c), ())
        });
        h.square().sum(&[0, 1])
    })
}

/// A plain recurrent network, `h = tanh(h w + x)`: the loss is the sum of the last state. Parameters are `w`,
/// `[units, units]`, the first state `h`, `[units]`, and the sequence `xs`, `[steps, units]`.
pub(crate) fn tanh_steps(dtype: DType, units: u64, steps: u64) -> Result<Traced, Diagnostic> {
    let of = |dims: &[u64]| TensorType::of(dtype, dims);
    trace("tanh_steps", |t| {
        let w = t.input("w", of(&[units, units]));
        let h = t.input("h", of(&[units]));
        let xs = t.input("xs", of(&[steps, units]));
        let (last, ()) = t.scan(h, xs, |h, x| ((h.dot(&w) + x).tanh(), ()));
        last.sum(&[0])
    })
}

//! Recurrent nets, one instruction list for all steps: what a user writes as a Rust loop.

use super::Weights;
use adfuse::prelude::*;

/// The loss of a net `h = tanh(x wx + h wh + b)` over `steps`, with a dense layer to ten outputs: the sum of squared errors.
///
/// # Errors
/// As [`trace`].
pub fn tanh_net([steps, batch, inputs, units]: [u64; 4]) -> Result<Traced, Diagnostic> {
    trace("tanh_net", |t| {
        let w = Weights::new(t, DType::F32);
        let xs = w.data("x", [steps, batch, inputs]);
        let (wx, wh, b) = (w.next([inputs, units]), w.next([units, units]), w.next([units]));
        let mut h = w.next([batch, units]);
        for x in xs.unstack(0) {
            h = (x.dot(&wx) + h.dot(&wh) + &b).tanh();
        }
        (h.dot(&w.next([units, 10])) - w.data("target", [batch, 10])).square().sum(..)
    })
}

/// The loss of an LSTM over `steps`: the sum of squared errors of its last state.
///
/// # Errors
/// As [`trace`].
pub fn lstm([steps, batch, inputs, units]: [u64; 4]) -> Result<Traced, Diagnostic> {
    trace("lstm", |t| {
        let w = Weights::new(t, DType::F32);
        let xs = w.data("x", [steps, batch, inputs]);
        let (wx, wh) = (w.next([inputs, 4 * units]), w.next([units, 4 * units]));
        let b = w.next([4 * units]);
        let (mut h, mut c) = (w.next([batch, units]), w.next([batch, units]));
        for x in xs.unstack(0) {
            let gates = (x.dot(&wx) + h.dot(&wh) + &b).split(&[units; 4], 1);
            c = gates[1].logistic() * &c + gates[0].logistic() * gates[2].tanh();
            h = gates[3].logistic() * c.tanh();
        }
        (h - w.data("target", [batch, units])).square().sum(..)
    })
}

/// A sequence read in slices, one after the other: `h = tanh(h + tanh(x))`, and the sum of the last state. The gradient is in the sequence.
///
/// # Errors
/// As [`trace`].
pub fn slices([steps, batch, inputs]: [u64; 3]) -> Result<Traced, Diagnostic> {
    trace("slices", |t| {
        let xs = t.input("x", f32s([steps, batch, inputs]));
        let all = xs.unstack(0).into_iter().map(|x| x.tanh());
        all.reduce(|h, x| (h + x).tanh()).map_or_else(|| xs.sum(..), |h| h.sum(..))
    })
}

//! Differential equations: a fit of Lotka-Volterra by the method of Runge and Kutta of order 4, and the method of
//! Dormand and Prince with step control.

use super::scalar;
use adfuse::prelude::*;

/// The step of [`fit`] in time.
const STEP: f64 = 0.1;

/// The mean square distance between a solution of Lotka-Volterra and observations `seen`, `[steps, 2]`. Parameters are
/// the four rates `p` and the populations `start`, `[2]`, at the beginning.
pub(crate) fn fit(steps: u64) -> Result<Traced, Diagnostic> {
    trace("fit", |t| {
        let p = t.input("p", f64s([4])).split(&[1; 4], 0);
        let start = t.input("start", f64s([2])).split(&[1; 2], 0);
        let seen = t.input("seen", f64s([steps, 2]));
        // Rates of change of prey and predators.
        let rates = |x: &Tensor, y: &Tensor| {
            let met = x * y;
            (&p[0] * x - &p[1] * &met, &p[2] * &met - &p[3] * y)
        };
        let state = (start[0].clone(), start[1].clone());
        let (_, squares) = t.scan(state, seen, |(x, y), seen| {
            let a = rates(&x, &y);
            let b = rates(&(&x + &a.0 * (0.5 * STEP)), &(&y + &a.1 * (0.5 * STEP)));
            let c = rates(&(&x + &b.0 * (0.5 * STEP)), &(&y + &b.1 * (0.5 * STEP)));
            let d = rates(&(&x + &c.0 * STEP), &(&y + &c.1 * STEP));
            let mean = |a: &Tensor, b: &Tensor, c: &Tensor, d: &Tensor| {
                (a + b * 2.0 + c * 2.0 + d) * (STEP / 6.0)
            };
            let x = x + mean(&a.0, &b.0, &c.0, &d.0);
            let y = y + mean(&a.1, &b.1, &c.1, &d.1);
            let seen = seen.split(&[1; 2], 0);
            let square = (&x - &seen[0]).square() + (&y - &seen[1]).square();
            ((x, y), square)
        });
        squares.mean(&[0, 1])
    })
}

/// The method of Dormand and Prince: weights of earlier stages in each stage, then those of the error.
const STAGES: [&[f64]; 6] = [
    &[1.0 / 5.0],
    &[3.0 / 40.0, 9.0 / 40.0],
    &[44.0 / 45.0, -56.0 / 15.0, 32.0 / 9.0],
    &[19372.0 / 6561.0, -25360.0 / 2187.0, 64448.0 / 6561.0, -212.0 / 729.0],
    &[9017.0 / 3168.0, -355.0 / 33.0, 46732.0 / 5247.0, 49.0 / 176.0, -5103.0 / 18656.0],
    &[35.0 / 384.0, 0.0, 500.0 / 1113.0, 125.0 / 192.0, -2187.0 / 6784.0, 11.0 / 84.0],
];
const ERROR: [f64; 7] = [
    71.0 / 57600.0,
    0.0,
    -71.0 / 16695.0,
    71.0 / 1920.0,
    -17253.0 / 339200.0,
    22.0 / 525.0,
    -1.0 / 40.0,
];
const END: f64 = 3.0;
const TOLERANCE: f64 = 1e-7;

/// The oscillator of van der Pol, integrated to [`END`] by a `while` with step control; the loss is the sum of squares
/// of the last state. Parameters are the damping `mu` and the first state `start`, `[2]`.
pub(crate) fn adaptive() -> Result<Traced, Diagnostic> {
    trace("adaptive", |t| {
        let mu = t.input("mu", scalar());
        let start = t.input("start", f64s([2])).split(&[1; 2], 0);
        let mu = mu.reshape([1]);
        let slope = |s: &[Tensor; 2]| [s[1].clone(), &mu * (1.0 - s[0].square()) * &s[1] - &s[0]];
        let time = t.full(f64s([1]), 0.0);
        let first = t.full(f64s([1]), 0.05);
        let state = [start[0].clone(), start[1].clone()];
        let more = |(time, _, _): (Tensor, Tensor, [Tensor; 2])| (END - time).gt(1e-12).reshape(());
        let (_, _, last) = t.while_loop((time, first, state), more, |(time, wanted, state)| {
            let h = wanted.min(END - &time);
            // What weights of the stages so far make of one coordinate.
            let along = |slopes: &[[Tensor; 2]], weights: &[f64], k: usize| {
                let used = slopes.iter().zip(weights).filter(|(_, w)| **w != 0.0);
                used.map(|(s, w)| &s[k] * *w).reduce(|a, b| a + b).expect("a weight") * &h
            };
            let mut slopes = vec![slope(&state)];
            let mut next = state.clone();
            for weights in STAGES {
                next = [0, 1].map(|k| &state[k] + along(&slopes, weights, k));
                slopes.push(slope(&next));
            }
            let scaled = [0, 1].map(|k| {
                let size = state[k].abs().max(next[k].abs());
                along(&slopes, &ERROR, k) / ((size + 1.0) * TOLERANCE)
            });
            let error = ((scaled[0].square() + scaled[1].square()) * 0.5).max(1e-20).sqrt();
            let factor = (error.pow(-0.2) * 0.9).max(0.2).min(5.0);
            let taken = error.le(1.0);
            let time = taken.select(&(&time + &h), &time);
            let state = [0, 1].map(|k| taken.select(&next[k], &state[k]));
            (time, &h * factor, state)
        });
        (last[0].square() + last[1].square()).reshape(())
    })
}

//! Recurrent layers, by scans over time.

use super::{Init, Param, accepts, extent};
use crate::ir::{Dim, Kind, TensorType};
use crate::trace::Tensor;
use crate::tree::Params;
use std::borrow::Borrow;

/// A long short-term memory (Hochreiter and Schmidhuber 1997) as PyTorch has it: gates input, forget, cell, output.
///
/// ```
/// use adfuse::nn::{self, Lstm};
/// use adfuse::prelude::*;
///
/// let lstm = nn::init(&Lstm::new(3, 4), 0)?;
/// let f = adfuse::eval_step(|l: &Lstm, x: Tensor| {
///     // A sequence in two parts is the sequence.
///     let (whole, _) = l.apply(&x);
///     let (first, state) = l.apply(x.slice((.., ..2)));
///     let (second, _) = l.apply_from(x.slice((.., 2..)), state);
///     (whole, Tensor::concat(&[&first, &second], 1))
/// });
/// let x = Array::from_vec((0..30).map(|k| k as f32 * 0.1).collect(), [2, 5, 3])?;
/// let (whole, parts) = f.run(&Device::cpu(), &lstm, &x)?;
/// assert_eq!(whole.dims(), [2, 5, 4]);
/// assert_eq!(whole, parts);
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Params, Clone, Debug)]
pub struct Lstm<T = Tensor> {
    /// `[4 * hidden, in]`.
    pub weight_ih: T,
    /// `[4 * hidden, hidden]`.
    pub weight_hh: T,
    /// `[4 * hidden]`.
    pub bias_ih: T,
    /// `[4 * hidden]`.
    pub bias_hh: T,
}

/// A gated recurrent unit (Cho et al. 2014) as PyTorch has it: gates reset, update, new.
///
/// ```
/// use adfuse::nn::{self, Gru};
/// use adfuse::prelude::*;
///
/// let gru = nn::init(&Gru::new(3, 4), 0)?;
/// let f = adfuse::eval_step(|g: &Gru, x: Tensor| g.apply(x));
/// let (y, last) = f.run(&Device::cpu(), &gru, &Array::from_vec(vec![1f32; 30], [2, 5, 3])?)?;
/// assert_eq!((y.dims(), last.dims()), (&[2, 5, 4][..], &[2, 4][..]));
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Params, Clone, Debug)]
pub struct Gru<T = Tensor> {
    /// `[3 * hidden, in]`.
    pub weight_ih: T,
    /// `[3 * hidden, hidden]`.
    pub weight_hh: T,
    /// `[3 * hidden]`.
    pub bias_ih: T,
    /// `[3 * hidden]`.
    pub bias_hh: T,
}

/// Parameters of a cell with this many gates: uniform in `±1 / sqrt(hidden)`.
fn cell(gates: u64, inputs: u64, hidden: u64) -> [Param; 4] {
    let of = |dims: Vec<u64>| Param::new(dims, Init::OfFan(hidden));
    let n = gates.saturating_mul(hidden);
    [of(vec![n, inputs]), of(vec![n, hidden]), of(vec![n]), of(vec![n])]
}

impl Lstm<Param> {
    /// Of `inputs` features to `hidden`.
    pub fn new(inputs: u64, hidden: u64) -> Lstm<Param> {
        let [weight_ih, weight_hh, bias_ih, bias_hh] = cell(4, inputs, hidden);
        Lstm { weight_ih, weight_hh, bias_ih, bias_hh }
    }
}

impl Gru<Param> {
    /// Of `inputs` features to `hidden`.
    pub fn new(inputs: u64, hidden: u64) -> Gru<Param> {
        let [weight_ih, weight_hh, bias_ih, bias_hh] = cell(3, inputs, hidden);
        Gru { weight_ih, weight_hh, bias_ih, bias_hh }
    }
}

/// A sequence by its steps: `[time, batch, gates]` of `[batch, time, in]`. Products with what does not depend on the step before are one
/// product. The features are transposed rather than the gates, which are more: so products and their gradients read and write gates as steps
/// do. `None` after an error, where the sequence or a state does not fit.
#[track_caller]
fn steps(
    x: &Tensor,
    layer: &str,
    [weight, bias]: [&Tensor; 2],
    (states, hidden): (&[Tensor], Dim),
) -> Option<Tensor> {
    let (shape, own) = (x.ty().shape, weight.ty().shape);
    let fits = shape.len() == 3 && own.len() == 2 && shape[2] == own[1];
    if !accepts(x, (layer, weight), fits, &format!("[batch, time, {}]", extent(weight, 1))) {
        return None;
    }
    let due = state_type(x, hidden);
    if let Some(other) = states.iter().find(|s| s.ty() != due) {
        let m = format!("{layer} of {} begins with a state {due}, found {}", x.ty(), other.ty());
        x.fail(Kind::Shape, m);
        return None;
    }
    let by_time = x.transpose([1, 0, 2]);
    Some(by_time.dot_general(weight, (&[], &[]), (&[2], &[1])) + bias)
}

/// `[batch, hidden]`, for sequences `[batch, ..]`.
fn state_type(x: &Tensor, hidden: Dim) -> TensorType {
    let batch = x.ty().shape.first().copied();
    let shape = batch.into_iter().chain([hidden]).collect();
    TensorType { dtype: x.dtype(), shape }
}

/// `h W^T` for `h: [batch, hidden]`.
fn through(h: &Tensor, weight: &Tensor) -> Tensor {
    h.dot_general(weight, (&[], &[]), (&[1], &[1]))
}

impl Lstm {
    /// Of `[batch, time, in]`, the outputs `[batch, time, hidden]` and the last state and cell, `[batch, hidden]` each. The first are zeros.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, x: impl Borrow<Tensor>) -> (Tensor, (Tensor, Tensor)) {
        let x = x.borrow();
        let zeros = x.tracer().zeros(state_type(x, hidden(&self.weight_hh)));
        self.apply_from(x, (zeros.clone(), zeros))
    }

    /// As [`Lstm::apply`], from a first state and cell, such as the last of the sequence before.
    #[track_caller]
    #[must_use]
    pub fn apply_from(
        &self,
        x: impl Borrow<Tensor>,
        (h, c): (Tensor, Tensor),
    ) -> (Tensor, (Tensor, Tensor)) {
        let (x, n) = (x.borrow(), hidden(&self.weight_hh));
        let bias = &self.bias_ih + &self.bias_hh;
        let first = [h, c];
        let products = steps(x, "an LSTM", [&self.weight_ih, &bias], (&first, n));
        let [h, c] = first;
        let Some(products) = products else { return (x.clone(), (h, c)) };
        let n = n.known().unwrap_or(0);
        let (last, all) = x.tracer().scan((h, c), products, |(h, c), product| {
            let gates = product + through(&h, &self.weight_hh);
            let parts = gates.split(&[n; 4], 1);
            let [i, f, g, o] = parts.as_slice() else { return ((h.clone(), c), h) };
            let c = f.logistic() * c + i.logistic() * g.tanh();
            let h = o.logistic() * c.tanh();
            ((h.clone(), c), h)
        });
        (all.transpose([1, 0, 2]), last)
    }
}

impl Gru {
    /// Of `[batch, time, in]`, the outputs `[batch, time, hidden]` and the last state, `[batch, hidden]`. The first is zeros.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, x: impl Borrow<Tensor>) -> (Tensor, Tensor) {
        let x = x.borrow();
        let zeros = x.tracer().zeros(state_type(x, hidden(&self.weight_hh)));
        self.apply_from(x, zeros)
    }

    /// As [`Gru::apply`], from a first state, such as the last of the sequence before.
    #[track_caller]
    #[must_use]
    pub fn apply_from(&self, x: impl Borrow<Tensor>, h: Tensor) -> (Tensor, Tensor) {
        let (x, n) = (x.borrow(), hidden(&self.weight_hh));
        let first = [h];
        let products = steps(x, "a GRU", [&self.weight_ih, &self.bias_ih], (&first, n));
        let [h] = first;
        let Some(products) = products else { return (x.clone(), h) };
        let n = n.known().unwrap_or(0);
        let (last, all) = x.tracer().scan(h, products, |h, product| {
            let own = through(&h, &self.weight_hh) + &self.bias_hh;
            let (given, own) = (product.split(&[n; 3], 1), own.split(&[n; 3], 1));
            let ([r, z, new], [r_own, z_own, new_own]) = (given.as_slice(), own.as_slice()) else {
                return (h.clone(), h);
            };
            let reset = (r + r_own).logistic();
            let keep = (z + z_own).logistic();
            let new = (new + reset * new_own).tanh();
            let h = (1.0 - &keep) * new + &keep * h;
            (h.clone(), h)
        });
        (all.transpose([1, 0, 2]), last)
    }
}

/// The extent of the state.
fn hidden(weight_hh: &Tensor) -> Dim {
    weight_hh.ty().shape.get(1).copied().unwrap_or(Dim::Const(0))
}

//! Recurrent layers, by scans over time.

use super::{Init, Param};
use crate::ir::{Kind, TensorType};
use crate::trace::Tensor;
use crate::tree::Params;
use std::borrow::Borrow;

/// A long short-term memory (Hochreiter and Schmidhuber 1997) as PyTorch has it: gates input, forget, cell, output.
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
    let n = gates * hidden;
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

/// A sequence by its steps: `[time, batch, features]` of `[batch, time, features]`, with the products of all steps' inputs, and a first state of
/// zeros. Products with what does not depend on the step before are one product.
#[track_caller]
fn steps(x: &Tensor, weight: &Tensor, bias: &Tensor, hidden: u64) -> Option<(Tensor, Tensor)> {
    let ty = x.ty();
    let dims = ty.dims().filter(|d| d.len() == 3);
    let (Some(dims), Some(inputs)) = (dims, weight.ty().shape.get(1).and_then(|d| d.known()))
    else {
        let m = format!("a recurrent layer takes [batch, time, features], found {ty}");
        x.fail(Kind::Shape, m);
        return None;
    };
    if dims[2] != inputs {
        x.fail(Kind::Shape, format!("a recurrent layer of {inputs} features takes no {ty}"));
        return None;
    }
    let products = x.dot_general(weight, (&[], &[]), (&[2], &[1])) + bias;
    let zeros = x.tracer().zeros(TensorType::of(x.dtype(), &[dims[0], hidden]));
    Some((products.transpose([1, 0, 2]), zeros))
}

/// `h W^T` for `h: [batch, hidden]`.
fn through(h: &Tensor, weight: &Tensor) -> Tensor {
    h.dot_general(weight, (&[], &[]), (&[1], &[1]))
}

impl Lstm {
    /// Of `[batch, time, in]`, the outputs `[batch, time, hidden]` and the last state and cell, `[batch, hidden]` each.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, x: impl Borrow<Tensor>) -> (Tensor, (Tensor, Tensor)) {
        let x = x.borrow();
        let n = hidden(&self.weight_hh);
        let bias = &self.bias_ih + &self.bias_hh;
        let Some((products, zeros)) = steps(x, &self.weight_ih, &bias, n) else {
            return (x.clone(), (x.clone(), x.clone()));
        };
        let init = (zeros.clone(), zeros);
        let (last, all) = x.tracer().scan(init, products, |(h, c), product| {
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
    /// Of `[batch, time, in]`, the outputs `[batch, time, hidden]` and the last state, `[batch, hidden]`.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, x: impl Borrow<Tensor>) -> (Tensor, Tensor) {
        let x = x.borrow();
        let n = hidden(&self.weight_hh);
        let Some((products, zeros)) = steps(x, &self.weight_ih, &self.bias_ih, n) else {
            return (x.clone(), x.clone());
        };
        let (last, all) = x.tracer().scan(zeros, products, |h, product| {
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
fn hidden(weight_hh: &Tensor) -> u64 {
    weight_hh.ty().shape.get(1).and_then(|d| d.known()).unwrap_or(0)
}

//! Attention with several heads.

use super::{Dropout, Linear, Param};
use crate::ir::Kind;
use crate::trace::Tensor;
use crate::tree::Params;
use std::borrow::Borrow;

/// Attention with several heads (Vaswani et al. 2017): `softmax(Q K^T / sqrt(d)) V` for each head.
///
/// Heads of queries may share heads of keys and values (grouped heads, Ainslie et al. 2023), and positions may turn queries and keys (rotary
/// embedding, Su et al. 2021).
#[derive(Params, Clone, Debug)]
pub struct MultiHeadAttention<T = Tensor> {
    /// `[heads * d, features]`.
    pub q: Linear<T>,
    /// `[groups * d, features]`.
    pub k: Linear<T>,
    /// `[groups * d, features]`.
    pub v: Linear<T>,
    /// `[features, heads * d]`.
    pub out: Linear<T>,
    /// The number of heads.
    pub heads: u64,
    /// The number of heads of keys and values, which divides `heads`.
    pub groups: u64,
    /// Whether positions see none that come after them.
    pub causal: bool,
    /// The base of rotary embeddings.
    pub rope: Option<f64>,
    /// Of the weights of positions.
    pub dropout: Dropout,
}

impl MultiHeadAttention<Param> {
    /// Of `features`, divided among `heads` heads, with biases.
    pub fn new(features: u64, heads: u64) -> MultiHeadAttention<Param> {
        let linear = || Linear::new(features, features);
        MultiHeadAttention {
            q: linear(),
            k: linear(),
            v: linear(),
            out: linear(),
            heads,
            groups: heads,
            causal: false,
            rope: None,
            dropout: Dropout::new(0.0),
        }
    }

    /// With fewer heads of keys and values, a divisor of the heads.
    #[must_use]
    pub fn groups(mut self, groups: u64) -> MultiHeadAttention<Param> {
        let features = self.q.weight.ty.dims().and_then(|d| d.first().copied()).unwrap_or(0);
        let own = features / self.heads.max(1) * groups;
        self.groups = groups;
        for linear in [&mut self.k, &mut self.v] {
            let bias = linear.bias.is_some();
            *linear = Linear::new(features, own);
            if !bias {
                linear.bias = None;
            }
        }
        self
    }

    /// Where no position sees one after it.
    #[must_use]
    pub fn causal(self) -> MultiHeadAttention<Param> {
        MultiHeadAttention { causal: true, ..self }
    }

    /// With rotary embeddings of base 10000.
    #[must_use]
    pub fn rope(self) -> MultiHeadAttention<Param> {
        MultiHeadAttention { rope: Some(10_000.0), ..self }
    }

    /// With dropout of the weights of positions.
    #[must_use]
    pub fn dropout(self, p: f64) -> MultiHeadAttention<Param> {
        MultiHeadAttention { dropout: Dropout::new(p), ..self }
    }

    /// Without biases.
    #[must_use]
    pub fn no_bias(mut self) -> MultiHeadAttention<Param> {
        for linear in [&mut self.q, &mut self.k, &mut self.v, &mut self.out] {
            linear.bias = None;
        }
        self
    }
}

impl MultiHeadAttention {
    /// Of a sequence to itself: of `[batch, time, features]`, the same shape.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = x.borrow();
        self.attend(x, x, None)
    }

    /// Of `x: [batch, time, features]` to `memory: [batch, steps, features]`. Where `mask: bool[time, steps]` is false nothing is seen.
    #[track_caller]
    #[must_use]
    pub fn attend(&self, x: &Tensor, memory: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let (ty, seen) = (x.ty(), memory.ty());
        let [Some(dims), Some(steps)] = [ty.dims(), seen.dims()] else {
            return x.refused(Kind::Shape, format!("attention needs known extents, found {ty}"));
        };
        let (&[batch, time, _], &[_, steps, _]) = (&dims[..], &steps[..]) else {
            let m = format!("attention takes [batch, time, features], found {ty} and {seen}");
            return x.refused(Kind::Shape, m);
        };
        if self.groups == 0 || self.heads % self.groups != 0 {
            let m = format!("{} groups do not divide {} heads", self.groups, self.heads);
            return x.refused(Kind::Shape, m);
        }
        // [batch, groups, heads of a group, time, d] and [batch, groups, steps, d].
        let shared = self.heads / self.groups;
        let q = self.q.apply(x);
        let d = q.ty().shape.last().and_then(|d| d.known()).unwrap_or(0) / self.heads;
        let q = q.reshape([batch, time, self.heads, d]).transpose([0, 2, 1, 3]);
        let split = |y: Tensor| y.reshape([batch, steps, self.groups, d]).transpose([0, 2, 1, 3]);
        let (mut k, v) = (split(self.k.apply(memory)), split(self.v.apply(memory)));
        let mut q = q;
        if let Some(base) = self.rope {
            q = turned(&q, base);
            k = turned(&k, base);
        }
        let q = q.reshape([batch, self.groups, shared, time, d]);
        let scores = q.dot_general(&k, (&[0, 1], &[0, 1]), (&[4], &[3])) / (d as f64).sqrt();
        let scores = match self.visible(x, [time, steps], mask) {
            None => scores,
            Some(visible) => visible.broadcast_like(&scores).select(&scores, f64::NEG_INFINITY),
        };
        let weights = self.dropout.apply(scores.softmax(-1));
        let y = weights.dot_general(&v, (&[0, 1], &[0, 1]), (&[4], &[2]));
        // [batch, groups, heads of a group, time, d] to [batch, time, features].
        let y = y.transpose([0, 3, 1, 2, 4]).reshape([batch, time, self.heads * d]);
        self.out.apply(y)
    }

    /// `bool[time, steps]`: which steps a position sees.
    #[track_caller]
    fn visible(&self, x: &Tensor, extents: [u64; 2], mask: Option<&Tensor>) -> Option<Tensor> {
        use crate::ir::{DType, TensorType};
        let before = self.causal.then(|| {
            let t = x.tracer();
            let place = |axis: i64| t.iota(TensorType::of(DType::I32, &extents), axis);
            // The last position sees all steps.
            let ahead = extents[1] as i64 - extents[0] as i64;
            (place(0) + ahead).ge(place(1))
        });
        match (before, mask) {
            (Some(before), Some(mask)) => Some(before & mask),
            (before, mask) => before.or(mask.cloned()),
        }
    }
}

/// Pairs of numbers, the halves of the last axis, turned by angles that grow with the place along the axis before (GPT-NeoX's pairing).
#[track_caller]
fn turned(x: &Tensor, base: f64) -> Tensor {
    let ty = x.ty();
    let dims = ty.dims().unwrap_or_default();
    let (Some(&d), Some(&time)) = (dims.last(), dims.get(dims.len().saturating_sub(2))) else {
        return x.clone();
    };
    if d % 2 != 0 {
        return x.refused(Kind::Shape, format!("rotary embedding turns pairs: {d} is odd"));
    }
    let t = x.tracer();
    let half = crate::ir::TensorType::of(x.dtype(), &[time, d / 2]);
    let frequency = (t.iota(half.clone(), -1) * (-2.0 / d as f64 * base.ln())).exp();
    let angle = t.iota(half, 0) * frequency;
    let (cos, sin) = (angle.cos(), angle.sin());
    let parts = x.split(&[d / 2, d / 2], -1);
    let [a, b] = parts.as_slice() else { return x.clone() };
    Tensor::concat(&[&(a * &cos - b * &sin), &(b * &cos + a * &sin)], -1)
}

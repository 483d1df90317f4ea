//! Attention with several heads.

use super::{Dropout, Linear, Param};
use crate::ir::{DType, Kind, TensorType};
use crate::trace::{AttentionMask, Tensor};
use crate::tree::Params;
use std::borrow::Borrow;

/// Attention with several heads (Vaswani et al. 2017): `softmax(Q K^T / sqrt(d)) V` for each head.
///
/// Heads of queries may share heads of keys and values (grouped heads, Ainslie et al. 2023), and positions may turn queries and keys (rotary
/// embedding, Su et al. 2021).
///
/// ```
/// use adfuse::nn::{self, MultiHeadAttention};
/// use adfuse::prelude::*;
///
/// // Four heads of queries share two of keys and values.
/// let layer = MultiHeadAttention::new(16, 4).groups(2).causal().rope().no_bias();
/// let values = nn::init(&layer, 0)?;
/// assert_eq!(values.k.weight.dims(), [8, 16]);
/// let f = adfuse::eval_step(|a: &MultiHeadAttention, x: Tensor| a.apply(x));
/// let y = f.run(&Device::cpu(), &values, &Array::from_vec(vec![1f32; 160], [2, 5, 16])?)?;
/// assert_eq!(y.dims(), [2, 5, 16]);
/// # Ok::<(), Diagnostic>(())
/// ```
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
    /// How many positions before it, and after it, a position sees; all of them where it is `None`.
    pub window: Option<u64>,
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
            window: None,
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

    /// Where no position sees one that is more than `n` positions away: a sliding window (Beltagy et al. 2020). Where
    /// the engine has a step for attention, and no weights are dropped, its time is linear in the length. With [`causal`](Self::causal), a position sees itself and `n` before it.
    #[must_use]
    pub fn window(self, n: u64) -> MultiHeadAttention<Param> {
        MultiHeadAttention { window: Some(n), ..self }
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

    /// Of `x: [batch, time, features]` to `memory: [batch, steps, features]`. Where `mask: bool[time, steps]` is false nothing is seen; a
    /// position that sees nothing at all is NaN.
    #[track_caller]
    #[must_use]
    pub fn attend(&self, x: &Tensor, memory: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let [batch, time, steps, d] = match self.extents(&x.ty(), &memory.ty(), mask) {
            Ok(extents) => extents,
            Err(m) => return x.refused(Kind::Shape, m),
        };
        // [batch, heads, time, d] and [batch, groups, steps, d].
        let shared = self.heads / self.groups;
        let q = self.q.apply(x).reshape([batch, time, self.heads, d]).transpose([0, 2, 1, 3]);
        let split = [batch, steps, self.groups, d];
        let mut k = self.k.apply(memory).reshape(split).transpose([0, 2, 1, 3]);
        let v = self.v.apply(memory).reshape(split).transpose([0, 2, 1, 3]);
        let mut q = q;
        if let Some(base) = self.rope {
            q = turned(&q, base);
            k = turned(&k, base);
        }
        let q = q / (d as f64).sqrt();
        let y = match self.dropout.p == 0.0 || !x.tracer().is_training() {
            true => {
                let mask = mask.map(|m| m.reshape([1, 1, time, steps]));
                let (causal, window) = (self.causal, [self.window; 2]);
                q.attention(&k, &v, AttentionMask { causal, window, extra: mask.as_ref() }).0
            }
            // In training, weights are dropped one by one.
            false => {
                let q = q.reshape([batch, self.groups, shared, time, d]);
                let scores = q.dot_general(&k, (&[0, 1], &[0, 1]), (&[4], &[3]));
                let scores = match self.visible(x, [time, steps], mask) {
                    None => scores,
                    Some(visible) => {
                        visible.broadcast_like(&scores).select(&scores, f64::NEG_INFINITY)
                    }
                };
                let weights = self.dropout.apply(scores.softmax(-1));
                let y = weights.dot_general(&v, (&[0, 1], &[0, 1]), (&[4], &[2]));
                y.reshape([batch, self.heads, time, d])
            }
        };
        // [batch, heads, time, d] to [batch, time, features].
        let y = y.transpose([0, 2, 1, 3]).reshape([batch, time, self.heads * d]);
        self.out.apply(y)
    }

    /// The extents of the batch, of time, of the steps of the memory and of a head.
    ///
    /// # Errors
    /// What does not fit.
    fn extents(
        &self,
        x: &TensorType,
        memory: &TensorType,
        mask: Option<&Tensor>,
    ) -> Result<[u64; 4], String> {
        let of = |l: &Linear, axis: usize| -> Option<u64> {
            l.weight.ty().shape.get(axis).and_then(|d| d.known())
        };
        let [q, k, v] = [&self.q, &self.k, &self.v].map(|l| of(l, 0).unwrap_or(0));
        let (heads, groups) = (self.heads, self.groups);
        if groups == 0 || heads % groups != 0 {
            return Err(format!("attention: {groups} groups do not divide {heads} heads"));
        }
        let d = q.checked_div(heads).unwrap_or(0);
        if d == 0
            || d.checked_mul(heads) != Some(q)
            || [k, v].map(Some) != [d.checked_mul(groups); 2]
        {
            return Err(format!(
                "attention of {heads} heads in {groups} groups: queries of {q} features, keys of {k} and values of {v} do not divide among them"
            ));
        }
        if self.rope.is_some() && d % 2 != 0 {
            return Err(format!("rotary embedding turns pairs, and heads have {d} features"));
        }
        let [dims, steps] = [x, memory].map(|ty| ty.dims().unwrap_or_default());
        let (&[batch, time, own], &[others, steps, seen]) = (&dims[..], &steps[..]) else {
            return Err(format!(
                "attention takes [batch, time, features] of known extents, found {x} and {memory}"
            ));
        };
        let due = [of(&self.q, 1), of(&self.k, 1)];
        if due != [Some(own), Some(seen)] || batch != others {
            let [own, seen] = due.map(|n| n.unwrap_or(0));
            let due = format!("[{batch}, time, {own}] and [{batch}, steps, {seen}]");
            return Err(format!("attention takes {due}, found {x} and {memory}"));
        }
        let due = TensorType::of(DType::Bool, &[time, steps]);
        match mask.map(Tensor::ty).filter(|found| *found != due) {
            Some(found) => Err(format!("a mask of attention is {due}, found {found}")),
            None => Ok([batch, time, steps, d]),
        }
    }

    /// `bool[time, steps]`: which steps a position sees.
    #[track_caller]
    fn visible(&self, x: &Tensor, extents: [u64; 2], mask: Option<&Tensor>) -> Option<Tensor> {
        let t = x.tracer();
        // How many steps a position is after another: the last position has the place of the last step.
        let after = || {
            let place = |axis: i64| t.iota(TensorType::of(DType::I64, &extents), axis);
            place(0) + (extents[1] as i64 - extents[0] as i64) - place(1)
        };
        let limit = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let seen = [
            self.causal.then(|| after().ge(0)),
            self.window.map(|n| after().abs().le(limit(n))),
            mask.cloned(),
        ];
        seen.into_iter().flatten().reduce(|x, y| x & y)
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
    let t = x.tracer();
    // Places are numbers that types of 16 bits do not have.
    let half = TensorType::of(x.dtype().compute(), &[time, d / 2]);
    let frequency = (t.iota(half.clone(), -1) * (-2.0 / d as f64 * base.ln())).exp();
    let angle = t.iota(half, 0) * frequency;
    let (cos, sin) = (angle.cos().convert(x.dtype()), angle.sin().convert(x.dtype()));
    let parts = x.split(&[d / 2, d / 2], -1);
    let [a, b] = parts.as_slice() else { return x.clone() };
    Tensor::concat(&[&(a * &cos - b * &sin), &(b * &cos + a * &sin)], -1)
}

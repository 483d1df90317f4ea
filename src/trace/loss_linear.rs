//! The cross entropy of a linear layer's scores, of which only some rows are in memory at a time.

use super::{Tensor, own_all};
use crate::ir::{Dim, Kind, TensorType};
use std::panic::Location;

/// What a loss goes over: all rows, with their scores a chunk at a time.
#[derive(Clone, Copy)]
struct ScoreRows {
    rows: u64,
    features: u64,
    classes: u64,
    /// The rows of a chunk.
    chunk: u64,
}

/// A loss, with its gradients by the features and by the weight.
struct ChunkedLoss {
    loss: Tensor,
    gradients: Option<(Tensor, Tensor)>,
}

impl Tensor {
    /// The mean of `-log(softmax(x W^T))` at the labels, of `x: [.., features]`, `W: [classes, features]` and integer labels `[..]`: the loss
    /// of [`Tensor::cross_entropy`] for a model's last layer, in at least `f32`. A label that is no class adds nothing.
    ///
    /// The scores of `rows` rows are in memory at a time, forward and backward. They become a part of the loss, and of the gradients for it; the
    /// weight's gradient is the sum of what chunks of rows give, each of the type of `x`, added up in at least `f32` from the first rows to the
    /// last. So no value is `[.., classes]` whole. Where a chunk's scores take less memory than the weight, a plan may multiply a few chunks by
    /// it at once. It is a function with a reverse rule of its own: it has no forward mode.
    ///
    /// ```
    /// use adfuse::prelude::*;
    ///
    /// let y = evaluate(|t| {
    ///     let (x, w) = (t.constant([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]]), t.constant([[1.0, 0.5], [0.0, 1.0]]));
    ///     let labels = t.constant([0, 1, 1]);
    ///     let whole = x.dot(&w.t()).cross_entropy(&labels);
    ///     (x.linear_cross_entropy(&w, &labels, 2) - whole).abs().lt(1e-6)
    /// })?;
    /// assert_eq!(y.to_f64s(), [1.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn linear_cross_entropy(&self, weight: &Tensor, labels: &Tensor, rows: u64) -> Tensor {
        let place = Location::caller();
        let own = own_all(&self.state, &[weight, labels], place, "`linear_cross_entropy`");
        if !own || !self.has_floats("linear_cross_entropy") {
            return self.clone();
        }
        let Some(of) = ScoreRows::of(self, weight, labels, rows) else {
            let m = format!(
                "`linear_cross_entropy` takes [.., features], [classes, features] of the same type, integer labels [..] and at least one row at a time, found {}, {}, {} and {rows}",
                self.ty, weight.ty, labels.ty
            );
            return self.refused(Kind::Shape, m);
        };
        let x = self.reshape([of.rows, of.features]);
        let labels = labels.numbering(Dim::Const(of.classes)).reshape([of.rows]);
        let loss = |(x, w): &(Tensor, Tensor)| of.loss(x, w, &labels, false).loss;
        let forward = |(x, w): &(Tensor, Tensor)| {
            let made = of.loss(x, w, &labels, true);
            (made.loss, made.gradients.unwrap_or_else(|| (x.clone(), w.clone())))
        };
        let backward = |gradients: &(Tensor, Tensor), by: &Tensor| {
            let scaled = |g: &Tensor, like: &Tensor| {
                let g = g.compute();
                (&g * by.convert(g.dtype())).convert(like.dtype())
            };
            (scaled(&gradients.0, self), scaled(&gradients.1, weight))
        };
        self.tracer().custom_vjp(place, &(x, weight.clone()), &loss, (&forward, &backward))
    }
}

impl ScoreRows {
    /// `None` where the tensors do not fit.
    fn of(x: &Tensor, weight: &Tensor, labels: &Tensor, chunk: u64) -> Option<ScoreRows> {
        let (own, w) = (x.ty.dims()?, weight.ty.dims()?);
        let (&features, before) = own.split_last()?;
        let &[classes, due] = w.as_slice() else { return None };
        let rows = before.iter().product();
        let fits = labels.ty.dims()?.as_slice() == before
            && labels.ty.dtype.is_int()
            && due == features
            && x.ty.dtype == weight.ty.dtype;
        (fits && chunk > 0).then_some(ScoreRows { rows, features, classes, chunk })
    }

    /// The loss, and its gradients where they are wanted.
    fn loss(&self, x: &Tensor, weight: &Tensor, labels: &Tensor, wanted: bool) -> ChunkedLoss {
        let t = x.tracer();
        let wide = x.dtype().compute();
        let mut loss = t.full(TensorType::scalar(wide), 0.0);
        let (mut by_rows, mut by_weight) = (Vec::new(), None);
        let mut first = 0;
        while first < self.rows {
            let last = (first + self.chunk).min(self.rows);
            let range = first as i64..last as i64;
            let (x, labels) = (x.slice(range.clone()), labels.slice(range));
            let scores = x.dot_general(weight, ([].as_slice(), &[]), (&[1], &[1]));
            let places = TensorType::of(labels.dtype(), &[last - first, self.classes]);
            let class = t.iota(places, 1);
            let is_label = class.eq(labels.spread_at(&[1], &class));
            let log = scores.compute().log_softmax(1);
            loss -= is_label.select(&log, 0.0).sum(..);
            if wanted {
                let is_class = labels.ge(0.0) & labels.lt(self.classes as f64);
                let known = is_class.convert(wide).spread_at(&[1], &log);
                let moved = (log.exp() * known - is_label.convert(wide)) / self.rows as f64;
                let moved = moved.convert(x.dtype());
                by_rows.push(moved.dot_general(weight, ([].as_slice(), &[]), (&[1], &[0])));
                let own = moved.dot_general(&x, ([].as_slice(), &[]), (&[0], &[0])).compute();
                by_weight = Some(match by_weight {
                    None => own,
                    Some(before) => before + own,
                });
            }
            first = last;
        }
        let loss = loss / (self.rows as f64);
        let gradients = by_weight.map(|by_weight| {
            let all: Vec<&Tensor> = by_rows.iter().collect();
            (Tensor::concat(&all, 0), by_weight)
        });
        ChunkedLoss { loss, gradients }
    }
}

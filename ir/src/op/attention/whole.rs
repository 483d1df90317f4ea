//! Attention with all scores at once: the same numbers as the defined order gives, rounded otherwise. Derivatives of
//! derivatives read it, and engines without a step for attention run it where the mode leaves the order to them.

use super::shape::AttentionShape;
use super::writer::{AttentionWriter, ScoreExtra};
use crate::builder::Builder;
use crate::entity::Value;
use crate::op::Op;
use crate::op::def::{RuleCx, Tangents};
use crate::op::tensor_writer::TensorWriter;
use smallvec::{SmallVec, smallvec};

/// Queries, keys, values, and what all scores follow from.
struct ScoreOperands {
    q: Value,
    k: Value,
    v: Value,
    extra: ScoreExtra,
    /// Where a key is seen; everywhere where there is none.
    seen: Option<Value>,
}

impl AttentionWriter<'_> {
    fn operands(&mut self, [q, k, v]: [Value; 3], extra: Option<&Value>) -> ScoreOperands {
        let AttentionShape { groups, shared, rows, stream, depth, width } = self.shape;
        let extra = self.extra(extra);
        let sees = self.sees((None, 0), (None, 1), &[rows, stream]);
        let reached = sees.map(|sees| self.spread(sees, &[2, 3], &[groups, shared, rows, stream]));
        ScoreOperands {
            q: self.by_heads(q, depth),
            k: self.by_groups(k, depth),
            v: self.by_groups(v, width),
            extra,
            seen: self.seen(extra, reached),
        }
    }

    /// All scores.
    fn all_scores(&mut self, o: &ScoreOperands) -> Value {
        let s = self.dot([o.q, o.k], (&[0], &[0]), (3, 2));
        self.masked(s, o.extra, o.seen)
    }

    /// All weights, from the logarithms of their sums.
    fn all_weights(&mut self, o: &ScoreOperands, lse: Value) -> Value {
        let s = self.all_scores(o);
        self.probabilities(s, o.seen, lse)
    }
}

/// The results of `attention`.
pub(in crate::op) fn forward(b: &mut Builder, cx: &RuleCx<'_>) -> SmallVec<[Value; 1]> {
    let Some(mut w) = AttentionWriter::new(b, cx) else { return smallvec![cx.args[0], cx.args[0]] };
    let AttentionShape { rows, stream, width, .. } = w.shape;
    let o = w.operands([cx.args[0], cx.args[1], cx.args[2]], cx.args.get(3));
    let s = w.all_scores(&o);
    let most = w.reduce(Op::ReduceMax, s, 3);
    let most = w.map(Op::StopGradient, &[most]);
    let spread = w.along(most, stream);
    let less = w.map(Op::Sub, &[s, spread]);
    let e = w.map(Op::Exp, &[less]);
    let sum = w.reduce(Op::ReduceSum, e, 3);
    let weighed = w.dot([e, o.v], (&[0], &[0]), (3, 1));
    let below = w.along(sum, width);
    let y = w.map(Op::Div, &[weighed, below]);
    let log = w.map(Op::Log, &[sum]);
    let lse = w.map(Op::Add, &[most, log]);
    let (narrow, wide) = (w.narrow, w.wide);
    smallvec![w.like_heads(y, &[rows, width], narrow), w.like_heads(lse, &[rows], wide)]
}

/// The results of `attention_grad`.
pub(in crate::op) fn backward(b: &mut Builder, cx: &RuleCx<'_>) -> SmallVec<[Value; 1]> {
    let Some(mut w) = AttentionWriter::new(b, cx) else {
        return smallvec![cx.args[0], cx.args[0], cx.args[0]];
    };
    let AttentionShape { groups, rows, stream, depth, width, .. } = w.shape;
    let o = w.operands([cx.args[0], cx.args[1], cx.args[2]], cx.args.get(6));
    let (lse, delta) = (w.by_rows(cx.args[3]), w.by_rows(cx.args[5]));
    let dy = w.by_heads(cx.args[4], width);
    let p = w.all_weights(&o, lse);
    let dp = w.dot([dy, o.v], (&[0], &[0]), (3, 2));
    let ds = w.score_cotangents(p, o.seen, [dp, delta]);
    let dq = w.dot([ds, o.k], (&[0], &[0]), (3, 1));
    let narrow = w.narrow;
    let mut results: SmallVec<[Value; 1]> = smallvec![w.like_heads(dq, &[rows, depth], narrow)];
    // Sums over the heads that share keys, and over rows.
    for (weights, x, last, like) in [(ds, o.q, depth, 1), (p, dy, width, 2)] {
        let [_, shared, ..] = w.dims(weights)[..] else { continue };
        let weights = w.reshape(weights, &[groups, shared * rows, stream]);
        let x = w.reshape(x, &[groups, shared * rows, last]);
        let sum = w.dot([weights, x], (&[0], &[0]), (1, 1));
        let sum = w.convert(sum, narrow);
        results.push(w.b.op_as(Op::Reshape, &[sum], Default::default(), &cx.types[like]));
    }
    if cx.attrs.flag("bias_grad") {
        results.push(w.like_heads(ds, &[rows, stream], narrow));
    }
    results
}

/// The tangents of the results of `attention`: by all weights, which follow from the logarithms of their sums.
pub(in crate::op) fn jvp(b: &mut Builder, cx: &RuleCx<'_>, tangents: &[Option<Value>]) -> Tangents {
    let Some(mut w) = AttentionWriter::new(b, cx) else { return smallvec![None, None] };
    let AttentionShape { rows, stream, depth, width, .. } = w.shape;
    let o = w.operands([cx.args[0], cx.args[1], cx.args[2]], cx.args.get(3));
    let lse = w.by_rows(cx.results[1]);
    let p = w.all_weights(&o, lse);
    let tangent = |k: usize| tangents.get(k).copied().flatten();
    // Of the scores.
    let mut ds = None;
    let mut add = |w: &mut AttentionWriter<'_>, term: Value| {
        ds = Some(match ds {
            None => term,
            Some(sum) => w.map(Op::Add, &[sum, term]),
        });
    };
    if let Some(t) = tangent(0) {
        let t = w.by_heads(t, depth);
        let term = w.dot([t, o.k], (&[0], &[0]), (3, 2));
        add(&mut w, term);
    }
    if let Some(t) = tangent(1) {
        let t = w.by_groups(t, depth);
        let term = w.dot([o.q, t], (&[0], &[0]), (3, 2));
        add(&mut w, term);
    }
    if let (ScoreExtra::Bias(_), Some(t)) = (o.extra, tangent(3))
        && let Some(term) = w.extra(Some(&t)).value()
    {
        add(&mut w, term);
    }
    let (mut dy, mut dlse) = (None, None);
    if let Some(ds) = ds {
        let ds = w.gated(o.seen, ds, 0.0);
        let weighed = w.map(Op::Mul, &[p, ds]);
        let mean = w.reduce(Op::ReduceSum, weighed, 3);
        let spread = w.along(mean, stream);
        let less = w.map(Op::Sub, &[ds, spread]);
        let dp = w.map(Op::Mul, &[p, less]);
        dy = Some(w.dot([dp, o.v], (&[0], &[0]), (3, 1)));
        dlse = Some(mean);
    }
    if let Some(t) = tangent(2) {
        let t = w.by_groups(t, width);
        let term = w.dot([p, t], (&[0], &[0]), (3, 1));
        dy = Some(match dy {
            None => term,
            Some(sum) => w.map(Op::Add, &[sum, term]),
        });
    }
    let (narrow, wide) = (w.narrow, w.wide);
    smallvec![
        dy.map(|x| w.like_heads(x, &[rows, width], narrow)),
        dlse.map(|x| w.like_heads(x, &[rows], wide)),
    ]
}

//! What both compositions are written with: the extents of an attention, and instructions on tensors of them.

use super::reach::AttentionReach;
use super::shape::AttentionShape;
use crate::attrs::Attrs;
use crate::builder::Builder;
use crate::dtype::DType;
use crate::entity::Value;
use crate::op::Op;
use crate::op::def::RuleCx;
use crate::op::tensor_writer::TensorWriter;

/// A mask of truth values, or a bias of scores: the operand after the others.
#[derive(Clone, Copy)]
pub(super) enum ScoreExtra {
    None,
    Bias(Value),
    Mask(Value),
}

impl ScoreExtra {
    pub(super) fn value(self) -> Option<Value> {
        match self {
            ScoreExtra::None => None,
            ScoreExtra::Bias(v) | ScoreExtra::Mask(v) => Some(v),
        }
    }

    /// The same of another tensor.
    pub(super) fn with(self, v: Option<Value>) -> ScoreExtra {
        match (self, v) {
            (ScoreExtra::Bias(_), Some(v)) => ScoreExtra::Bias(v),
            (ScoreExtra::Mask(_), Some(v)) => ScoreExtra::Mask(v),
            _ => ScoreExtra::None,
        }
    }
}

/// A composition under way.
pub(super) struct AttentionWriter<'a> {
    pub(super) b: &'a mut Builder,
    pub(super) shape: AttentionShape,
    /// What rows see; without limits that hide nothing.
    pub(super) reach: AttentionReach,
    /// The type that everything is computed in.
    pub(super) wide: DType,
    /// The type of the operands.
    pub(super) narrow: DType,
    /// Extents of the operands' batch axes with the heads, as queries have them.
    heads: Vec<u64>,
}

impl TensorWriter for AttentionWriter<'_> {
    fn b(&self) -> &Builder {
        self.b
    }

    fn b_mut(&mut self) -> &mut Builder {
        self.b
    }

    fn wide(&self) -> DType {
        self.wide
    }
}

impl<'a> AttentionWriter<'a> {
    /// `None` where extents are unknown, which is an error that the builder keeps.
    pub(super) fn new(b: &'a mut Builder, cx: &RuleCx<'_>) -> Option<AttentionWriter<'a>> {
        let shape = AttentionShape::of(&cx.types[0], &cx.types[1], &cx.types[2]);
        let (Some(shape), Some(dims)) = (shape, cx.types[0].dims()) else {
            b.refuse("attention is written out for constant extents alone");
            return None;
        };
        let narrow = cx.types[0].dtype;
        let heads = dims[..dims.len() - 2].to_vec();
        let reach = AttentionReach::of(cx.attrs).within(shape);
        Some(AttentionWriter { b, shape, reach, wide: narrow.compute(), narrow, heads })
    }

    /// `x` where the truth value holds, a number elsewhere.
    pub(super) fn gated(&mut self, holds: Option<Value>, x: Value, other: f64) -> Value {
        let Some(holds) = holds else { return x };
        let other = self.splat(other, &self.dims(x));
        let ty = self.b.ty(x).clone();
        self.b.op_as(Op::SelectN, &[holds, other, x], Attrs::none(), &ty)
    }

    /// Queries, and what is like them: groups, heads that share keys, rows, elements.
    pub(super) fn by_heads(&mut self, x: Value, last: u64) -> Value {
        let AttentionShape { groups, shared, rows, .. } = self.shape;
        let x = self.convert(x, self.wide);
        self.reshape(x, &[groups, shared, rows, last])
    }

    /// Keys and values: groups, the stream, elements.
    pub(super) fn by_groups(&mut self, x: Value, last: u64) -> Value {
        let x = self.convert(x, self.wide);
        self.reshape(x, &[self.shape.groups, self.shape.stream, last])
    }

    /// A number for each row: groups, heads that share keys, rows.
    pub(super) fn by_rows(&mut self, x: Value) -> Value {
        let AttentionShape { groups, shared, rows, .. } = self.shape;
        self.reshape(x, &[groups, shared, rows])
    }

    /// The mask or the bias over groups, heads that share keys, rows and the stream.
    pub(super) fn extra(&mut self, x: Option<&Value>) -> ScoreExtra {
        let Some(&x) = x else { return ScoreExtra::None };
        let AttentionShape { groups, shared, rows, stream, .. } = self.shape;
        let mask = self.b.ty(x).dtype == DType::Bool;
        let x = if mask { x } else { self.convert(x, self.wide) };
        let dims = [&self.heads[..], &[rows, stream]].concat();
        // Axes of extent 1 are repeated.
        let at: Vec<i64> = (0..dims.len() as i64).collect();
        let x = self.spread(x, &at, &dims);
        let x = self.reshape(x, &[groups, shared, rows, stream]);
        if mask { ScoreExtra::Mask(x) } else { ScoreExtra::Bias(x) }
    }

    /// Whether a key is within a row's reach: `place(row) + ahead + after >= place(key)` and
    /// `place(row) + ahead - before <= place(key)`, over `dims`, with rows and keys along these axes. `None` where all are.
    pub(super) fn sees(
        &mut self,
        rows: (Option<Value>, i64),
        keys: (Option<Value>, i64),
        dims: &[u64],
    ) -> Option<Value> {
        let keys = (self.reach.is_limited()).then(|| self.places(keys.0, keys.1, dims))?;
        self.between(rows, [keys; 2], dims)
    }

    /// Whether rows, which lie along an axis, see the keys that are limited by their places: the last key of a row's reach is not before
    /// `least`, and the first one not after `most`. `None` where rows see all keys.
    pub(super) fn between(
        &mut self,
        rows: (Option<Value>, i64),
        [least, most]: [Value; 2],
        dims: &[u64],
    ) -> Option<Value> {
        let AttentionReach { before, after } = self.reach;
        let mut holds = None;
        let limits =
            [after.map(|n| (Op::Ge, n as i64, least)), before.map(|n| (Op::Le, -(n as i64), most))];
        for (op, by, place) in limits.into_iter().flatten() {
            let own = self.places(rows.0, rows.1, dims);
            let own = self.plus(own, self.shape.ahead() + by);
            let test = self.test(op, own, place);
            holds = self.both(holds, Some(test));
        }
        holds
    }

    /// Where a mask and a row's reach hide no key; all are seen where there is none.
    pub(super) fn seen(&mut self, extra: ScoreExtra, reached: Option<Value>) -> Option<Value> {
        match extra {
            ScoreExtra::Mask(mask) => self.both(Some(mask), reached),
            _ => reached,
        }
    }

    /// Scores with their bias, -inf where keys are not seen.
    pub(super) fn masked(&mut self, s: Value, extra: ScoreExtra, seen: Option<Value>) -> Value {
        let s = match extra {
            ScoreExtra::Bias(bias) => self.map(Op::Add, &[s, bias]),
            _ => s,
        };
        self.gated(seen, s, f64::NEG_INFINITY)
    }

    /// Weights, from masked scores and the logarithm of each row's sum. The last axis is that of keys.
    pub(super) fn probabilities(&mut self, s: Value, seen: Option<Value>, lse: Value) -> Value {
        let lse = self.along(lse, self.last(s));
        let less = self.map(Op::Sub, &[s, lse]);
        let p = self.map(Op::Exp, &[less]);
        self.gated(seen, p, 0.0)
    }

    /// The cotangents of scores: from weights, their cotangents and the mean of those over each row.
    pub(super) fn score_cotangents(
        &mut self,
        p: Value,
        seen: Option<Value>,
        [dp, delta]: [Value; 2],
    ) -> Value {
        let delta = self.along(delta, self.last(p));
        let less = self.map(Op::Sub, &[dp, delta]);
        let ds = self.map(Op::Mul, &[p, less]);
        self.gated(seen, ds, 0.0)
    }

    /// The extent of the last axis.
    fn last(&self, x: Value) -> u64 {
        self.dims(x).last().copied().unwrap_or(0)
    }

    pub(super) fn both(&mut self, x: Option<Value>, y: Option<Value>) -> Option<Value> {
        match (x, y) {
            (Some(x), Some(y)) => Some(self.map(Op::And, &[x, y])),
            (x, y) => x.or(y),
        }
    }

    /// Reshapes to the batch axes and heads of queries followed by `last`, and converts.
    pub(super) fn like_heads(&mut self, x: Value, last: &[u64], to: DType) -> Value {
        let dims = [&self.heads[..], last].concat();
        let x = self.reshape(x, &dims);
        self.convert(x, to)
    }
}

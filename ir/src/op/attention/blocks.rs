//! Attention in its defined order: block by block of [`ATTENTION_BLOCK`] keys and queries (`docs/fp.md`).
//!
//! This is the definition. The reference engine runs it, and engines without a step for attention run it in strict mode.

use super::shape::{ATTENTION_BLOCK as BLOCK, AttentionShape};
use super::writer::{AttentionWriter, ScoreExtra};
use crate::builder::Builder;
use crate::dtype::DType;
use crate::entity::Value;
use crate::literal::Literal;
use crate::op::Op;
use crate::op::def::RuleCx;
use crate::op::tensor_writer::TensorWriter;
use crate::types::TensorType;
use smallvec::{SmallVec, smallvec};

/// A block of keys: the place of the first, the keys, the values, and the mask or bias of all rows at these keys.
struct KeyBlock {
    from: Value,
    k: Value,
    v: Value,
    extra: ScoreExtra,
}

/// The scores of a block, and which of them are seen.
struct BlockScores {
    s: Value,
    /// Where a key is not hidden, by the mask or by a row's reach; all are seen where there is none.
    seen: Option<Value>,
}

/// The results of `attention`: weighed values, and the logarithm of each row's sum of exponentials.
pub(in crate::op) fn forward(b: &mut Builder, cx: &RuleCx<'_>) -> SmallVec<[Value; 1]> {
    let Some(mut w) = AttentionWriter::new(b, cx) else { return smallvec![cx.args[0], cx.args[0]] };
    let AttentionShape { groups, shared, rows, depth, width, .. } = w.shape;
    let q = w.by_heads(cx.args[0], depth);
    let (k, v) = (w.by_groups(cx.args[1], depth), w.by_groups(cx.args[2], width));
    let extra = w.extra(cx.args.get(3));
    let points = [groups, shared, rows];
    let begin = vec![
        w.splat(f64::NEG_INFINITY, &points),
        w.splat(0.0, &points),
        w.splat(0.0, &[groups, shared, rows, width]),
    ];
    let (ends, _) = w.key_blocks([k, v], extra, begin, &mut |w, carry, block| {
        (w.forward_block(q, carry, &block), Vec::new())
    });
    let (m, l, acc) = (ends[0], ends[1], ends[2]);
    let below = w.along(l, width);
    let y = w.map(Op::Div, &[acc, below]);
    let shift = w.finite_or_zero(m);
    let log = w.map(Op::Log, &[l]);
    let lse = w.map(Op::Add, &[shift, log]);
    let (narrow, wide) = (w.narrow, w.wide);
    smallvec![w.like_heads(y, &[rows, width], narrow), w.like_heads(lse, &[rows], wide)]
}

/// The results of `attention_grad`: cotangents of queries, keys and values, and of the bias where that is asked for.
pub(in crate::op) fn backward(b: &mut Builder, cx: &RuleCx<'_>) -> SmallVec<[Value; 1]> {
    let Some(mut w) = AttentionWriter::new(b, cx) else {
        return smallvec![cx.args[0], cx.args[0], cx.args[0]];
    };
    let AttentionShape { groups, shared, rows, stream, depth, width } = w.shape;
    let q = w.by_heads(cx.args[0], depth);
    let (k, v) = (w.by_groups(cx.args[1], depth), w.by_groups(cx.args[2], width));
    let (lse, delta) = (w.by_rows(cx.args[3]), w.by_rows(cx.args[5]));
    let dy = w.by_heads(cx.args[4], width);
    let extra = w.extra(cx.args.get(6));
    let shift = w.finite_or_zero(lse);
    let wanted = cx.attrs.flag("bias_grad");

    let begin = vec![w.splat(0.0, &[groups, shared, rows, depth])];
    let (ends, ds) = w.key_blocks([k, v], extra, begin, &mut |w, carry, block| {
        let scores = w.scores(q, &block);
        let dp = w.dot([dy, block.v], (&[0], &[0]), (3, 2));
        let (_, ds) = w.weights(&scores, dp, shift, delta);
        let part = w.dot([ds, block.k], (&[0], &[0]), (3, 1));
        let sum = w.map(Op::Add, &[carry[0], part]);
        let dq = w.where_reached(&block, sum, carry[0]);
        (vec![dq], if wanted { vec![ds] } else { Vec::new() })
    });
    let dq = ends[0];
    let [dk, dv] = w.by_row_blocks([q, k, v], [dy, shift, delta], extra);

    let narrow = w.narrow;
    let mut results: SmallVec<[Value; 1]> = smallvec![w.like_heads(dq, &[rows, depth], narrow)];
    for (x, like) in [(dk, cx.types[1].clone()), (dv, cx.types[2].clone())] {
        let x = w.convert(x, like.dtype);
        results.push(w.b.op_as(Op::Reshape, &[x], Default::default(), &like));
    }
    if wanted {
        let ds = match ds.first() {
            Some(&ds) => ds,
            None => w.splat(0.0, &[groups, shared, rows, stream]),
        };
        results.push(w.like_heads(ds, &[rows, stream], narrow));
    }
    results
}

/// What is done for a block of keys: it is given what is carried, and leaves that and what is stacked.
type BlockBody<'b> =
    dyn FnMut(&mut AttentionWriter<'_>, &[Value], KeyBlock) -> (Vec<Value>, Vec<Value>) + 'b;

impl AttentionWriter<'_> {
    /// A number where it is finite or not a number, 0 in place of -inf.
    fn finite_or_zero(&mut self, m: Value) -> Value {
        let dims = self.dims(m);
        let (least, zero) = (self.splat(f64::NEG_INFINITY, &dims), self.splat(0.0, &dims));
        let none = self.test(Op::Eq, m, least);
        let ty = self.ty(&dims);
        self.b.op_as(Op::SelectN, &[none, m, zero], Default::default(), &ty)
    }

    /// Goes over the blocks of keys, ascending, the last of which may be short: the last carries, and for each thing that
    /// is stacked its blocks side by side along the last axis.
    fn key_blocks(
        &mut self,
        [k, v]: [Value; 2],
        extra: ScoreExtra,
        begin: Vec<Value>,
        body: &mut BlockBody<'_>,
    ) -> (Vec<Value>, Vec<Value>) {
        let stream = self.shape.stream;
        let mut full = stream / BLOCK;
        let (mut carries, mut parts) = (begin, Vec::new());
        // One block is no loop.
        if full == 1 {
            full = 0;
        }
        if full > 0 {
            let mut xs = vec![self.starts(full)];
            for x in [k, v] {
                let x = self.slice(x, 1, 0, full * BLOCK);
                let last = self.dims(x)[2];
                let x = self.reshape(x, &[self.shape.groups, full, BLOCK, last]);
                xs.push(self.transpose(x, &[1, 0, 2, 3]));
            }
            if let Some(x) = extra.value() {
                let x = self.slice(x, 3, 0, full * BLOCK);
                let [a, b, c, _] = self.dims(x)[..] else { return (carries, parts) };
                let x = self.reshape(x, &[a, b, c, full, BLOCK]);
                xs.push(self.transpose(x, &[3, 0, 1, 2, 4]));
            }
            let (ends, stacks) = self.steps(carries, &xs, &mut |w, carry, xs| {
                let extra = extra.with(xs.get(3).copied());
                body(w, carry, KeyBlock { from: xs[0], k: xs[1], v: xs[2], extra })
            });
            carries = ends;
            for x in stacks {
                let x = self.transpose(x, &[1, 2, 3, 0, 4]);
                let dims = self.dims(x);
                parts.push(self.reshape(x, &[dims[0], dims[1], dims[2], full * BLOCK]));
            }
        }
        for from in (full * BLOCK..stream).step_by(BLOCK as usize) {
            let to = stream.min(from + BLOCK);
            let block = KeyBlock {
                from: self.b.literal(
                    &TensorType::scalar(DType::I64),
                    Literal::from_i64(DType::I64, from as i64),
                ),
                k: self.slice(k, 1, from, to),
                v: self.slice(v, 1, from, to),
                extra: extra.with(extra.value().map(|x| self.slice(x, 3, from, to))),
            };
            let (ends, stacked) = body(self, &carries, block);
            carries = ends;
            parts.extend(stacked);
        }
        let whole = match parts.len() {
            0 | 1 => parts,
            _ => {
                let attrs = crate::attrs::Attrs::none().with_int("axis", 3);
                vec![self.b.op_with(Op::Concatenate, &parts, attrs)]
            }
        };
        (carries, whole)
    }

    /// Where blocks begin: `i64[n]`.
    fn starts(&mut self, n: u64) -> Value {
        let ty = TensorType::of(DType::I64, &[n]);
        let own = self.places(None, 0, &[n]);
        let block = self.b.literal(&ty, Literal::from_i64(DType::I64, BLOCK as i64));
        self.b.op_as(Op::Mul, &[own, block], Default::default(), &ty)
    }

    /// The scores of all rows at a block of keys.
    fn scores(&mut self, q: Value, block: &KeyBlock) -> BlockScores {
        let s = self.dot([q, block.k], (&[0], &[0]), (3, 2));
        let dims = self.dims(s);
        let sees = self.sees((None, 0), (Some(block.from), 1), &[dims[2], dims[3]]);
        let reached = sees.map(|sees| self.spread(sees, &[2, 3], &dims));
        self.block_scores(s, block.extra, reached)
    }

    /// Scores with their bias, and what is seen of them.
    fn block_scores(&mut self, s: Value, extra: ScoreExtra, reached: Option<Value>) -> BlockScores {
        let seen = self.seen(extra, reached);
        BlockScores { s: self.masked(s, extra, seen), seen }
    }

    /// What becomes of the running maximum, the running sum and the weighed values at a block.
    fn forward_block(&mut self, q: Value, carry: &[Value], block: &KeyBlock) -> Vec<Value> {
        let (m, l, acc) = (carry[0], carry[1], carry[2]);
        let s = self.scores(q, block).s;
        let (keys, width) = (self.dims(s)[3], self.shape.width);
        let most = self.reduce(Op::ReduceMax, s, 3);
        let most = self.map(Op::Max, &[m, most]);
        let shift = self.finite_or_zero(most);
        let less = self.map(Op::Sub, &[m, shift]);
        let scale = self.map(Op::Exp, &[less]);
        let spread = self.along(shift, keys);
        let less = self.map(Op::Sub, &[s, spread]);
        let p = self.map(Op::Exp, &[less]);
        let sum = self.reduce(Op::ReduceSum, p, 3);
        let scaled = self.map(Op::Mul, &[l, scale]);
        let total = self.map(Op::Add, &[scaled, sum]);
        let part = self.dot([p, block.v], (&[0], &[0]), (3, 1));
        let scale = self.along(scale, width);
        let scaled = self.map(Op::Mul, &[acc, scale]);
        let weighed = self.map(Op::Add, &[scaled, part]);
        vec![
            self.where_reached(block, most, m),
            self.where_reached(block, total, l),
            self.where_reached(block, weighed, acc),
        ]
    }

    /// `new` for rows that see a key of the block as far as their reach goes, `old` for others. Rows are the third axis.
    fn where_reached(&mut self, block: &KeyBlock, new: Value, old: Value) -> Value {
        let (dims, rows) = (self.dims(new), self.shape.rows);
        let Some(sees) = self.reaches((None, 0), (block.from, &[]), &[rows]) else { return new };
        let sees = self.spread(sees, &[2], &dims);
        let ty = self.b.ty(new).clone();
        self.b.op_as(Op::SelectN, &[sees, old, new], Default::default(), &ty)
    }

    /// Whether the reach of rows, which lie along an axis, meets whole blocks of keys, which begin at these places. `None` where rows
    /// see all keys.
    fn reaches(
        &mut self,
        rows: (Option<Value>, i64),
        (from, at): (Value, &[i64]),
        dims: &[u64],
    ) -> Option<Value> {
        if !self.reach.is_limited() {
            return None;
        }
        let from = self.spread(from, at, dims);
        let last = match self.reach.before {
            None => from,
            Some(_) => self.plus(from, BLOCK as i64 - 1),
        };
        self.between(rows, [from, last], dims)
    }

    /// Weights from the logarithms of their sums, and the cotangents of scores. The last axis is that of keys.
    fn weights(
        &mut self,
        scores: &BlockScores,
        dp: Value,
        shift: Value,
        delta: Value,
    ) -> (Value, Value) {
        let p = self.probabilities(scores.s, scores.seen, shift);
        (p, self.score_cotangents(p, scores.seen, [dp, delta]))
    }

    /// The cotangents of keys and values: sums over blocks of rows, head by head, ascending.
    fn by_row_blocks(
        &mut self,
        [q, k, v]: [Value; 3],
        [dy, shift, delta]: [Value; 3],
        extra: ScoreExtra,
    ) -> [Value; 2] {
        let AttentionShape { groups, shared, rows, stream, depth, width } = self.shape;
        let (of_rows, of_keys) = (rows.div_ceil(BLOCK), stream.div_ceil(BLOCK));
        let keys = of_keys * BLOCK;
        let (k, v) = (self.padded(k, 1, keys), self.padded(v, 1, keys));
        let mut xs = Vec::new();
        // Rows by block: blocks of all heads, groups, rows of a block, elements.
        for (x, last) in [(q, depth), (dy, width), (shift, 1), (delta, 1)] {
            let x = self.reshape(x, &[groups, shared, rows, last]);
            let x = self.padded(x, 2, of_rows * BLOCK);
            let x = self.reshape(x, &[groups, shared * of_rows, BLOCK, last]);
            xs.push(self.transpose(x, &[1, 0, 2, 3]));
        }
        let starts = self.starts(of_rows);
        let starts = self.spread(starts, &[1], &[shared, of_rows]);
        xs.push(self.reshape(starts, &[shared * of_rows]));
        if let Some(x) = extra.value() {
            let x = self.padded(x, 2, of_rows * BLOCK);
            let x = self.padded(x, 3, keys);
            let x = self.reshape(x, &[groups, shared * of_rows, BLOCK, keys]);
            xs.push(self.transpose(x, &[1, 0, 2, 3]));
        }
        let begin = vec![
            self.splat(0.0, &[groups, of_keys, BLOCK, depth]),
            self.splat(0.0, &[groups, of_keys, BLOCK, width]),
        ];
        let (ends, _) = self.steps(begin, &xs, &mut |w, carry, xs| {
            let [q, dy, shift, delta] = [xs[0], xs[1], xs[2], xs[3]];
            let [shift, delta] = [shift, delta].map(|x| w.reshape(x, &[groups, BLOCK]));
            let s = w.dot([q, k], (&[0], &[0]), (2, 2));
            let seen = w.seen_of_rows(xs[4], keys);
            let scores = w.block_scores(s, extra.with(xs.get(5).copied()), seen);
            let dp = w.dot([dy, v], (&[0], &[0]), (2, 2));
            let (p, ds) = w.weights(&scores, dp, shift, delta);
            let dk = w.added(carry[0], ds, q, xs[4]);
            let dv = w.added(carry[1], p, dy, xs[4]);
            (vec![dk, dv], Vec::new())
        });
        [(ends[0], depth), (ends[1], width)].map(|(x, last)| {
            let x = self.reshape(x, &[groups, keys, last]);
            self.slice(x, 1, 0, stream)
        })
    }

    /// Of a block of rows: which keys are seen, over groups, rows and keys; keys and rows that are padding are not.
    fn seen_of_rows(&mut self, from: Value, keys: u64) -> Option<Value> {
        let AttentionShape { groups, rows, stream, .. } = self.shape;
        let plane = [BLOCK, keys];
        let ty = TensorType::of(DType::I64, &plane);
        let mut seen = self.sees((Some(from), 0), (None, 1), &plane);
        let bounds = [(Some(from), 0, rows), (None, 1, stream)];
        for (from, axis, n) in bounds.into_iter().filter(|&(_, _, n)| n % BLOCK != 0) {
            let places = self.places(from, axis, &plane);
            let n = self.b.literal(&ty, Literal::from_i64(DType::I64, n as i64));
            let inside = self.test(Op::Lt, places, n);
            seen = self.both(seen, Some(inside));
        }
        seen.map(|seen| self.spread(seen, &[1, 2], &[groups, BLOCK, keys]))
    }

    /// Sums by blocks of keys, with the products of a block of rows added: of `weights` over groups, rows and keys, and of
    /// `x` over groups, rows and elements. Rows that do not reach a block of keys have no part in its sums.
    fn added(&mut self, sums: Value, weights: Value, x: Value, from: Value) -> Value {
        let [groups, blocks, _, last] = self.dims(sums)[..] else { return sums };
        let weights = self.reshape(weights, &[groups, BLOCK, blocks, BLOCK]);
        let starts = self.reach.is_limited().then(|| self.starts(blocks));
        let sees = starts
            .and_then(|starts| self.reaches((Some(from), 1), (starts, &[0]), &[blocks, BLOCK]));
        let part = if let Some(sees) = sees {
            let dims = [groups, blocks, BLOCK, last];
            let sees = self.spread(sees, &[1, 2], &dims);
            let x = self.spread(x, &[0, 2, 3], &dims);
            let x = self.gated(Some(sees), x, 0.0);
            self.dot([weights, x], (&[0, 2], &[0, 1]), (1, 2))
        } else {
            let part = self.dot([weights, x], (&[0], &[0]), (1, 1));
            self.reshape(part, &[groups, blocks, BLOCK, last])
        };
        self.map(Op::Add, &[sums, part])
    }
}

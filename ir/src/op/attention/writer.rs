//! What both compositions are written with: the extents of an attention, and instructions on tensors of them.

use crate::attrs::{Attr, Attrs, Ints};
use crate::builder::Builder;
use crate::dtype::DType;
use crate::entity::Value;
use crate::literal::Literal;
use crate::op::Op;
use crate::op::def::RuleCx;
use crate::types::{Dim, TensorType};

/// Keys of a block, and rows of a block where cotangents of keys and values are summed.
pub const ATTENTION_BLOCK: u64 = 128;

/// Extents of an attention, with one batch axis for all of the operands' and one for the heads that share keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttentionShape {
    /// Groups of heads, over the whole batch: each has keys and values of its own.
    pub groups: u64,
    /// Heads that share the keys and values of a group.
    pub shared: u64,
    /// Queries of a head.
    pub rows: u64,
    /// Keys of a group.
    pub stream: u64,
    /// Elements of a query and a key.
    pub depth: u64,
    /// Elements of a value.
    pub width: u64,
}

impl AttentionShape {
    /// Of the types of queries, keys and values; `None` where extents are unknown or the types do not fit.
    pub fn of(q: &TensorType, k: &TensorType, v: &TensorType) -> Option<AttentionShape> {
        let [q, k, v] = [q.dims()?, k.dims()?, v.dims()?];
        let rank = q.len();
        if rank < 3 || k.len() != rank || v.len() != rank {
            return None;
        }
        let (heads, groups) = (q[rank - 3], k[rank - 3]);
        let shared = match groups {
            0 => 1,
            n => heads / n,
        };
        Some(AttentionShape {
            groups: k[..rank - 2].iter().product(),
            shared,
            rows: q[rank - 2],
            stream: k[rank - 2],
            depth: q[rank - 1],
            width: v[rank - 1],
        })
    }

    /// How many keys further a query sees than its own place: the last query sees all keys.
    pub fn ahead(self) -> i64 {
        self.stream as i64 - self.rows as i64
    }
}

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
    pub(super) causal: bool,
    /// The type that everything is computed in.
    pub(super) wide: DType,
    /// The type of the operands.
    pub(super) narrow: DType,
    /// Extents of the operands' batch axes with the heads, as queries have them.
    heads: Vec<u64>,
}

/// A step of a loop: it is given what is carried and the elements of the step, and leaves what is carried and what is stacked.
type AttentionStepBody<'b> =
    dyn FnMut(&mut AttentionWriter<'_>, &[Value], &[Value]) -> (Vec<Value>, Vec<Value>) + 'b;

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
        let causal = cx.attrs.flag("causal");
        Some(AttentionWriter { b, shape, causal, wide: narrow.compute(), narrow, heads })
    }

    pub(super) fn dims(&self, v: Value) -> Vec<u64> {
        self.b.ty(v).dims().map(|d| d.to_vec()).unwrap_or_default()
    }

    pub(super) fn ty(&self, dims: &[u64]) -> TensorType {
        TensorType::of(self.wide, dims)
    }

    /// A number everywhere.
    pub(super) fn splat(&mut self, x: f64, dims: &[u64]) -> Value {
        let ty = self.ty(dims);
        self.b.literal(&ty, Literal::from_f64(self.wide, x))
    }

    /// An elementwise op of operands of one shape; the result has the type of the first.
    pub(super) fn map(&mut self, op: Op, args: &[Value]) -> Value {
        let ty = self.b.ty(args[0]).clone();
        self.b.op_as(op, args, Attrs::none(), &ty)
    }

    /// An elementwise test.
    pub(super) fn test(&mut self, op: Op, x: Value, y: Value) -> Value {
        let ty = self.b.ty(x).with_dtype(DType::Bool);
        self.b.op_as(op, &[x, y], Attrs::none(), &ty)
    }

    /// `x` where the truth value holds, a number elsewhere.
    pub(super) fn gated(&mut self, holds: Option<Value>, x: Value, other: f64) -> Value {
        let Some(holds) = holds else { return x };
        let other = self.splat(other, &self.dims(x));
        let ty = self.b.ty(x).clone();
        self.b.op_as(Op::SelectN, &[holds, other, x], Attrs::none(), &ty)
    }

    pub(super) fn convert(&mut self, x: Value, to: DType) -> Value {
        self.b.converted(x, to)
    }

    pub(super) fn reshape(&mut self, x: Value, dims: &[u64]) -> Value {
        let ty = TensorType::of(self.b.ty(x).dtype, dims);
        self.b.reshaped(x, &ty)
    }

    pub(super) fn transpose(&mut self, x: Value, perm: &[i64]) -> Value {
        let attrs = Attrs::none().with_ints("perm", perm.iter().copied());
        self.b.op_with(Op::Transpose, &[x], attrs)
    }

    /// `x` repeated over `dims`; its axes are at these places.
    pub(super) fn spread(&mut self, x: Value, at: &[i64], dims: &[u64]) -> Value {
        let ty = TensorType::of(self.b.ty(x).dtype, dims);
        let attrs = Attrs::none().with_ints("dims", at.iter().copied());
        self.b.op_as(Op::BroadcastInDim, &[x], attrs, &ty)
    }

    /// `x` repeated over a last axis.
    pub(super) fn along(&mut self, x: Value, n: u64) -> Value {
        let mut dims = self.dims(x);
        let at: Vec<i64> = (0..dims.len() as i64).collect();
        dims.push(n);
        self.spread(x, &at, &dims)
    }

    /// Part of an axis.
    pub(super) fn slice(&mut self, x: Value, axis: usize, from: u64, to: u64) -> Value {
        let dims = self.dims(x);
        if from == 0 && dims[axis] == to {
            return x;
        }
        let of = |d: usize, here: u64, other: u64| if d == axis { here } else { other } as i64;
        let start = (0..dims.len()).map(|d| of(d, from, 0));
        let limit = dims.iter().enumerate().map(|(d, &n)| of(d, to, n));
        let ones = dims.iter().map(|_| 1);
        let attrs = Attrs::none()
            .with_ints("start", start)
            .with_ints("limit", limit)
            .with_ints("stride", ones);
        self.b.op_with(Op::Slice, &[x], attrs)
    }

    /// Zeros at the end of an axis, so that it has this extent.
    pub(super) fn padded(&mut self, x: Value, axis: usize, to: u64) -> Value {
        let dims = self.dims(x);
        if dims[axis] == to {
            return x;
        }
        let dtype = self.b.ty(x).dtype;
        let zero = self.b.literal(&TensorType::scalar(dtype), Literal::zero(dtype));
        let high = (0..dims.len()).map(|d| if d == axis { (to - dims[axis]) as i64 } else { 0 });
        let none = || dims.iter().map(|_| 0);
        let attrs = Attrs::none()
            .with_ints("low", none())
            .with_ints("high", high)
            .with_ints("interior", none());
        self.b.op_with(Op::Pad, &[x, zero], attrs)
    }

    pub(super) fn reduce(&mut self, op: Op, x: Value, axis: i64) -> Value {
        self.b.op_with(op, &[x], Attrs::none().with_ints("axes", [axis]))
    }

    pub(super) fn dot(
        &mut self,
        [x, y]: [Value; 2],
        batch: (&[i64], &[i64]),
        contract: (i64, i64),
    ) -> Value {
        let ints = |axes: &[i64]| -> Ints { axes.iter().copied().collect() };
        let attrs = Attrs::none()
            .with("batch", Attr::Pair(ints(batch.0), ints(batch.1)))
            .with("contract", Attr::Pair(ints(&[contract.0]), ints(&[contract.1])));
        self.b.op_with(Op::DotGeneral, &[x, y], attrs)
    }

    /// Places along an axis, from an `i64` scalar on.
    pub(super) fn places(&mut self, from: Option<Value>, axis: i64, dims: &[u64]) -> Value {
        let ty = TensorType::of(DType::I64, dims);
        let own = self.b.op_as(Op::Iota, &[], Attrs::none().with_int("axis", axis), &ty);
        let Some(from) = from else { return own };
        let from = self.spread(from, &[], dims);
        self.b.op_as(Op::Add, &[own, from], Attrs::none(), &ty)
    }

    pub(super) fn plus(&mut self, x: Value, n: i64) -> Value {
        let ty = self.b.ty(x).clone();
        let n = self.b.literal(&ty, Literal::from_i64(DType::I64, n));
        self.b.op_as(Op::Add, &[x, n], Attrs::none(), &ty)
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

    /// A loop over the first axes of `xs`: the last carries, and what is stacked.
    pub(super) fn steps(
        &mut self,
        carries: Vec<Value>,
        xs: &[Value],
        body: &mut AttentionStepBody<'_>,
    ) -> (Vec<Value>, Vec<Value>) {
        let types: Vec<TensorType> = carries.iter().map(|&v| self.b.ty(v).clone()).collect();
        let region = self.b.open_region();
        let held: Vec<Value> = types.iter().map(|ty| self.b.param(ty.clone(), None)).collect();
        let element = |ty: &TensorType| TensorType::new(ty.dtype, ty.shape.iter().skip(1).copied());
        let own: Vec<Value> = xs
            .iter()
            .map(|&x| {
                let ty = element(self.b.ty(x));
                self.b.param(ty, None)
            })
            .collect();
        let (next, stacked) = body(self, &held, &own);
        let n = xs.first().map_or(Dim::Const(0), |&x| self.b.ty(x).shape[0]);
        let stacks = stacked.iter().map(|&v| {
            let ty = self.b.ty(v);
            TensorType::new(ty.dtype, std::iter::once(n).chain(ty.shape.iter().copied()))
        });
        let results: Vec<TensorType> = types.iter().cloned().chain(stacks).collect();
        self.b.close_region(&[next, stacked].concat());
        let attrs = Attrs::none()
            .with_int("carry", carries.len() as i64)
            .conform(Op::Scan.def().attrs)
            .unwrap_or_default();
        let args = [&carries[..], xs].concat();
        let inst = self.b.place(Op::Scan, &args, attrs, &results, &[region]);
        let mut all = self.b.func().inst_results(inst).to_vec();
        let stacks = all.split_off(carries.len());
        (all, stacks)
    }

    /// Whether a key is seen: `place(row) + ahead >= place(key)`, over `dims`, with rows and keys along these axes.
    pub(super) fn sees(
        &mut self,
        rows: (Option<Value>, i64),
        keys: (Option<Value>, i64),
        dims: &[u64],
    ) -> Value {
        let own = self.places(rows.0, rows.1, dims);
        let own = self.plus(own, self.shape.ahead());
        let key = self.places(keys.0, keys.1, dims);
        self.test(Op::Ge, own, key)
    }

    /// Where a mask and causality hide no key; all are seen where there is none.
    pub(super) fn seen(&mut self, extra: ScoreExtra, causal: Option<Value>) -> Option<Value> {
        match extra {
            ScoreExtra::Mask(mask) => self.both(Some(mask), causal),
            _ => causal,
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

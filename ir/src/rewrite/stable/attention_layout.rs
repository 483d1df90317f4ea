//! The axes of attention that is written out, in whatever order its products have them, and its operands in the order of the op.

use super::shape::{Spread, made_by};
use crate::attrs::{Attr, Attrs, Ints};
use crate::builder::Builder;
use crate::entity::{Inst, Value};
use crate::function::Function;
use crate::op::Op;
use crate::types::TensorType;
use smallvec::SmallVec;

/// What an axis of an operand, or of the result, lies along.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AttentionAxis {
    /// This axis of the scores.
    Scores(usize),
    /// The elements of queries and keys, or those of values.
    Elements,
    /// Nothing: its extent is 1.
    One,
}
use AttentionAxis::{Elements, One, Scores};

type OperandAxes = SmallVec<[AttentionAxis; 6]>;

/// The operands of attention, and their axes.
pub(super) struct AttentionAxes {
    /// The extents of scores, whose last axes are rows and keys.
    dims: Vec<u64>,
    /// The axes of scores that queries and keys have both, and those of extent 1.
    batch: Vec<usize>,
    /// An axis of scores that queries have and keys do not: their heads share keys.
    group: Option<usize>,
    /// Queries, keys and values.
    pub(super) operands: [Value; 3],
    of_operands: [OperandAxes; 3],
    of_result: OperandAxes,
}

/// What the axes of a value lie along that is repeated over scores.
fn repeated_axes(of: &Spread) -> OperandAxes {
    of.along.iter().map(|a| a.map_or(One, Scores)).collect()
}

/// What the axes of a contraction's operand lie along: its batch axes along `of_batch`, the one that is summed along `contracted`, and
/// the others along `free`, in order.
fn operand_axes(
    rank: usize,
    (batch, of_batch): (&[i64], &[AttentionAxis]),
    (contract, contracted): (&[i64], AttentionAxis),
    free: impl IntoIterator<Item = AttentionAxis>,
) -> Option<OperandAxes> {
    let mut free = free.into_iter();
    let axis = |d: usize| {
        let d = d as i64;
        match batch.iter().position(|&x| x == d) {
            Some(n) => of_batch.get(n).copied(),
            None if contract == [d] => Some(contracted),
            None => free.next(),
        }
    };
    (0..rank).map(axis).collect()
}

impl AttentionAxes {
    /// The axes of `product`, a contraction that makes scores of these extents, and of the contraction of their softmax, which is operand
    /// `at` of it, with values. `None` where they are no attention's.
    pub(super) fn of(
        f: &Function,
        dims: &[u64],
        product: Spread,
        (root, at): (Inst, usize),
    ) -> Option<AttentionAxes> {
        let made_by = made_by(f, product.value, Op::DotGeneral)?;
        let (rows, keys) = (dims.len() - 2, dims.len() - 1);
        let of_product = repeated_axes(&product);
        let [batch, contract] = pairs(f, made_by);
        let of_batch = of_product.get(..batch[0].len())?;
        let mut free = of_product[of_batch.len()..].iter().copied();
        let &[a, b] = f.args(made_by) else { return None };
        let mut sides = Vec::with_capacity(2);
        for (k, v) in [a, b].into_iter().enumerate() {
            let rank = f.ty(v).rank();
            let axes =
                operand_axes(rank, (batch[k], of_batch), (contract[k], Elements), &mut free)?;
            sides.push((v, axes));
        }
        let has = |axes: &OperandAxes, axis| axes.contains(&Scores(axis));
        if has(&sides[0].1, keys) {
            sides.reverse();
        }
        let [(q, of_q), (k, of_k)] = <[_; 2]>::try_from(sides).ok()?;
        let shared = |axis: &usize| has(&of_q, *axis) && has(&of_k, *axis);
        // Keys have nothing that queries lack but their places; queries have their rows, and one axis at most.
        let of_keys = (0..dims.len()).filter(|d| has(&of_k, *d) && !shared(d));
        let own: SmallVec<[usize; 2]> =
            (0..rows).filter(|d| has(&of_q, *d) && !shared(d)).collect();
        let group = own.first().copied();
        let known = |d: usize| dims[d] == 1 || has(&of_q, d) || d == keys;
        let fits = !has(&of_q, keys)
            && of_keys.eq([keys])
            && own.len() <= 1
            && !has(&of_k, rows)
            && (0..dims.len()).all(known);
        if !fits {
            return None;
        }
        let batch = (0..rows).filter(|d| group != Some(*d)).collect();
        let v = *f.args(root).get(1 - at)?;
        let (of_v, of_result) = weighing(f, (root, at), (rows, keys))?;
        // Values have what keys have.
        let fits = |d: usize| dims[d] == 1 || shared(&d) == has(&of_v, d);
        (0..rows).all(fits).then_some(())?;
        let of_operands = [of_q, of_k, of_v];
        Some(AttentionAxes {
            dims: dims.to_vec(),
            batch,
            group,
            operands: [q, k, v],
            of_operands,
            of_result,
        })
    }

    /// Elements of a query and of a value.
    pub(super) fn elements(&self, f: &Function) -> Option<[u64; 2]> {
        let of = |n: usize| {
            let at = self.of_operands[n].iter().position(|&a| a == Elements)?;
            f.ty(self.operands[n]).dims()?.get(at).copied()
        };
        Some([of(0)?, of(2)?])
    }

    /// The axes of batches, of the group where there is one, and these.
    fn order(&self, group: bool, last: [AttentionAxis; 2]) -> OperandAxes {
        let group = self.group.filter(|_| group);
        self.batch.iter().copied().chain(group).map(Scores).chain(last).collect()
    }

    fn rows(&self) -> AttentionAxis {
        Scores(self.dims.len() - 2)
    }

    fn keys(&self) -> AttentionAxis {
        Scores(self.dims.len() - 1)
    }

    /// Extents of these axes, of which those that no score has are this long.
    fn extents(&self, axes: &[AttentionAxis], other: u64) -> Vec<u64> {
        let extent = |axis: &AttentionAxis| match axis {
            Scores(d) => self.dims[*d],
            _ => other,
        };
        axes.iter().map(extent).collect()
    }

    /// Extents with the group merged into the last axis before it, and an axis of heads where there is none.
    fn merged(&self, mut dims: Vec<u64>) -> Vec<u64> {
        let n = self.batch.len();
        match self.group {
            Some(_) if n > 0 => {
                let shared = dims.remove(n);
                dims[n - 1] *= shared;
            }
            None if n == 0 => dims.insert(0, 1),
            _ => {}
        }
        dims
    }

    /// Written queries, keys and values in the order of the op.
    pub(super) fn arguments(&self, b: &mut Builder, [q, k, v]: [Value; 3]) -> Vec<Value> {
        let [of_q, of_k, of_v] = &self.of_operands;
        let (q, of_q) = arranged(b, q, of_q, &self.order(true, [self.rows(), Elements]));
        let of_keys = self.order(false, [self.keys(), Elements]);
        let shared = [(k, of_k), (v, of_v)].map(|(v, axes)| {
            let (v, mut dims) = arranged(b, v, axes, &of_keys);
            if self.batch.is_empty() {
                dims.insert(0, 1);
            }
            reshaped(b, v, &dims)
        });
        let q = reshaped(b, q, &self.merged(of_q));
        [&[q], shared.as_slice()].concat()
    }

    /// A written mask or bias as an operand of the op; its axes are those of a value that is repeated over the scores.
    pub(super) fn over_scores(&self, b: &mut Builder, x: Value, of: &Spread) -> Value {
        let axes = repeated_axes(of);
        let order = self.order(true, [self.rows(), self.keys()]);
        let (mut x, mut own) = arranged(b, x, &axes, &order);
        x = reshaped(b, x, &own);
        let n = self.batch.len();
        // Heads that share keys are merged with the group where the mask has both or neither.
        if self.group.is_some() && n > 0 && (own[n - 1] == 1) != (own[n] == 1) {
            own = self.extents(&order, 1);
            let whole = TensorType::of(b.ty(x).dtype, &own);
            let all = Attrs::none().with_ints("dims", 0..own.len() as i64);
            x = b.op_as(Op::BroadcastInDim, &[x], all, &whole);
        }
        reshaped(b, x, &self.merged(own))
    }

    /// What the op gave in place of a contraction's result of this type.
    pub(super) fn result(&self, b: &mut Builder, y: Value, to: &TensorType) -> Value {
        let order = self.order(true, [self.rows(), Elements]);
        let width = b.ty(y).dims().and_then(|d| d.last().copied()).unwrap_or_default();
        let y = reshaped(b, y, &self.extents(&order, width));
        let (y, _) = arranged(b, y, &order, &self.of_result);
        b.reshaped(y, to)
    }
}

/// The batch axes of both operands of a contraction, and those that it sums.
fn pairs(f: &Function, i: Inst) -> [[&[i64]; 2]; 2] {
    ["batch", "contract"].map(|name| {
        let (a, b) = f.attrs(i).pair(name);
        [a, b]
    })
}

/// The axes of values, and of what a contraction of weights with them gives: the weights are operand `at`, and scores have these axes of
/// rows and keys.
fn weighing(
    f: &Function,
    (root, at): (Inst, usize),
    (rows, keys): (usize, usize),
) -> Option<(OperandAxes, OperandAxes)> {
    let [batch, contract] = pairs(f, root);
    if contract[at] != [keys as i64] {
        return None;
    }
    let of_batch: OperandAxes = batch[at].iter().map(|&d| Scores(d as usize)).collect();
    let is_free = |d: &usize| *d != keys && !batch[at].contains(&(*d as i64));
    let free: OperandAxes = (0..=keys).filter(is_free).map(Scores).collect();
    let v = f.args(root)[1 - at];
    let of_v = (batch[1 - at], of_batch.as_slice());
    let of_v = operand_axes(f.ty(v).rank(), of_v, (contract[1 - at], Scores(keys)), [Elements])?;
    let own = [Elements];
    let [lhs, rhs] = if at == 0 { [free.as_slice(), &own] } else { [&own, free.as_slice()] };
    let of_result = [of_batch.as_slice(), lhs, rhs].concat().into();
    (of_v.contains(&Elements) && free.contains(&Scores(rows))).then_some((of_v, of_result))
}

/// A value whose axes are these, with them in another order; and its extents in that order, 1 where it has no such axis.
fn arranged(
    b: &mut Builder,
    v: Value,
    axes: &[AttentionAxis],
    order: &[AttentionAxis],
) -> (Value, Vec<u64>) {
    let dims: Vec<u64> = b.ty(v).dims().map(|d| d.to_vec()).unwrap_or_default();
    let at = |axis: &AttentionAxis| axes.iter().position(|a| a == axis && *a != One);
    let named: SmallVec<[usize; 6]> = order.iter().filter_map(at).collect();
    let extents = order.iter().map(|axis| at(axis).map_or(1, |d| dims[d])).collect();
    if named.is_sorted() {
        return (v, extents);
    }
    let others = (0..dims.len()).filter(|d| !named.contains(d));
    let perm: Ints = others.chain(named.iter().copied()).map(|d| d as i64).collect();
    (b.op_with(Op::Transpose, &[v], Attrs::none().with("perm", Attr::Ints(perm))), extents)
}

fn reshaped(b: &mut Builder, v: Value, dims: &[u64]) -> Value {
    let ty = TensorType::of(b.ty(v).dtype, dims);
    b.reshaped(v, &ty)
}

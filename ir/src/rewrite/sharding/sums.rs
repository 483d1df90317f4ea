//! Folds of all elements of a tensor of which each rank has a part.

use super::decision::{BLOCK, ShardedSums, part};
use super::parts::{Ranks, first_of, padded_to};
use crate::attrs::Attrs;
use crate::builder::Builder;
use crate::dtype::DType;
use crate::entity::Value;
use crate::literal::Literal;
use crate::op::{Body, Monoid, Op};
use crate::types::{Dim, TensorType};

/// As many values are joined by one reduction of the tree: the lanes of the order of sums.
const LANES: u64 = 32;

/// A fold of all elements.
pub(super) struct PartialFold<'s> {
    pub(super) ranks: Ranks<'s>,
    /// The elements of the whole tensor.
    pub(super) elements: u64,
    pub(super) sums: ShardedSums,
}

impl PartialFold<'_> {
    /// The scalar that a reduction gives, of this rank's part of its operand.
    pub(super) fn written(&self, b: &mut Builder, op: Op, own: Value) -> Value {
        let dtype = b.ty(own).dtype;
        let Body::Reduce(monoid) = op.def().body else { return own };
        let own = self.without_padding(b, own, neutral(monoid, dtype));
        match monoid {
            Monoid::Sum if dtype.is_float() && self.sums == ShardedSums::InOrder => {
                self.sum_in_order(b, own)
            }
            Monoid::And | Monoid::Or => {
                let folded = b.op_with(op, &[own], Attrs::none().with_ints("axes", [0]));
                let number = b.converted(folded, DType::I32);
                let over_ranks =
                    if monoid == Monoid::And { Op::AllReduceMin } else { Op::AllReduceMax };
                let number = b.op_with(over_ranks, &[number], self.ranks.attrs());
                b.converted(number, DType::Bool)
            }
            _ => {
                let folded = b.op_with(op, &[own], Attrs::none().with_ints("axes", [0]));
                let over_ranks = match monoid {
                    Monoid::Max => Op::AllReduceMax,
                    Monoid::Min => Op::AllReduceMin,
                    _ => Op::AllReduce,
                };
                b.op_with(over_ranks, &[folded], self.ranks.attrs())
            }
        }
    }

    /// The part with a number in place of what is behind the last element of the tensor.
    fn without_padding(&self, b: &mut Builder, own: Value, by: Literal) -> Value {
        let n = part(self.elements, self.ranks.ranks);
        if n * u64::from(self.ranks.ranks) == self.elements {
            return own;
        }
        let places = TensorType::of(DType::I64, &[n]);
        let number = |b: &mut Builder, of: u64| {
            b.literal(&TensorType::scalar(DType::I64), Literal::from_i64(DType::I64, of as i64))
        };
        let rank = self.ranks.index(b);
        let rank = b.converted(rank, DType::I64);
        let (extent, elements) = (number(b, n), number(b, self.elements));
        let before = b.op(Op::Mul, &[rank, extent]);
        let left = b.op(Op::Sub, &[elements, before]);
        let spread = Attrs::none().with_ints("dims", []);
        let left = b.op_as(Op::BroadcastInDim, &[left], spread, &places);
        let place = b.op_as(Op::Iota, &[], Attrs::none().with_int("axis", 0), &places);
        let is_there = b.op(Op::Lt, &[place, left]);
        let by = b.literal(&b.ty(own).clone(), by);
        b.op(Op::SelectN, &[is_there, by, own])
    }

    /// The sum in the order of the whole tensor: of each block, and then of those in pairs.
    fn sum_in_order(&self, b: &mut Builder, own: Value) -> Value {
        let (dtype, n) = (b.ty(own).dtype, part(self.elements, self.ranks.ranks));
        let blocks = b.reshaped(own, &TensorType::of(dtype, &[n / BLOCK, BLOCK]));
        let last = Attrs::none().with_ints("axes", [1]);
        let blocks = b.op_with(Op::ReduceSum, &[blocks], last.clone());
        let all = self.ranks.gathered(b, blocks);
        let mut sums = first_of(b, all, self.elements.div_ceil(BLOCK));
        loop {
            let n = b.ty(sums).elements().unwrap_or(1);
            if n <= 1 {
                return b.reshaped(sums, &TensorType::scalar(dtype));
            }
            let rows = n.div_ceil(LANES);
            let full = padded_to(b, sums, rows * LANES, Literal::from_f64(dtype, -0.0));
            // Lanes are joined from the farthest to the nearest, and pairs from the nearest on.
            let bits = [rows, 2, 2, 2, 2, 2].map(Dim::Const);
            let full = b.reshaped(full, &TensorType::new(dtype, bits));
            let perm = Attrs::none().with_ints("perm", [0, 5, 4, 3, 2, 1]);
            let lanes = b.op_with(Op::Transpose, &[full], perm);
            let lanes = b.reshaped(lanes, &TensorType::of(dtype, &[rows, LANES]));
            sums = b.op_with(Op::ReduceSum, &[lanes], last.clone());
        }
    }
}

/// What changes no fold.
fn neutral(monoid: Monoid, dtype: DType) -> Literal {
    match monoid {
        Monoid::Sum if dtype.is_float() => Literal::from_f64(dtype, -0.0),
        // Of integers these are the least and the greatest.
        Monoid::Max => Literal::from_f64(dtype, f64::NEG_INFINITY),
        Monoid::Min => Literal::from_f64(dtype, f64::INFINITY),
        Monoid::And => Literal::one(dtype),
        _ => Literal::zero(dtype),
    }
}

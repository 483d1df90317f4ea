//! Data parallelism: a step whose batch is divided into leaves, which ranks share.
//!
//! The leaves of a batch are fixed, and so is the binary tree in whose order their gradients are summed. A rank has
//! neighbouring leaves, which are a whole subtree: it sums those, and ranks sum what they have in the order of the tree
//! ([`Tensor::all_reduce`]). So the bits of a step do not depend on the number of ranks.

use super::gradients::Gradients;
use crate::backends::Array;
use crate::backends::ranks::AXIS;
use crate::device::Device;
use crate::ir::rewrite::ExchangeBuckets;
use crate::ir::{At, DType, Diagnostic, Kind};
use crate::trace::{RankAxis, Tensor};
use crate::tree::{self, Params};

/// How exchanges are joined: each has a cost, and the first are on their way while others are computed.
pub(super) const BUCKETS: ExchangeBuckets =
    ExchangeBuckets { alone: 16 << 20, dense: 256 << 10, full: 24 << 20 };

/// Seeds of neighbouring leaves are so far apart: no training has as many steps.
const SEEDS_APART: i64 = 1 << 40;

/// Into how many parts a batch is divided, and how many ranks share them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Division {
    leaves: u32,
    ranks: u32,
}

impl Division {
    /// The division of a device's batches into this many leaves.
    ///
    /// # Errors
    /// [`Kind::Usage`] for numbers that are no powers of two, and more ranks than leaves.
    pub(super) fn of(leaves: u32, device: &Device) -> Result<Division, Diagnostic> {
        let (group, simulated) = (device.group().ranks(), device.simulated());
        if group > 1 && simulated > 1 {
            return Err(wrong("a device that is one of several ranks simulates none".into()));
        }
        let ranks = group.max(simulated);
        for (what, n) in [("leaves", leaves), ("ranks", ranks)] {
            if !n.is_power_of_two() {
                return Err(wrong(format!(
                    "a step is divided into {n} {what}: the number is a power of two"
                )));
            }
        }
        if ranks > leaves {
            let m =
                format!("{ranks} ranks share a batch of {leaves} leaves: each needs one at least");
            return Err(
                wrong(m).hint("`data_parallel(step, leaves)` divides the batches of a step")
            );
        }
        Ok(Division { leaves, ranks })
    }

    /// Whether a batch is one leaf.
    pub(super) fn is_whole(self) -> bool {
        self.leaves == 1
    }

    /// Leaves of a rank.
    fn own_leaves(self) -> u32 {
        self.leaves / self.ranks
    }

    /// How many ranks share the leaves.
    pub(super) fn ranks(self) -> u32 {
        self.ranks
    }

    fn over(self) -> RankAxis {
        RankAxis::new(AXIS, self.ranks)
    }

    /// The rows of a whole batch that a rank has; scalars are everybody's.
    ///
    /// # Errors
    /// [`Kind::Shape`] for rows that the leaves do not divide.
    pub(super) fn own<B: Params<Array>>(
        self,
        batch: &B,
        rank: u32,
    ) -> Result<B::With<Array>, Diagnostic> {
        tree::try_map(batch, |path, array| {
            let Some(&rows) = array.dims().first() else { return Ok(array.clone()) };
            if !rows.is_multiple_of(self.leaves.into()) {
                let m = format!(
                    "`{path}` of the batch is {}: {} leaves do not divide its rows",
                    array.ty(),
                    self.leaves
                );
                return Err(Diagnostic::new(At::default(), Kind::Shape, m));
            }
            match self.ranks {
                1 => Ok(array.clone()),
                _ => part(array, rank.into(), self.ranks.into()),
            }
        })
    }

    /// The first leaf of a rank's rows.
    ///
    /// # Errors
    /// [`Kind::Limit`] when memory is not enough.
    pub(super) fn leaf<B: Params<Array>>(self, own: &B) -> Result<B::With<Array>, Diagnostic> {
        tree::try_map(own, |_, array| match self.own_leaves() {
            1 => Ok(array.clone()),
            n => part(array, 0, n.into()),
        })
    }

    /// A whole batch with the ranks along a new first axis.
    ///
    /// # Errors
    /// As [`Array::reshape`].
    pub(super) fn side_by_side(self, batch: Vec<Array>) -> Result<Vec<Array>, Diagnostic> {
        let ranks = u64::from(self.ranks);
        let apart = |array: Array| match array.dims().first() {
            None => Ok(array),
            Some(&rows) => {
                let rest = array.dims().iter().skip(1).copied();
                let dims: Vec<u64> = [ranks, rows / ranks].into_iter().chain(rest).collect();
                array.reshape(dims)
            }
        };
        batch.into_iter().map(apart).collect()
    }

    /// The loss and its gradients over the whole batch, by those of each leaf: floats are means over the leaves, integers are sums.
    /// Gradients have the type in which they are summed, other values that of a leaf. `f` is given a leaf's rows of the batch and the seed of
    /// its random draws.
    pub(super) fn mean(
        self,
        (batch, drawn): (&[Tensor], &Tensor),
        f: &dyn Fn(&[Tensor], &Tensor) -> Gradients,
    ) -> Gradients {
        if self.is_whole() {
            return f(batch, drawn);
        }
        let own = self.own_leaves();
        let t = drawn.tracer();
        // The number of a rank's first leaf; that of the first rank is 0.
        let first = (self.ranks > 1)
            .then(|| t.axis_index(&self.over()).convert(DType::I64) * i64::from(own));
        let each = |leaf: u32| {
            let own_rows = |x: &Tensor| match x.ty().dims().and_then(|dims| dims.first().copied()) {
                Some(rows) if own > 1 => {
                    let rows = (rows / u64::from(own)) as i64;
                    x.slice((rows * i64::from(leaf)..rows * i64::from(leaf + 1),))
                }
                _ => x.clone(),
            };
            let rows: Vec<Tensor> = batch.iter().map(own_rows).collect();
            let mut seed = drawn + i64::from(leaf) * SEEDS_APART;
            if let Some(first) = &first {
                seed += first * SEEDS_APART;
            }
            f(&rows, &seed)
        };
        let first_leaf = each(0);
        let widened = |of: &Gradients| of.tensors().map(summand).collect();
        let mut sums: Vec<Vec<Tensor>> = vec![widened(&first_leaf)];
        sums.extend((1..own).map(|leaf| widened(&each(leaf))));
        while sums.len() > 1 {
            let pair = |pair: &[Vec<Tensor>]| match pair {
                [a, b] => a.iter().zip(b).map(|(a, b)| a + b).collect(),
                rest => rest.concat(),
            };
            sums = sums.chunks(2).map(pair).collect();
        }
        let own = sums.pop().unwrap_or_default();
        let all = match self.ranks {
            1 => own,
            _ => summed(&self.over(), &own),
        };
        let mean = |sum: Tensor| match sum.dtype().is_float() {
            true => sum / f64::from(self.leaves),
            false => sum,
        };
        first_leaf.replaced(all.into_iter().map(mean).collect())
    }
}

fn wrong(m: String) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::Usage, m)
}

/// Part `k` of as many equal parts of the rows of an array; a scalar as it is.
fn part(array: &Array, k: u64, parts: u64) -> Result<Array, Diagnostic> {
    match array.dims().first() {
        None => Ok(array.clone()),
        Some(&rows) => array.rows(rows / parts * k..rows / parts * (k + 1)),
    }
}

/// A value in the type in which it is summed: floats of two bytes are widened, truth values are counted.
fn summand(x: &Tensor) -> Tensor {
    match x.dtype() {
        DType::Bool => x.convert(DType::I32),
        _ => x.compute(),
    }
}

/// The sums over the ranks, in the order of the tensors. The last tensors, which a backward pass has first, are the first on
/// their way.
fn summed(over: &RankAxis, tensors: &[Tensor]) -> Vec<Tensor> {
    let mut sums: Vec<Tensor> = tensors.iter().rev().map(|x| x.all_reduce(over)).collect();
    sums.reverse();
    sums
}

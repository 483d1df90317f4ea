//! Contractions and attention: operands are computed in full, then sums one after the other.

use super::outputs;
use super::state::{KernelState, ProgramRun, volume};
use crate::reference::contract::dot;
use crate::reference::order::reduce_lane_blocked;
use crate::reference::reduce::with_combine;
use crate::reference::reserve;
use adfuse_ir::kernel::{Attend, Contract, Extents, Feed, Member};
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::{Recorder, S};
use adfuse_ir::{DType, Diagnostic, Literal};

impl ProgramRun<'_> {
    pub(super) fn contract(&mut self, step: &Contract) -> Result<(), Diagnostic> {
        step.members.iter().try_for_each(|member| self.member(member))
    }

    fn member(&mut self, m: &Member) -> Result<(), Diagnostic> {
        let sums = match volume(&m.result())? {
            // Extents of the operands of an empty result may be too large to walk.
            0 => Vec::new(),
            _ => {
                let [x, y] = m.feeds().map(|(_, feed, e)| self.feed(feed, &e, m.sum, Vec::new()));
                products(m.sum, [&m.batch, &m.rows, &m.cols, &m.depth], &x?, &y?)?
            }
        };
        let mut kept = KernelState { sums, ..KernelState::default() };
        self.stage(&m.result(), &m.then, &mut kept)
    }

    /// The elements of an operand, in this type.
    fn feed(
        &self,
        feed: &Feed,
        extents: &Extents,
        to: DType,
        sums: Vec<u64>,
    ) -> Result<Vec<u64>, Diagnostic> {
        let kept = KernelState { sums, ..KernelState::default() };
        let mut found = self.values(extents, &[], &feed.params, &feed.program, &kept)?;
        let mut elements = found.pop().unwrap_or_default();
        let from = feed.program.outputs.first().map_or(to, |&v| feed.program.insts[v].dtype);
        if from != to {
            let widened = |b: &mut u64| *b = Literal::from_bits(from, *b).convert(to).bits();
            elements.iter_mut().for_each(widened);
        }
        Ok(elements)
    }

    /// Attention as its definition says it: all scores, then their weights, then the weighed values.
    /// Weights add up in the lane order, weighed values in the order of contractions.
    pub(super) fn attend(&mut self, a: &Attend) -> Result<(), Diagnostic> {
        let sum = a.sum;
        let [lhs, rhs, score, values] = a.feeds();
        let x = self.feed(lhs.1, &lhs.2, sum, Vec::new())?;
        let y = self.feed(rhs.1, &rhs.2, sum, Vec::new())?;
        let sums = products(sum, [&a.batch, &a.rows, &a.stream, &a.depth], &x, &y)?;
        let scores = self.feed(score.1, &score.2, sum, sums)?;
        let values = self.feed(values.1, &values.2, sum, Vec::new())?;
        let [batch, rows, n, width] = sizes([&a.batch, &a.rows, &a.stream, &a.width])?;
        // A row without keys has no weights, and the sum of none. There may be any number of those.
        reserve((batch as u64).saturating_mul(rows as u64))?;
        let line = |all: &[u64], k: usize| -> Vec<u64> { all[k * n..][..n].to_vec() };
        let lines = |monoid: Monoid, all: &[u64]| -> Vec<u64> {
            let empty = monoid.empty(sum).bits();
            with_combine(monoid, sum, |combine| {
                let fold = |k| reduce_lane_blocked(&line(all, k), combine, empty);
                (0..batch * rows).map(fold).collect()
            })
        };
        let spread = |one: &[u64], n: usize| -> Vec<u64> {
            one.iter().flat_map(|&b| std::iter::repeat_n(b, n)).collect()
        };
        let most = lines(Monoid::Max, &scores);
        let weights = pairwise(sum, &scores, &spread(&most, n), |s, m| (s - m).exp())?;
        let totals = lines(Monoid::Sum, &weights);
        let mut weighed = reserve(volume(&a.result())?)?;
        for b in 0..batch {
            for i in 0..rows {
                let w = line(&weights, b * rows + i);
                for d in 0..width {
                    let column: Vec<u64> =
                        (0..n).map(|j| values[(b * n + j) * width + d]).collect();
                    weighed.push(dot(sum, &w, &column));
                }
            }
        }
        let sums = pairwise(sum, &weighed, &spread(&totals, width), |x, s| x / s)?;
        let mut kept = KernelState { sums, ..KernelState::default() };
        self.stage(&a.result(), &a.then, &mut kept)?;
        if let Some(b) = a.log_sum {
            self.put(b, pairwise(sum, &most, &totals, |m, s| m + s.log())?)?;
        }
        Ok(())
    }
}

/// Sums of products of operands that are batch, free, summed: row-major over batch and free axes.
fn products(
    sum: DType,
    extents: [&Extents; 4],
    x: &[u64],
    y: &[u64],
) -> Result<Vec<u64>, Diagnostic> {
    let total = extents[..3].iter().flat_map(|e| e.iter().copied()).collect::<Extents>();
    let mut sums = reserve(volume(&total)?)?;
    let [batch, rows, cols, depth] = sizes(extents)?;
    for b in 0..batch {
        for i in 0..rows {
            for j in 0..cols {
                let row = &x[(b * rows + i) * depth..][..depth];
                let column = &y[(b * cols + j) * depth..][..depth];
                sums.push(dot(sum, row, column));
            }
        }
    }
    Ok(sums)
}

fn sizes<const N: usize>(extents: [&Extents; N]) -> Result<[usize; N], Diagnostic> {
    let mut found = [0; N];
    for (size, extents) in found.iter_mut().zip(extents) {
        *size = volume(extents)? as usize;
    }
    Ok(found)
}

/// An operation on two lists, element by element.
fn pairwise(
    dtype: DType,
    x: &[u64],
    y: &[u64],
    op: impl for<'r> Fn(S<'r>, S<'r>) -> S<'r>,
) -> Result<Vec<u64>, Diagnostic> {
    let program = Recorder::record_any(&[dtype, dtype], |p| op(p[0], p[1]));
    let mut found = outputs(&program, x.len() as u64, &mut |start, n, lanes| {
        for (lane, from) in lanes.iter_mut().zip([x, y]) {
            lane[..n].copy_from_slice(&from[start..start + n]);
        }
        Ok(())
    })?;
    Ok(found.pop().unwrap_or_default())
}

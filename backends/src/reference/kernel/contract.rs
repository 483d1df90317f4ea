//! Contractions: operands are computed in full, then sums one after the other.

use super::state::{KernelState, ProgramRun, volume};
use crate::reference::contract::dot;
use crate::reference::reserve;
use adfuse_ir::kernel::{Contract, Extents, Feed, Member};
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
                let [x, y] = m.feeds().map(|(_, feed, e)| self.feed(feed, &e, m.sum));
                products(m.sum, [&m.batch, &m.rows, &m.cols, &m.depth], &x?, &y?)?
            }
        };
        let mut kept = KernelState { sums, ..KernelState::default() };
        self.stage(&m.result(), &m.then, &mut kept)
    }

    /// The elements of an operand, in this type.
    fn feed(&self, feed: &Feed, extents: &Extents, to: DType) -> Result<Vec<u64>, Diagnostic> {
        let none = KernelState::default();
        let mut found = self.values(extents, &[], &feed.params, &feed.program, &none)?;
        let mut elements = found.pop().unwrap_or_default();
        let from = feed.program.outputs.first().map_or(to, |&v| feed.program.insts[v].dtype);
        if from != to {
            let widened = |b: &mut u64| *b = Literal::from_bits(from, *b).convert(to).bits();
            elements.iter_mut().for_each(widened);
        }
        Ok(elements)
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

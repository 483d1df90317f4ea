//! The operands of contractions: where they lie in the nest of the result and of what is summed over.

use crate::axes::{Place, Run};
use crate::facts::Facts;
use crate::part::{Part, Shape};
use adfuse_ir::kernel::Extents;
use adfuse_ir::{Inst, Value};

impl Part {
    /// Divides atoms as the views under a contraction's operand ask for.
    pub(crate) fn divide(&mut self, facts: &Facts<'_>, v: Value, place: Place) {
        if let Some(i) = facts.free(v)
            && let Some(under) = facts.through(&mut self.axes, i, &place)
        {
            self.divide(facts, facts.f.args(i)[0], under);
        }
    }

    /// The atoms of operand `k` of a contraction: shared by both, its own, summed over.
    fn operand(&self, facts: &Facts<'_>, k: usize) -> Option<[Run; 3]> {
        let Shape::Contract(i) = self.shape else { return None };
        let (batched, left) = roles(facts, i);
        let place = &self.result;
        let own = if k == 0 { &place[batched..left] } else { &place[left..] };
        let whole = |runs: &[Run]| runs.iter().flat_map(|r| self.axes.whole(r)).collect();
        Some([whole(&place[..batched]), whole(own), whole(&self.depth)])
    }

    /// The extents of the atoms of operand `k` of a contraction.
    pub(crate) fn operand_extents(&self, facts: &Facts<'_>, k: usize) -> [Extents; 3] {
        let of = |run: Run| run.iter().map(|&a| self.axes.extent(a)).collect();
        self.operand(facts, k).unwrap_or_default().map(of)
    }

    /// Divides the atoms of operand `k` of a contraction where these extents end; whether they do.
    pub(crate) fn divide_operand(
        &mut self,
        facts: &Facts<'_>,
        k: usize,
        wanted: &[Extents; 3],
    ) -> bool {
        self.axes.begin();
        let Some(runs) = self.operand(facts, k) else { return false };
        runs.iter().zip(wanted).all(|(run, dims)| self.axes.cut(run, dims).is_some())
    }
}

/// Extents of the axes that a contraction sums over.
pub(crate) fn depth(facts: &Facts<'_>, i: Inst) -> Extents {
    let dims = &facts.dims[facts.f.args(i)[0]];
    facts.f.attrs(i).pair("contract").0.iter().map(|&d| dims[d as usize]).collect()
}

/// How many axes of a contraction's result are batch axes, and how many those and the left operand's.
pub(crate) fn roles(facts: &Facts<'_>, i: Inst) -> (usize, usize) {
    let attrs = facts.f.attrs(i);
    let batched = attrs.pair("batch").0.len();
    (batched, facts.dims[facts.f.args(i)[0]].len() - attrs.pair("contract").0.len())
}

/// Where operand `k` of a contraction lies, whose result lies at `place`.
pub(crate) fn side(facts: &Facts<'_>, i: Inst, k: usize, place: &Place, depth: &Place) -> Place {
    let attrs = facts.f.attrs(i);
    let pick = |pair: (&[i64], &[i64])| if k == 0 { pair.0.to_vec() } else { pair.1.to_vec() };
    let (batch, contract) = (pick(attrs.pair("batch")), pick(attrs.pair("contract")));
    let rank = facts.dims[facts.f.args(i)[k]].len() as i64;
    let (batched, left) = roles(facts, i);
    let mut free = if k == 0 { batched } else { left };
    (0..rank)
        .map(|d| {
            let position = |list: &[i64]| list.iter().position(|&x| x == d);
            match (position(&batch), position(&contract)) {
                (Some(b), _) => place[b].clone(),
                (_, Some(c)) => depth[c].clone(),
                _ => {
                    free += 1;
                    place[free - 1].clone()
                }
            }
        })
        .collect()
}

//! The axes of a contraction's operands, as atoms of the nest that computes it.

use super::part::Part;
use crate::analysis::axes::{AtomRun, TensorAxes};
use crate::analysis::class::PartKind;
use crate::analysis::contraction_operands::roles;
use crate::analysis::facts::Facts;
use adfuse_ir::Value;
use adfuse_ir::kernel::Extents;

impl Part {
    /// Divides atoms as the views under a contraction's operand ask for.
    pub(crate) fn divide(&mut self, facts: &Facts<'_>, v: Value, place: TensorAxes) {
        if let Some(i) = facts.free(v)
            && let Some(under) = facts.through(&mut self.axes, i, &place)
        {
            self.divide(facts, facts.f.args(i)[0], under);
        }
    }

    /// The atoms of operand `k` of a contraction: shared by both, its own, summed over.
    fn operand(&self, facts: &Facts<'_>, k: usize) -> Option<[AtomRun; 3]> {
        let PartKind::Contract(i) = self.shape else { return None };
        let (batched, left) = roles(facts, i);
        let place = &self.result;
        let own = if k == 0 { &place[batched..left] } else { &place[left..] };
        let whole = |runs: &[AtomRun]| runs.iter().flat_map(|r| self.axes.whole(r)).collect();
        Some([whole(&place[..batched]), whole(own), whole(&self.depth)])
    }

    /// The atoms of the columns of a contraction's result.
    pub(super) fn columns(&self, facts: &Facts<'_>) -> Option<AtomRun> {
        let [_, columns, _] = self.operand(facts, 1)?;
        Some(columns)
    }

    /// The extents of the atoms of operand `k` of a contraction.
    pub(crate) fn operand_extents(&self, facts: &Facts<'_>, k: usize) -> [Extents; 3] {
        let of = |run: AtomRun| run.iter().map(|&a| self.axes.extent(a)).collect();
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
        runs.iter().zip(wanted).all(|(run, dims)| self.axes.split_flat(run, dims).is_some())
    }
}

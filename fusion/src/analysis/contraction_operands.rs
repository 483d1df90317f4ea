//! The operands of contractions: their axes in the loop nest of the result and the contracted axes.

use super::axes::TensorAxes;
use super::facts::Facts;
use adfuse_ir::Inst;
use adfuse_ir::kernel::Extents;

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
pub(crate) fn side(
    facts: &Facts<'_>,
    i: Inst,
    k: usize,
    place: &TensorAxes,
    depth: &TensorAxes,
) -> TensorAxes {
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

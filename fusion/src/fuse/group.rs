//! Grouping: which instructions share a kernel.
//!
//! Instructions are visited in order. Each joins the part that computes its last operand, or a part that reads a common
//! operand, if [`Part::join`] allows it; otherwise it begins a part. Parts are ordered from the start, and an
//! instruction joins no part before the last one that it depends on, so cycles cannot arise. Then values that are
//! cheaper to recompute than to store are inlined, and grouping is repeated.

use super::groups::Groups;
use super::inline;
use crate::analysis::facts::Facts;
use crate::plan::options::{Effort, PlanOptions};
use adfuse_ir::{Diagnostic, Function, Inst};
use cranelift_entity::SecondaryMap;

/// Groups the instructions of a prepared function.
///
/// # Errors
/// For what has no lowering: symbolic extents and regions.
pub(crate) fn group<'f>(
    f: &'f Function,
    options: &PlanOptions,
    price: f64,
) -> Result<(Facts<'f>, Groups), Diagnostic> {
    regroup(f, options, price, &SecondaryMap::new())
}

/// As [`group`], with instructions that compute again what was computed before: `since` is the place in
/// the function from which on they are wanted, as a number of instructions. They share no kernel that is
/// done by then.
pub(crate) fn regroup<'f>(
    f: &'f Function,
    options: &PlanOptions,
    price: f64,
    since: &SecondaryMap<Inst, u32>,
) -> Result<(Facts<'f>, Groups), Diagnostic> {
    let (device, effort) = (&options.device, options.effort);
    let apart = effort == Effort::Off;
    let mut facts = Facts::of(f, apart)?;
    let mut groups = Groups::grow(&facts, device, apart, since);
    let rounds = match effort {
        Effort::Off => 0,
        Effort::Quick => 1,
        Effort::Default | Effort::Search => 4,
    };
    for _ in 0..rounds {
        let again = inline::worthwhile(&facts, &groups, device, price);
        if again.is_empty() {
            break;
        }
        for i in again {
            facts.set_free(i);
        }
        groups = Groups::grow(&facts, device, false, since);
    }
    Ok((facts, groups))
}

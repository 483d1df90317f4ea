//! Grouping: which instructions share a kernel.
//!
//! Instructions are visited in order. Each joins the part that computes its last operand, or a part that reads a common
//! operand, if [`Part::join`] allows it; otherwise it begins a part. Parts are ordered from the start, and an
//! instruction joins no part before the last one that it depends on, so cycles cannot arise. Then values that are
//! cheaper to recompute than to store are inlined, and grouping is repeated.

use super::groups::Groups;
use super::inline;
use crate::analysis::facts::{Facts, FixedFacts};
use crate::plan::options::{Effort, PlanOptions};
use adfuse_ir::{Diagnostic, Function, Inst, Value};
use cranelift_entity::SecondaryMap;
use std::sync::Arc;

/// Groups the instructions of a prepared function.
///
/// # Errors
/// For what has no lowering: symbolic extents and regions.
pub(crate) fn group<'f>(
    f: &'f Function,
    options: &PlanOptions,
    price: f64,
) -> Result<(Facts<'f>, Groups), Diagnostic> {
    regroup(f, options, price, &RegroupFrom::default())
}

/// How often effort quick groups what is left when values have been inlined.
const QUICK_ROUNDS: usize = 1;

/// What grouping begins with.
#[derive(Default)]
pub(crate) struct RegroupFrom<'a> {
    /// The place in the function from which on an instruction is wanted, as a number of instructions. It shares no
    /// kernel that is done by then.
    pub(crate) since: SecondaryMap<Inst, u32>,
    /// What another plan inlines; `None` where it is to be found.
    pub(crate) inlined: Option<&'a [Inst]>,
    /// The facts of the function that the instructions are instances of, and of which value each is one.
    pub(crate) known: Option<(&'a Facts<'a>, &'a SecondaryMap<Value, Option<Value>>)>,
    /// Facts of the function itself.
    pub(crate) own: Option<&'a Arc<FixedFacts>>,
}

/// As [`group`], with instructions that compute again what was computed before. Where it is known what another plan
/// inlines, one round is left: for what is computed again.
pub(crate) fn regroup<'f>(
    f: &'f Function,
    options: &PlanOptions,
    price: f64,
    from: &RegroupFrom<'_>,
) -> Result<(Facts<'f>, Groups), Diagnostic> {
    regroup_noting(f, options, price, from, &mut |_, _| {})
}

/// As [`regroup`], which notes what effort quick ends with, where the wanted effort goes on after that.
pub(crate) fn regroup_noting<'f>(
    f: &'f Function,
    options: &PlanOptions,
    price: f64,
    from: &RegroupFrom<'_>,
    note_quick: &mut dyn FnMut(&Facts<'f>, &Groups),
) -> Result<(Facts<'f>, Groups), Diagnostic> {
    let (device, effort) = (&options.device, options.effort);
    let apart = effort == Effort::Off;
    let mut facts = match (from.known, from.own) {
        (Some(known), _) => Facts::of_instances(f, apart, known)?,
        (None, Some(own)) => Facts::with(f, Arc::clone(own), apart),
        (None, None) => Facts::of(f, apart)?,
    };
    for &i in from.inlined.unwrap_or_default() {
        facts.set_free(i);
    }
    let mut groups = Groups::grow(&facts, device, apart, &from.since);
    let rounds = match effort {
        Effort::Off => 0,
        _ if from.inlined.is_some() => 1,
        Effort::Quick => QUICK_ROUNDS,
        Effort::Default | Effort::Search => 4,
    };
    for round in 0..rounds {
        let again = inline::worthwhile(&facts, &groups, device, price);
        if again.is_empty() {
            break;
        }
        if round == QUICK_ROUNDS {
            note_quick(&facts, &groups);
        }
        for i in again {
            facts.set_free(i);
        }
        groups = Groups::grow(&facts, device, false, &from.since);
    }
    Ok((facts, groups))
}

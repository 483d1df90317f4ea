//! Residuals: the values that a step keeps from one phase for a later one.

use super::instance_residuals::left_to_later;
use crate::analysis::facts::Facts;
use crate::analysis::leaves::leaves;
use crate::analysis::phases::served;
use crate::lower::instances::instances;
use crate::plan::Plan;
use adfuse_ir::kernel::Storage;
use adfuse_ir::{At, Diagnostic, Function, Kind, Phase, Value};
use cranelift_entity::{EntitySet, SecondaryMap};

/// Bytes of what one phase leaves in memory for a later one: the temporaries that are computed by an
/// instruction of some phase and read, from memory, for an instruction that nothing before a later phase
/// needs. Packed values count as they are stored.
///
/// Parameters are there anyway and do not count, nor do constants. Nor do results, even where a later
/// phase reads them: they are outputs, which the caller has whatever is planned.
///
/// # Errors
/// For what has no lowering, and [`Kind::Limit`] when the sizes add up to more than 2^64 bytes.
pub fn saved_bytes(f: &Function, plan: &Plan) -> Result<u64, Diagnostic> {
    if let Some(x) = instances(f, plan)? {
        return saved_bytes(&x.f, &x.plan);
    }
    let mut facts = Facts::of(f, true)?;
    plan.inline.iter().for_each(|&i| facts.set_free(i));
    let later = stored(&facts, plan).into_iter().filter(|s| s.later).map(|s| s.value);
    total(&facts, plan, later)
}

/// As [`saved_bytes`], of a plan that is [linked](crate::lower::linked), where the facts of the function are known.
///
/// # Errors
/// As there.
pub(crate) fn saved_with(known: &Facts<'_>, plan: &Plan) -> Result<u64, Diagnostic> {
    total(known, plan, left_to_later(known, plan).into_iter())
}

/// Bytes of some values as a plan stores them.
fn total(
    facts: &Facts<'_>,
    plan: &Plan,
    mut values: impl Iterator<Item = Value>,
) -> Result<u64, Diagnostic> {
    let storage = storage(plan);
    let sum = values.try_fold(0u64, |sum, v| sum.checked_add(bytes(facts, &storage, v)?));
    sum.ok_or_else(|| {
        let at = At { func: Some(facts.f.name.clone()), ..At::default() };
        Diagnostic::new(at, Kind::Limit, "what is kept takes more than 2^64 bytes")
    })
}

/// A temporary of a plan.
pub(crate) struct PlanTemporary {
    pub(crate) value: Value,
    /// Whether an instruction reads it that serves a later phase alone.
    pub(crate) later: bool,
}

/// The temporaries, in the order in which they are read first.
pub(crate) fn stored(facts: &Facts<'_>, plan: &Plan) -> Vec<PlanTemporary> {
    let f = facts.f;
    let mut results: EntitySet<Value> = EntitySet::new();
    results.extend(f.results().iter().copied());
    let mut home: SecondaryMap<Value, Option<(usize, Phase)>> = SecondaryMap::new();
    for (g, group) in plan.groups.iter().enumerate() {
        for &i in group.parts.iter().flatten() {
            for &v in f.inst_results(i) {
                home[v] = Some((g, f.inst(i).phase));
            }
        }
    }
    let mut found: Vec<PlanTemporary> = Vec::new();
    let mut place: SecondaryMap<Value, Option<usize>> = SecondaryMap::new();
    let serves = served(f);
    for (g, group) in plan.groups.iter().enumerate() {
        let members = group.parts.iter().flatten().copied();
        for (i, v) in members.flat_map(|i| leaves(facts, i).into_iter().map(move |v| (i, v))) {
            // Parameters and constants are at home in no group.
            let Some((at, phase)) = home[v] else { continue };
            if at != g && !results.contains(v) {
                let k = *place[v].get_or_insert(found.len());
                if k == found.len() {
                    found.push(PlanTemporary { value: v, later: false });
                }
                found[k].later |= serves[i] > phase;
            }
        }
    }
    found
}

/// Bytes of all temporaries that are found here; `None` where they are too many to count. For the test that
/// they are those of the program.
///
/// # Errors
/// For what has no lowering.
#[doc(hidden)]
pub fn stored_bytes(f: &Function, plan: &Plan) -> Result<Option<u64>, Diagnostic> {
    let mut facts = Facts::of(f, true)?;
    plan.inline.iter().for_each(|&i| facts.set_free(i));
    let storage = storage(plan);
    Ok(stored(&facts, plan).iter().map(|s| bytes(&facts, &storage, s.value)).sum())
}

/// How a plan stores each value.
pub(crate) fn storage(plan: &Plan) -> SecondaryMap<Value, Storage> {
    let mut storage = SecondaryMap::new();
    plan.storage.iter().for_each(|&(v, form)| storage[v] = form);
    storage
}

/// Bytes of a value as a plan stores it; `None` where they are too many to count.
pub(crate) fn bytes(
    facts: &Facts<'_>,
    storage: &SecondaryMap<Value, Storage>,
    v: Value,
) -> Option<u64> {
    let elements = facts.elements[v].unsigned_abs();
    match storage[v] {
        Storage::Plain => elements.checked_mul(facts.f.ty(v).dtype.bytes()),
        Storage::Packed(bits) => elements.checked_mul(bits.into())?.div_ceil(32).checked_mul(4),
    }
}

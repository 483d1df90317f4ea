//! Turns a schedule of operations into a plan in which instructions recur.

use super::group_graph::{GroupGraph, needed};
use super::schedule::steps::OpSchedule;
use crate::analysis::facts::Facts;
use crate::fuse::greedy::of_groups;
use crate::fuse::group::regroup;
use crate::lower::instances::instances;
use crate::plan::options::PlanOptions;
use crate::plan::{Group, Plan};
use adfuse_ir::{Diagnostic, Function, Inst, Value, ValueDef};
use cranelift_entity::{EntitySet, SecondaryMap};

/// The plan that runs the groups of another as a schedule says: a group that comes again has the
/// members that are wanted of it.
pub(crate) fn recurring(
    facts: &Facts<'_>,
    base: &Plan,
    graph: &GroupGraph,
    schedule: &OpSchedule,
) -> (Plan, Vec<bool>) {
    let mut ran = EntitySet::new();
    let mut begun = vec![false; base.groups.len()];
    let (mut groups, mut again): (Vec<Group>, Vec<bool>) = (Vec::new(), Vec::new());
    // The group that came again last, and what is wanted of it.
    let mut open: Option<(usize, Vec<Value>)> = None;
    for &op in schedule.steps.values() {
        let Some((g, v)) = graph.of[op] else { continue };
        if ran.insert(op) {
            if !std::mem::replace(&mut begun[g], true) {
                groups.push(base.groups[g].clone());
                again.push(false);
                open = None;
            }
            continue;
        }
        let wanted = match open.take() {
            Some((same, mut wanted)) if same == g => {
                groups.pop();
                again.pop();
                wanted.push(v);
                wanted
            }
            _ => vec![v],
        };
        groups.push(Group { parts: needed(facts, &base.groups[g], &wanted, &graph.kept) });
        again.push(true);
        open = Some((g, wanted));
    }
    (Plan { groups, ..base.clone() }, again)
}

/// The plan with its instructions grouped anew, those that come again among them, so that what is
/// computed again joins its readers. `None` where such groups have no plan of the function.
///
/// # Errors
/// Those of planning.
pub(crate) fn regrouped(
    f: &Function,
    plan: &Plan,
    again: &[bool],
    options: &PlanOptions,
    price: f64,
) -> Result<Option<Plan>, Diagnostic> {
    let Some(x) = instances(f, plan)? else { return Ok(None) };
    let mut place: SecondaryMap<Inst, u32> = SecondaryMap::new();
    x.f.body_insts().iter().zip(0..).for_each(|(&i, at)| place[i] = at);
    let mut since: SecondaryMap<Inst, u32> = SecondaryMap::new();
    for (group, _) in x.plan.groups.iter().zip(again).filter(|(_, again)| **again) {
        let members = || group.parts.iter().flatten().copied();
        let first = members().map(|i| place[i]).min().unwrap_or(0);
        members().for_each(|i| since[i] = first);
    }
    let (facts, groups) = regroup(&x.f, options, price, &since)?;
    let made = of_groups(&facts, &groups, options);
    let origin = |i: Inst| -> Option<Inst> {
        let v = x.value[x.f.inst_results(i)[0]]?;
        match f.def(v) {
            ValueDef::Inst(i, _) => Some(i),
            _ => None,
        }
    };
    let mut members = EntitySet::<Inst>::new();
    members.extend(made.groups.iter().flat_map(|g| &g.parts).flatten().filter_map(|&i| origin(i)));
    let mut inline = EntitySet::<Inst>::new();
    inline.extend(made.inline.iter().filter_map(|&i| origin(i)).filter(|i| !members.contains(*i)));
    let mut back = Vec::new();
    for group in &made.groups {
        let mut parts = Vec::new();
        for part in &group.parts {
            let Some(part) = original(&facts, part, &members, &origin) else { return Ok(None) };
            parts.push(part);
        }
        back.push(Group { parts });
    }
    let mut stored = EntitySet::<Value>::new();
    let storage = made.storage.iter().filter_map(|&(v, form)| Some((x.value[v]?, form)));
    let storage = storage.filter(|(v, _)| stored.insert(*v)).collect();
    let inline = f.body_insts().iter().copied().filter(|i| inline.contains(*i)).collect();
    Ok(Some(Plan { inline, groups: back, storage, ..plan.clone() }))
}

/// The instructions of a part in terms of the function. What is written out here and has a group of its
/// own elsewhere becomes a member.
fn original(
    facts: &Facts<'_>,
    part: &[Inst],
    members: &EntitySet<Inst>,
    origin: &dyn Fn(Inst) -> Option<Inst>,
) -> Option<Vec<Inst>> {
    let (mut found, mut seen) = (Vec::new(), EntitySet::<Inst>::new());
    for &i in part {
        let mut written = Vec::new();
        free_under(facts, i, &mut written);
        for j in written {
            let j = origin(j)?;
            if members.contains(j) && seen.insert(j) {
                found.push(j);
            }
        }
        let i = origin(i)?;
        // Two instances of one instruction in one group are no plan.
        if !seen.insert(i) {
            return None;
        }
        found.push(i);
    }
    Some(found)
}

/// What is written out where an instruction reads it, what that reads first.
fn free_under(facts: &Facts<'_>, i: Inst, into: &mut Vec<Inst>) {
    let mut stack: Vec<(Inst, bool)> = vec![(i, false)];
    let mut seen = EntitySet::<Inst>::new();
    while let Some((j, done)) = stack.pop() {
        if done {
            if j != i {
                into.push(j);
            }
            continue;
        }
        if !seen.insert(j) {
            continue;
        }
        stack.push((j, true));
        for &a in facts.f.args(j) {
            stack.extend(facts.free(a).map(|k| (k, false)));
        }
    }
}

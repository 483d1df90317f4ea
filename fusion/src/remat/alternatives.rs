//! Plans that differ from another plan in the decision about one value.
//!
//! These functions only construct the alternative; lowering decides whether it is legal.

use super::crossing::{ExecutedPlan, Reading, ValueSource, phase_of};
use super::group_graph::{left, needed};
use crate::analysis::facts::Facts;
use crate::analysis::value_range::ValueRanges;
use crate::fuse::greedy::narrow;
use crate::lower::instances::instances;
use crate::memory::residuals::{storage, stored};
use crate::plan::{Group, Plan};
use adfuse_ir::control::reads as read_by;
use adfuse_ir::kernel::Storage;
use adfuse_ir::{Diagnostic, Function, Inst, Phase, Value, ValueDef};
use cranelift_entity::{EntitySet, SecondaryMap};

fn made_by(f: &Function, v: Value) -> Option<Inst> {
    match f.def(v) {
        ValueDef::Inst(i, _) => Some(i),
        _ => None,
    }
}

/// Plans that compute a value again for later phases, which read it from memory now.
pub(crate) fn rematerialize(
    f: &Function,
    plan: &Plan,
    v: Value,
    readings: &[Reading],
) -> Result<Vec<Plan>, Diagnostic> {
    let Some(i) = made_by(f, v) else { return Ok(Vec::new()) };
    let x = instances(f, plan)?;
    let executed = ExecutedPlan::of(f, plan, x.as_ref())?;
    let Some(first) = executed.first(v) else { return Ok(Vec::new()) };
    let Some(home) = executed.home(first) else { return Ok(Vec::new()) };
    // What the group computes for this value, in terms of the function.
    let kept = left(&executed.facts, executed.plan).kept;
    let parts = needed(&executed.facts, &executed.plan.groups[home], &[first], &kept);
    let of = |j: &Inst| made_by(f, executed.origin(executed.facts.f.inst_results(*j)[0])?);
    let parts: Vec<Vec<Inst>> = parts.iter().map(|p| p.iter().filter_map(of).collect()).collect();
    let later = readings.iter().filter(|r| r.how == ValueSource::Memory).map(|r| r.group);
    let later: Vec<usize> = later.collect();
    let facts = Facts::of(f, true)?;
    let may_be_inlined =
        |these: &[Inst]| these.iter().all(|&j| !facts.is_held(f.inst_results(j)[0]));
    let mut plans = Vec::new();
    if may_be_inlined(&[i]) {
        plans.push(written_out(f, plan, &[i]));
    }
    let all: Vec<Inst> = parts.iter().flatten().copied().collect();
    if all.len() > 1 && may_be_inlined(&all) {
        plans.push(written_out(f, plan, &all));
    }
    plans.extend(inside(f, plan, v, &parts, &later));
    if let Some(&before) = later.iter().min() {
        let mut groups = plan.groups.clone();
        groups.insert(before, Group { parts });
        plans.push(Plan { groups, ..plan.clone() });
    }
    Ok(plans)
}

/// The plan with instructions inlined wherever they are used.
fn written_out(f: &Function, plan: &Plan, these: &[Inst]) -> Plan {
    let mut groups = plan.groups.clone();
    groups.iter_mut().for_each(|g| {
        g.parts.iter_mut().for_each(|p| p.retain(|j| !these.contains(j)));
        g.parts.retain(|p| !p.is_empty());
    });
    groups.retain(|g| !g.parts.is_empty());
    let mut inline = EntitySet::<Inst>::new();
    inline.extend(plan.inline.iter().chain(these).copied());
    let inline = f.body_insts().iter().copied().filter(|&i| inline.contains(i)).collect();
    Plan { inline, groups, ..plan.clone() }
}

/// The plan in which each group that needs a value for a later phase computes these instructions, too.
fn inside(
    f: &Function,
    plan: &Plan,
    v: Value,
    parts: &[Vec<Inst>],
    later: &[usize],
) -> Option<Plan> {
    let mut groups = plan.groups.clone();
    for &g in later {
        let mut inline = EntitySet::<Inst>::new();
        inline.extend(plan.inline.iter().copied());
        let part =
            groups[g].parts.iter_mut().find(|p| p.iter().any(|&m| reads(f, &inline, m, v)))?;
        let mut all = EntitySet::<Inst>::new();
        all.extend(part.iter().chain(parts.iter().flatten()).copied());
        *part = f.body_insts().iter().copied().filter(|&i| all.contains(i)).collect();
    }
    Some(Plan { groups, ..plan.clone() })
}

/// Whether an instruction reads a value, or reads what is written out in terms of it.
fn reads(f: &Function, inline: &EntitySet<Inst>, m: Inst, v: Value) -> bool {
    let (mut stack, mut seen) = (vec![m], EntitySet::<Inst>::new());
    while let Some(i) = stack.pop() {
        for a in read_by(f, i) {
            if a == v {
                return true;
            }
            if let Some(j) = made_by(f, a)
                && inline.contains(j)
                && seen.insert(j)
            {
                stack.push(j);
            }
        }
    }
    false
}

/// Plans that keep a value which is computed again now.
pub(crate) fn kept(f: &Function, plan: &Plan, v: Value) -> Result<Vec<Plan>, Diagnostic> {
    let Some(i) = made_by(f, v) else { return Ok(Vec::new()) };
    if !plan.inline.contains(&i) {
        return Ok(vec![once(f, plan, i)?]);
    }
    let mut inline = EntitySet::<Inst>::new();
    inline.extend(plan.inline.iter().copied());
    let without = plan.inline.iter().copied().filter(|&j| j != i).collect();
    let whole = Plan { inline: without, ..plan.clone() };
    // The last of the groups that compute first what it is made of.
    let mut first: SecondaryMap<Inst, Option<(usize, usize)>> = SecondaryMap::new();
    for (g, group) in plan.groups.iter().enumerate() {
        for (k, part) in group.parts.iter().enumerate() {
            part.iter().for_each(|&j| {
                first[j].get_or_insert((g, k));
            });
        }
    }
    let (mut stack, mut seen, mut last) = (vec![i], EntitySet::<Inst>::new(), None);
    while let Some(j) = stack.pop() {
        for a in f.args(j).iter().filter_map(|&a| made_by(f, a)) {
            last = last.max(first[a]);
            if inline.contains(a) && seen.insert(a) {
                stack.push(a);
            }
        }
    }
    let mut plans = Vec::new();
    if let Some((g, k)) = last {
        let mut joined = whole.clone();
        let part = &mut joined.groups[g].parts[k];
        let mut all = EntitySet::<Inst>::new();
        all.extend(part.iter().copied().chain([i]));
        *part = f.body_insts().iter().copied().filter(|&j| all.contains(j)).collect();
        plans.push(joined);
    }
    let mut apart = whole;
    apart.groups.insert(last.map_or(0, |(g, _)| g + 1), Group { parts: vec![vec![i]] });
    plans.push(apart);
    Ok(plans)
}

/// The plan with an instruction computed the first time alone, and without what nothing reads then.
fn once(f: &Function, plan: &Plan, i: Inst) -> Result<Plan, Diagnostic> {
    let mut first = true;
    let mut drop = |j: Inst, _: Inst| j == i && !std::mem::replace(&mut first, false);
    let mut plan = without(plan, &|_, j| j, &mut drop);
    // Ends, since each time something goes.
    while let Some(x) = instances(f, &plan)? {
        let executed = ExecutedPlan::of(f, &plan, Some(&x))?;
        let mut used = EntitySet::<Value>::new();
        used.extend(x.f.results().iter().copied());
        used.extend(x.f.body_insts().iter().flat_map(|&j| read_by(&x.f, j)));
        let dead = |v: &Value| {
            !used.contains(*v) && executed.origin(*v).and_then(|of| executed.first(of)) != Some(*v)
        };
        let at = |(g, k, n): (usize, usize, usize), _: Inst| x.plan.groups[g].parts[k][n];
        let less = without(&plan, &at, &mut |_, j| x.f.inst_results(j).iter().all(dead));
        if less == plan {
            break;
        }
        plan = less;
    }
    Ok(plan)
}

/// The plan without the occurrences of instructions that are to go, and without groups that are then
/// empty. `instance` says which instance an occurrence is, from its place.
fn without(
    plan: &Plan,
    instance: &dyn Fn((usize, usize, usize), Inst) -> Inst,
    goes: &mut dyn FnMut(Inst, Inst) -> bool,
) -> Plan {
    let mut groups = Vec::new();
    for (g, group) in plan.groups.iter().enumerate() {
        let mut parts = Vec::new();
        for (k, part) in group.parts.iter().enumerate() {
            let stays = |&(n, j): &(usize, Inst)| !goes(j, instance((g, k, n), j));
            let part: Vec<Inst> =
                part.iter().copied().enumerate().filter(stays).map(|(_, j)| j).collect();
            if !part.is_empty() {
                parts.push(part);
            }
        }
        if !parts.is_empty() {
            groups.push(Group { parts });
        }
    }
    Plan { groups, ..plan.clone() }
}

/// The plan in which the groups that compute a value for a phase and need it for a later one are two
/// each: one for what is computed in phases up to that of the value, one for the rest.
pub(crate) fn split_phases(
    f: &Function,
    plan: &Plan,
    v: Value,
    readings: &[Reading],
) -> Result<Vec<Plan>, Diagnostic> {
    let x = instances(f, plan)?;
    let executed = ExecutedPlan::of(f, plan, x.as_ref())?;
    let phase = phase_of(f, v);
    let shared = |g: usize| readings.iter().any(|r| r.group == g && r.how == ValueSource::Here);
    let mut groups = Vec::new();
    for (g, group) in plan.groups.iter().enumerate() {
        if !shared(g) {
            groups.push(group.clone());
            continue;
        }
        // Phases never fall along the flow of data, so that the second may follow the first.
        let laid_out = &executed.plan.groups[g];
        for early in [true, false] {
            let side = |k: usize| -> Vec<Inst> {
                let both = group.parts[k].iter().zip(&laid_out.parts[k]);
                let at = |&(_, j): &(&Inst, &Inst)| -> bool {
                    let of: Phase = executed.facts.f.inst(*j).phase;
                    (of <= phase) == early
                };
                both.filter(at).map(|(&i, _)| i).collect()
            };
            let parts: Vec<Vec<Inst>> = (0..group.parts.len()).map(side).collect();
            let parts: Vec<Vec<Inst>> = parts.into_iter().filter(|p| !p.is_empty()).collect();
            match early {
                true => groups.push(Group { parts }),
                // What is left of several contractions need not be contractions.
                false => groups.extend(parts.into_iter().map(|p| Group { parts: vec![p] })),
            }
        }
    }
    groups.retain(|g| !g.parts.is_empty());
    Ok(vec![Plan { groups, ..plan.clone() }])
}

/// The forms in which a plan stores its temporaries.
pub(crate) struct StorageForms<'f> {
    pub(crate) facts: Facts<'f>,
    pub(crate) ranges: ValueRanges,
    /// What the plan leaves to other groups, and how.
    temporaries: EntitySet<Value>,
    known: SecondaryMap<Value, Storage>,
}

impl<'f> StorageForms<'f> {
    /// Those of a plan.
    pub(crate) fn of(f: &'f Function, plan: &Plan) -> Result<StorageForms<'f>, Diagnostic> {
        let facts = Facts::of(f, true)?;
        let ranges = ValueRanges::of(&facts);
        Ok(StorageForms { facts, ranges, temporaries: temporaries(f, plan)?, known: storage(plan) })
    }

    /// Another plan with these forms for its temporaries, and the narrowest for what the first does not store.
    pub(crate) fn given(&self, f: &Function, plan: Plan) -> Result<Plan, Diagnostic> {
        let plan = Plan { storage: Vec::new(), ..plan };
        let here = temporaries(f, &plan)?;
        let form = |v: Value| match self.temporaries.contains(v) {
            true => Some(self.known[v]).filter(|form| *form != Storage::Plain),
            false => narrow(&self.facts, &self.ranges, v),
        };
        let values = f.body_insts().iter().flat_map(|&i| f.inst_results(i)).copied();
        let values = values.filter(|&v| here.contains(v));
        let storage = values.filter_map(|v| Some((v, form(v)?))).collect();
        Ok(Plan { storage, ..plan })
    }
}

/// The values that groups of a plan leave to others, results apart.
fn temporaries(f: &Function, plan: &Plan) -> Result<EntitySet<Value>, Diagnostic> {
    let x = instances(f, plan)?;
    let executed = ExecutedPlan::of(f, plan, x.as_ref())?;
    let mut found = EntitySet::new();
    found.extend(
        stored(&executed.facts, executed.plan).iter().filter_map(|s| executed.origin(s.value)),
    );
    Ok(found)
}

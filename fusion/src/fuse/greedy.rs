//! The greedy plan: one grouping of a function, as a plan.

use super::group::{RegroupFrom, group, regroup, regroup_noting};
use super::groups::Groups;
use super::merge;
use crate::analysis::class::InstClass;
use crate::analysis::facts::Facts;
use crate::analysis::value_range::ValueRanges;
use crate::plan::layout::Layout;
use crate::plan::options::{Effort, PlanOptions};
use crate::plan::rewrites::Rewrites;
use crate::plan::{Group, Plan, graph_hash};
use adfuse_ir::kernel::Storage;
use adfuse_ir::{Diagnostic, Function, Inst, Value};
use cranelift_entity::EntitySet;

/// Elements from which on truth values and small numbers are packed.
const PACKED: i64 = 64;

/// As [`plan`], with a price on what is kept from one phase for a later one: it is worth this many times
/// what moving it takes, beside that.
/// The blocks have these plans.
pub(crate) fn plan_at(
    f: &Function,
    options: &PlanOptions,
    price: f64,
    blocks: &[Plan],
) -> Result<Plan, Diagnostic> {
    let (facts, groups) = group(f, options, price)?;
    let plan = of_groups(&facts, &groups, options);
    Ok(Plan { graph: graph_hash(f), blocks: blocks.to_vec(), ..plan })
}

/// The greedy plan of effort quick, of a function with these facts, without the hash of its text.
pub(crate) fn quick_plan(
    known: &Facts<'_>,
    options: &PlanOptions,
    blocks: &[Plan],
) -> Result<Plan, Diagnostic> {
    let (f, from) = (known.f, RegroupFrom { own: Some(known.fixed()), ..RegroupFrom::default() });
    let (facts, groups) = regroup(f, options, 0.0, &from)?;
    Ok(Plan { blocks: blocks.to_vec(), ..of_groups(&facts, &groups, options) })
}

/// The greedy plans of the wanted effort, which is at least default, and of effort quick: the first rounds of both are the
/// same. The function has these facts; plans are without the hash of its text.
pub(crate) fn plan_and_quick(
    known: &Facts<'_>,
    options: &PlanOptions,
    blocks: &[Plan],
) -> Result<[Plan; 2], Diagnostic> {
    let (f, from) = (known.f, RegroupFrom { own: Some(known.fixed()), ..RegroupFrom::default() });
    let mut quick = None;
    let mut note = |facts: &Facts<'_>, groups: &Groups| {
        quick = Some(of_groups(facts, groups, options));
    };
    let (facts, groups) = regroup_noting(f, options, 0.0, &from, &mut note)?;
    let plan = of_groups(&facts, &groups, options);
    let quick = quick.unwrap_or_else(|| plan.clone());
    Ok([plan, quick].map(|plan| Plan { blocks: blocks.to_vec(), ..plan }))
}

/// The plan of what has been grouped, without the hash of the function's text and without blocks.
pub(crate) fn of_groups(facts: &Facts<'_>, groups: &Groups, options: &PlanOptions) -> Plan {
    let f = facts.f;
    let apart = options.effort == Effort::Off;
    let order = match apart {
        true => groups.parts.keys().map(|p| vec![p]).collect(),
        false => merge::merged(facts, groups, &options.device),
    };
    let group = |ids: Vec<_>| Group {
        parts: ids.into_iter().map(|p| groups.parts[p].members.clone()).collect(),
    };
    let mut results: EntitySet<Value> = EntitySet::new();
    results.extend(f.results().iter().copied());
    let ranges = ValueRanges::of(facts);
    let left = |v: &Value| !apart && !results.contains(*v) && !groups.readers(*v).is_empty();
    let stored = f.body_insts().iter().flat_map(|&i| f.inst_results(i)).copied();
    Plan {
        name: f.name.clone(),
        graph: String::new(),
        device: options.device.identity(),
        fp: options.fp,
        layout: Layout::default(),
        donated: Vec::new(),
        inline: inline(facts, groups),
        groups: order.into_iter().map(group).collect(),
        storage: stored
            .filter(left)
            .filter_map(|v| Some((v, narrow(facts, &ranges, v)?)))
            .collect(),
        rewrites: Rewrites::default(),
        blocks: Vec::new(),
    }
}

/// The narrower form in which a temporary is stored, where there is one that loses nothing.
pub(crate) fn narrow(facts: &Facts<'_>, ranges: &ValueRanges, v: Value) -> Option<Storage> {
    (facts.elements[v] >= PACKED).then(|| ranges.narrowest(facts, v)).flatten()
}

/// The free instructions that some group uses, in order.
fn inline(facts: &Facts<'_>, groups: &Groups) -> Vec<Inst> {
    let mut used = EntitySet::new();
    for part in groups.parts.values() {
        for &i in &part.members {
            mark(facts, i, &mut used);
        }
    }
    let free = |i: &Inst| facts.class[*i] == InstClass::Free && used.contains(*i);
    facts.f.body_insts().iter().copied().filter(free).collect()
}

fn mark(facts: &Facts<'_>, i: Inst, used: &mut EntitySet<Inst>) {
    let mut stack = vec![i];
    while let Some(i) = stack.pop() {
        for &a in facts.f.args(i) {
            if let Some(j) = facts.free(a)
                && used.insert(j)
            {
                stack.push(j);
            }
        }
    }
}

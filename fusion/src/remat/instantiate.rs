//! Turns a schedule of operations into a plan in which instructions recur.

use super::group_graph::{GroupGraph, needed};
use super::schedule::cost_graph::OpId;
use super::schedule::steps::OpSchedule;
use crate::analysis::facts::Facts;
use crate::analysis::leaves::{leaves, order};
use crate::fuse::greedy::of_groups;
use crate::fuse::group::{RegroupFrom, regroup};
use crate::lower::instances::instances;
use crate::plan::options::PlanOptions;
use crate::plan::{Group, Plan};
use adfuse_ir::{Diagnostic, Inst, Value, ValueDef};
use cranelift_entity::{EntitySet, SecondaryMap};

/// The plan that runs the groups of another as a schedule says. Steps of one group that follow each other are a
/// group, which has the members that their values need. So a group runs in several pieces if the schedule reads a
/// value between, unless the pieces would compute something twice. `true` for a group that begins later
/// than in the other plan: it comes again, or is a later piece.
pub(crate) fn recurring(
    facts: &Facts<'_>,
    base: &Plan,
    graph: &GroupGraph,
    schedule: &OpSchedule,
) -> (Plan, Vec<bool>) {
    let mut pieces = GroupPieces::new(facts, base, graph);
    let mut ran = EntitySet::new();
    // The group of the last steps, and the values that are wanted of it.
    let mut open: Option<(usize, Vec<Value>)> = None;
    for op in gathered(graph, schedule) {
        let Some((g, v)) = graph.of[op] else { continue };
        if ran.insert(op) && pieces.early.contains(v) {
            continue;
        }
        match &mut open {
            Some((same, wanted)) if *same == g && !wanted.contains(&v) => wanted.push(v),
            _ => {
                if let Some((before, wanted)) = open.replace((g, vec![v])) {
                    pieces.run(before, wanted);
                }
            }
        }
    }
    if let Some((g, wanted)) = open {
        pieces.run(g, wanted);
    }
    (Plan { groups: pieces.groups, ..base.clone() }, pieces.again)
}

/// The steps of a schedule, where a group's values are computed together the first time: with the last of them, unless
/// a step between reads one of the others. So what is computed again for one of them is there for all.
fn gathered(graph: &GroupGraph, schedule: &OpSchedule) -> Vec<OpId> {
    let group = |op: OpId| graph.of[op].map(|(g, _)| g);
    let mut ran = EntitySet::new();
    let steps: Vec<(OpId, bool)> =
        schedule.steps.values().map(|&op| (op, ran.insert(op))).collect();
    let count = graph.of.values().flatten().map(|(g, _)| g + 1).max().unwrap_or(0);
    // The last step that computes a value of each group the first time.
    let mut last = vec![0; count];
    for (at, &(op, _)) in steps.iter().enumerate().filter(|(_, (_, first))| *first) {
        group(op).into_iter().for_each(|g| last[g] = at);
    }
    let mut fixed = vec![false; count];
    let mut begun = vec![false; count];
    for (at, &(op, first)) in steps.iter().enumerate() {
        let own = group(op);
        let read = graph.graph.ops()[op].inputs.iter().filter_map(|&input| group(input));
        for g in read.filter(|&g| !first || Some(g) != own).chain(own.filter(|_| !first)) {
            fixed[g] |= begun[g] && at < last[g];
        }
        own.into_iter().for_each(|g| begun[g] = true);
    }
    let mut held: Vec<Vec<OpId>> = vec![Vec::new(); count];
    let mut found = Vec::new();
    for (at, &(op, first)) in steps.iter().enumerate() {
        match group(op).filter(|&g| first && !fixed[g]) {
            Some(g) if at < last[g] => held[g].push(op),
            Some(g) => {
                found.append(&mut held[g]);
                found.push(op);
            }
            None => found.push(op),
        }
    }
    found
}

/// The groups of a schedule, while they are made.
struct GroupPieces<'a> {
    facts: &'a Facts<'a>,
    base: &'a Plan,
    graph: &'a GroupGraph,
    /// The values of each group that no piece has computed.
    left: Vec<Vec<Value>>,
    /// Values that were computed with others before their first steps.
    early: EntitySet<Value>,
    begun: Vec<bool>,
    groups: Vec<Group>,
    again: Vec<bool>,
}

impl<'a> GroupPieces<'a> {
    fn new(facts: &'a Facts<'a>, base: &'a Plan, graph: &'a GroupGraph) -> GroupPieces<'a> {
        let mut left = vec![Vec::new(); base.groups.len()];
        for (_, of) in graph.of.iter() {
            if let Some((g, v)) = *of {
                left[g].push(v);
            }
        }
        let begun = vec![false; left.len()];
        let (groups, again) = (Vec::new(), Vec::new());
        GroupPieces { facts, base, graph, left, early: EntitySet::new(), begun, groups, again }
    }

    /// Adds the group that computes these values of another.
    fn run(&mut self, g: usize, mut wanted: Vec<Value>) {
        let group = &self.base.groups[g];
        let parts = |wanted: &[Value]| needed(self.facts, group, wanted, &self.graph.kept);
        let late = self.begun[g];
        if self.left[g].iter().any(|v| wanted.contains(v)) {
            self.left[g].retain(|v| !wanted.contains(v));
            let mut here = EntitySet::<Inst>::new();
            here.extend(parts(&wanted).into_iter().flatten());
            let rest = parts(&self.left[g]);
            if rest.iter().flatten().any(|&i| here.contains(i)) {
                let rest = std::mem::take(&mut self.left[g]);
                self.early.extend(rest.iter().copied());
                wanted.extend(rest);
            }
            let whole = !late && self.left[g].is_empty();
            let parts = if whole { group.parts.clone() } else { parts(&wanted) };
            self.groups.push(Group { parts });
        } else {
            self.groups.push(Group { parts: parts(&wanted) });
        }
        self.begun[g] = true;
        self.again.push(late);
    }
}

/// The plan without instances that nothing reads: a value that is computed again before it is read first is
/// computed too early the first time.
pub(crate) fn without_dead(facts: &Facts<'_>, plan: Plan) -> Plan {
    let f = facts.f;
    let mut count: SecondaryMap<Inst, u32> = SecondaryMap::new();
    let all = plan.groups.iter().flat_map(|g| &g.parts).flatten();
    all.for_each(|&i| count[i] += 1);
    let (mut before, mut read) = (count.clone(), EntitySet::<Value>::new());
    let mut results = EntitySet::<Value>::new();
    results.extend(f.results().iter().copied());
    let mut groups: Vec<Group> = Vec::new();
    for group in plan.groups.iter().rev() {
        let mut parts = Vec::new();
        for part in group.parts.iter().rev() {
            let mut members = Vec::new();
            for &i in part.iter().rev() {
                before[i] -= 1;
                let made = f.inst_results(i);
                // Results are first instances.
                let first = before[i] == 0 && made.iter().any(|v| results.contains(*v));
                if count[i] == 1 || first || made.iter().any(|v| read.contains(*v)) {
                    made.iter().for_each(|&v| {
                        read.remove(v);
                    });
                    read.extend(leaves(facts, i).into_iter().chain(order(facts, i)));
                    members.push(i);
                }
            }
            members.reverse();
            if !members.is_empty() {
                parts.push(members);
            }
        }
        parts.reverse();
        if !parts.is_empty() {
            groups.push(Group { parts });
        }
    }
    groups.reverse();
    Plan { groups, ..plan }
}

/// The plan with its instructions grouped anew, those that come again among them, so that what is
/// computed again joins its readers. Where each instruction is a group of its own (`apart`), those that come again one after the
/// other join each other. `None` where such groups have no plan of the function.
///
/// # Errors
/// Those of planning.
pub(crate) fn regrouped(
    known: &Facts<'_>,
    (plan, again, apart): (&Plan, &[bool], bool),
    options: &PlanOptions,
    price: f64,
) -> Result<Option<Plan>, Diagnostic> {
    let f = known.f;
    let Some(x) = instances(f, plan)? else { return Ok(None) };
    let mut place: SecondaryMap<Inst, u32> = SecondaryMap::new();
    x.f.body_insts().iter().zip(0..).for_each(|(&i, at)| place[i] = at);
    let mut from = RegroupFrom {
        inlined: Some(&x.plan.inline),
        known: Some((known, &x.value)),
        ..RegroupFrom::default()
    };
    // Where the first of a run of groups that come again begins.
    let mut begun: Option<u32> = None;
    for (group, &again) in x.plan.groups.iter().zip(again) {
        let members = || group.parts.iter().flatten().copied();
        let own = members().map(|i| place[i]).min().unwrap_or(0);
        let first = begun.filter(|_| apart).unwrap_or(own);
        begun = again.then_some(first);
        if again {
            members().for_each(|i| from.since[i] = first);
        }
    }
    let (facts, groups) = regroup(&x.f, options, price, &from)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::greedy::plan_at;
    use crate::plan::machine_model::MachineModel;
    use crate::plan::options::Effort;
    use adfuse_ir::Fp;
    use adfuse_ir::text::parse;

    #[test]
    fn what_is_computed_again_before_it_is_read_is_computed_once() {
        let text = "func @f(%x: f32[8]) -> f32[8] {
  %a = sin %x : f32[8]
  %b = exp %a : f32[8]
  %c = mul %a, %b : f32[8]
  return %c
}";
        let module = parse(text).expect("parses");
        let f = module.find("f").expect("it");
        let options =
            PlanOptions { device: MachineModel::cpu(), effort: Effort::Off, fp: Fp::Strict };
        let base = plan_at(f, &options, 0.0, &[]).expect("has a plan");
        let facts = Facts::of(f, true).expect("has facts");
        let of = |order: &[usize]| {
            let groups = order.iter().map(|&g| base.groups[g].clone()).collect();
            Plan { groups, ..base.clone() }
        };
        for (order, left) in [
            (&[0, 1, 2][..], &[0, 1, 2][..]),
            (&[0, 0, 1, 2], &[0, 1, 2]),
            (&[0, 1, 0, 2], &[0, 1, 0, 2]),
            (&[0, 1, 0, 1, 2], &[0, 1, 2]),
            (&[0, 1, 2, 0], &[0, 1, 2]),
            // A result is what was computed first.
            (&[0, 1, 2, 0, 1, 2], &[0, 1, 2]),
        ] {
            assert_eq!(without_dead(&facts, of(order)), of(left), "{order:?}");
        }
    }
}

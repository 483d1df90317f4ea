//! The groups of a plan as a graph of operations with costs, on which rematerialization is decided.

use super::schedule::cost_graph::{CostGraph, GraphError, MOST, OpId, Operation};
use crate::analysis::class::InstClass;
use crate::analysis::facts::Facts;
use crate::analysis::leaves::leaves;
use crate::analysis::recomputation::is_kept;
use crate::lower::steps::steps_of;
use crate::memory::residuals::{bytes, storage};
use crate::plan::{Group, Plan};
use adfuse_ir::kernel::Program;
use adfuse_ir::text::Names;
use adfuse_ir::{Function, Inst, Value, ValueDef};
use cranelift_entity::{EntitySet, SecondaryMap};

/// The groups of a plan without recurring instructions, as a graph: an operation for each value that a
/// group leaves to others or to the caller, and for each parameter.
pub(crate) struct GroupGraph {
    pub(crate) graph: CostGraph,
    /// The group that an operation is part of, and the value that it leaves.
    pub(crate) of: SecondaryMap<OpId, Option<(usize, Value)>>,
    /// All values that groups leave.
    pub(crate) kept: EntitySet<Value>,
}

/// Picoseconds in a second: times of operations are whole numbers.
const PICOSECONDS: f64 = 1e12;

/// Members of a group that values of it need, by part, in their order. What the group leaves for others
/// as well is read, unless it is wanted too.
pub(crate) fn needed(
    facts: &Facts<'_>,
    group: &Group,
    wanted: &[Value],
    kept: &EntitySet<Value>,
) -> Vec<Vec<Inst>> {
    let mut inside = EntitySet::<Inst>::new();
    inside.extend(group.parts.iter().flatten().copied());
    let mut found = EntitySet::<Inst>::new();
    let mut stack: Vec<Inst> = wanted.iter().filter_map(|&v| made_by(facts.f, v)).collect();
    while let Some(i) = stack.pop() {
        if inside.contains(i) && found.insert(i) {
            let inner = |v: &Value| !kept.contains(*v) || wanted.contains(v);
            let under = leaves(facts, i).into_iter().filter(inner);
            stack.extend(under.filter_map(|v| made_by(facts.f, v)));
        }
    }
    let members = |part: &Vec<Inst>| part.iter().copied().filter(|i| found.contains(*i)).collect();
    group.parts.iter().map(members).filter(|p: &Vec<Inst>| !p.is_empty()).collect()
}

fn made_by(f: &Function, v: Value) -> Option<Inst> {
    match f.def(v) {
        ValueDef::Inst(i, _) => Some(i),
        _ => None,
    }
}

impl GroupGraph {
    /// Of a plan, the facts that it rests on, the program it has become, and the seconds of that program's steps.
    ///
    /// # Errors
    /// When sizes add up to more than can be counted.
    pub(crate) fn of(
        facts: &Facts<'_>,
        plan: &Plan,
        program: &Program,
        seconds: &[f64],
    ) -> Result<GroupGraph, GraphError> {
        let (f, names) = (facts.f, Names::of(facts.f));
        let forms = storage(plan);
        let mut found =
            GroupGraph { graph: CostGraph::new(), of: SecondaryMap::new(), kept: EntitySet::new() };
        let mut op_of: SecondaryMap<Value, Option<OpId>> = SecondaryMap::new();
        let size = |v: Value| bytes(facts, &forms, v).unwrap_or(u64::MAX);
        for &p in f.params() {
            op_of[p] = Some(found.graph.push(Operation::source(names.get(p), size(p)))?);
        }
        let left = left(facts, plan);
        // Loops may be said to run for longer than can be counted: all times together are.
        let values: usize = plan.groups.iter().map(|group| members(f, group).count()).sum();
        let longest = MOST / (values as u64 + 1);
        let mut latest = 0;
        for ((g, group), steps) in plan.groups.iter().enumerate().zip(steps_of(plan, program)) {
            let time: f64 = seconds[steps].iter().sum();
            let outputs: Vec<Value> =
                members(f, group).filter(|v| left.kept.contains(*v)).collect();
            // What each output is made of: what the group leaves as well is read.
            let made = |&v: &Value| {
                let insts = needed(facts, group, &[v], &left.kept);
                let all = insts.iter().flatten();
                let inner =
                    |l: &Value| insts.iter().flatten().all(|&i| !f.inst_results(i).contains(l));
                let mut reads: Vec<Value> =
                    all.clone().flat_map(|&i| leaves(facts, i)).filter(inner).collect();
                reads.sort_unstable();
                reads.dedup();
                let phase = all.map(|&i| f.inst(i).phase.0).max().unwrap_or(0);
                let traffic = reads.iter().map(|&r| size(r) as f64).sum::<f64>() + size(v) as f64;
                (v, reads, phase, traffic)
            };
            let made: Vec<_> = outputs.iter().map(made).collect();
            let all: f64 = made.iter().map(|(.., traffic)| traffic).sum();
            for (v, reads, phase, traffic) in made {
                // Each is computed again by itself: its part of the traffic.
                let part = if all > 0.0 { traffic / all } else { 1.0 };
                let inputs: Vec<OpId> = reads.iter().filter_map(|&r| op_of[r]).collect();
                latest = latest.max(phase);
                let time = ((time * part * PICOSECONDS).ceil().max(1.0) as u64).min(longest);
                let result = left.results.contains(v);
                // Results have memory of their own from the first step on, which no schedule changes. Which temporaries
                // fit into it before depends on sizes that a sum of bytes does not see.
                let own = if result { 0 } else { size(v) };
                let op = Operation::new(names.get(v), time, own).reads(&inputs).phase(latest);
                let op = if result { op.output() } else { op };
                // Effects and exchanges happen once.
                let kept = made_by(f, v).is_some_and(|i| is_kept(f, i) || f.is_ordered(i));
                let op = if kept { op.once() } else { op };
                let op = found.graph.push(op)?;
                op_of[v] = Some(op);
                found.of[op] = Some((g, v));
            }
        }
        found.kept = left.kept;
        Ok(found)
    }
}

fn members<'a>(f: &'a Function, group: &'a Group) -> impl Iterator<Item = Value> + 'a {
    group.parts.iter().flatten().flat_map(|&i| f.inst_results(i)).copied()
}

/// Values that a group leaves behind.
pub(crate) struct GroupOutputs {
    /// To other groups, or to the caller.
    pub(crate) kept: EntitySet<Value>,
    results: EntitySet<Value>,
}

pub(crate) fn left(facts: &Facts<'_>, plan: &Plan) -> GroupOutputs {
    let f = facts.f;
    let mut left = GroupOutputs { kept: EntitySet::new(), results: EntitySet::new() };
    left.results.extend(f.results().iter().copied());
    let mut home: SecondaryMap<Value, Option<(usize, usize)>> = SecondaryMap::new();
    for (g, group) in plan.groups.iter().enumerate() {
        for (k, part) in group.parts.iter().enumerate() {
            for &i in part {
                let acts = f.is_ordered(i);
                for &v in f.inst_results(i) {
                    home[v] = Some((g, k));
                    // Whether anybody waits for it or not, an effect happens.
                    if acts {
                        left.results.insert(v);
                    }
                    if left.results.contains(v) || is_kept(f, i) {
                        left.kept.insert(v);
                    }
                }
                for leaf in leaves(facts, i) {
                    let constant =
                        made_by(f, leaf).is_none_or(|j| facts.class[j] == InstClass::Constant);
                    if !constant && home[leaf] != Some((g, k)) {
                        left.kept.insert(leaf);
                    }
                }
            }
        }
    }
    left
}

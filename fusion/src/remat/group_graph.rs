//! The groups of a plan as a graph of operations with costs, on which rematerialization is decided.

use super::lone_price::LonePricer;
use super::schedule::cost_graph::{CostGraph, GraphError, MOST, OpId, Operation};
use crate::analysis::class::InstClass;
use crate::analysis::facts::Facts;
use crate::analysis::leaves::{leaves, order};
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
    /// Of a plan, the facts that it rests on, the program it has become, and the seconds of that program's steps. `prices`
    /// says what values of products cost by themselves.
    ///
    /// # Errors
    /// When sizes add up to more than can be counted.
    pub(crate) fn of(
        facts: &Facts<'_>,
        plan: &Plan,
        (program, seconds): (&Program, &[f64]),
        mut prices: Option<LonePricer<'_>>,
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
        let fixed = fixed(facts);
        let mut latest = 0;
        let mut all_made: Vec<MadeValue> = Vec::new();
        for ((g, group), steps) in plan.groups.iter().enumerate().zip(steps_of(plan, program)) {
            let time: f64 = seconds[steps].iter().sum();
            let outputs = members(f, group).filter(|v| left.kept.contains(*v));
            let mut made: Vec<MadeValue> = outputs
                .map(|v| MadeValue::of(facts, (g, group), v, (&left.kept, &fixed)))
                .collect();
            let traffic = |m: &MadeValue| -> f64 {
                m.reads.iter().chain([&m.value]).map(|&r| size(r) as f64).sum()
            };
            let all: f64 = made.iter().map(traffic).sum();
            let mut prices = prices.as_mut().filter(|p| made.len() > 1 && p.multiplies(group));
            let mut alone =
                |v: Value| prices.as_mut()?.seconds(needed(facts, group, &[v], &left.kept), v);
            for m in &mut made {
                // Each is computed again by itself: its part of the traffic, where that is not priced.
                let part = if all > 0.0 { traffic(m) / all } else { 1.0 };
                let time = alone(m.value).unwrap_or(time * part);
                m.time = ((time * PICOSECONDS).ceil().max(1.0) as u64).min(longest);
                latest = latest.max(m.phase);
                m.phase = latest;
            }
            all_made.append(&mut made);
        }
        for made in in_order_of_need(all_made) {
            let MadeValue { group, value: v, reads, phase, time, .. } = made;
            let inputs: Vec<OpId> = reads.iter().filter_map(|&r| op_of[r]).collect();
            let result = left.results.contains(v);
            // Results have memory of their own from the first step on, which no schedule changes. Which temporaries
            // fit into it before depends on sizes that a sum of bytes does not see.
            let own = if result { 0 } else { size(v) };
            let op = Operation::new(names.get(v), time, own).reads(&inputs).phase(phase);
            let op = if result { op.output() } else { op };
            let op = if happens_once(f, v) { op.once() } else { op };
            let op = found.graph.push(op)?;
            op_of[v] = Some(op);
            found.of[op] = Some((group, v));
        }
        found.kept = left.kept;
        Ok(found)
    }
}

/// A value that a group leaves, and what it costs by itself.
struct MadeValue {
    group: usize,
    value: Value,
    /// What it is made of: what the group leaves as well is read.
    reads: Vec<Value>,
    /// Whether it is ordered with other instructions: then it stays where the plan has it.
    is_fixed: bool,
    phase: u8,
    time: u64,
}

impl MadeValue {
    fn of(
        facts: &Facts<'_>,
        (number, group): (usize, &Group),
        value: Value,
        (kept, fixed): (&EntitySet<Value>, &EntitySet<Inst>),
    ) -> MadeValue {
        let f = facts.f;
        let insts = needed(facts, group, &[value], kept);
        let all = || insts.iter().flatten();
        let outside = |l: &Value| !all().any(|&i| f.inst_results(i).contains(l));
        let mut reads: Vec<Value> = all().flat_map(|&i| leaves(facts, i)).filter(outside).collect();
        reads.sort_unstable();
        reads.dedup();
        let phase = all().map(|&i| f.inst(i).phase.0).max().unwrap_or(0);
        let is_fixed = happens_once(f, value) || all().any(|&i| fixed.contains(i));
        MadeValue { group: number, value, reads, is_fixed, phase, time: 0 }
    }
}

/// Effects and exchanges happen once.
fn happens_once(f: &Function, v: Value) -> bool {
    made_by(f, v).is_some_and(|i| is_kept(f, i) || f.is_ordered(i))
}

/// What a recomputation waits for, and what waits.
fn fixed(facts: &Facts<'_>) -> EntitySet<Inst> {
    let mut fixed = EntitySet::new();
    for &i in facts.f.body_insts() {
        let awaited = order(facts, i);
        if !awaited.is_empty() {
            fixed.insert(i);
        }
        fixed.extend(awaited.into_iter().filter_map(|v| made_by(facts.f, v)));
    }
    fixed
}

/// A value of a launch whose first reader is at least this many groups later is computed right before that reader.
const FAR: usize = 8;

/// The same values, where one that is made of parameters alone and waits for long comes right before the first that reads it:
/// members of one launch need not all wait for their readers in memory.
fn in_order_of_need(made: Vec<MadeValue>) -> Vec<MadeValue> {
    let mut place: SecondaryMap<Value, Option<usize>> = SecondaryMap::new();
    made.iter().enumerate().for_each(|(k, m)| place[m.value] = Some(k));
    let mut first_reader = vec![None; made.len()];
    for (k, m) in made.iter().enumerate() {
        for p in m.reads.iter().filter_map(|&r| place[r]) {
            first_reader[p].get_or_insert(k);
        }
    }
    let waits = |m: &MadeValue| !m.is_fixed && m.reads.iter().all(|&r| place[r].is_none());
    let slot = |(k, m): (usize, &MadeValue)| match first_reader[k] {
        Some(reader)
            if waits(m) && made[reader].phase == m.phase && made[reader].group >= m.group + FAR =>
        {
            (reader, 0, k)
        }
        _ => (k, 1, k),
    };
    let mut order: Vec<(usize, u8, usize)> = made.iter().enumerate().map(slot).collect();
    order.sort_unstable();
    let mut made: Vec<Option<MadeValue>> = made.into_iter().map(Some).collect();
    order.into_iter().filter_map(|(.., k)| made[k].take()).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::greedy::plan_at;
    use crate::lower::group_memo::LoweringMemo;
    use crate::lower::lowered;
    use crate::memory::engine::AnyEngine;
    use crate::plan::machine_model::MachineModel;
    use crate::plan::options::{Effort, PlanOptions};
    use adfuse_ir::Fp;
    use adfuse_ir::text::parse;

    /// What is computed from the sums of a product has no part of the time of the product when it is computed again.
    #[test]
    fn what_follows_a_product_is_priced_without_it() {
        let text = "func @f(%x: f32[256,512], %w: f32[512,256], %b: f32[256]) -> f32[256,256] {
  %p = dot_general %x, %w {contract = [1] x [0]} : f32[256,256]
  %c = broadcast_in_dim %b {dims = [1]} : f32[256,256]
  %a = add %p, %c : f32[256,256]
  %t = tanh %a : f32[256,256]
  %y = mul %a, %t : f32[256,256]
  return %y
}";
        let module = parse(text).expect("parses");
        let f = module.find("f").expect("it");
        let device = MachineModel::h200();
        let options = PlanOptions { device: device.clone(), effort: Effort::Off, fp: Fp::Fast };
        let mut plan = plan_at(f, &options, 0.0, &[]).expect("has a plan");
        let last = plan.groups.pop().expect("a group");
        let first = plan.groups.iter().flat_map(|g| &g.parts).flatten().copied().collect();
        plan.groups = vec![Group { parts: vec![first] }, last];
        let mut facts = Facts::of(f, true).expect("has facts");
        plan.inline.iter().for_each(|&i| facts.set_free(i));
        let program = lowered(f, &plan, &device).expect("has a program");
        let memo = LoweringMemo::new(&device);
        let second = vec![1.0; program.steps.len()];
        let time = |prices: Option<LonePricer<'_>>, name: &str| {
            let graph =
                GroupGraph::of(&facts, &plan, (&program, &second), prices).expect("a graph");
            let op = graph.graph.ops().values().find(|op| op.name == name).expect("an operation");
            op.time as f64 / PICOSECONDS
        };
        let prices = || LonePricer::new(&facts, &plan, (&options, &memo), &AnyEngine);
        // By traffic it is a large part of the second.
        assert!(time(None, "t") > 0.1);
        let [product, function] = ["a", "t"].map(|name| time(Some(prices()), name));
        assert!(function < 1e-4 && product < 1e-3, "{product} {function}");
    }

    /// A member of a launch that is read much later comes where it is read, since it may run by itself.
    #[test]
    fn what_reads_parameters_alone_comes_where_it_is_needed() {
        let mut text = String::from(
            "func @f(%x: f32[16,16], %y: f32[16,16], %w: f32[16,16]) -> f32[16,16] {
  %b = dot_general %y, %w {contract = [1] x [0]} : f32[16,16]
  %c0 = dot_general %x, %w {contract = [1] x [0]} : f32[16,16]
",
        );
        for k in 0..FAR {
            let line = "dot_general %c{k}, %w {contract = [1] x [0]} : f32[16,16]";
            let line = line.replace("{k}", &k.to_string());
            text += &format!("  %c{} = {line}\n", k + 1);
        }
        text += &format!(
            "  %d = dot_general %c{FAR}, %b {{contract = [1] x [0]}} : f32[16,16]\n  return %d\n}}"
        );
        let module = parse(&text).expect("parses");
        let f = module.find("f").expect("it");
        let device = MachineModel::cpu();
        let options = PlanOptions { device: device.clone(), effort: Effort::Off, fp: Fp::Strict };
        let apart = plan_at(f, &options, 0.0, &[]).expect("has a plan");
        let of = |k: usize| apart.groups[k].parts[0].clone();
        let names = |plan: &Plan| -> Vec<String> {
            let program = lowered(f, plan, &device).expect("has a program");
            let facts = Facts::of(f, true).expect("has facts");
            let seconds = vec![1.0; plan.groups.len()];
            let graph = GroupGraph::of(&facts, plan, (&program, &seconds), None).expect("a graph");
            graph.graph.runs().map(|o| graph.graph.ops()[o].name.clone()).collect()
        };
        let chain = |from: usize| (from..=FAR).map(|k| format!("c{k}"));
        let last = ["b", "d"].map(String::from);
        let beside = Group { parts: vec![of(0), of(1)] };
        let mut groups = vec![beside];
        groups.extend(apart.groups[2..].iter().cloned());
        let far = names(&Plan { groups: groups.clone(), ..apart.clone() });
        assert_eq!(far, chain(0).chain(last).collect::<Vec<_>>());
        // One step nearer it stays in its launch.
        let near = Group { parts: vec![of(0), of(3)] };
        let mut groups = vec![apart.groups[1].clone(), apart.groups[2].clone(), near];
        groups.extend(apart.groups[4..].iter().cloned());
        let near = names(&Plan { groups, ..apart.clone() });
        assert_eq!(near[..4], ["c0", "c1", "b", "c2"]);
    }
}

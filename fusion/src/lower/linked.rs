//! Linking: the program of a plan as the lowered groups of a memo and the buffers that its values are in.
//!
//! Plans that are compared consist of groups that others had before. What such a plan costs is known of its groups, and
//! its memory is planned from the buffers that they read and write. So no step is written out, and the function
//! in which instances are instructions ([`super::instances`]) is not made either: instances are numbered as groups are
//! visited. Whatever is unusual is left to lowering: then there is no linked program.

use super::group_key::{BufferForm, SpareTables};
use super::group_memo::{LoweringMemo, StepOfGroup, steps_of_group};
use super::instances::recurs;
use super::single_group::GroupLowering;
use crate::analysis::class::InstClass;
use crate::analysis::facts::Facts;
use crate::analysis::leaves::leaves;
use crate::analysis::recomputation::is_kept;
use crate::analysis::value_range::ValueRanges;
use crate::plan::Plan;
use crate::plan::machine_model::MachineModel;
use adfuse_ir::kernel::{Buffer, BufferData, Program, Role, Storage};
use adfuse_ir::op::Body;
use adfuse_ir::{DType, Diagnostic, Fp, Function, Inst, Value, ValueDef};
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError};

/// A program whose steps are those of lowered groups.
pub(crate) struct LinkedProgram {
    /// Its name, buffers and results, without steps.
    pub(crate) frame: Program,
    pub(crate) steps: Vec<LinkedStep>,
}

/// A step of a lowered group in a program.
pub(crate) struct LinkedStep {
    pub(crate) of: StepOfGroup,
    /// The buffers of the program for those of the group.
    pub(super) buffers: Arc<[Option<Buffer>]>,
}

impl LinkedStep {
    /// The buffer of the program for one of the group.
    pub(crate) fn buffer(&self, of_group: Buffer) -> Option<Buffer> {
        self.buffers.get(of_group.index()).copied().flatten()
    }
}

/// What the plans of a function are linked from: what is known of the function whatever a plan decides.
pub(crate) struct LinkBase<'f> {
    /// Each instruction is in a group of its own.
    pub(crate) facts: Facts<'f>,
    ranges: ValueRanges,
    results: EntitySet<Value>,
    inlined: Mutex<KnownInlining<'f>>,
    keys: SpareTables,
}

/// The facts of plans, by what these write out; `None` for what no plan may write out.
type KnownInlining<'f> = HashMap<Vec<Inst>, Option<Arc<InlinedFacts<'f>>>>;

/// The facts of plans that write the same instructions out.
struct InlinedFacts<'f> {
    facts: Facts<'f>,
    /// What each instruction reads then.
    leaves: SecondaryMap<Inst, SmallVec<[Value; 8]>>,
}

impl<'f> LinkBase<'f> {
    /// Of a function; `None` where its plans are not linked: those with effects, exchanges, calls, regions, constants and what
    /// is computed again for checkpoint regions.
    ///
    /// # Errors
    /// For what has no lowering.
    pub(crate) fn of(f: &'f Function) -> Result<Option<LinkBase<'f>>, Diagnostic> {
        let facts = Facts::of(f, true)?;
        let is_usual = |&i: &Inst| {
            let class = facts.class[i];
            let is_step = is_indexed(f, i) || class == InstClass::Attention;
            let grouped = class != InstClass::Constant && (!class.is_alone() || is_step);
            grouped && !is_kept(f, i) && !f.path(i).is_again()
        };
        let tensors = |&v: &Value| f.ty(v).dtype != DType::Token;
        let mut values = f.params().iter().chain(f.results());
        if !f.body_insts().iter().all(is_usual) || !values.all(tensors) {
            return Ok(None);
        }
        let ranges = ValueRanges::of(&facts);
        let mut results = EntitySet::new();
        results.extend(f.results().iter().copied());
        let (inlined, keys) = (Mutex::default(), SpareTables::default());
        Ok(Some(LinkBase { facts, ranges, results, inlined, keys }))
    }

    /// The facts of plans that write these instructions out.
    fn inlined(&self, inline: &[Inst]) -> Option<Arc<InlinedFacts<'f>>> {
        let known = || self.inlined.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(inline) {
            return found.clone();
        }
        let made = self.inlining(inline).map(Arc::new);
        known().insert(inline.to_vec(), made.clone());
        made
    }

    fn inlining(&self, inline: &[Inst]) -> Option<InlinedFacts<'f>> {
        let mut facts = self.facts.clone();
        let f = facts.f;
        for &i in inline {
            if facts.class[i] != InstClass::Point || facts.forced[f.inst_results(i)[0]] {
                return None;
            }
            facts.set_free(i);
        }
        if facts.too_deep().is_some() {
            return None;
        }
        let mut read = SecondaryMap::new();
        for &i in f.body_insts() {
            read[i] = leaves(&facts, i);
        }
        Some(InlinedFacts { facts, leaves: read })
    }
}

/// Whether it is a scatter or an argsort.
fn is_indexed(f: &Function, i: Inst) -> bool {
    matches!(f.op(i).def().body, Body::Indirect(_))
}

/// The linked program of a plan. Groups that the memo does not have are lowered by themselves, and are in it from then on.
/// Where there is a linked program, lowering the plan gives the same one.
pub(crate) fn linked(
    base: &LinkBase<'_>,
    plan: &Plan,
    (device, memo): (&MachineModel, &LoweringMemo),
) -> Option<LinkedProgram> {
    let known = base.inlined(&plan.inline)?;
    let instances = PlanInstances::of(base, &known, plan)?;
    let (frame, buffers) = instances.frame(base, plan)?;
    let f = known.facts.f;
    let mut buffer_of: SecondaryMap<Value, Option<Buffer>> = SecondaryMap::new();
    for (&v, b) in f.params().iter().zip(frame.buffers.keys()) {
        buffer_of[v] = Some(b);
    }
    let mut keys = base.keys.builder(memo.numbers(), plan.fp == Fp::Strict);
    let mut lowering = GroupLowering::new(plan.fp, plan.layout);
    let (mut steps, mut next) = (Vec::new(), 0);
    for group in &plan.groups {
        for &v in group.parts.iter().flatten().flat_map(|&i| f.inst_results(i)) {
            buffer_of[v] = buffers[next];
            next += 1;
        }
        let form = |v: Value| BufferForm::at(&frame, buffer_of[v]);
        let key = keys.key(&known.facts, group, form)?;
        let own: Arc<[Option<Buffer>]> = key.values.iter().map(|&v| buffer_of[v]).collect();
        let buffer = |v: Value| {
            let data = &frame.buffers[buffer_of[v]?];
            Some((data.role.clone(), data.storage))
        };
        let found = lowering.lowered(&known.facts, (group, key), buffer, (device, memo))?;
        for of in steps_of_group(&found) {
            let step = LinkedStep { of, buffers: Arc::clone(&own) };
            let uses = step.of.uses();
            if uses.reads.iter().chain(&uses.writes).any(|&k| step.buffer(k).is_none()) {
                return None;
            }
            steps.push(step);
        }
    }
    base.keys.put_back(keys);
    steps.extend(filled(base, &frame, memo)?);
    Some(LinkedProgram { frame, steps })
}

/// The steps that fill results with a number, in the order of the results: they come last.
fn filled(base: &LinkBase<'_>, frame: &Program, memo: &LoweringMemo) -> Option<Vec<LinkedStep>> {
    let f = base.facts.f;
    let mut steps = Vec::new();
    let mut done = EntitySet::<Value>::new();
    for (&v, &b) in f.results().iter().zip(&frame.outputs) {
        if let Some(number) = f.literal(v)
            && done.insert(v)
        {
            let group = memo.fill(number, &frame.buffers[b])?;
            let buffers: Arc<[Option<Buffer>]> = Arc::from([Some(b)]);
            let linked = |of: StepOfGroup| LinkedStep { of, buffers: Arc::clone(&buffers) };
            steps.extend(steps_of_group(&group).map(linked));
        }
    }
    Some(steps)
}

/// A value as a group computes it.
struct ValueInstance {
    value: Value,
    group: u32,
    part: u32,
    /// Whether another group reads it.
    read: bool,
    /// Whether none was computed before it.
    first: bool,
}

/// The instances of a plan's values, in the order of its groups.
struct PlanInstances {
    all: Vec<ValueInstance>,
    recur: bool,
}

impl PlanInstances {
    /// `None` where the plan is not a usual one.
    fn of(base: &LinkBase<'_>, known: &InlinedFacts<'_>, plan: &Plan) -> Option<PlanInstances> {
        let (facts, f) = (&known.facts, known.facts.f);
        let mut all: Vec<ValueInstance> = Vec::new();
        // The number of the last instance of a value and 1; the last group that read one of another group, and 1.
        let (mut last, mut reader): (SecondaryMap<Value, u32>, SecondaryMap<Value, u32>) =
            (SecondaryMap::new(), SecondaryMap::new());
        let recur = recurs(plan);
        for (group, g) in plan.groups.iter().zip(0..) {
            if group.parts.is_empty() || group.parts.iter().any(Vec::is_empty) {
                return None;
            }
            for (members, part) in group.parts.iter().zip(0..) {
                for &i in members {
                    if facts.class[i] == InstClass::Free {
                        return None;
                    }
                    // Which operands must be in memory is asked of values: an instance of a result need not be.
                    let indexed = recur && is_indexed(f, i);
                    if indexed && known.leaves[i].iter().any(|&v| base.results.contains(v)) {
                        return None;
                    }
                    for &v in &known.leaves[i] {
                        if !matches!(f.def(v), ValueDef::Inst(..)) {
                            continue;
                        }
                        let instance = all.get_mut(last[v].checked_sub(1)? as usize)?;
                        if instance.group != g {
                            instance.read = true;
                            reader[v] = g + 1;
                        } else if instance.part != part {
                            return None;
                        }
                    }
                    for &value in f.inst_results(i) {
                        let before = last[value].checked_sub(1).map(|k| &all[k as usize]);
                        // What a group reads and computes, or computes twice, has two meanings in it.
                        if before.is_some_and(|b| b.group == g) || reader[value] == g + 1 {
                            return None;
                        }
                        let first = before.is_none();
                        all.push(ValueInstance { value, group: g, part, read: false, first });
                        last[value] = all.len() as u32;
                    }
                }
            }
        }
        let computed = |&i: &Inst| {
            facts.class[i] == InstClass::Free || f.inst_results(i).iter().all(|&v| last[v] > 0)
        };
        f.body_insts().iter().all(computed).then_some(PlanInstances { all, recur })
    }

    /// The buffers of the program, and that of each instance. Buffers are declared in the order of lowering: that of
    /// the function, or of the groups where instances are instructions.
    fn frame(&self, base: &LinkBase<'_>, plan: &Plan) -> Option<(Program, Vec<Option<Buffer>>)> {
        let f = base.facts.f;
        let mut frame = Program { name: f.name.clone(), ..Program::default() };
        let mut declare = |v: Value, role: Role| {
            let (dtype, dims) = (f.ty(v).dtype, base.facts.dims[v].clone());
            frame.buffers.push(BufferData::new(String::new(), dtype, dims, role))
        };
        f.params().iter().for_each(|&v| {
            declare(v, Role::Input);
        });
        let mut of_result: SecondaryMap<Value, Option<Buffer>> = SecondaryMap::new();
        for (k, &v) in f.params().iter().enumerate() {
            of_result[v] = Some(Buffer::new(k));
        }
        let mut buffers = vec![None; self.all.len()];
        for k in self.order(f) {
            let instance = &self.all[k];
            let result = instance.first && base.results.contains(instance.value);
            // Attention leaves all that it computes, whoever reads it.
            let is_left = |v: Value| match f.def(v) {
                ValueDef::Inst(i, _) => base.facts.class[i] == InstClass::Attention,
                _ => false,
            };
            let role = match instance.read || is_left(instance.value) {
                _ if result => Role::Output,
                true => Role::Temp,
                false => continue,
            };
            let b = declare(instance.value, role);
            buffers[k] = Some(b);
            if result {
                of_result[instance.value] = Some(b);
            }
        }
        for &v in f.results().iter().filter(|v| f.literal(**v).is_some()) {
            if of_result[v].is_none() {
                of_result[v] = Some(declare(v, Role::Output));
            }
        }
        for &k in &plan.donated {
            frame.buffers[of_result[*f.params().get(k)?]?].donated = true;
        }
        for &v in f.results() {
            frame.outputs.push(of_result[v]?);
        }
        self.store(base, plan, (&mut frame, &buffers))?;
        frame.buffers.values_mut().for_each(|data| plan.layout.lay_out(data));
        Some((frame, buffers))
    }

    /// The numbers of the instances in the order in which lowering declares them.
    fn order(&self, f: &Function) -> Vec<usize> {
        if self.recur {
            return (0..self.all.len()).collect();
        }
        let mut of: SecondaryMap<Value, Option<usize>> = SecondaryMap::new();
        self.all.iter().enumerate().for_each(|(k, instance)| of[instance.value] = Some(k));
        let values = f.body_insts().iter().flat_map(|&i| f.inst_results(i));
        values.filter_map(|&v| of[v]).collect()
    }

    /// Gives temporaries the forms that the plan wants. `None` where one has no temporary, or would lose something.
    fn store(
        &self,
        base: &LinkBase<'_>,
        plan: &Plan,
        (frame, buffers): (&mut Program, &[Option<Buffer>]),
    ) -> Option<()> {
        if plan.storage.is_empty() {
            return Some(());
        }
        let mut forms: SecondaryMap<Value, Option<Storage>> = SecondaryMap::new();
        for &(v, form) in &plan.storage {
            if !base.ranges.keeps(&base.facts, v, form) {
                return None;
            }
            forms[v] = Some(form);
        }
        let mut stored = EntitySet::<Value>::new();
        for (instance, b) in self.all.iter().zip(buffers) {
            let data = b.map(|b| &mut frame.buffers[b]);
            if let (Some(form), Some(data)) = (forms[instance.value], data)
                && data.role == Role::Temp
            {
                data.storage = form;
                stored.insert(instance.value);
            }
        }
        plan.storage.iter().all(|(v, _)| stored.contains(*v)).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::greedy::plan_at;
    use crate::lower::lowered;
    use crate::memory::residuals::{saved_bytes, saved_with};
    use crate::plan::Group;
    use crate::plan::options::{Effort, PlanOptions};
    use adfuse_ir::text::parse;

    const LAYERS: &str =
        "func @f(%x: f32[8,64], %w: f32[64,64]) -> (f32[8,64], f32[8], f32[64], bool[8,64], f32[64,5], i32[2]) {
  %a = dot_general %x, %w {contract = [1] x [0]} : f32[8,64]
  %b = tanh %a : f32[8,64]
  %m = gt %b, 0.5 : bool[8,64]
  %c = dot_general %b, %w {contract = [1] x [0]} : f32[8,64]
  %d = select_n %m, %c, 0.0 : f32[8,64]
  %e = exp %d : f32[8,64]
  %s = reduce_sum %e {axes = [1]} : f32[8]
  %g = mul %e, %b : f32[8,64]
  return %g, %s, 0.5, %m, 0.5, 7
}";

    const ATTENTION: &str =
        "func @f(%q: f32[2,64,16], %k: f32[2,64,16], %ct: f32[2,64,16]) -> (f32[2,64,16], f32[2,64,16]) {
  %a = tanh %q : f32[2,64,16]
  %b = mul %k, 2.0 : f32[2,64,16]
  %c = exp %k : f32[2,64,16]
  %y, %s = attention %a, %b, %c {causal = true} : f32[2,64,16], f32[2,64]
  %d = mul %y, %ct : f32[2,64,16]
  %z, %t = attention %d, %b, %c {causal = false} : f32[2,64,16], f32[2,64]
  %e = add %z, %d : f32[2,64,16]
  return %e, %y
}";

    /// The program with its steps written out.
    fn written(linked: &LinkedProgram) -> Program {
        let mut program = linked.frame.clone();
        for step in &linked.steps {
            let (of, at) = step.of.program();
            let mut own = of.steps[at].clone();
            own.buffers_mut(&mut |b| *b = step.buffer(*b).expect("has a buffer"));
            program.steps.push(own);
        }
        program
    }

    /// Plans of all efforts, and plans in which groups recur in any place where they may.
    #[test]
    fn a_linked_program_is_the_lowered_one() {
        for (text, least) in [(LAYERS, 40), (ATTENTION, 20)] {
            let count = compared(text);
            assert!(count > least, "{count}");
        }
    }

    /// How many plans of a function have a linked program, which is compared with the lowered one.
    fn compared(text: &str) -> usize {
        let module = parse(text).expect("parses");
        let f = module.find("f").expect("it");
        let (device, mut count) = (MachineModel::cpu(), 0);
        let base = LinkBase::of(f).expect("has facts").expect("is a usual function");
        for effort in [Effort::Off, Effort::Quick, Effort::Default] {
            let options = PlanOptions { device: device.clone(), effort, fp: Fp::Strict };
            let plan = plan_at(f, &options, 0.0, &[]).expect("has a plan");
            let memo = LoweringMemo::new(&device);
            let mut plans = vec![plan.clone()];
            for g in 0..plan.groups.len() {
                for at in g + 1..=plan.groups.len() {
                    let again = Group { parts: plan.groups[g].parts.clone() };
                    let mut groups = plan.groups.clone();
                    groups.insert(at, again);
                    plans.push(Plan { groups, ..plan.clone() });
                }
            }
            for plan in plans {
                let due = lowered(f, &plan, &device);
                let found = linked(&base, &plan, (&device, &memo));
                let Some(found) = found else { continue };
                let (found, mut due) = (written(&found), due.expect("what is linked is lowered"));
                due.buffers.values_mut().for_each(|data| data.name.clear());
                assert_eq!(found, due, "{}", plan.text(f));
                let saved = [saved_with(&base.facts, &plan), saved_bytes(f, &plan)];
                assert_eq!(saved[0], saved[1], "{}", plan.text(f));
                count += 1;
            }
        }
        count
    }

    /// What is wrong with a plan is left to lowering.
    #[test]
    fn a_plan_that_has_no_program_is_not_linked() {
        let module = parse(LAYERS).expect("parses");
        let f = module.find("f").expect("it");
        let device = MachineModel::cpu();
        let options = PlanOptions { device: device.clone(), effort: Effort::Off, fp: Fp::Strict };
        let plan = plan_at(f, &options, 0.0, &[]).expect("has a plan");
        let base = LinkBase::of(f).expect("has facts").expect("is a usual function");
        let memo = LoweringMemo::new(&device);
        for k in 0..plan.groups.len() {
            let (mut less, mut swapped) = (plan.clone(), plan.clone());
            less.groups.remove(k);
            swapped.groups.rotate_left(k);
            let narrow = (f.results()[0], Storage::Packed(1));
            let lossy = Plan { storage: vec![narrow], ..plan.clone() };
            let inlined = Plan { inline: vec![plan.groups[k].parts[0][0]], ..plan.clone() };
            for plan in [less, swapped, lossy, inlined] {
                let wrong = lowered(f, &plan, &device).is_err();
                let found = linked(&base, &plan, (&device, &memo));
                assert!(!wrong || found.is_none(), "{}", plan.text(f));
            }
        }
    }
}

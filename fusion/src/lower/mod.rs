//! Lowering: a plan applied to its function gives a program of kernels.
//!
//! The parts of the plan's groups are grown again as the planner grew them, which checks the plan and rebuilds the loop
//! nests. Then each group becomes a step.

mod blocks;
pub(crate) mod coordinates;
pub(crate) mod divided_program;
mod effect_order;
pub(crate) mod emit;
mod fill;
pub(crate) mod group_key;
pub(crate) mod group_memo;
pub(crate) mod grown;
pub(crate) mod held;
mod host;
pub(crate) mod indirect;
pub(crate) mod instances;
pub(crate) mod kernel;
pub(crate) mod linked;
pub(crate) mod loop_schedule;
pub(crate) mod lower_with;
pub(crate) mod single_group;
mod stage_places;
pub(crate) mod stages;
pub(crate) mod steps;

use crate::analysis::axes::TensorAxes;
use crate::analysis::class::{InstClass, PartKind};
use crate::analysis::facts::Facts;
use crate::analysis::value_range::ValueRanges;
use crate::fuse::part::Part;
use crate::plan::machine_model::MachineModel;
use crate::plan::{Plan, graph_hash};
use adfuse_ir::kernel::{
    Buffer, BufferData, Bundle, Contract, Kernel, Member, Program, Role, Sink, Stage, Step, Storage,
};
use adfuse_ir::text::Names;
use adfuse_ir::verify::at_inst;
use adfuse_ir::{DType, Diagnostic, Fp, Function, Inst, Kind, Value, ValueDef};
use coordinates::Coordinates;
use cranelift_entity::{EntitySet, SecondaryMap};
use effect_order::in_order;
use emit::{EmitContext, StageEmitter};
use fill::fill;
use group_key::{BufferForm, GroupKey, KeyBuilder};
use group_memo::{LoweringMemo, StepOfGroup, steps_of_group};
use grown::{Grown, in_function, regrow, regrow_lazily};
use hashbrown::{HashMap, HashSet};
use indirect::{argsort, scatter};
use instances::{Instances, instances};
use kernel::PartLowering;
use loop_schedule::schedule;
pub(crate) use lower_with::LowerWith;
use smallvec::SmallVec;

/// The program that a plan makes of its prepared function.
///
/// # Errors
/// For what has no lowering, and for a plan that is not one of this function or breaks a rule: the
/// error names the instruction.
pub fn lower(f: &Function, plan: &Plan, device: &MachineModel) -> Result<Program, Diagnostic> {
    belongs(f, plan)?;
    lowered(f, plan, device)
}

/// As [`lower`], with groups that were lowered before taken from a memo. Buffers are named by numbers, and all else is
/// the same.
///
/// # Errors
/// As [`lower`].
pub fn lower_with_memo(
    f: &Function,
    plan: &Plan,
    (device, memo): (&MachineModel, &LoweringMemo),
) -> Result<Program, Diagnostic> {
    belongs(f, plan)?;
    Ok(placed(f, plan, LowerWith::measured(device, Some(memo)))?.program)
}

/// As [`lower`], of a plan that is known to be one of this function.
pub(crate) fn lowered(
    f: &Function,
    plan: &Plan,
    device: &MachineModel,
) -> Result<Program, Diagnostic> {
    Ok(placed(f, plan, LowerWith::measured(device, None))?.program)
}

/// A lowered plan.
pub(crate) struct PlacedProgram {
    pub(crate) program: Program,
    /// The buffers that values are in.
    pub(crate) holders: Holders,
    /// For each step, which step of a group in the memo it is.
    pub(crate) of_group: Vec<Option<StepOfGroup>>,
    /// The function in which each instance is an instruction, where some recur.
    pub(crate) instances: Option<Instances>,
}

/// The buffers that hold a value: one for each instance of it that is stored.
pub(crate) type Holders = SecondaryMap<Value, SmallVec<[Buffer; 1]>>;

/// As [`lowered`], with the buffers that values are in.
pub(crate) fn placed(
    f: &Function,
    plan: &Plan,
    with: LowerWith<'_>,
) -> Result<PlacedProgram, Diagnostic> {
    in_order(f, plan)?;
    let mut holders = Holders::new();
    let is_named = with.is_named;
    let mut instances = instances(f, plan)?;
    let instance_names = instances.as_mut().filter(|_| is_named).map(|x| x.name(f));
    let (program, of_group) = match &instances {
        None => {
            let names = is_named.then(|| Names::of(f));
            let named = |v: Value| names.as_ref().map_or_else(String::new, |names| names.get(v));
            let applied = applied(f, plan, with, None, &named)?;
            applied.buffers.iter().for_each(|(v, &b)| holders[v].extend(b));
            (applied.program, applied.of_group)
        }
        Some(x) => {
            let named = |v: Value| {
                instance_names.as_ref().map_or_else(String::new, |names| names[v].clone())
            };
            let applied = applied(&x.f, &x.plan, with, Some(&x.value), &named)?;
            for (v, &b) in applied.buffers.iter() {
                x.value[v].into_iter().for_each(|of| holders[of].extend(b));
            }
            (applied.program, applied.of_group)
        }
    };
    Ok(PlacedProgram { program, holders, of_group, instances })
}

/// A plan that was applied to its function.
struct AppliedPlan {
    program: Program,
    buffers: SecondaryMap<Value, Option<Buffer>>,
    of_group: Vec<Option<StepOfGroup>>,
}

/// Checks that a plan is one of this function.
pub(crate) fn belongs(f: &Function, plan: &Plan) -> Result<(), Diagnostic> {
    if plan.graph == graph_hash(f) {
        return Ok(());
    }
    let m = format!("the plan is of another function than @{}", f.name);
    Err(Diagnostic::new(in_function(f), Kind::Usage, m))
}

/// Applies a plan in which no instruction occurs twice.
fn applied(
    f: &Function,
    plan: &Plan,
    with: LowerWith<'_>,
    origin: Option<&SecondaryMap<Value, Option<Value>>>,
    printed: &dyn Fn(Value) -> String,
) -> Result<AppliedPlan, Diagnostic> {
    let memo = with.memo.filter(|memo| memo.is_for(with.device));
    let (facts, grown) = match memo {
        Some(_) => regrow_lazily(f, plan)?,
        None => regrow(f, plan, with.device)?,
    };
    let mut lower = Lower {
        facts: &facts,
        plan,
        device: with.device,
        memo,
        is_named: with.is_named,
        of_group: Vec::new(),
        grown,
        program: Program { name: f.name.clone(), ..Program::default() },
        buffers: SecondaryMap::new(),
        printed,
        origin,
        names: HashSet::new(),
        numbered: f.value_count(),
    };
    lower.buffers()?;
    let mut keys = memo.map(|memo| KeyBuilder::new(memo.numbers(), plan.fp == Fp::Strict));
    for (g, group) in plan.groups.iter().enumerate() {
        let form = |v| BufferForm::at(&lower.program, lower.buffers[v]);
        let key = keys.as_mut().and_then(|keys| keys.key(&facts, group, form));
        lower.keyed_group(g, key)?;
    }
    // What fills results is walked in the order of its axes, as it lies in memory: it has no schedule.
    lower.results()?;
    lower.of_group.resize(lower.program.steps.len(), None);
    Ok(AppliedPlan { program: lower.program, buffers: lower.buffers, of_group: lower.of_group })
}

struct Lower<'a> {
    facts: &'a Facts<'a>,
    plan: &'a Plan,
    device: &'a MachineModel,
    memo: Option<&'a LoweringMemo>,
    is_named: bool,
    /// For each step, which step of a group in the memo it is.
    of_group: Vec<Option<StepOfGroup>>,
    grown: Grown,
    program: Program,
    buffers: SecondaryMap<Value, Option<Buffer>>,
    /// The names that values have in the text of the function that was planned.
    printed: &'a dyn Fn(Value) -> String,
    /// What values are instances of, where instructions recur.
    origin: Option<&'a SecondaryMap<Value, Option<Value>>>,
    names: HashSet<String>,
    /// What has no name of its own is numbered from beyond the values on.
    numbered: usize,
}

impl Lower<'_> {
    /// Declares the buffers: parameters, then what is stored, in order.
    fn buffers(&mut self) -> Result<(), Diagnostic> {
        let f = self.facts.f;
        let mut results: EntitySet<Value> = EntitySet::new();
        results.extend(f.results().iter().copied());
        for &v in f.params().iter().filter(|v| is_stored(f, **v)) {
            self.declare(v, Role::Input);
        }
        for &k in &self.plan.donated {
            let Some(b) = f.params().get(k).and_then(|&p| self.buffers[p]) else {
                let m = format!("@{} has no parameter {k} to give up", f.name);
                return Err(Diagnostic::new(in_function(f), Kind::Usage, m));
            };
            self.program.buffers[b].donated = true;
        }
        let each = |&i: &Inst| f.inst_results(i).iter().map(move |&v| (i, v));
        let all = f.body_insts().iter().flat_map(each);
        for (i, v) in all.filter(|(_, v)| is_stored(f, *v)) {
            let role = match self.facts.class[i] {
                InstClass::Constant => {
                    Role::Constant(f.attrs(i).literals("values").iter().collect())
                }
                _ if self.grown.home[v].is_none() => continue,
                _ if results.contains(v) => Role::Output,
                // A loop, a branch, attention, an exchange and what acts leave all that they compute, whoever reads it.
                InstClass::Control
                | InstClass::Attention
                | InstClass::Opaque
                | InstClass::Exchange => Role::Temp,
                _ if self.grown.read[v] => Role::Temp,
                _ => continue,
            };
            self.declare(v, role);
        }
        self.storage()
    }

    /// Gives the buffers the forms that the plan wants. Of several instances of a value one has a buffer
    /// at least.
    fn storage(&mut self) -> Result<(), Diagnostic> {
        let f = self.facts.f;
        let ranges = ValueRanges::of(self.facts);
        let mut kept = EntitySet::new();
        let mut left = Vec::new();
        for &(v, storage) in &self.plan.storage {
            if storage != Storage::Plain && !ranges.keeps(self.facts, v, storage) {
                let at = match f.def(v) {
                    ValueDef::Inst(i, _) => at_inst(f, i),
                    _ => in_function(f),
                };
                let m = "the plan stores this in fewer bits than its values may have";
                return Err(Diagnostic::new(at, Kind::Usage, m));
            }
            let of = self.origin.map_or(Some(v), |origin| origin[v]);
            let buffer = self.buffers[v].map(|b| &mut self.program.buffers[b]);
            match buffer {
                Some(data) if data.role == Role::Temp => {
                    data.storage = storage;
                    kept.extend(of);
                }
                _ => left.push(of),
            }
        }
        if left.into_iter().any(|of| of.is_none_or(|of| !kept.contains(of))) {
            let m = "the plan stores what no group leaves to another in a form of its own";
            return Err(Diagnostic::new(in_function(f), Kind::Usage, m));
        }
        let layout = self.plan.layout;
        if let Some(i) = layout.refused_by(f) {
            let name = layout.name();
            let m = format!(
                "this reads or writes an array as it is, which the plan lays out as {name}"
            );
            return Err(Diagnostic::new(at_inst(f, i), Kind::Usage, m));
        }
        self.program.buffers.values_mut().for_each(|data| layout.lay_out(data));
        Ok(())
    }

    fn declare(&mut self, v: Value, role: Role) -> Buffer {
        let name = self.fresh_name(v);
        self.declare_as(name, v, role)
    }

    fn declare_as(&mut self, name: String, v: Value, role: Role) -> Buffer {
        let dtype = self.facts.f.ty(v).dtype;
        let dims = self.facts.dims[v].clone();
        let b = self.program.buffers.push(BufferData::new(name, dtype, dims, role));
        self.buffers[v] = Some(b);
        b
    }

    /// The name that the value has in the function's text, where it is free and one that buffers may
    /// have; otherwise a number.
    fn fresh_name(&mut self, v: Value) -> String {
        let name = (self.printed)(v);
        let start = name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic());
        let number = !name.is_empty() && name.chars().all(|c| c.is_ascii_digit());
        let word = name.chars().all(|c| c == '_' || c == '.' || c.is_ascii_alphanumeric());
        if name.len() < 250 && (number || start && word) && self.names.insert(name.clone()) {
            return name;
        }
        self.number()
    }

    /// A number that no buffer has for its name.
    fn number(&mut self) -> String {
        loop {
            let name = self.numbered.to_string();
            self.numbered += 1;
            if self.names.insert(name.clone()) {
                return name;
            }
        }
    }

    /// The steps of a group: those that the memo has for its key, or those that it is lowered to, which are kept
    /// there.
    fn keyed_group(&mut self, g: usize, key: Option<GroupKey>) -> Result<(), Diagnostic> {
        let before = self.program.steps.len();
        if let (Some(memo), Some(key)) = (self.memo, &key)
            && let Some(Some(known)) = memo.find(key)
            && let Some(steps) = known.instantiated(key, &self.buffers)
        {
            self.program.steps.extend(steps);
            self.of_group.extend(steps_of_group(&known).map(Some));
            return Ok(());
        }
        self.grown.group(self.facts, self.device, (g, &self.plan.groups[g]))?;
        self.group(g)?;
        schedule(&mut self.program, before);
        if let (Some(memo), Some(key)) = (self.memo, key)
            && let steps = self.program.steps[before..].to_vec()
            && let Some(kept) = memo.keep(key, (&self.program.buffers, steps), &self.buffers)
        {
            self.of_group.extend(steps_of_group(&kept).map(Some));
        }
        self.of_group.resize(self.program.steps.len(), None);
        Ok(())
    }

    /// The step of a group; several, where contractions turn out not to read their operand alike.
    fn group(&mut self, g: usize) -> Result<(), Diagnostic> {
        let mut parts = std::mem::take(&mut self.grown.parts[g]);
        let shared = share(self.facts, &mut parts);
        let mut members: SmallVec<[Member; 1]> = SmallVec::new();
        let mut kernels: Vec<Kernel> = Vec::new();
        for part in &parts {
            let stores = self.stores(part);
            let class = &self.facts.class;
            let listed = |i: Inst| {
                class[i] == InstClass::Free || class[i] != InstClass::Constant && part.lists(i)
            };
            let cx = EmitContext {
                facts: self.facts,
                buffers: &self.buffers,
                listed: &listed,
                strict: self.plan.fp == Fp::Strict,
            };
            match part.shape {
                PartKind::Kernel => {
                    let lowering = PartLowering::of(cx, self.device, part, stores);
                    kernels.push(lowering.kernel(&self.name(std::slice::from_ref(part)))?);
                }
                PartKind::Contract(i) => {
                    let v = self.facts.f.inst_results(i)[0];
                    let place = self.grown.place[v].clone().unwrap_or_default();
                    let lowering = PartLowering::of(cx, self.device, part, stores);
                    members.push(lowering.member(i, &place, &part.depth)?);
                }
                PartKind::Scatter(i) => {
                    let v = self.facts.f.inst_results(i)[0];
                    let Some(out) = self.buffers[v] else { continue };
                    let (mut axes, kept) = (part.axes.clone(), HashMap::new());
                    let numbers = Coordinates::default();
                    let mut e = StageEmitter::new(&cx, &mut axes, &numbers, &kept);
                    let step = scatter(&mut e, i, out)?;
                    self.program.steps.push(Step::Scatter(step));
                }
                PartKind::Argsort(i) => {
                    let v = self.facts.f.inst_results(i)[0];
                    let Some(out) = self.buffers[v] else { continue };
                    let step = argsort(&cx, i, out)?;
                    self.program.steps.push(Step::Argsort(step));
                }
                kind => {
                    let step = self.whole(kind)?;
                    self.program.steps.extend(step);
                }
            }
        }
        self.kernels(g, kernels)?;
        let alike = |pick: fn(&Member) -> &adfuse_ir::kernel::Feed| {
            members.iter().all(|m| *pick(m) == *pick(&members[0]))
        };
        if members.is_empty() {
            return Ok(());
        }
        let name = self.name(&parts);
        if shared && (alike(|m| &m.lhs) || alike(|m| &m.rhs)) {
            self.program.steps.push(Step::Contract(Contract { name, members }));
        } else {
            for member in members {
                let members = SmallVec::from_iter([member]);
                let name = name.clone();
                self.program.steps.push(Step::Contract(Contract { name, members }));
            }
        }
        Ok(())
    }

    /// The step of a group's kernels: a bundle, where there are several.
    fn kernels(&mut self, g: usize, mut kernels: Vec<Kernel>) -> Result<(), Diagnostic> {
        if kernels.len() < 2 {
            self.program.steps.extend(kernels.pop().map(Step::Kernel));
            return Ok(());
        }
        let folds = |s: &Stage| s.sinks.iter().any(|sink| matches!(sink, Sink::Fold { .. }));
        if let Some(k) = kernels.iter().position(|kernel| kernel.stages.iter().any(folds)) {
            let first = self.plan.groups[g].parts.get(k).and_then(|part| part.first());
            let at = first.map_or_else(|| in_function(self.facts.f), |&i| at_inst(self.facts.f, i));
            let m = "a kernel that folds over its points shares no launch with others";
            return Err(Diagnostic::new(at, Kind::Usage, m));
        }
        let mut words: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        words.dedup();
        let name = if words.len() == 1 { words[0] } else { "kernels" };
        self.program.steps.push(Step::Bundle(Bundle { name: name.into(), kernels }));
        Ok(())
    }

    /// What a part stores, in the order of its members.
    fn stores(&self, part: &Part) -> Vec<(Value, TensorAxes)> {
        let values = part.members.iter().map(|&i| self.facts.f.inst_results(i)[0]);
        let stored = values.filter(|&v| self.buffers[v].is_some());
        stored.filter_map(|v| Some((v, self.grown.place[v].clone()?))).collect()
    }

    /// A name that tells people what a group does: its ops, the last of each kind.
    fn name(&self, parts: &[Part]) -> String {
        let mut words: Vec<&str> = Vec::new();
        for &i in parts.iter().flat_map(|p| &p.members) {
            let word = self.facts.f.op(i).name();
            if !words.contains(&word) {
                words.push(word);
            }
        }
        const MOST: usize = 4;
        let more = if words.len() > MOST { "_more" } else { "" };
        words.truncate(MOST);
        format!("{}{more}", words.join("_"))
    }

    /// What the caller is handed: buffers, and literals, which get one.
    fn results(&mut self) -> Result<(), Diagnostic> {
        let f = self.facts.f;
        for &v in f.results().iter().filter(|v| is_stored(f, **v)) {
            let b = match (self.buffers[v], f.literal(v)) {
                (Some(b), _) => b,
                (None, Some(l)) => {
                    let b = self.declare(v, Role::Output);
                    let fill = fill(&self.program, b, l);
                    self.program.steps.push(Step::Kernel(fill));
                    b
                }
                (None, None) => {
                    let m = "a result that no group stores";
                    return Err(Diagnostic::new(in_function(f), Kind::Internal, m));
                }
            };
            self.program.outputs.push(b);
        }
        Ok(())
    }
}

/// Whether a value may be in memory: tokens order steps, and are nothing else.
fn is_stored(f: &Function, v: Value) -> bool {
    f.ty(v).dtype != DType::Token
}

/// Divides the axes of contractions that share an operand alike; whether that could be done.
fn share(facts: &Facts<'_>, parts: &mut [Part]) -> bool {
    let insts: Vec<Inst> = parts
        .iter()
        .filter_map(|p| if let PartKind::Contract(i) = p.shape { Some(i) } else { None })
        .collect();
    if insts.len() < 2 || insts.len() < parts.len() {
        return true;
    }
    let same = |k: usize| insts.iter().all(|&i| facts.f.args(i)[k] == facts.f.args(insts[0])[k]);
    let Some(k) = (0..2).find(|&k| same(k)) else { return false };
    // Twice: what a later one divides, the earlier ones must divide too.
    for _ in 0..2 {
        for a in 0..parts.len() {
            for b in 0..parts.len() {
                let wanted = parts[b].operand_extents(facts, k);
                if a != b && !parts[a].divide_operand(facts, k, &wanted) {
                    return false;
                }
            }
        }
    }
    true
}

//! Plans in which an instruction occurs more than once.
//!
//! Each group that lists an instruction computes an instance of its own. A reader uses the latest instance before it:
//! in its own group, or in an earlier one. An inlined value is inlined from the instances that its user sees. All
//! instances have the same bits, so the choice of instance affects only live ranges.
//!
//! Every analysis of a plan needs to know which instance is meant. So such a plan is first rewritten: into a function
//! in which every instance is an instruction, in the order of the plan, and a plan of that function without
//! repetitions.

use crate::analysis::class::is_in_no_group;
use crate::analysis::recomputation::{awaited, is_kept};
use crate::plan::{Group, Plan};
use adfuse_ir::control::reads;
use adfuse_ir::rewrite::Copier;
use adfuse_ir::text::Names;
use adfuse_ir::verify::at_inst;
use adfuse_ir::{Builder, Diagnostic, Function, Inst, Kind, Phase, Value, ValueDef};
use cranelift_entity::{EntitySet, SecondaryMap};

/// A plan whose instances are instructions.
#[derive(Debug)]
pub(crate) struct Instances {
    /// The function in which they are.
    pub(crate) f: Function,
    /// A plan of it, without the hash of its text.
    pub(crate) plan: Plan,
    /// How many instances of its value were there before.
    again: SecondaryMap<Value, u32>,
    /// The value of the function that was planned.
    pub(crate) value: SecondaryMap<Value, Option<Value>>,
}

/// Whether an instruction occurs more than once in a plan.
pub(crate) fn recurs(plan: &Plan) -> bool {
    let mut seen = EntitySet::new();
    members(plan).any(|i| !seen.insert(i))
}

/// The instructions of a plan's groups, in order, as often as groups have them.
pub(crate) fn members(plan: &Plan) -> impl Iterator<Item = Inst> + '_ {
    plan.groups.iter().flat_map(|g| &g.parts).flatten().copied()
}

/// The plan with every instance an instruction of its own; `None` where there is one of each already.
///
/// # Errors
/// [`Kind::Usage`] where a group reads what none before it computes, or computes something twice: the
/// error names the instruction.
pub(crate) fn instances(f: &Function, plan: &Plan) -> Result<Option<Instances>, Diagnostic> {
    if !recurs(plan) {
        return Ok(None);
    }
    let mut copying = Copying::new(f, plan);
    let (mut seen, awaited) = (EntitySet::new(), awaited(f));
    let mut groups = Vec::new();
    for group in &plan.groups {
        let mut parts = Vec::new();
        for members in &group.parts {
            let mut once = EntitySet::new();
            if let Some(&i) = members.iter().find(|&&i| !once.insert(i)) {
                return copying.refuse(i, "a group of the plan computes this twice");
            }
            let kept = |&&i: &&Inst| is_kept(f, i) && !seen.insert(i);
            if let Some(&i) = members.iter().find(kept) {
                return copying
                    .refuse(i, "a checkpoint region keeps this, and the plan computes it again");
            }
            for &i in members {
                let waits = awaited[i].filter(|_| f.path(i).is_again());
                if waits.is_some_and(|v| !copying.is_ready(v, members)) {
                    return copying.refuse(i, TOO_EARLY);
                }
            }
            let copied = members.iter().map(|&i| copying.member(i));
            parts.push(copied.collect::<Result<_, _>>()?);
        }
        groups.push(Group { parts });
    }
    copying.finish(plan, groups).map(Some)
}

/// What is wrong with a recomputation that runs before what it waits for.
pub(crate) const TOO_EARLY: &str = "it computes again what is only needed after a later group";

struct Copying<'f> {
    f: &'f Function,
    b: Builder,
    copier: Copier<'f>,
    inline: EntitySet<Inst>,
    /// What the last copy of an instruction that is written out reads.
    written: SecondaryMap<Inst, Option<Vec<Value>>>,
    /// The member for which an instruction was written out last, and the number of that which is copied now. What is read twice is
    /// gone through once: ways through it are exponentially many.
    written_for: SecondaryMap<Inst, u32>,
    member: u32,
    /// Copies of what is written out.
    free: Vec<Inst>,
    /// The first instance of a value: the one that results are.
    first: SecondaryMap<Value, Option<Value>>,
    /// How many instances there are.
    count: SecondaryMap<Value, u32>,
    value: SecondaryMap<Value, Option<Value>>,
    again: SecondaryMap<Value, u32>,
    latest: Phase,
}

impl<'f> Copying<'f> {
    fn new(f: &'f Function, plan: &Plan) -> Copying<'f> {
        let mut b = Builder::new(f.name.clone());
        b.func_mut().symbols = f.symbols.clone();
        let mut copier = Copier::new(f);
        copier.params(&mut b);
        let mut inline = EntitySet::new();
        inline.extend(plan.inline.iter().copied());
        let mut copying = Copying {
            f,
            b,
            copier,
            inline,
            written: SecondaryMap::new(),
            written_for: SecondaryMap::new(),
            member: 0,
            free: Vec::new(),
            first: SecondaryMap::new(),
            count: SecondaryMap::new(),
            value: SecondaryMap::new(),
            again: SecondaryMap::new(),
            latest: Phase::default(),
        };
        for &p in f.params() {
            copying.note(p);
        }
        for &i in f.body_insts() {
            if is_in_no_group(f.op(i).def().body) {
                copying.copy(i);
            }
        }
        copying
    }

    /// Notes the newest instance of a value.
    fn note(&mut self, v: Value) {
        let Some(new) = self.copier.find(v) else { return };
        self.first[v].get_or_insert(new);
        self.value[new] = Some(v);
        self.again[new] = self.count[v];
        self.count[v] += 1;
    }

    fn copy(&mut self, i: Inst) -> Inst {
        let new = self.copier.inst(&mut self.b, i);
        let phase = self.f.inst(i).phase;
        let again = self.f.inst_results(i).iter().any(|&v| self.count[v] > 0);
        // What is computed again belongs to the pass that asks for it.
        self.latest = self.latest.max(phase);
        if again {
            self.b.func_mut().set_phase(new, self.latest);
        }
        for &v in self.f.inst_results(i) {
            self.note(v);
        }
        new
    }

    fn member(&mut self, i: Inst) -> Result<Inst, Diagnostic> {
        if self.inline.contains(i) || is_in_no_group(self.f.op(i).def().body) {
            return self.refuse(i, NOT_ALSO);
        }
        self.member += 1;
        for a in reads(self.f, i) {
            self.ready(a, i)?;
        }
        Ok(self.copy(i))
    }

    /// Whether a value is there: it is given, or has been computed, or these instructions
    /// compute it, or it is written out in terms of such values.
    fn is_ready(&self, v: Value, members: &[Inst]) -> bool {
        let (mut open, mut seen) = (vec![v], EntitySet::new());
        while let Some(v) = open.pop() {
            let ValueDef::Inst(i, _) = self.f.def(v) else { continue };
            match self.inline.contains(i) {
                true if !seen.insert(i) => {}
                true => open.extend(self.f.args(i)),
                false if self.copier.find(v).is_none() && !members.contains(&i) => return false,
                false => {}
            }
        }
        true
    }

    /// Sees to it that a value has an instance that is up to date.
    fn ready(&mut self, v: Value, reader: Inst) -> Result<(), Diagnostic> {
        let ValueDef::Inst(i, _) = self.f.def(v) else { return Ok(()) };
        if !self.inline.contains(i) {
            return match self.copier.find(v) {
                Some(_) => Ok(()),
                None => self.refuse(reader, "it reads what a later group computes"),
            };
        }
        if self.written_for[i] == self.member {
            return Ok(());
        }
        self.written_for[i] = self.member;
        for &a in self.f.args(i) {
            self.ready(a, i)?;
        }
        let reads: Vec<Value> =
            self.f.args(i).iter().map(|&a| self.copier.get(&mut self.b, a)).collect();
        if self.written[i].as_ref() != Some(&reads) {
            let new = self.copy(i);
            self.free.push(new);
            self.written[i] = Some(reads);
        }
        Ok(())
    }

    fn refuse<T>(&self, i: Inst, m: &str) -> Result<T, Diagnostic> {
        Err(Diagnostic::new(at_inst(self.f, i), Kind::Usage, m))
    }

    fn finish(mut self, plan: &Plan, groups: Vec<Group>) -> Result<Instances, Diagnostic> {
        let f = self.f;
        let mut results = Vec::new();
        for &v in f.results() {
            // What no group computes is found missing when the plan is applied.
            if self.first[v].is_none()
                && let ValueDef::Inst(i, _) = f.def(v)
            {
                return self.refuse(i, "no group of the plan computes this");
            }
            results.push(match self.first[v] {
                Some(new) => new,
                None => self.copier.get(&mut self.b, v),
            });
        }
        self.b.set_results(&results);
        let mut form = SecondaryMap::new();
        plan.storage.iter().for_each(|&(v, storage)| form[v] = Some(storage));
        let mut storage = Vec::new();
        let done = self.b.finish()?;
        for new in 0..done.value_count() {
            let new = Value::from_u32(new as u32);
            let Some(v) = self.value[new] else { continue };
            storage.extend(form[v].map(|form| (new, form)));
        }
        let plan = Plan { inline: self.free, groups, storage, ..plan.clone() };
        Ok(Instances { f: done, plan, again: self.again, value: self.value })
    }
}

impl Instances {
    /// Names the values, for messages: as in the function that was planned, marked for those computed again.
    pub(crate) fn name(&mut self, f: &Function) -> SecondaryMap<Value, String> {
        let names = Names::of(f);
        let mut found = SecondaryMap::new();
        for (new, v) in self.value.iter().filter_map(|(new, v)| Some((new, (*v)?))) {
            let name = names.get(v);
            found[new] = match self.again[new] {
                0 => name,
                k => format!("re{k}.{name}"),
            };
            // Numbers are no names that a function can give.
            self.f.set_name(new, Some(&format!("_{}", found[new])));
        }
        found
    }
}

/// What is wrong with a member that no group computes.
pub(crate) const NOT_ALSO: &str = "a group computes what the plan writes out, or has as a constant";

/// The values that a plan computes more than once, in the order of the function, and how often again. In a function that the planner has
/// divided into checkpoint segments, those that are computed again for these are among them.
pub fn recomputed_values(f: &Function, plan: &Plan) -> Vec<(Value, u32)> {
    let mut count: SecondaryMap<Inst, u32> = SecondaryMap::new();
    members(plan).for_each(|i| count[i] += 1);
    let is_divided = !plan.rewrites.segments.is_empty();
    let times = |i: Inst| match is_divided && f.path(i).is_again() {
        true => count[i].max(1),
        false => count[i].saturating_sub(1),
    };
    let more = f.body_insts().iter().filter(|&&i| times(i) > 0);
    more.map(|&i| (f.inst_results(i)[0], times(i))).collect()
}

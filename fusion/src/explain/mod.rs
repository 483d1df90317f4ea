//! Explains why two values are, or are not, computed in one kernel.
//!
//! The plan's parts are grown again, and the later value's instruction is offered to the part that computes the other
//! value. [`Part::join`] decides, as it does when plans are made. If a value in between is computed later, the question
//! is repeated for that value, so that the answer names the first obstacle of the chain.

pub(crate) mod candidates;
pub(crate) mod loops;
pub(crate) mod patterns;
pub(crate) mod recovery;
pub(crate) mod value_words;
pub(crate) mod words;

use crate::analysis::class::{InstClass, is_in_no_group};
use crate::analysis::facts::{Facts, folded};
use crate::analysis::leaves::leaves;
use crate::fuse::part::{Part, PartContext};
use crate::lower::belongs;
use crate::lower::grown::{Grown, regrow};
use crate::lower::instances::{Instances, instances};
use crate::plan::Plan;
use crate::plan::machine_model::MachineModel;
use crate::plan::refusal::Refusal;
use adfuse_ir::{Diagnostic, Function, Inst, Value, ValueDef};
use cranelift_entity::{EntitySet, SecondaryMap};

/// How a group computes a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupRole {
    /// At each element.
    Element,
    /// Once for each row that the kernel goes through.
    Row,
    /// Folded along each row.
    RowFold,
    /// Folded over points of the kernel, whose partial results are joined afterwards.
    PointFold,
    /// Every partial result along an axis.
    Scan,
    /// A sum of products.
    Contraction,
    /// Sums at computed places.
    Scatter,
    /// Positions of the sorted elements along an axis.
    Argsort,
    /// Values weighed by the softmax of scores, or the way back.
    Attention,
    /// The result of a user function.
    Opaque,
    /// An exchange between ranks.
    Exchange,
    /// A loop or a branch.
    Control,
    /// An effect.
    Effect,
    /// Inlined wherever it is used: it is never stored.
    Written,
}

impl GroupRole {
    /// In plain words.
    pub fn words(self) -> &'static str {
        match self {
            GroupRole::Element => "at each element",
            GroupRole::Row => "once a row",
            GroupRole::RowFold => "folded along each row",
            GroupRole::PointFold => "folded over the kernel's points",
            GroupRole::Scan => "folded along an axis, every partial result kept",
            GroupRole::Contraction => "a sum of products",
            GroupRole::Scatter => "sums at computed places",
            GroupRole::Argsort => "places in order along an axis",
            GroupRole::Attention => "by attention, whose scores are not stored",
            GroupRole::Opaque => "by a function of the user's",
            GroupRole::Exchange => "from other ranks",
            GroupRole::Control => "by a loop or a branch",
            GroupRole::Effect => "an effect, which the host has",
            GroupRole::Written => "written out where it is used",
        }
    }
}

/// A group that computes both values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedGroup {
    /// Its number in the plan.
    pub group: usize,
    /// How it computes them.
    pub roles: [GroupRole; 2],
    /// How many folds along rows lie before each: values of one number and level share a stage.
    pub times: [u32; 2],
}

impl SharedGroup {
    /// Whether one stage computes both.
    pub fn one_stage(&self) -> bool {
        let level = |r: GroupRole| {
            matches!(
                r,
                GroupRole::Row
                    | GroupRole::Contraction
                    | GroupRole::Scatter
                    | GroupRole::Argsort
                    | GroupRole::Attention
                    | GroupRole::Opaque
                    | GroupRole::Exchange
                    | GroupRole::Control
                    | GroupRole::Effect
            )
        };
        self.times[0] == self.times[1] && level(self.roles[0]) == level(self.roles[1])
    }
}

/// What keeps an instruction out of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// Joining it would break a rule.
    Refused(Refusal),
    /// Its value is needed before the group runs, by what computes this one.
    Needed(Value),
    /// Nothing in the group uses it, and it is inlined only where it is used.
    Unused,
    /// It is not computed at all: a parameter, a constant or a literal.
    Given,
    /// No obstacle: the plan merely keeps them separate.
    Nothing,
}

/// Why a value is not in a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotShared {
    /// The value.
    pub value: Value,
    /// The group it could have joined; `None` where the other value has none.
    pub group: Option<usize>,
    /// What the value needs that is computed after the group: each needs the next, and the last is the
    /// one that the obstacle is about.
    pub chain: Vec<Value>,
    /// What keeps it, or the last of the chain, out.
    pub obstacle: Obstacle,
}

/// Whether and how two values share a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The two values.
    pub values: [Value; 2],
    /// The groups that compute each: none for what is given, several for what is written out.
    pub groups: [Vec<usize>; 2],
    /// The groups that compute both.
    pub together: Vec<SharedGroup>,
    /// Why none does, the later value first.
    pub apart: Vec<NotShared>,
}

/// Explains whether two values of a prepared function share a kernel in a plan, and if not, why.
///
/// # Errors
/// Those of [`lower`](crate::lower()) for a plan that does not fit the function.
pub fn explain(
    f: &Function,
    plan: &Plan,
    device: &MachineModel,
    a: Value,
    b: Value,
) -> Result<Explanation, Diagnostic> {
    let planned = Occurrences::of(f, plan)?;
    Ok(Explainer::new(&planned, device)?.explain(a, b))
}

/// A plan of a function, with the occurrences told apart of instructions that it computes more than
/// once.
pub struct Occurrences<'a> {
    f: &'a Function,
    plan: &'a Plan,
    /// Where there are any.
    apart: Option<Instances>,
}

impl<'a> Occurrences<'a> {
    /// Those of a plan of a prepared function.
    ///
    /// # Errors
    /// For a plan of another function, and one that reads what it has not computed.
    pub fn of(f: &'a Function, plan: &'a Plan) -> Result<Occurrences<'a>, Diagnostic> {
        belongs(f, plan)?;
        Ok(Occurrences { f, plan, apart: instances(f, plan)? })
    }

    /// The function in which every occurrence is an instruction, and its plan.
    fn told_apart(&self) -> (&Function, &Plan) {
        self.apart.as_ref().map_or((self.f, self.plan), |x| (&x.f, &x.plan))
    }

    /// The value that one stands for.
    fn origin(&self, v: Value) -> Value {
        self.apart.as_ref().and_then(|x| x.value[v]).unwrap_or(v)
    }
}

/// Answers questions about one plan: for several, it is grown again once.
///
/// Questions and answers are about values of the function that was planned. Inside, each stands for its
/// occurrences: a value may be at home in several groups.
pub struct Explainer<'a> {
    planned: &'a Occurrences<'a>,
    /// Of the function in which occurrences are told apart.
    facts: Facts<'a>,
    grown: Grown,
    device: &'a MachineModel,
    /// The occurrences of each value, in the order of the plan, where they are told apart.
    occurrences: SecondaryMap<Value, Vec<Value>>,
    /// Where instructions of the function are in it.
    position: SecondaryMap<Inst, usize>,
    /// Values that are inlined where they are used.
    written: EntitySet<Inst>,
}

/// A group and a part of it.
type GroupPart = (u32, u32);

impl<'a> Explainer<'a> {
    /// Grows a plan of a prepared function again.
    ///
    /// # Errors
    /// Those of [`lower`](crate::lower()) for a plan that does not fit the function.
    pub fn new(
        planned: &'a Occurrences<'a>,
        device: &'a MachineModel,
    ) -> Result<Explainer<'a>, Diagnostic> {
        let (f, plan) = planned.told_apart();
        let (facts, grown) = regrow(f, plan, device)?;
        let mut occurrences: SecondaryMap<Value, Vec<Value>> = SecondaryMap::new();
        if let Some(x) = &planned.apart {
            let all = (0..f.value_count()).map(|v| Value::from_u32(v as u32));
            all.filter_map(|v| Some((v, x.value[v]?))).for_each(|(v, of)| occurrences[of].push(v));
        }
        let mut position = SecondaryMap::new();
        planned.f.body_insts().iter().enumerate().for_each(|(n, &i)| position[i] = n);
        let mut written = EntitySet::new();
        written.extend(planned.plan.inline.iter().copied());
        Ok(Explainer { planned, facts, grown, device, occurrences, position, written })
    }

    /// Whether two values of the function share a kernel in the plan, and if not, why.
    pub fn explain(&self, a: Value, b: Value) -> Explanation {
        let homes = [self.homes(a), self.homes(b)];
        let groups = [self.groups(a), self.groups(b)];
        let shared: Vec<usize> =
            groups[0].iter().filter(|g| groups[1].contains(g)).copied().collect();
        let together = shared.into_iter().map(|g| {
            let describe = |k: usize| {
                let here = homes[k].iter().find(|(home, _)| home.0 as usize == g);
                here.map_or((GroupRole::Element, 0), |&(home, v)| self.describe(home, v))
            };
            let (first, second) = (describe(0), describe(1));
            SharedGroup { group: g, roles: [first.0, second.0], times: [first.1, second.1] }
        });
        let together: Vec<SharedGroup> = together.collect();
        let mut apart = Vec::new();
        if together.is_empty() {
            let later = if self.position(a) > self.position(b) { (a, b) } else { (b, a) };
            for (value, other, first) in [(later.0, later.1, true), (later.1, later.0, false)] {
                apart.extend(self.not_shared(value, other, first));
            }
        }
        Explanation { values: [a, b], groups, together, apart }
    }

    fn part(&self, home: GroupPart) -> Option<&Part> {
        self.grown.parts.get(home.0 as usize)?.get(home.1 as usize)
    }

    /// What computes an occurrence.
    fn inst(&self, v: Value) -> Option<Inst> {
        computing(self.facts.f, v)
    }

    /// The position at which a value is computed; parameters come first.
    fn position(&self, v: Value) -> Option<usize> {
        computing(self.planned.f, v).map(|i| self.position[i])
    }

    /// Whether a value is inlined where it is used.
    pub(crate) fn is_written(&self, v: Value) -> bool {
        computing(self.planned.f, v).is_some_and(|i| self.written.contains(i))
    }

    /// The occurrences of a value.
    fn all<'v>(&'v self, v: &'v Value) -> &'v [Value] {
        match self.planned.apart {
            None => std::slice::from_ref(v),
            Some(_) => &self.occurrences[*v],
        }
    }

    /// The parts that compute a value, each with the occurrence that it computes, in the order of the
    /// plan.
    fn homes(&self, v: Value) -> Vec<(GroupPart, Value)> {
        let mut homes = Vec::new();
        for &v in self.all(&v) {
            let Some(i) = self.inst(v) else { continue };
            if self.facts.class[i] != InstClass::Free {
                homes.extend(self.grown.home[v].map(|home| (home, v)));
                continue;
            }
            for (g, parts) in self.grown.parts.iter().enumerate() {
                let lists = parts.iter().enumerate().filter(|(_, p)| p.lists(i));
                homes.extend(lists.map(|(k, _)| ((g as u32, k as u32), v)));
            }
        }
        homes.sort_unstable();
        homes
    }

    /// The groups that compute a value.
    pub(crate) fn groups(&self, v: Value) -> Vec<usize> {
        let homes = self.homes(v);
        let mut groups: Vec<usize> = homes.iter().map(|(home, _)| home.0 as usize).collect();
        groups.dedup();
        groups
    }

    /// How a part computes a value, and how many folds along rows lie before.
    fn describe(&self, home: GroupPart, v: Value) -> (GroupRole, u32) {
        let (Some(part), Some(i)) = (self.part(home), self.inst(v)) else {
            return (GroupRole::Element, 0);
        };
        let facts = &self.facts;
        let mut times: SecondaryMap<Value, u32> = SecondaryMap::new();
        for &j in facts.f.body_insts().iter().filter(|&&j| part.lists(j)) {
            let before = facts.f.args(j).iter().map(|&x| times[x]).max().unwrap_or(0);
            let folds = matches!(self.role(part, j), GroupRole::RowFold | GroupRole::Scan);
            times[facts.f.inst_results(j)[0]] = before + u32::from(folds);
        }
        (self.role(part, i), times[v])
    }

    fn role(&self, part: &Part, i: Inst) -> GroupRole {
        let facts = &self.facts;
        let (domain, inside) = part.frame();
        let along = |v: Value| {
            let place = self.grown.place[v].as_ref();
            place.map(|p| part.axes.all(p)).unwrap_or_default()
        };
        match facts.class[i] {
            InstClass::Free => GroupRole::Written,
            InstClass::Scan(_) => GroupRole::Scan,
            InstClass::Contract => GroupRole::Contraction,
            InstClass::Scatter => GroupRole::Scatter,
            InstClass::Argsort => GroupRole::Argsort,
            InstClass::Attention => GroupRole::Attention,
            InstClass::Opaque => GroupRole::Opaque,
            InstClass::Exchange => GroupRole::Exchange,
            InstClass::Control => GroupRole::Control,
            InstClass::Effect => GroupRole::Effect,
            InstClass::Reduce(_) if !facts.folds_nothing(i) => {
                let under = part.under.iter().find(|(j, _)| *j == i);
                let gone = under.map(|(_, place)| {
                    let runs = place.iter().zip(folded(facts, i)).filter(|(_, f)| *f);
                    runs.flat_map(|(run, _)| part.axes.whole(run)).collect::<Vec<_>>()
                });
                let gone = gone.unwrap_or_default();
                let row = !inside.is_empty()
                    && inside.iter().all(|a| gone.contains(a))
                    && domain.iter().all(|a| !gone.contains(a));
                if row { GroupRole::RowFold } else { GroupRole::PointFold }
            }
            _ => {
                let along = along(facts.f.inst_results(i)[0]);
                let inner = inside.is_empty() || inside.iter().any(|a| along.contains(a));
                if inner { GroupRole::Element } else { GroupRole::Row }
            }
        }
    }

    /// Why `value` is not in the group of `other`, the last that computes it; `None` where the other way
    /// says it all.
    pub(crate) fn not_shared(&self, value: Value, other: Value, later: bool) -> Option<NotShared> {
        let to = self.homes(other).last().map(|&(home, _)| home);
        let group = to.map(|h| h.0 as usize);
        let found = |chain: Vec<Value>, obstacle: Obstacle| {
            let chain = chain.into_iter().map(|v| self.planned.origin(v)).collect();
            Some(NotShared { value, group, chain, obstacle: self.of_origins(obstacle) })
        };
        if computing(self.planned.f, value).is_none() {
            return found(Vec::new(), Obstacle::Given);
        }
        let to = to?;
        if self.is_written(value) {
            return found(Vec::new(), Obstacle::Unused);
        }
        if !later && self.leads_to(self.all(&value), to) {
            // It is read there; that it cannot be computed there too is what the other way says.
            return None;
        }
        // Whichever occurrence is offered, it reads the same values; the first is what results are.
        let first = *self.all(&value).first()?;
        let (chain, obstacle) = self.obstacle(self.inst(first)?, to);
        if obstacle == Obstacle::Nothing
            && chain.is_empty()
            && let Some(by) = self.needed_before(first, to)
        {
            return found(chain, Obstacle::Needed(by));
        }
        found(chain, obstacle)
    }

    /// An obstacle in terms of the values that occurrences stand for.
    fn of_origins(&self, obstacle: Obstacle) -> Obstacle {
        let of = |v| self.planned.origin(v);
        match obstacle {
            Obstacle::Refused(Refusal::Order(v)) => Obstacle::Refused(Refusal::Order(of(v))),
            Obstacle::Refused(Refusal::Axes(v)) => Obstacle::Refused(Refusal::Axes(of(v))),
            Obstacle::Refused(Refusal::Barrier(v)) => Obstacle::Refused(Refusal::Barrier(of(v))),
            Obstacle::Needed(v) => Obstacle::Needed(of(v)),
            other => other,
        }
    }

    /// What keeps an instruction out of a part, and the chain that leads there.
    fn obstacle(&self, i: Inst, to: GroupPart) -> (Vec<Value>, Obstacle) {
        let (mut i, mut chain) = (i, Vec::new());
        loop {
            match self.offer(i, to) {
                Ok(()) => return (chain, Obstacle::Nothing),
                Err(Refusal::Order(v)) => match self.inst(v) {
                    // Operands come before what reads them, so this ends.
                    Some(j) => {
                        chain.push(v);
                        i = j;
                    }
                    None => return (chain, Obstacle::Refused(Refusal::Order(v))),
                },
                Err(why) => return (chain, Obstacle::Refused(why)),
            }
        }
    }

    /// Offers an instruction to a part as the plan has it.
    fn offer(&self, i: Inst, to: GroupPart) -> Result<(), Refusal> {
        let Some(part) = self.part(to) else { return Err(Refusal::Apart) };
        let inside = |v: Value| match self.grown.home[v] {
            Some(home) if home > to => Err(Refusal::Order(v)),
            home => Ok(home == Some(to)),
        };
        let cx = PartContext {
            facts: &self.facts,
            device: self.device,
            place: &self.grown.place,
            joins_unrelated: false,
        };
        part.clone().join(&cx, i, &inside).map(|_| ())
    }

    /// Whether a part computes something from occurrences of a value.
    fn leads_to(&self, of: &[Value], to: GroupPart) -> bool {
        let f = self.facts.f;
        let mut reached: EntitySet<Value> = EntitySet::new();
        reached.extend(of.iter().copied());
        for &i in f.body_insts() {
            let made = f.inst_results(i)[0];
            if f.args(i).iter().any(|&x| reached.contains(x)) {
                reached.insert(made);
                if self.grown.home[made] == Some(to) {
                    return true;
                }
            }
        }
        false
    }

    /// Something computed before a part that reads a value.
    fn needed_before(&self, v: Value, to: GroupPart) -> Option<Value> {
        let f = self.facts.f;
        let made = f.body_insts().iter().map(|&i| (i, f.inst_results(i)[0]));
        let mut before = made.filter(|(_, w)| self.grown.home[*w].is_some_and(|h| h < to));
        before.find(|(i, _)| leaves(&self.facts, *i).contains(&v)).map(|(_, w)| w)
    }
}

/// The instruction that computes a value, unless it is a constant.
fn computing(f: &Function, v: Value) -> Option<Inst> {
    match f.def(v) {
        ValueDef::Inst(i, _) if !is_in_no_group(f.op(i).def().body) => Some(i),
        _ => None,
    }
}

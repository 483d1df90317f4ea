//! The parts of a plan, grown again from its lists of members: the check that a plan is legal.

use crate::analysis::axes::TensorAxes;
use crate::analysis::class::{InstClass, PartKind};
use crate::analysis::facts::Facts;
use crate::analysis::leaves::{leaves, order};
use crate::fuse::part::{Part, PartContext};
use crate::lower::instances::{NOT_ALSO, TOO_EARLY};
use crate::plan::machine_model::MachineModel;
use crate::plan::refusal::Refusal;
use crate::plan::{Group, Plan};
use adfuse_ir::verify::at_inst;
use adfuse_ir::{At as Located, Diagnostic, Function, Inst, Kind, Value, ValueDef};
use cranelift_entity::SecondaryMap;

/// The facts that a plan rests on in which no instruction occurs twice, and its parts, grown again.
///
/// # Errors
/// Those of [`lower`] that do not need a program to be found.
pub(crate) fn regrow<'f>(
    f: &'f Function,
    plan: &Plan,
    device: &MachineModel,
) -> Result<(Facts<'f>, Grown), Diagnostic> {
    let facts = plan_facts(f, plan)?;
    let grown = Grown::of(&facts, plan, Some(device))?;
    Ok((facts, grown))
}

/// The facts of a function in which a plan writes instructions out.
pub(crate) fn plan_facts<'f>(f: &'f Function, plan: &Plan) -> Result<Facts<'f>, Diagnostic> {
    decided(Facts::of(f, true)?, plan)
}

/// Facts of instructions apart, with what a plan writes out.
///
/// # Errors
/// For what it may not write out.
pub(crate) fn decided<'f>(mut facts: Facts<'f>, plan: &Plan) -> Result<Facts<'f>, Diagnostic> {
    let f = facts.f;
    for &i in &plan.inline {
        if facts.class[i] != InstClass::Point {
            let m = "only elementwise instructions and views are written out where they are used";
            return Err(Diagnostic::new(at_inst(f, i), Kind::Usage, m));
        }
        if facts.forced[f.inst_results(i)[0]] {
            let m = "the plan writes out what must be in memory, and no group computes it";
            return Err(Diagnostic::new(at_inst(f, i), Kind::Usage, m));
        }
        facts.set_free(i);
    }
    if let Some(i) = facts.too_deep() {
        let m = "the plan writes out too many shifted views one upon the other";
        return Err(Diagnostic::new(at_inst(f, i), Kind::Limit, m));
    }
    Ok(facts)
}

/// As [`regrow`], with parts that are grown when they are asked for ([`Grown::group`]).
pub(crate) fn regrow_lazily<'f>(
    f: &'f Function,
    plan: &Plan,
) -> Result<(Facts<'f>, Grown), Diagnostic> {
    let facts = plan_facts(f, plan)?;
    let grown = Grown::of(&facts, plan, None)?;
    Ok((facts, grown))
}

/// The parts of a plan, with their nests.
pub(crate) struct Grown {
    /// For each group; none where they are grown when they are asked for, and have not been.
    pub(crate) parts: Vec<Vec<Part>>,
    /// The group and part that compute a value.
    pub(crate) home: SecondaryMap<Value, Option<(u32, u32)>>,
    pub(crate) place: SecondaryMap<Value, Option<TensorAxes>>,
    /// Whether another part reads a value.
    pub(crate) read: SecondaryMap<Value, bool>,
    /// Whether refusals say where: that names every value of the function.
    locates: bool,
}

impl Grown {
    /// The parts of a plan, grown for a machine; without one they are checked for their order alone.
    fn of(
        facts: &Facts<'_>,
        plan: &Plan,
        device: Option<&MachineModel>,
    ) -> Result<Grown, Diagnostic> {
        let f = facts.f;
        let mut grown = Grown {
            parts: Vec::new(),
            home: SecondaryMap::new(),
            place: SecondaryMap::new(),
            read: SecondaryMap::new(),
            locates: true,
        };
        for (g, group) in plan.groups.iter().enumerate() {
            let mut parts = Vec::new();
            for (k, members) in group.parts.iter().enumerate() {
                let here = (g as u32, k as u32);
                let mut part = None;
                for &i in members {
                    grown.admit(facts, i, here)?;
                    if let Some(device) = device {
                        grown.member(facts, device, (i, here), &mut part)?;
                    }
                    f.inst_results(i).iter().for_each(|&v| grown.home[v] = Some(here));
                }
                if members.is_empty() {
                    return Err(empty(f));
                }
                parts.extend(part);
            }
            if device.is_some() || group.parts.is_empty() {
                check_group(f, group, &parts)?;
            }
            grown.parts.push(parts);
        }
        for &i in f.body_insts() {
            let v = f.inst_results(i)[0];
            let owned = matches!(facts.class[i], InstClass::Free | InstClass::Constant);
            if grown.home[v].is_none() && !owned {
                let m = "no group of the plan computes this";
                return Err(Diagnostic::new(at_inst(f, i), Kind::Usage, m));
            }
        }
        Ok(grown)
    }

    /// No parts yet: groups are grown by themselves, one after the other.
    pub(crate) fn empty() -> Grown {
        let (home, place, read) = (SecondaryMap::new(), SecondaryMap::new(), SecondaryMap::new());
        Grown { parts: Vec::new(), home, place, read, locates: false }
    }

    /// Begins with a single group, whose parts are grown when they are asked for.
    pub(crate) fn begin(&mut self, facts: &Facts<'_>, group: &Group) {
        self.parts = vec![Vec::new()];
        for (members, k) in group.parts.iter().zip(0..) {
            let results = members.iter().flat_map(|&i| facts.f.inst_results(i));
            results.for_each(|&v| self.home[v] = Some((0, k)));
        }
    }

    /// Forgets a single group.
    pub(crate) fn end(&mut self, facts: &Facts<'_>, group: &Group) {
        self.parts.clear();
        let members = group.parts.iter().flatten();
        for &v in members.flat_map(|&i| facts.f.inst_results(i)) {
            (self.home[v], self.place[v]) = (None, None);
        }
    }

    /// Grows the parts of a group unless they have been.
    pub(crate) fn group(
        &mut self,
        facts: &Facts<'_>,
        device: &MachineModel,
        (g, group): (usize, &Group),
    ) -> Result<(), Diagnostic> {
        if !self.parts[g].is_empty() {
            return Ok(());
        }
        let mut parts = Vec::new();
        for (k, members) in group.parts.iter().enumerate() {
            let mut part = None;
            for &i in members {
                self.member(facts, device, (i, (g as u32, k as u32)), &mut part)?;
            }
            parts.extend(part);
        }
        check_group(facts.f, group, &parts)?;
        self.parts[g] = parts;
        Ok(())
    }

    /// Checks that what a member reads is there when its part runs, and notes what parts read of each other.
    fn admit(&mut self, facts: &Facts<'_>, i: Inst, here: (u32, u32)) -> Result<(), Diagnostic> {
        let f = facts.f;
        let refuse = |m: &str| Err(Diagnostic::new(at_inst(f, i), Kind::Usage, m));
        if matches!(facts.class[i], InstClass::Free | InstClass::Constant) {
            return refuse(NOT_ALSO);
        }
        for leaf in leaves(facts, i) {
            let constant = match f.def(leaf) {
                ValueDef::Inst(j, _) => facts.class[j] == InstClass::Constant,
                _ => true,
            };
            match self.home[leaf] {
                Some(home) if home == here => {}
                Some((g, _)) if g < here.0 => self.read[leaf] = true,
                None if constant => {}
                Some((g, _)) if g == here.0 => {
                    return refuse("it reads what another part of its group computes");
                }
                _ => return refuse("it reads what a later group computes"),
            }
        }
        let late = |v: &Value| self.home[*v].is_none_or(|(g, _)| g > here.0);
        match order(facts, i).iter().any(|v| is_computed(facts, *v) && late(v)) {
            true => refuse(TOO_EARLY),
            false => Ok(()),
        }
    }

    /// Adds a member to its part, which it may begin.
    fn member(
        &mut self,
        facts: &Facts<'_>,
        device: &MachineModel,
        (i, here): (Inst, (u32, u32)),
        part: &mut Option<Part>,
    ) -> Result<(), Diagnostic> {
        // A plan may join what only a later member needs together.
        let cx = PartContext { facts, device, place: &self.place, joins_unrelated: true };
        let place = match part {
            None => {
                let (begun, place) = Part::begin(&cx, i);
                *part = Some(begun);
                place
            }
            Some(part) => {
                let inside = |v: Value| Ok::<bool, Refusal>(self.home[v] == Some(here));
                part.join(&cx, i, &inside).map_err(|why| {
                    let at = if self.locates { at_inst(facts.f, i) } else { Located::default() };
                    Diagnostic::new(at, Kind::Usage, format!("it does not join its group: {why}"))
                })?
            }
        };
        self.place[facts.f.inst_results(i)[0]] = Some(place);
        Ok(())
    }
}

fn empty(f: &Function) -> Diagnostic {
    Diagnostic::new(in_function(f), Kind::Usage, "a group of the plan is empty")
}

/// Whether groups compute a value.
fn is_computed(facts: &Facts<'_>, v: Value) -> bool {
    matches!(facts.f.def(v), ValueDef::Inst(j, _) if facts.class[j] != InstClass::Constant)
}

/// Checks that the parts of a group of several are all contractions, or all kernels.
fn check_group(f: &Function, group: &Group, parts: &[Part]) -> Result<(), Diagnostic> {
    let contract = |p: &Part| matches!(p.shape, PartKind::Contract(_));
    let kernel = |p: &Part| matches!(p.shape, PartKind::Kernel);
    // Only where it is needed: it names every value of the function.
    let at = || {
        let first = group.parts.first().and_then(|m| m.first());
        first.map_or_else(|| in_function(f), |&i| at_inst(f, i))
    };
    match parts {
        [] => Err(Diagnostic::new(at(), Kind::Usage, "a group of the plan is empty")),
        [_] => Ok(()),
        several if several.iter().all(contract) || several.iter().all(kernel) => Ok(()),
        _ => {
            let m = "only contractions run as one, and kernels that share nothing";
            Err(Diagnostic::new(at(), Kind::Usage, m))
        }
    }
}

pub(super) fn in_function(f: &Function) -> Located {
    Located { func: Some(f.name.clone()), ..Located::default() }
}

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
    let mut facts = Facts::of(f, true)?;
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
    let grown = Grown::of(&facts, plan, device)?;
    Ok((facts, grown))
}

/// The parts of a plan, with their nests.
pub(crate) struct Grown {
    /// For each group.
    pub(crate) parts: Vec<Vec<Part>>,
    /// The group and part that compute a value.
    pub(crate) home: SecondaryMap<Value, Option<(u32, u32)>>,
    pub(crate) place: SecondaryMap<Value, Option<TensorAxes>>,
    /// Whether another part reads a value.
    pub(crate) read: SecondaryMap<Value, bool>,
}

impl Grown {
    fn of(facts: &Facts<'_>, plan: &Plan, device: &MachineModel) -> Result<Grown, Diagnostic> {
        let f = facts.f;
        let mut grown = Grown {
            parts: Vec::new(),
            home: SecondaryMap::new(),
            place: SecondaryMap::new(),
            read: SecondaryMap::new(),
        };
        for (g, group) in plan.groups.iter().enumerate() {
            let mut parts = Vec::new();
            for (k, members) in group.parts.iter().enumerate() {
                let here = (g as u32, k as u32);
                parts.push(grown.part(facts, device, members, here)?);
            }
            check_group(f, group, &parts)?;
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

    fn part(
        &mut self,
        facts: &Facts<'_>,
        device: &MachineModel,
        members: &[Inst],
        here: (u32, u32),
    ) -> Result<Part, Diagnostic> {
        let f = facts.f;
        let refuse = |i: Inst, m: String| Err(Diagnostic::new(at_inst(f, i), Kind::Usage, m));
        let mut part: Option<Part> = None;
        for &i in members {
            let v = f.inst_results(i)[0];
            if matches!(facts.class[i], InstClass::Free | InstClass::Constant) {
                return refuse(i, NOT_ALSO.into());
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
                        return refuse(
                            i,
                            "it reads what another part of its group computes".into(),
                        );
                    }
                    _ => return refuse(i, "it reads what a later group computes".into()),
                }
            }
            let late = |v: &Value| self.home[*v].is_none_or(|(g, _)| g > here.0);
            if order(facts, i).iter().any(|v| is_computed(facts, *v) && late(v)) {
                return refuse(i, TOO_EARLY.into());
            }
            let cx = PartContext { facts, device, place: &self.place };
            let place = match &mut part {
                None => {
                    let (begun, place) = Part::begin(&cx, i);
                    part = Some(begun);
                    place
                }
                Some(part) => {
                    let inside = |v: Value| Ok::<bool, Refusal>(self.home[v] == Some(here));
                    match part.join(&cx, i, &inside) {
                        Ok(place) => place,
                        Err(why) => {
                            return refuse(i, format!("it does not join its group: {why}"));
                        }
                    }
                }
            };
            f.inst_results(i).iter().for_each(|&v| self.home[v] = Some(here));
            self.place[v] = Some(place);
        }
        part.ok_or_else(|| {
            Diagnostic::new(in_function(f), Kind::Usage, "a group of the plan is empty")
        })
    }
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

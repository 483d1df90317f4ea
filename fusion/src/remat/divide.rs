//! Division of groups: a group of which only some members are left need not be one that a kernel can compute, and
//! becomes several that are.

use super::crossing::ExecutedPlan;
use crate::analysis::axes::TensorAxes;
use crate::analysis::class::PartKind;
use crate::analysis::facts::Facts;
use crate::analysis::leaves::{leaves, order};
use crate::analysis::value_range::ValueRanges;
use crate::fuse::greedy::narrow;
use crate::fuse::part::{Part, PartContext};
use crate::lower::instances::instances;
use crate::plan::machine_model::MachineModel;
use crate::plan::refusal::Refusal;
use crate::plan::{Group, Members, Plan};
use adfuse_ir::{Diagnostic, Function, Inst, Value};
use cranelift_entity::{EntitySet, SecondaryMap};

/// The plan with each group divided where its members do not share a loop nest. A member that does not join what
/// precedes it begins a group, which runs after those before it. Values that are stored only now have their
/// narrowest exact forms.
///
/// # Errors
/// As [`instances`]. What is wrong with the plan for other reasons is found when it is lowered.
pub(crate) fn divided(
    f: &Function,
    plan: &Plan,
    device: &MachineModel,
) -> Result<Plan, Diagnostic> {
    let x = instances(f, plan)?;
    let executed = ExecutedPlan::of(f, plan, x.as_ref())?;
    let facts = &executed.facts;
    let mut nests = GrownNests {
        facts,
        device,
        home: SecondaryMap::new(),
        place: SecondaryMap::new(),
        begun: 0,
        read: EntitySet::new(),
    };
    let mut groups = Vec::new();
    for (group, laid_out) in plan.groups.iter().zip(&executed.plan.groups) {
        let both = group.parts.iter().zip(&laid_out.parts);
        let pieces: Vec<Vec<DividedPart>> =
            both.map(|(part, laid)| nests.pieces(part, laid)).collect();
        let product = |p: &DividedPart| matches!(p.part.shape, PartKind::Contract(_));
        let whole = pieces.iter().all(|p| p.len() == 1)
            && (pieces.len() == 1 || pieces.iter().flatten().all(product));
        match whole {
            true => groups.push(group.clone()),
            false => groups
                .extend(pieces.into_iter().flatten().map(|p| Group { parts: vec![p.members] })),
        }
    }
    let (h, ranges) = (facts.f, ValueRanges::of(facts));
    let mut forms = SecondaryMap::new();
    let values = h.body_insts().iter().flat_map(|&i| h.inst_results(i)).copied();
    for v in values.filter(|&v| nests.read.contains(v) && !h.results().contains(&v)) {
        if let (Some(of), Some(form)) = (executed.origin(v), narrow(facts, &ranges, v)) {
            forms[of] = Some(form);
        }
    }
    let values = f.body_insts().iter().flat_map(|&i| f.inst_results(i)).copied();
    let storage = values.filter_map(|v| Some((v, forms[v]?))).collect();
    Ok(Plan { groups, storage, ..plan.clone() })
}

/// Members that share a nest.
struct DividedPart {
    part: Part,
    /// In terms of the function that was planned.
    members: Members,
}

/// The nests of a plan, while they are grown.
struct GrownNests<'a> {
    facts: &'a Facts<'a>,
    device: &'a MachineModel,
    /// The number of the piece that computes a value.
    home: SecondaryMap<Value, Option<usize>>,
    place: SecondaryMap<Value, Option<TensorAxes>>,
    /// How many pieces there are.
    begun: usize,
    /// Values that another piece reads.
    read: EntitySet<Value>,
}

impl GrownNests<'_> {
    /// The pieces of a part: its members, and the same as instances.
    fn pieces(&mut self, members: &[Inst], instances: &[Inst]) -> Vec<DividedPart> {
        let (facts, from) = (self.facts, self.begun);
        let mut pieces: Vec<DividedPart> = Vec::new();
        for (&member, &i) in members.iter().zip(instances) {
            let reads = leaves(facts, i);
            let needs = reads.iter().chain(&order(facts, i)).filter_map(|&v| self.home[v]).max();
            // None before the last that computes what it needs.
            let first = needs.map_or(0, |h| (h + 1).saturating_sub(from).max(1) - 1);
            let joined = (first..pieces.len())
                .find_map(|k| Some((k, self.join(&mut pieces[k].part, i, from + k)?)));
            let (k, place) = joined.unwrap_or_else(|| {
                let cx = PartContext {
                    facts,
                    device: self.device,
                    place: &self.place,
                    joins_unrelated: true,
                };
                let (part, place) = Part::begin(&cx, i);
                pieces.push(DividedPart { part, members: Vec::new() });
                (pieces.len() - 1, place)
            });
            pieces[k].members.push(member);
            self.begun = from + pieces.len();
            let results = facts.f.inst_results(i);
            results.iter().for_each(|&v| self.home[v] = Some(from + k));
            self.place[results[0]] = Some(place);
            let elsewhere = |v: &Value| self.home[*v].is_some_and(|h| h != from + k);
            let read: Vec<Value> = reads.into_iter().filter(elsewhere).collect();
            self.read.extend(read);
        }
        pieces
    }

    /// Where an instruction's value lies in a piece, if it may join it.
    fn join(&self, part: &mut Part, i: Inst, here: usize) -> Option<TensorAxes> {
        let inside = |v: Value| match self.home[v] {
            Some(h) if h > here => Err(Refusal::Order(v)),
            h => Ok(h == Some(here)),
        };
        let cx = PartContext {
            facts: self.facts,
            device: self.device,
            place: &self.place,
            joins_unrelated: true,
        };
        part.join(&cx, i, &inside).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::greedy::plan_at;
    use crate::lower::lowered;
    use crate::plan::options::{Effort, PlanOptions};
    use adfuse_ir::Fp;
    use adfuse_ir::text::parse;

    /// Members that share no nest become groups, and those that depend on them come after.
    #[test]
    fn a_group_without_a_common_nest_is_divided() {
        let text = "func @f(%x: f32[8], %y: f32[5]) -> (f32[8], f32[8], f32[5]) {
  %a = sin %x : f32[8]
  %b = exp %y : f32[5]
  %c = mul %a, %a : f32[8]
  %d = mul %b, %b : f32[5]
  %e = mul %a, %c : f32[8]
  return %c, %e, %d
}";
        let module = parse(text).expect("parses");
        let f = module.find("f").expect("it");
        let device = MachineModel::cpu();
        let options = PlanOptions { device: device.clone(), effort: Effort::Off, fp: Fp::Strict };
        let base = plan_at(f, &options, 0.0, &[]).expect("has a plan");
        let i: Vec<Inst> = base.groups.iter().flat_map(|g| g.parts.concat()).collect();
        let of = |parts: Vec<Vec<Inst>>| {
            let groups = parts.into_iter().map(|part| Group { parts: vec![part] }).collect();
            Plan { groups, ..base.clone() }
        };
        let whole = of(vec![i.clone()]);
        assert!(lowered(f, &whole, &device).is_err());
        let found = divided(f, &whole, &device).expect("is divided");
        assert_eq!(found, of(vec![vec![i[0], i[2], i[4]], vec![i[1], i[3]]]));
        lowered(f, &found, &device).expect("has a program");
        // What kernels compute stays as it is.
        assert_eq!(divided(f, &found, &device).expect("is a plan"), found);
    }
}

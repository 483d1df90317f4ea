//! Greedy plans as what plans in which groups recur are made of.

use super::group_graph::GroupGraph;
use super::instantiate::{recurring, regrouped, without_dead};
use super::lone_price::LonePricer;
use super::schedule::frontier::{Frontier, FrontierOptions, frontier, segment_frontier};
use crate::analysis::facts::Facts;
use crate::fuse::greedy::of_groups;
use crate::fuse::groups::Groups;
use crate::lower::group_memo::LoweringMemo;
use crate::lower::linked::LinkBase;
use crate::memory::engine::EngineModel;
use crate::plan::Plan;
use crate::plan::options::PlanOptions;
use crate::search::point::{PlanPoint, priced};
use adfuse_ir::{At, Diagnostic, Function, Inst, Kind, ValueDef};
use cranelift_entity::SecondaryMap;
use std::sync::Arc;

/// Values that a kernel leaves to others in most plans.
const FEW_VALUES: usize = 6;

/// A greedy plan, and schedules of its groups.
pub(super) struct BasePlan<'f> {
    plan: Plan,
    price: f64,
    pub(super) point: PlanPoint,
    /// The facts of the function, and those that the plan rests on.
    pub(super) known: Facts<'f>,
    facts: Facts<'f>,
    graph: GroupGraph,
    pub(super) schedules: Frontier,
    /// Whether each instruction is a group of its own.
    apart: bool,
}

impl<'f> BasePlan<'f> {
    /// A plan that was made at a price of a stored byte, with the schedules of its groups; those in segments where each instruction is a
    /// group of its own (`apart`).
    ///
    /// # Errors
    /// As [`lower`](crate::lower()), those of the engine, and for sizes that add up to more than can be counted.
    pub(super) fn of(
        f: &'f Function,
        (plan, price): (&Plan, f64),
        apart: bool,
        options: &PlanOptions,
        (base, engine): (Option<&LinkBase<'_>>, &dyn EngineModel),
    ) -> Result<BasePlan<'f>, Diagnostic> {
        let made = priced(f, plan.clone(), options, engine)?;
        let made = made.measured_beside(f, base, options, engine)?;
        let known = Facts::of(f, true)?;
        let mut facts = known.clone();
        plan.inline.iter().for_each(|&i| facts.set_free(i));
        let own;
        let memo = match engine.memo() {
            Some(memo) => memo,
            None => {
                own = Arc::new(LoweringMemo::new(&options.device));
                &own
            }
        };
        let prices = LonePricer::new(&facts, plan, (options, memo), engine);
        let made_of = (&made.program, made.seconds.as_slice());
        let graph = GroupGraph::of(&facts, plan, made_of, Some(prices)).map_err(|e| {
            let at = At { func: Some(f.name.clone()), ..At::default() };
            Diagnostic::new(at, Kind::Limit, e.to_string())
        })?;
        let schedules = match apart {
            true => segment_frontier(&graph.graph),
            false => frontier(&graph.graph, &FrontierOptions::default()),
        };
        let (plan, point) = (plan.clone(), made.point);
        Ok(BasePlan { plan, price, point, known, facts, graph, schedules, apart })
    }

    /// Whether some kernel leaves more than a few values to others: one that reads them has all of them in memory at once, whatever
    /// the schedule.
    pub(super) fn is_coarse(&self) -> bool {
        let f = self.known.f;
        let mut left: SecondaryMap<Inst, bool> = SecondaryMap::new();
        for &(_, v) in self.graph.of.values().flatten() {
            if let ValueDef::Inst(i, _) = f.def(v) {
                left[i] = true;
            }
        }
        let parts = self.plan.groups.iter().flat_map(|group| &group.parts);
        parts.into_iter().any(|part| part.iter().filter(|&&i| left[i]).count() > FEW_VALUES)
    }

    /// The plan with a group for each instruction.
    pub(super) fn separated(&self, options: &PlanOptions) -> Plan {
        let groups = Groups::grow(&self.facts, &options.device, true, &SecondaryMap::new());
        let Plan { groups, storage, .. } = of_groups(&self.facts, &groups, options);
        Plan { groups, storage, ..self.plan.clone() }
    }

    /// The plan in which groups recur as one of its schedules says, and which of them come again; `None` where nothing
    /// recurs.
    pub(super) fn recurring(&self, at: usize) -> Option<(Plan, Vec<bool>)> {
        let schedule = &self.schedules.points()[at].schedule;
        let (plan, again) = recurring(&self.facts, &self.plan, &self.graph, schedule);
        again.contains(&true).then_some((plan, again))
    }

    /// The same without what nothing reads.
    pub(super) fn as_scheduled(&self, at: usize) -> Option<Plan> {
        let (plan, _) = self.recurring(at)?;
        Some(without_dead(&self.facts, plan))
    }

    /// The same with its instructions grouped anew.
    ///
    /// # Errors
    /// Those of planning.
    pub(super) fn regrouped(
        &self,
        at: usize,
        options: &PlanOptions,
    ) -> Result<Option<Plan>, Diagnostic> {
        match self.recurring(at) {
            Some((plan, again)) => {
                regrouped(&self.known, (&plan, &again, self.apart), options, self.price)
            }
            None => Ok(None),
        }
    }
}

//! Plans of the schedules of another plan's groups.

use super::divide::divided;
use super::group_graph::GroupGraph;
use super::instantiate::{recurring, regrouped, without_dead};
use super::schedule::frontier;
use super::schedule::frontier::{Frontier, FrontierOptions, FrontierPoint};
use crate::analysis::facts::Facts;
use crate::memory::engine::EngineModel;
use crate::plan::Plan;
use crate::plan::options::PlanOptions;
use crate::search::point::{PlanPoint, measured};
use adfuse_ir::kernel::Program;
use adfuse_ir::{At, Diagnostic, Function, Kind};

/// A plan whose groups are scheduled.
pub(crate) struct ScheduledPlan<'a> {
    pub(crate) f: &'a Function,
    /// The plan, in which nothing recurs.
    pub(crate) base: &'a Plan,
    /// The price of a stored byte at which it was made.
    pub(crate) price: f64,
    pub(crate) options: &'a PlanOptions,
    pub(crate) engine: &'a dyn EngineModel,
}

impl ScheduledPlan<'_> {
    /// The plans of at most this many schedules, from the plan's program: for each schedule one of the plan's groups,
    /// and one whose groups are formed again.
    ///
    /// # Errors
    /// Those of planning; [`Kind::Limit`] when sizes add up to more than can be counted.
    pub(crate) fn points(
        &self,
        program: &Program,
        most: usize,
    ) -> Result<Vec<PlanPoint>, Diagnostic> {
        let f = self.f;
        let mut facts = Facts::of(f, true)?;
        self.base.inline.iter().for_each(|&i| facts.set_free(i));
        let device = &self.options.device;
        let graph = GroupGraph::of(&facts, self.base, program, device).map_err(|e| {
            let at = At { func: Some(f.name.clone()), ..At::default() };
            Diagnostic::new(at, Kind::Limit, e.to_string())
        })?;
        let all = frontier(&graph.graph, &FrontierOptions::default());
        let mut points = Vec::new();
        for point in spread(&all, most) {
            let (plan, again) = recurring(&facts, self.base, &graph, &point.schedule);
            if !again.contains(&true) {
                continue;
            }
            let joined = regrouped(f, &plan, &again, self.options, self.price)?;
            let plan = without_dead(&facts, plan);
            let joined = joined.filter(|joined| *joined != plan);
            points.extend(self.measured(plan));
            points.extend(joined.and_then(|joined| self.measured(joined)));
        }
        Ok(points)
    }

    /// The cost of a plan; where its groups are not all ones that kernels compute, that of the plan whose groups are
    /// divided. `None` for what has no lowering even then.
    fn measured(&self, plan: Plan) -> Option<PlanPoint> {
        if let Ok((point, _)) = measured(self.f, plan.clone(), self.options, self.engine) {
            return Some(point);
        }
        let plan = divided(self.f, &plan, &self.options.device).ok()?;
        measured(self.f, plan, self.options, self.engine).ok().map(|(point, _)| point)
    }
}

/// At most this many points evenly by peak, and a quarter as many between those whose times differ most: there the
/// time rises much for little memory.
fn spread(all: &Frontier, most: usize) -> Vec<&FrontierPoint> {
    let mut chosen = all.spread(most);
    let place = |point: &FrontierPoint| all.points().partition_point(|p| p.peak < point.peak);
    for _ in 0..most / 4 {
        let between = |pair: &[&FrontierPoint]| place(pair[0]) + 1 < place(pair[1]);
        let slower = |k: &usize| chosen[*k].time as f64 / chosen[k + 1].time.max(1) as f64;
        let gaps = (0..chosen.len().saturating_sub(1)).filter(|&k| between(&chosen[k..k + 2]));
        let Some(k) = gaps.max_by(|a, b| slower(a).total_cmp(&slower(b))) else { break };
        let middle = (place(chosen[k]) + place(chosen[k + 1])) / 2;
        chosen.insert(k + 1, &all.points()[middle]);
    }
    chosen
}

//! The plans that budgets choose from: those of a function and of all its rewrites together.
//!
//! Later phases may recover operands from answers or read them, and each way back over a loop may read stacks or compute
//! steps again from checkpoints. These are rewrites of the function, before planning. Each rewritten function has a
//! frontier, and no budget decides which rewrite is made: it chooses from the plans of all of them.

use super::compile_budget::PlanBudget;
use super::frontier::{FoundPlans, PlanFrontier};
use super::inverse::{Recovered, recoveries, unchanged};
use super::loop_choice::{DecidedLoops, WaysBack, decided_as, that_fit};
use super::lossy::{Narrowed, keep_lossy};
use super::pruning::{KnownPoints, PlanEvaluator};
use super::segment_plans::{DividedFunction, segment_plans};
use super::{binding, plans_beside};
use crate::lower::instances::recomputed_values;
use crate::memory::engine::{EngineModel, MemoEngine};
use crate::plan::loop_choice::LoopChoice;
use crate::plan::lossy::Lossy;
use crate::plan::options::{Effort, PlanOptions};
use crate::plan::rewrites::Rewrites;
use crate::plan::{Plan, graph_hash};
use crate::prepass::inverse::inverted_as;
use crate::prepass::segments::{SegmentedFunction, segmented_as};
use crate::search::blocks::block_plans;
use crate::search::parallel::beside;
use crate::search::point::PlanPoint;
use adfuse_ir::kernel::SLOT;
use adfuse_ir::{Diagnostic, Function};
use std::sync::Arc;

/// A [prepared](crate::prepare()) function after each of the rewrites that come before planning.
#[derive(Clone, Debug)]
pub struct RewrittenFunction {
    /// It is divided into checkpoint segments.
    pub segmented: SegmentedFunction,
    /// Its later phases recover operands, too.
    pub recovered: Recovered,
    /// It keeps values with losses, too.
    pub narrowed: Narrowed,
    /// Its loops are decided, too. Plans are plans of this one.
    pub decided: DecidedLoops,
}

/// A plan that budgets choose from, with the function that it is of.
#[derive(Clone, Debug)]
pub struct BudgetPoint {
    /// The plan, with its cost.
    pub point: PlanPoint,
    /// The function.
    pub rewritten: Arc<RewrittenFunction>,
}

impl AsRef<PlanPoint> for BudgetPoint {
    fn as_ref(&self) -> &PlanPoint {
        &self.point
    }
}

impl BudgetPoint {
    /// A plan of a rewritten function, whose text says how the function was rewritten.
    fn new(point: PlanPoint, rewritten: Arc<RewrittenFunction>) -> BudgetPoint {
        let plan = Plan { rewrites: rewritten.rewrites(), ..point.plan };
        let again = recomputed_values(&rewritten.decided.function, &plan);
        BudgetPoint { point: PlanPoint { plan, again, ..point }, rewritten }
    }

    /// The same plan with as many checkpoints of its loops as fit a budget in bytes: a frontier has only some numbers of them.
    ///
    /// # Errors
    /// As [`budget_frontier`].
    pub fn filled(
        self,
        memory: u64,
        options: &PlanOptions,
        engine: &dyn EngineModel,
    ) -> Result<BudgetPoint, Diagnostic> {
        let RewrittenFunction { narrowed, decided, .. } = &*self.rewritten;
        let ways = WaysBack::of(&narrowed.function);
        let mut room = memory.saturating_sub(self.point.peak);
        while room >= SLOT && !ways.is_empty() {
            let choices = ways.with_more(&narrowed.function, &decided.choices, room);
            if choices == decided.choices {
                break;
            }
            let decided = decided_as(&narrowed.function, &ways, choices)?;
            let plan = std::slice::from_ref(&self.point.plan);
            let known = KnownPoints::default();
            let found = measured_as(&decided.function, plan, options, (engine, &known))?;
            let fits = |p: &PlanPoint| p.peak <= memory && p.seconds <= self.point.seconds;
            if let Some(point) = found.points.into_iter().find(fits) {
                let rewritten = RewrittenFunction { decided, ..(*self.rewritten).clone() };
                return Ok(BudgetPoint::new(point, Arc::new(rewritten)));
            }
            // Checkpoints of inner loops, and gaps of the arena, may take more than was counted.
            room = room / 8 * 7;
        }
        Ok(self)
    }
}

impl RewrittenFunction {
    /// What was decided before planning, in one.
    pub fn narrowed(&self) -> Narrowed {
        let (function, left) = (self.decided.function.clone(), self.narrowed.left.clone());
        Narrowed { function, rewrites: self.rewrites(), left }
    }

    /// The decisions, as a plan's text lists them.
    pub fn rewrites(&self) -> Rewrites {
        Rewrites {
            segments: self.segmented.choices.clone(),
            inverses: self.recovered.choices.clone(),
            loops: self.decided.choices.clone(),
        }
    }
}

/// The plans of a [prepared](crate::prepare()) function that budgets choose from. They are plans of the function and of
/// its rewrites: with and without [recovered operands](crate::recover_operands()), with the values kept with losses that
/// may be, and with stacks and different numbers of checkpoints for its loops. Peaks rise and seconds fall, both strictly.
///
/// # Errors
/// As [`plan_frontier`](crate::plan_frontier()) and [`keep_lossy`].
pub fn budget_frontier(
    f: &Function,
    lossy: &Lossy,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<PlanFrontier<BudgetPoint>, Diagnostic> {
    rewritten_plans(f, lossy, options, (engine, KnownPoints::default()))
}

/// The plans of a [prepared](crate::prepare()) function that one budget chooses from: as [`budget_frontier`], but that plans may be missing which the budget
/// does not choose. The fastest plan is there.
///
/// # Errors
/// As [`budget_frontier`].
pub fn plans_within(
    f: &Function,
    lossy: &Lossy,
    (options, budget): (&PlanOptions, &PlanBudget),
    engine: &dyn EngineModel,
) -> Result<PlanFrontier<BudgetPoint>, Diagnostic> {
    // What is missed may take less time to compile.
    if let (Some(memory), None) = (budget.memory, budget.compile_seconds) {
        let known = KnownPoints::within(memory);
        let found = rewritten_plans(f, lossy, options, (engine, known))?;
        if found.within(budget).is_ok() {
            return Ok(found);
        }
    }
    // An error tells the least budget of all.
    budget_frontier(f, lossy, options, engine)
}

/// The frontier of [`budget_frontier`]. Plans that a point of `known` beats are left out; with a budget in `known`, so are plans that it does not choose.
fn rewritten_plans(
    f: &Function,
    lossy: &Lossy,
    options: &PlanOptions,
    (engine, known): (&dyn EngineModel, KnownPoints),
) -> Result<PlanFrontier<BudgetPoint>, Diagnostic> {
    // Plans of all rewrites have most groups in common, and none is measured to the end that a plan of another one beats.
    let engine: &dyn EngineModel = &MemoEngine::new(engine, &options.device);
    let planned = |recovered: &Recovered| -> Result<(Vec<BudgetPoint>, bool), Diagnostic> {
        let narrowed = keep_lossy(&recovered.function, lossy, options, engine)?;
        let (mut all, mut is_coarse) = (Vec::new(), false);
        for (decided, found) in loop_plans(&narrowed.function, options, engine, &known)? {
            let (segmented, recovered) =
                (SegmentedFunction::undivided(f.clone()), recovered.clone());
            let narrowed = narrowed.clone();
            let rewritten = Arc::new(RewrittenFunction { segmented, recovered, narrowed, decided });
            let of = |point| BudgetPoint::new(point, Arc::clone(&rewritten));
            all.extend(found.compact.into_iter().map(of));
            is_coarse |= found.is_coarse;
        }
        Ok((all, is_coarse))
    };
    // What is recovered is found meanwhile.
    let recoveries = || recoveries(f, options, engine);
    let (recovered, all) = beside(f, recoveries, || planned(&unchanged(f)));
    let (mut all, is_coarse) = all?;
    for recovered in recovered.unwrap_or_else(recoveries)? {
        all.extend(planned(&recovered)?.0);
    }
    // Copies with losses, and loops, are decided for the function as a whole.
    if is_coarse && lossy.is_nothing() && WaysBack::of(f).is_empty() {
        for (divided, points) in segment_plans(f, options, engine, &known)? {
            let DividedFunction { segmented, decided } = divided;
            let recovered = unchanged(&segmented.function);
            let narrowed = keep_lossy(&recovered.function, lossy, options, engine)?;
            let rewritten = Arc::new(RewrittenFunction { segmented, recovered, narrowed, decided });
            let of = |point| BudgetPoint::new(point, Arc::clone(&rewritten));
            all.extend(points.into_iter().map(of));
        }
    }
    let FoundPlans { points, compact, .. } = FoundPlans::of(all);
    let of = |p: &BudgetPoint| {
        binding(&p.rewritten.decided.function, &p.point.plan, &options.device, engine)
    };
    let binding = points.first().and_then(of).unwrap_or_default();
    Ok(PlanFrontier { points, compact, binding, func: f.name.clone() })
}

/// Plans of a function with every decision about its loops that is tried.
fn loop_plans(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
    known: &KnownPoints,
) -> Result<Vec<(DecidedLoops, FoundPlans)>, Diagnostic> {
    let ways = WaysBack::of(f);
    let candidates = match ways.is_empty() {
        true => vec![Vec::new()],
        false => ways.candidates(f),
    };
    let planned = |choices: Vec<LoopChoice>| {
        let decided = decided_as(f, &ways, choices)?;
        let found = plans_beside(&decided.function, options, engine, known)?;
        Ok((decided, found))
    };
    let mut all = that_fit(candidates, planned)?;
    if ways.is_empty() || options.effort == Effort::Off {
        return Ok(all);
    }
    // A number of checkpoints changes no plan, but what plans cost. So the plans with few checkpoints and those with
    // plenty of them are measured with numbers in between.
    let mut levels: Vec<(Vec<LoopChoice>, Vec<Plan>)> = Vec::new();
    for (decided, found) in &all {
        for choices in ways.levels(f, &decided.choices) {
            if all.iter().any(|(known, _)| known.choices == choices) {
                continue;
            }
            let plans = found.points.iter().map(|point| &point.plan);
            let at = levels.iter().position(|(known, _)| *known == choices).unwrap_or_else(|| {
                levels.push((choices, Vec::new()));
                levels.len() - 1
            });
            for plan in plans {
                if !levels[at].1.contains(plan) {
                    levels[at].1.push(plan.clone());
                }
            }
        }
    }
    for (choices, plans) in levels {
        let Ok(decided) = decided_as(f, &ways, choices) else { continue };
        let found = measured_as(&decided.function, &plans, options, (engine, known))?;
        all.push((decided, found));
    }
    Ok(all)
}

/// What plans of another number of checkpoints cost with the number that a function has.
fn measured_as(
    f: &Function,
    plans: &[Plan],
    options: &PlanOptions,
    (engine, known): (&dyn EngineModel, &KnownPoints),
) -> Result<FoundPlans, Diagnostic> {
    let evaluator = PlanEvaluator::of(f, options, engine, known)?;
    let (graph, blocks) = (graph_hash(f), block_plans(f, options, engine)?);
    let of = |plan: &Plan| Plan { graph: graph.clone(), blocks: blocks.clone(), ..plan.clone() };
    let plans: Vec<Plan> = plans.iter().map(of).collect();
    let plans: Vec<&Plan> = plans.iter().collect();
    let measured = evaluator.measured_all(&plans, |plan| Ok(plan.clone()));
    let points = measured.into_iter().flatten().filter_map(|costed| costed.point).collect();
    Ok(FoundPlans::of(evaluator.packed(points)?))
}

/// A function as the text of a plan for a budget says that it was rewritten.
///
/// # Errors
/// For lines that say so of what there is not, and as [`keep_lossy`].
pub fn rewritten_as(
    f: &Function,
    text: &str,
    lossy: &Lossy,
    (options, engine): (&PlanOptions, &dyn EngineModel),
) -> Result<RewrittenFunction, Diagnostic> {
    let segmented = segmented_as(f, text)?;
    let (function, choices) = inverted_as(&segmented.function, text)?;
    let recovered = Recovered { function, choices };
    let narrowed = keep_lossy(&recovered.function, lossy, options, engine)?;
    let decided = super::loop_choice::decided_in(&narrowed.function, text)?;
    Ok(RewrittenFunction { segmented, recovered, narrowed, decided })
}

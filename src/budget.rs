//! Plans within a budget of memory and of the time to compile: made, or found in the plan cache.

use crate::fusion::{
    BudgetPoint, Effort, EngineModel, Lossy, Plan, PlanBudget, PlanOptions, PlanPoint,
    PlannedGroups, RewrittenFunction, graph_hash, lower, plan_among, plan_point, plans_within,
    rewritten_as,
};
use crate::ir::{Diagnostic, Function};
use crate::plan_cache::{CachedPlan, Lookup, PlanCache, PlanKey};
use std::sync::Arc;

/// The plan for a budget.
#[derive(Clone, Debug)]
pub struct BudgetChoice {
    /// The plan, with its cost.
    pub point: PlanPoint,
    /// The function that it is of.
    pub rewritten: Arc<RewrittenFunction>,
    /// Predicted seconds of the fastest plan without a budget.
    pub fastest_seconds: f64,
    /// Its peak in bytes.
    pub fastest_peak: u64,
    /// Problems with the plan cache; they do not change the plan.
    pub notes: Vec<String>,
}

/// The fastest plan within a budget of memory and of the time to compile, of a [prepared](crate::fusion::prepare())
/// function and its rewrites: what is on its [frontier](crate::fusion::budget_frontier()), with as many checkpoints of loops as fit. The engine's name tells its plans from those of
/// others. Where plans are kept, the one that was chosen before is taken, and one that is made is kept; a kept plan is
/// measured before it is trusted.
///
/// # Errors
/// As [`plans_within`], and [`Kind::Limit`](crate::ir::Kind::Limit) if no plan is within the budget: the
/// error says what the least one is, and which value is in the way.
pub fn choose(
    f: &Function,
    lossy: &Lossy,
    options: &PlanOptions,
    budget: impl Into<PlanBudget>,
    (engine, name): (&dyn EngineModel, &str),
    cache: Option<&PlanCache>,
) -> Result<BudgetChoice, Diagnostic> {
    let budget = budget.into();
    // One plan alone is made faster than it is found.
    let cache = cache.filter(|_| options.effort != Effort::Off);
    let key = key(f, (options, budget), (engine, name), lossy);
    let mut notes = Vec::new();
    if let Some(cache) = cache {
        let follow = |entry| followed(f, lossy, (options, budget), engine, entry);
        if let Some(choice) = found(cache, &key, &mut notes, follow) {
            return Ok(BudgetChoice { notes, ..choice });
        }
    }
    let frontier = plans_within(f, lossy, (options, &budget), engine)?;
    let chosen = frontier.within(&budget)?.clone();
    let BudgetPoint { point, rewritten } = match budget.memory {
        Some(memory) => chosen.filled(memory, options, engine)?,
        None => chosen,
    };
    let fastest = frontier.fastest().map_or(&point, |fastest| &fastest.point);
    let (fastest_seconds, fastest_peak) = (fastest.seconds, fastest.peak);
    if let Some(cache) = cache {
        let plan = point.plan.text(&rewritten.decided.function);
        notes.extend(keep(cache, &key, &CachedPlan { plan, fastest_seconds, fastest_peak }));
    }
    Ok(BudgetChoice { point, rewritten, fastest_seconds, fastest_peak, notes })
}

/// Instructions from which on a plan without a budget is kept: plans of shorter functions are made faster than they are
/// found.
const WORTH_KEEPING: usize = 64;

/// A plan without a budget.
pub struct FastestPlan {
    /// The plan.
    pub plan: Plan,
    /// What was lowered and packed to find it.
    pub groups: Option<PlannedGroups>,
    /// Problems with the plan cache.
    pub notes: Vec<String>,
}

/// The plan of a [prepared](crate::fusion::prepare()) function without a budget. Where plans are kept, that of a function
/// of 64 instructions and more is taken from there, and kept.
///
/// # Errors
/// As [`plan_for`](crate::fusion::plan_for).
pub fn fastest(
    f: &Function,
    options: &PlanOptions,
    (engine, name): (&dyn EngineModel, &str),
    cache: Option<&PlanCache>,
) -> Result<FastestPlan, Diagnostic> {
    let made = |notes| -> Result<FastestPlan, Diagnostic> {
        let made = plan_among(f, options, engine)?;
        Ok(FastestPlan { groups: made.groups().cloned(), plan: made.plan, notes })
    };
    let worth = f.inst_count() >= WORTH_KEEPING && options.effort >= Effort::Default;
    let Some(cache) = cache.filter(|_| worth) else {
        return made(Vec::new());
    };
    let key = key(f, (options, PlanBudget::default()), (engine, name), &Lossy::default());
    let mut notes = Vec::new();
    let follow = |entry: CachedPlan| {
        let plan = Plan::parse(&entry.plan, f).map_err(|d| d.message)?;
        match plan.fp == options.fp && lower(f, &plan, &options.device).is_ok() {
            true => Ok(plan),
            false => Err("it has no program".into()),
        }
    };
    if let Some(plan) = found(cache, &key, &mut notes, follow) {
        return Ok(FastestPlan { plan, groups: None, notes });
    }
    let mut made = made(notes)?;
    // There is nothing that it is compared with.
    let entry = CachedPlan { plan: made.plan.text(f), fastest_seconds: 0.0, fastest_peak: 0 };
    made.notes.extend(keep(cache, &key, &entry));
    Ok(made)
}

/// What tells a plan from all others.
fn key(
    f: &Function,
    (options, budget): (&PlanOptions, PlanBudget),
    (engine, name): (&dyn EngineModel, &str),
    lossy: &Lossy,
) -> PlanKey {
    let mut counting = match engine.donated() {
        [] => name.to_owned(),
        given => format!("{name} donating {given:?}"),
    };
    if !lossy.is_nothing() {
        counting += &format!(" keeping {lossy:?}");
    }
    PlanKey::new(&graph_hash(f), &counting, options, budget)
}

/// What `follow` makes of a kept plan; why it is made anew is a note.
fn found<T>(
    cache: &PlanCache,
    key: &PlanKey,
    notes: &mut Vec<String>,
    follow: impl FnOnce(CachedPlan) -> Result<T, String>,
) -> Option<T> {
    let why = match cache.find(key) {
        Lookup::Absent => return None,
        Lookup::Spoiled(why) => why,
        Lookup::Found(entry) => match follow(entry) {
            Ok(made) => return Some(made),
            Err(why) => why,
        },
    };
    notes.push(format!("a kept plan is made anew: {why}"));
    None
}

/// Keeps a plan; why it is not, if it isn't.
fn keep(cache: &PlanCache, key: &PlanKey, entry: &CachedPlan) -> Option<String> {
    let e = cache.keep(key, entry).err()?;
    Some(format!("the plan is not kept in `{}`: {e}", cache.folder().display()))
}

/// A cached plan, once it is verified to be one of this function within the budget.
fn followed(
    f: &Function,
    lossy: &Lossy,
    (options, budget): (&PlanOptions, PlanBudget),
    engine: &dyn EngineModel,
    entry: CachedPlan,
) -> Result<BudgetChoice, String> {
    let CachedPlan { plan, fastest_seconds, fastest_peak } = entry;
    let rewritten = rewritten_as(f, &plan, lossy, (options, engine)).map_err(|d| d.message)?;
    let function = &rewritten.decided.function;
    let plan = Plan::parse(&plan, function).map_err(|d| d.message)?;
    let point = plan_point(function, plan, options, engine).map_err(|d| d.message)?;
    if point.plan.donated != engine.donated() {
        return Err("it is for a caller who gives up other inputs".into());
    }
    if point.plan.fp != options.fp {
        return Err(format!("it is for --fp {}", point.plan.fp.name()));
    }
    if !budget.has_room_for(&point) {
        let (peak, ms) = (point.peak, point.compile.seconds * 1e3);
        return Err(format!("it takes {peak} bytes and {ms:.3} ms to compile"));
    }
    let (rewritten, notes) = (Arc::new(rewritten), Vec::new());
    Ok(BudgetChoice { point, rewritten, fastest_seconds, fastest_peak, notes })
}

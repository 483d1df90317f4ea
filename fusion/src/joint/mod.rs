//! Plans under a budget: what is kept for the backward pass and what is computed again, decided for
//! forward and backward together.
//!
//! The plan without a budget says what the groups are, what each leaves for others, and what it takes.
//! Seen as a graph of operations ([`crate::retain`]), schedules trade memory for time; each becomes a
//! plan in which groups recur. Their instructions are grouped anew, so that what is computed again joins
//! its readers, lowered, priced, and their memory packed. What differs from the fastest in one value is tried, too. What is not worse than another in both is the
//! frontier. It does not depend on a budget: a budget picks from it, so that a tighter one never has a
//! higher peak, and a looser one is never slower.

mod again;
mod crossing;
mod decisions;
pub(crate) mod graph;
mod neighbours;
mod single;

use crate::cost::cost;
use crate::device::Device;
use crate::facts::Facts;
use crate::fastest::plan_attempts;
use crate::group::Effort;
use crate::lower::{Holders, belongs, lowered, placed};
use crate::memory::{Memory, memory_beside};
use crate::plan::{Options, Plan, plan_at};
use crate::retain::{FrontierOptions, frontier};
use crate::saved::saved_bytes;
use crate::search::{Predicted, SearchOptions, Space, Uniform, search};
use adfuse_ir::kernel::Program;
use adfuse_ir::{At, Diagnostic, Function, Kind, Value};
pub use again::computed_again;
pub use crossing::{How, Reading};
pub use decisions::{
    Alternative, Choice, Constraint, Decider, Decision, Difference, Why, decisions,
};
pub use graph::steps_of;

use again::{recurring, regrouped};
use graph::GroupGraph;

/// What an engine knows that a plan depends on.
pub trait Engine {
    /// Bytes that each step of a program needs beside the buffers while it runs.
    ///
    /// # Errors
    /// For a program that the engine does not run.
    fn scratch(&self, program: &Program) -> Result<Vec<u64>, Diagnostic> {
        Ok(program.steps.iter().map(|s| program.scratch(s)).collect())
    }

    /// The parameters that the caller gives up, by position: plans use their memory.
    fn donated(&self) -> &[usize] {
        &[]
    }

    /// Bytes at the peak of a program whose memory is planned so: what a budget is compared with. An
    /// engine may hold more than is planned, where it takes whole lines of a cache.
    ///
    /// # Errors
    /// As [`Engine::scratch`].
    fn peak(&self, _program: &Program, memory: &Memory) -> Result<u64, Diagnostic> {
        Ok(memory.peak)
    }
}

/// No engine in particular: steps need what the program says.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyEngine;

impl Engine for AnyEngine {}

/// A plan, and what it takes.
#[derive(Clone, Debug)]
pub struct PlanPoint {
    /// The plan.
    pub plan: Plan,
    /// The most bytes at once: inputs, outputs, constants, and the arena with what steps need.
    pub peak: u64,
    /// Predicted seconds.
    pub seconds: f64,
    /// Bytes that a phase leaves to a later one.
    pub saved: u64,
    /// Values that are computed again, in the order of the function, and how often.
    pub again: Vec<(Value, u32)>,
}

/// What there is to choose from, whatever the budget: peaks rise and seconds fall, both strictly.
#[derive(Clone, Debug)]
pub struct PlanFrontier {
    points: Vec<PlanPoint>,
    /// The largest buffer at the peak moment of the point that takes least.
    binding: String,
    /// The name of the function.
    func: String,
}

impl PlanFrontier {
    /// The points. There is at least one.
    pub fn points(&self) -> &[PlanPoint] {
        &self.points
    }

    /// The point that takes the least time, whatever it holds.
    pub fn fastest(&self) -> Option<&PlanPoint> {
        self.points.last()
    }

    /// The fastest point within a budget, in bytes.
    ///
    /// # Errors
    /// [`Kind::Limit`] if there is none: the error says what the least budget is, and which buffer is
    /// in the way.
    pub fn at(&self, budget: u64) -> Result<&PlanPoint, Diagnostic> {
        let fit = self.points.partition_point(|p| p.peak <= budget);
        fit.checked_sub(1).map(|k| &self.points[k]).ok_or_else(|| {
            let least = self.points.first().map_or(0, |p| p.peak);
            let m = format!(
                "no plan within {budget} bytes was found: the least takes {least}, and `%{}` is the largest \
                 buffer at its peak",
                self.binding
            );
            let at = At { func: Some(self.func.clone()), ..At::default() };
            Diagnostic::new(at, Kind::Limit, m)
        })
    }
}

/// What keeping a value for a later phase is taken to cost beside moving it, as multiples of that: the
/// higher, the more of what elementwise instructions compute is computed again by its readers.
pub(crate) const PRICES: [f64; 3] = [0.0, 4.0, 32.0];

/// Instructions of all candidates together that are lowered and measured, about.
const MEASURED: usize = 40_000;

/// Plans a [prepared](crate::prepare()) function for all budgets at once.
///
/// # Errors
/// As [`plan`](crate::plan()), and those of the engine.
pub fn plan_frontier(
    f: &Function,
    options: &Options,
    engine: &dyn Engine,
) -> Result<PlanFrontier, Diagnostic> {
    let mut points = Vec::new();
    let prices = if options.effort == Effort::Off { &PRICES[..1] } else { &PRICES };
    let most = (MEASURED / prices.len() / f.inst_count().max(1)).clamp(16, 48);
    let mut bases: Vec<Plan> = Vec::new();
    for (_, point) in plan_attempts(f, options, engine)? {
        points.push(point);
    }
    for &price in prices {
        let base = plan_at(f, options, price)?;
        if bases.contains(&base) {
            continue;
        }
        let (point, program) = measured(f, base.clone(), options, engine)?;
        points.push(point);
        bases.push(base.clone());
        if options.effort == Effort::Off {
            continue;
        }
        let mut facts = Facts::of(f, true)?;
        base.inline.iter().for_each(|&i| facts.set_free(i));
        let graph = GroupGraph::of(&facts, &base, &program, &options.device).map_err(|e| {
            let at = At { func: Some(f.name.clone()), ..At::default() };
            Diagnostic::new(at, Kind::Limit, e.to_string())
        })?;
        let wanted = FrontierOptions { points: Some(most), ..FrontierOptions::default() };
        for point in frontier(&graph.graph, &wanted).points() {
            let (plan, again) = recurring(&facts, &base, &graph, &point.schedule);
            if !again.contains(&true) {
                continue;
            }
            let joined = regrouped(f, &plan, &again, options, price)?;
            for plan in [Some(plan), joined].into_iter().flatten() {
                // Parts of a group need not be a group; then the other plan is there.
                if let Ok((point, _)) = measured(f, plan, options, engine) {
                    points.push(point);
                }
            }
        }
    }
    let mut found = chosen(f, points, options, engine);
    if options.effort >= Effort::Default
        && let Some(fastest) = found.fastest()
    {
        let more = single::decided_otherwise(f, fastest, options, engine)?;
        found = chosen(f, [found.points, more].concat(), options, engine);
    }
    match options.effort {
        Effort::Search => bettered(f, found, options, engine),
        _ => Ok(found),
    }
}

/// A frontier with what a search finds from each of its points within the point's peak.
fn bettered(
    f: &Function,
    found: PlanFrontier,
    options: &Options,
    engine: &dyn Engine,
) -> Result<PlanFrontier, Diagnostic> {
    let space = Space::new(f, options, engine, &Predicted)?;
    let all = SearchOptions::default();
    let steps = all.steps / found.points.len().max(1) as u32;
    let mut points = Vec::new();
    for point in found.points {
        let wanted = SearchOptions { steps, budget: Some(point.peak), ..all };
        let better = search(&space, &point.plan, &wanted, &mut Uniform::new(wanted.seed));
        if let Some(better) = better.filter(|b| b.price != b.began) {
            points.push(measured(f, better.plan, options, engine)?.0);
        }
        points.push(point);
    }
    Ok(chosen(f, points, options, engine))
}

/// A plan of a [prepared](crate::prepare()) function, and what it takes.
///
/// # Errors
/// As [`lower`](crate::lower()), and those of the engine.
pub fn plan_point(
    f: &Function,
    plan: Plan,
    options: &Options,
    engine: &dyn Engine,
) -> Result<PlanPoint, Diagnostic> {
    belongs(f, &plan)?;
    measured(f, plan, options, engine).map(|(point, _)| point)
}

/// A plan with what it takes, and its program.
pub(crate) fn measured(
    f: &Function,
    plan: Plan,
    options: &Options,
    engine: &dyn Engine,
) -> Result<(PlanPoint, Program), Diagnostic> {
    let (point, program, _) = measured_at(f, plan, options, engine)?;
    Ok((point, program))
}

/// As [`measured`], with the buffers that values are in.
fn measured_at(
    f: &Function,
    plan: Plan,
    options: &Options,
    engine: &dyn Engine,
) -> Result<(PlanPoint, Program, Holders), Diagnostic> {
    let plan = match engine.donated() {
        [] => plan,
        given => plan.donating(given),
    };
    let (program, holders) = placed(f, &plan, &options.device)?;
    let seconds = cost(&program, &options.device).seconds;
    let memory = memory_beside(&program, options.effort, &engine.scratch(&program)?)?;
    let peak = engine.peak(&program, &memory)?;
    let saved = saved_bytes(f, &plan)?;
    let again = computed_again(f, &plan);
    Ok((PlanPoint { plan, peak, seconds, saved, again }, program, holders))
}

/// The points that no other is better than.
fn chosen(
    f: &Function,
    mut points: Vec<PlanPoint>,
    options: &Options,
    engine: &dyn Engine,
) -> PlanFrontier {
    points.sort_by(|a, b| a.peak.cmp(&b.peak).then(a.seconds.total_cmp(&b.seconds)));
    let mut best: Vec<PlanPoint> = Vec::new();
    for point in points {
        if best.last().is_none_or(|last| point.seconds < last.seconds) {
            best.push(point);
        }
    }
    let binding = best.first().and_then(|p| binding(f, &p.plan, &options.device, engine));
    PlanFrontier { points: best, binding: binding.unwrap_or_default(), func: f.name.clone() }
}

/// The largest buffer at the moment at which a plan takes most.
fn binding(f: &Function, plan: &Plan, device: &Device, engine: &dyn Engine) -> Option<String> {
    let program = lowered(f, plan, device).ok()?;
    let scratch = engine.scratch(&program).ok()?;
    crate::memory::binding(&program, &scratch)
}

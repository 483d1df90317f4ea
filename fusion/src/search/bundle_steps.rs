//! Plans that are bundled, linked or else lowered, and their steps as far as bundling depends on them.

use super::point::{LinkedPlan, PlanPoint, PricedPlan, priced};
use crate::lower::group_memo::BufferUses;
use crate::lower::linked::LinkBase;
use crate::lower::steps::step_ranges;
use crate::memory::engine::EngineModel;
use crate::plan::Plan;
use crate::plan::options::{Effort, PlanOptions};
use adfuse_ir::kernel::{Buffer, BufferData, Kernel, Program, Sink, Step, Storage};
use adfuse_ir::{Diagnostic, Function};
use cranelift_entity::PrimaryMap;

/// A plan with its time, linked or else lowered.
pub(super) enum TimedPlan<'b, 'f> {
    Linked(&'b LinkBase<'f>, Box<LinkedPlan>),
    Lowered(Box<PricedPlan>),
}

/// What plans are made for.
pub(super) type PlanningFor<'a> = (&'a PlanOptions, &'a dyn EngineModel);

impl<'b, 'f> TimedPlan<'b, 'f> {
    /// `None` for a plan that has no program.
    pub(super) fn of(
        base: Option<&'b LinkBase<'f>>,
        (f, plan): (&Function, &Plan),
        (options, engine): PlanningFor<'_>,
    ) -> Option<TimedPlan<'b, 'f>> {
        if let Some(base) = base
            && let Some(linked) = LinkedPlan::of(base, plan, options, engine)
        {
            return Some(TimedPlan::Linked(base, Box::new(linked)));
        }
        let priced = priced(f, plan.clone(), options, engine).ok()?;
        Some(TimedPlan::Lowered(Box::new(priced)))
    }

    pub(super) fn plan(&self) -> &Plan {
        match self {
            TimedPlan::Linked(_, plan) => plan.plan(),
            TimedPlan::Lowered(plan) => plan.plan(),
        }
    }

    pub(super) fn seconds(&self) -> f64 {
        match self {
            TimedPlan::Linked(_, plan) => plan.seconds,
            TimedPlan::Lowered(plan) => plan.seconds,
        }
    }

    /// Bytes that the plan takes at the least, however its memory is planned.
    pub(super) fn least_peak(&self) -> u64 {
        match self {
            TimedPlan::Linked(_, plan) => plan.least_peak(),
            TimedPlan::Lowered(plan) => plan.least_peak(),
        }
    }

    /// Bytes at the peak where memory is planned quickly.
    pub(super) fn quick_peak(&self, (options, engine): PlanningFor<'_>) -> Option<u64> {
        match self {
            TimedPlan::Linked(_, plan) => plan.peak(options.effort.min(Effort::Quick), engine).ok(),
            TimedPlan::Lowered(plan) => plan.quick_peak(options, engine).ok(),
        }
    }

    /// The plan with its memory planned with the wanted effort.
    ///
    /// # Errors
    /// Those of the engine.
    pub(super) fn measured(
        self,
        f: &Function,
        (options, engine): PlanningFor<'_>,
    ) -> Result<PlanPoint, Diagnostic> {
        match self {
            TimedPlan::Linked(base, plan) => plan.measured(base, options, engine),
            TimedPlan::Lowered(plan) => Ok(plan.measured(f, options, engine)?.point),
        }
    }

    /// Seconds that shared launches save at the most: one launch stays of all elementwise kernels for which a launch counts.
    pub(super) fn launches_saved(&self, launch_s: f64) -> f64 {
        let short = self.steps().into_iter().filter(|&step| is_short(step, launch_s)).count();
        short.saturating_sub(1) as f64 * launch_s
    }

    /// Seconds of all elementwise kernels for which a launch counts: shared launches take no more off a plan, whatever they keep busy.
    pub(super) fn short_seconds(&self, launch_s: f64) -> f64 {
        let short = self.steps().into_iter().filter(|&step| is_short(step, launch_s));
        short.map(|(_, _, seconds)| seconds).sum()
    }

    /// The steps, each in a program that has its buffers, with their seconds.
    fn steps(&self) -> Vec<(&Program, &Step, f64)> {
        match self {
            TimedPlan::Linked(_, plan) => plan.steps().collect(),
            TimedPlan::Lowered(plan) => plan.steps().collect(),
        }
    }

    /// The steps of the groups of its plan, donations apart.
    pub(super) fn bundle_steps(&self, plan: &Plan, launch_s: f64) -> BundleSteps<'_> {
        let all = self.steps();
        let is_short: Vec<bool> = all.iter().map(|&step| is_short(step, launch_s)).collect();
        let steps: Vec<&Step> = all.into_iter().map(|(_, step, _)| step).collect();
        let (program, uses): (&Program, Vec<BufferUses>) = match self {
            TimedPlan::Linked(_, plan) => (plan.frame(), plan.uses().collect()),
            TimedPlan::Lowered(plan) => {
                (plan.program(), steps.iter().copied().map(BufferUses::of).collect())
            }
        };
        let mut uses = uses.into_iter();
        let (mut groups, mut short) = (Vec::new(), Vec::new());
        for steps in step_ranges(plan, &steps) {
            short.push(steps.len() == 1 && is_short[steps.start]);
            groups.push(uses.by_ref().take(steps.len()).collect());
        }
        BundleSteps { buffers: &program.buffers, groups, short }
    }
}

/// What a launch costs, over the time of a kernel from which on it is not worth saving.
const WORTH: f64 = 0.05;

/// The steps of a plan's groups.
pub(super) struct BundleSteps<'p> {
    pub(super) buffers: &'p PrimaryMap<Buffer, BufferData>,
    /// For each group the buffers that its steps touch, step by step.
    pub(super) groups: Vec<Vec<BufferUses>>,
    /// Which groups are one elementwise kernel for which a launch counts.
    pub(super) short: Vec<bool>,
}

/// Whether a step is an elementwise kernel for which a launch counts.
fn is_short((program, step, seconds): (&Program, &Step, f64), launch_s: f64) -> bool {
    matches!(step, Step::Kernel(kernel) if is_elementwise(program, kernel))
        && launch_s > WORTH * seconds
}

/// Whether a kernel has one stage, which stores elements at its points: engines have one way to run these.
fn is_elementwise(program: &Program, kernel: &Kernel) -> bool {
    let stores = |sink: &Sink| match sink {
        Sink::Store { buffer, .. } => program.buffers[*buffer].storage == Storage::Plain,
        _ => false,
    };
    let [stage] = kernel.stages.as_slice() else { return false };
    stage.axes.is_empty() && stage.sinks.iter().all(stores) && !kernel.domain.contains(&0)
}

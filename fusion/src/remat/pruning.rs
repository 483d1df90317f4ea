//! What the plans of a frontier cost. Most plans are dropped before their memory is planned, since another one is known to
//! be better by then, and few are lowered: their programs are linked from groups that other plans have.
//!
//! Memory is planned twice. Each plan has its peak from quick packing, which is rarely a hundredth above that of a search.
//! When all plans are known, those that may be on the frontier are packed with the wanted effort.

use crate::lower::linked::LinkBase;
use crate::memory::engine::EngineModel;
use crate::plan::Plan;
use crate::plan::options::{Effort, PlanOptions};
use crate::search::parallel::each;
use crate::search::point::{LinkedPlan, PlanPoint, measured, priced};
use adfuse_ir::{Diagnostic, Function};
use std::sync::{Mutex, PoisonError};

/// What is known of the points of a frontier so far. Threads share it, and functions whose plans are chosen from together; which of them comes first changes what is measured
/// and not what the frontier is, since what is dropped is beaten by what stays.
#[derive(Default)]
pub(super) struct KnownPoints {
    points: Mutex<Vec<KnownPoint>>,
    /// The bytes of the one budget that is asked for; `None` where the whole frontier is.
    budget: Option<u64>,
}

#[derive(Clone, Copy)]
struct KnownPoint {
    peak: u64,
    seconds: f64,
    compile: f64,
}

impl KnownPoint {
    fn of(point: &PlanPoint) -> KnownPoint {
        let PlanPoint { peak, seconds, compile, .. } = point;
        KnownPoint { peak: *peak, seconds: *seconds, compile: compile.seconds }
    }

    /// Whether a point beats every plan that takes at least this memory, time and time to compile.
    fn beats(&self, least: &KnownPoint) -> bool {
        self.peak <= least.peak && self.seconds < least.seconds && self.compile <= least.compile
    }
}

impl KnownPoints {
    /// For one budget in bytes.
    pub(super) fn within(budget: u64) -> KnownPoints {
        KnownPoints { budget: Some(budget), ..KnownPoints::default() }
    }

    fn add(&self, new: KnownPoint) {
        let mut known = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.iter().any(|point| point.beats(&new)) {
            known.retain(|point| !new.beats(point));
            known.push(new);
        }
    }

    /// Whether a point beats a plan by so much memory that a search for a better packing of it is in vain.
    fn beat_clearly(&self, new: &KnownPoint) -> bool {
        self.beat(&KnownPoint { peak: new.peak - new.peak / SEARCHED_GAIN, ..*new })
    }

    /// Whether a point beats every plan that takes at least this.
    fn beat(&self, least: &KnownPoint) -> bool {
        let known = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().any(|point| point.beats(least))
    }
}

/// What a search takes off a quick packing is less than this part of it, as far as a frontier is concerned.
const SEARCHED_GAIN: u64 = 32;

/// Measures the plans of a function that a frontier is chosen from.
pub(crate) struct PlanEvaluator<'a> {
    f: &'a Function,
    options: &'a PlanOptions,
    engine: &'a dyn EngineModel,
    /// `None` where plans of the function are not linked.
    base: Option<LinkBase<'a>>,
    known: &'a KnownPoints,
}

/// A plan on the way to its cost.
enum EvaluatedPlan {
    /// What it costs, as far as that was wanted.
    Costed(Box<CostedPlan>),
    /// It is linked, and its memory is not planned.
    Linked(Box<LinkedPlan>),
}

/// What a plan costs.
pub(super) struct CostedPlan {
    /// Predicted seconds.
    pub(super) seconds: f64,
    /// What it takes at the least: bytes at the peak where memory was planned.
    pub(super) peak: u64,
    /// What it takes however its memory is planned.
    least_peak: u64,
    /// Seconds to compile it.
    compile: f64,
    /// `None` where a known point beats it.
    pub(super) point: Option<PlanPoint>,
}

impl<'a> PlanEvaluator<'a> {
    /// For plans of a function and an engine, beside points that are known already: those of other functions, too, if
    /// plans of either may be chosen.
    ///
    /// # Errors
    /// For what has no lowering.
    pub(super) fn of(
        f: &'a Function,
        options: &'a PlanOptions,
        engine: &'a dyn EngineModel,
        known: &'a KnownPoints,
    ) -> Result<PlanEvaluator<'a>, Diagnostic> {
        let base = LinkBase::of(f)?;
        Ok(PlanEvaluator { f, options, engine, base, known })
    }

    /// What plans are linked from, where they are.
    pub(super) fn base(&self) -> Option<&LinkBase<'a>> {
        self.base.as_ref()
    }

    /// The bytes of the one budget that is asked for; `None` where the whole frontier is.
    pub(super) fn budget(&self) -> Option<u64> {
        self.known.budget
    }

    /// Notes a point, which the frontier is chosen from.
    pub(super) fn add(&self, point: &PlanPoint) {
        self.known.add(KnownPoint::of(point));
    }

    /// The points that may be on the frontier, once all have been added, with their memory planned with the wanted effort.
    ///
    /// # Errors
    /// Those of the engine.
    pub(super) fn packed(&self, points: Vec<PlanPoint>) -> Result<Vec<PlanPoint>, Diagnostic> {
        let near: Vec<PlanPoint> = points
            .into_iter()
            .filter(|point| !self.known.beat_clearly(&KnownPoint::of(point)))
            .collect();
        let packed = each(&near, |point| match point.is_packed {
            true => Ok(point.clone()),
            false => self.searched(&point.plan),
        });
        packed.into_iter().collect()
    }

    /// A plan with its memory planned with the wanted effort, whatever is known.
    ///
    /// # Errors
    /// As [`lower`](crate::lower()), and those of the engine.
    pub(super) fn searched(&self, plan: &Plan) -> Result<PlanPoint, Diagnostic> {
        let PlanEvaluator { f, options, engine, base, .. } = self;
        let linked = |base| Some((base, LinkedPlan::of(base, plan, options, *engine)?));
        match base.as_ref().and_then(linked) {
            Some((base, linked)) => linked.measured(base, options, *engine),
            None => Ok(measured(f, plan.clone(), options, *engine)?.point),
        }
    }

    /// The cost of a plan; `None` where a known point beats it.
    ///
    /// # Errors
    /// As [`lower`](crate::lower()), and those of the engine.
    pub(super) fn measured(&self, plan: &Plan) -> Result<Option<PlanPoint>, Diagnostic> {
        let costed = match self.evaluated(plan)? {
            EvaluatedPlan::Costed(costed) => Some(*costed),
            EvaluatedPlan::Linked(plan) => self.planned(*plan)?,
        };
        Ok(costed.and_then(|costed| costed.point))
    }

    /// The cost of each plan, or of what `instead` makes of one that has none; `None` for what has no cost even then. All
    /// are priced before memory is planned, and the fastest come first: no plan is beaten by a slower one.
    pub(super) fn measured_all(
        &self,
        plans: &[&Plan],
        instead: impl Fn(&Plan) -> Result<Plan, Diagnostic> + Sync,
    ) -> Vec<Option<CostedPlan>> {
        let evaluated = each(plans, |plan| {
            let other = |_| self.evaluated(&instead(plan)?);
            let made = self.evaluated(plan).or_else(other).ok()?;
            if let EvaluatedPlan::Costed(costed) = &made {
                costed.point.iter().for_each(|point| self.add(point));
            }
            Some(made)
        });
        let mut found: Vec<Option<CostedPlan>> = plans.iter().map(|_| None).collect();
        let mut linked = Vec::new();
        for (k, evaluated) in evaluated.into_iter().enumerate() {
            match evaluated {
                Some(EvaluatedPlan::Costed(costed)) => found[k] = Some(*costed),
                Some(EvaluatedPlan::Linked(plan)) => linked.push((k, Mutex::new(Some(plan)))),
                None => {}
            }
        }
        let seconds = |of: &Mutex<Option<Box<LinkedPlan>>>| {
            let plan = of.lock().unwrap_or_else(PoisonError::into_inner);
            plan.as_ref().map_or(0.0, |plan| plan.seconds)
        };
        linked.sort_by(|(_, a), (_, b)| seconds(a).total_cmp(&seconds(b)));
        let made = each(&linked, |(k, plan)| {
            let plan = plan.lock().unwrap_or_else(PoisonError::into_inner).take();
            let costed = self.planned(*plan?).ok()??;
            costed.point.iter().for_each(|point| self.add(point));
            Some((*k, costed))
        });
        made.into_iter().flatten().for_each(|(k, costed)| found[k] = Some(costed));
        // What comes back does not depend on which of two plans was measured first.
        found.iter_mut().flatten().for_each(|costed| self.compare(costed));
        found
    }

    /// Compares a plan with all that is known now.
    fn compare(&self, costed: &mut CostedPlan) {
        if self.known.beat(&costed.at(costed.least_peak)) {
            (costed.peak, costed.point) = (costed.least_peak, None);
        } else if self.known.beat_clearly(&costed.at(costed.peak)) {
            costed.point = None;
        }
    }

    /// A plan with its time. What is lowered has its memory planned at once: programs are large.
    fn evaluated(&self, plan: &Plan) -> Result<EvaluatedPlan, Diagnostic> {
        let PlanEvaluator { f, options, engine, base, .. } = self;
        let linked = base.as_ref().and_then(|base| LinkedPlan::of(base, plan, options, *engine));
        if let Some(linked) = linked {
            return Ok(EvaluatedPlan::Linked(Box::new(linked)));
        }
        let priced = priced(f, plan.clone(), options, *engine)?;
        let (seconds, compile) = (priced.seconds, priced.compile.seconds);
        let mut costed = CostedPlan::of(seconds, compile, priced.least_peak());
        if !self.known.beat(&costed.at(costed.peak)) {
            costed.peak = priced.quick_peak(options, *engine)?;
            if !self.known.beat_clearly(&costed.at(costed.peak)) {
                costed.point = Some(priced.quick_point(f, costed.peak)?);
            }
        }
        Ok(EvaluatedPlan::Costed(Box::new(costed)))
    }

    /// The cost of a linked plan.
    fn planned(&self, plan: LinkedPlan) -> Result<Option<CostedPlan>, Diagnostic> {
        let Some(base) = &self.base else { return Ok(None) };
        let mut costed = CostedPlan::of(plan.seconds, plan.compile.seconds, plan.least_peak());
        if !self.known.beat(&costed.at(costed.peak)) {
            costed.peak = plan.peak(self.options.effort.min(Effort::Quick), self.engine)?;
            if !self.known.beat_clearly(&costed.at(costed.peak)) {
                costed.point = Some(plan.point(base, costed.peak)?);
            }
        }
        Ok(Some(costed))
    }
}

impl CostedPlan {
    /// A plan whose memory is not planned.
    fn of(seconds: f64, compile: f64, least_peak: u64) -> CostedPlan {
        CostedPlan { seconds, peak: least_peak, least_peak, compile, point: None }
    }

    /// The point of the plan with some peak.
    fn at(&self, peak: u64) -> KnownPoint {
        KnownPoint { peak, seconds: self.seconds, compile: self.compile }
    }
}

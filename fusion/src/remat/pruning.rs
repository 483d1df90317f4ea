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
pub(super) struct KnownPoints(Mutex<Vec<KnownPoint>>);

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
    fn add(&self, new: KnownPoint) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    /// What it costs; `None` where a known point beats it.
    Point(Box<Option<PlanPoint>>),
    /// It is linked, and its memory is not planned.
    Linked(Box<LinkedPlan>),
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

    /// Notes a point, which the frontier is chosen from.
    pub(super) fn add(&self, point: &PlanPoint) {
        self.known.add(KnownPoint::of(point));
    }

    /// The points that may be on the frontier, once all have been added, with their memory planned with the wanted effort.
    ///
    /// # Errors
    /// Those of the engine.
    pub(super) fn packed(&self, points: Vec<PlanPoint>) -> Result<Vec<PlanPoint>, Diagnostic> {
        let PlanEvaluator { f, options, engine, base, known } = self;
        let near: Vec<PlanPoint> = points
            .into_iter()
            .filter(|point| !known.beat_clearly(&KnownPoint::of(point)))
            .collect();
        let packed = each(&near, |point| {
            if point.is_packed {
                return Ok(point.clone());
            }
            let linked =
                base.as_ref().and_then(|b| LinkedPlan::of(b, &point.plan, options, *engine));
            let Some(linked) = linked else {
                return Ok(measured(f, point.plan.clone(), options, *engine)?.point);
            };
            let peak = linked.peak(options.effort, *engine)?;
            Ok(PlanPoint { peak, is_packed: true, ..point.clone() })
        });
        packed.into_iter().collect()
    }

    /// The cost of a plan; `None` where a known point beats it.
    ///
    /// # Errors
    /// As [`lower`](crate::lower()), and those of the engine.
    pub(super) fn measured(&self, plan: &Plan) -> Result<Option<PlanPoint>, Diagnostic> {
        match self.evaluated(plan)? {
            EvaluatedPlan::Point(point) => Ok(*point),
            EvaluatedPlan::Linked(plan) => self.planned(*plan),
        }
    }

    /// The cost of each plan, or of what `instead` makes of one that has none; `None` where a known point beats it, and for
    /// what has no cost even then. All are priced before memory is planned, and the fastest come first: no plan is
    /// beaten by a slower one.
    pub(super) fn measured_all(
        &self,
        plans: &[&Plan],
        instead: impl Fn(&Plan) -> Result<Plan, Diagnostic> + Sync,
    ) -> Vec<Option<PlanPoint>> {
        let evaluated = each(plans, |plan| {
            let other = |_| self.evaluated(&instead(plan)?);
            let made = self.evaluated(plan).or_else(other).ok()?;
            if let EvaluatedPlan::Point(point) = &made {
                point.iter().for_each(|point| self.add(point));
            }
            Some(made)
        });
        let mut found: Vec<Option<PlanPoint>> = plans.iter().map(|_| None).collect();
        let mut linked = Vec::new();
        for (k, evaluated) in evaluated.into_iter().enumerate() {
            match evaluated {
                Some(EvaluatedPlan::Point(point)) => found[k] = *point,
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
            let point = self.planned(*plan?).ok()??;
            self.add(&point);
            Some((*k, point))
        });
        made.into_iter().flatten().for_each(|(k, point)| found[k] = Some(point));
        found
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
        if self.known.beat(&KnownPoint { peak: priced.least_peak(), seconds, compile }) {
            return Ok(EvaluatedPlan::Point(Box::new(None)));
        }
        let peak = priced.quick_peak(options, *engine)?;
        if self.known.beat_clearly(&KnownPoint { peak, seconds, compile }) {
            return Ok(EvaluatedPlan::Point(Box::new(None)));
        }
        Ok(EvaluatedPlan::Point(Box::new(Some(priced.quick_point(f, peak)?))))
    }

    /// The cost of a linked plan; `None` where a known point beats it.
    fn planned(&self, plan: LinkedPlan) -> Result<Option<PlanPoint>, Diagnostic> {
        let Some(base) = &self.base else { return Ok(None) };
        let (seconds, compile) = (plan.seconds, plan.compile.seconds);
        let point = |peak: u64| KnownPoint { peak, seconds, compile };
        if self.known.beat(&point(plan.least_peak())) {
            return Ok(None);
        }
        let peak = plan.peak(self.options.effort.min(Effort::Quick), self.engine)?;
        if self.known.beat_clearly(&point(peak)) {
            return Ok(None);
        }
        Ok(Some(plan.point(base, peak)?))
    }
}

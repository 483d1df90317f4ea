//! A plan's decision for each value that crosses phases, with its alternative.
//!
//! The alternative is a plan that differs in this decision alone. It is made, lowered, priced and packed, and the
//! differences are reported.

use super::crossing::{Reading, ValueSource, phase_of};
use super::residual_decision::{
    Alternative, Constraint, Decision, Difference, NoAlternative, ResidualChoice,
};
use super::value_changes::ValueChanges;
use crate::analysis::float_range::FloatRanges;
use crate::analysis::recomputation::is_kept;
use crate::fuse::greedy::narrow;
use crate::lower::steps::steps_of;
use crate::memory::engine::{EngineModel, MemoEngine};
use crate::memory::peak::fullest;
use crate::memory::residuals::{bytes, storage};
use crate::plan::Plan;
use crate::plan::options::PlanOptions;
use crate::prepass::inverse::{inverse_of, ranges_for};
use crate::search::parallel::each;
use crate::search::point::{MeasuredPlan, PlanPoint, measured};
use adfuse_ir::kernel::Storage;
use adfuse_ir::op::{Accuracy, Inverse};
use adfuse_ir::{Diagnostic, Fp, Function, Inst, Value, ValueDef};
use cranelift_entity::EntitySet;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Evaluates the decisions of a plan, one value after the other.
pub struct Decider<'a> {
    f: &'a Function,
    plan: &'a Plan,
    options: &'a PlanOptions,
    budget: Option<u64>,
    engine: &'a dyn EngineModel,
    changes: ValueChanges<'a>,
    /// What is known of floats, once something asks.
    floats: OnceLock<Option<FloatRanges<'a>>>,
    point: PlanPoint,
    at_peak: EntitySet<Value>,
    peak_group: Option<usize>,
}

/// What a plan of a prepared function decides for every value that crosses phases: parameters first, then
/// in the order of the function. A value crosses where a group needs it for an instruction of a later
/// phase, which reads it, or reads what is computed again from it. What an instruction reads from memory is
/// needed for the first phase that needs the instruction.
///
/// # Errors
/// As [`lower`](crate::lower()), and those of the engine.
pub fn decisions(
    f: &Function,
    plan: &Plan,
    options: &PlanOptions,
    budget: Option<u64>,
    engine: &dyn EngineModel,
) -> Result<Vec<Decision>, Diagnostic> {
    // Plans that differ in one decision have nearly all groups in common.
    let engine = MemoEngine::new(engine, &options.device);
    Decider::of(f, plan, options, budget, &engine)?.decisions()
}

impl<'a> Decider<'a> {
    /// Weighs a plan of a prepared function.
    ///
    /// # Errors
    /// As [`decisions`].
    pub fn of(
        f: &'a Function,
        plan: &'a Plan,
        options: &'a PlanOptions,
        budget: Option<u64>,
        engine: &'a dyn EngineModel,
    ) -> Result<Decider<'a>, Diagnostic> {
        crate::lower::belongs(f, plan)?;
        let made = measured(f, plan.clone(), options, engine)?;
        let MeasuredPlan { point, program, holders, .. } = made;
        let (mut at_peak, mut peak_group) = (EntitySet::new(), None);
        if let Some(moment) = fullest(&program, &engine.scratch(&program)?) {
            let there = |v: &Value| holders[*v].iter().any(|b| moment.there.contains(b));
            at_peak.extend(holders.keys().filter(there));
            peak_group = steps_of(plan, &program).iter().position(|s| s.contains(&moment.step));
        }
        let changes = ValueChanges::of(f, plan)?;
        Ok(Decider {
            f,
            plan,
            options,
            budget,
            engine,
            changes,
            floats: OnceLock::new(),
            point,
            at_peak,
            peak_group,
        })
    }

    /// The values that cross phases.
    pub fn values(&self) -> &[Value] {
        &self.changes.crossing.values
    }

    /// The groups that need a value for later phases, and how each gets it.
    pub fn readings(&self, v: Value) -> &[Reading] {
        self.changes.readings(v)
    }

    /// The group that runs when most bytes are in use; `None` where no group does.
    pub fn peak_group(&self) -> Option<usize> {
        self.peak_group
    }

    /// The cost of the plan.
    pub fn point(&self) -> &PlanPoint {
        &self.point
    }

    /// What was decided for every value that crosses phases, in the order of [`Decider::values`].
    ///
    /// # Errors
    /// As [`decisions`].
    pub fn decisions(&self) -> Result<Vec<Decision>, Diagnostic> {
        let made = each(self.values(), |&v| self.decision(v)).into_iter();
        made.filter_map(Result::transpose).collect()
    }

    /// What was decided for a value; `None` for one that does not cross phases.
    ///
    /// # Errors
    /// As [`decisions`].
    pub fn decision(&self, v: Value) -> Result<Option<Decision>, Diagnostic> {
        let readings = self.changes.readings(v);
        if readings.is_empty() {
            return Ok(None);
        }
        let choice = self.changes.choice(v);
        let other = self.other(v, &choice)?;
        Ok(Some(self.decided(v, choice, other)))
    }

    /// As [`Decider::decisions`], but alternatives are made and priced for at most `most` values: those that are stored
    /// first, and of them those of the most bytes. Each takes about as long as to lower the plan. `classes` has a number for
    /// each of [`Decider::values`]; the values of one class that are decided alike are priced once, for the one in the middle.
    /// Further values have [`Alternative::NotPriced`].
    ///
    /// # Errors
    /// As [`decisions`].
    pub fn decisions_within(
        &self,
        classes: &[usize],
        most: usize,
    ) -> Result<Vec<Decision>, Diagnostic> {
        let unpriced = |&v: &Value| {
            let choice = self.changes.choice(v);
            self.decided(v, choice, Alternative::NotPriced)
        };
        let all: Vec<Decision> = self.values().iter().map(unpriced).collect();
        // Sets of values that are priced once, by their first members.
        let mut alike: Vec<Vec<usize>> = Vec::new();
        let mut sets: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (k, &class) in classes.iter().enumerate().take(all.len()) {
            let of_class = sets.entry(class).or_default();
            match of_class.iter().find(|&&set| is_alike(&all[alike[set][0]], &all[k])) {
                Some(&set) => alike[set].push(k),
                None => {
                    of_class.push(alike.len());
                    alike.push(vec![k]);
                }
            }
        }
        // What has no alternative takes no time.
        let (mut free, mut priced): (Vec<_>, Vec<_>) =
            alike.into_iter().partition(|set| has_no_alternative(&all[set[0]].choice));
        priced.sort_by_key(|set| {
            let bytes: u64 = set.iter().map(|&k| all[k].bytes).fold(0, u64::saturating_add);
            (all[set[0]].saved == 0, Reverse(bytes))
        });
        priced.truncate(most);
        priced.append(&mut free);
        let made = each(&priced, |set| {
            let like = &all[set[set.len() / 2]];
            let other = self.other(like.value, &like.choice);
            other.map(|other| (set.clone(), like.value, other))
        });
        let mut found = all;
        for made in made {
            let (set, like, other) = made?;
            let is_priced = matches!(other, Alternative::Keep(_) | Alternative::Remat(_));
            for k in set {
                let (v, choice) = (found[k].value, found[k].choice.clone());
                let decided = self.decided(v, choice, other.clone());
                let priced_for = (is_priced && v != like).then_some(like);
                found[k] = Decision { priced_for, ..decided };
            }
        }
        Ok(found)
    }

    /// The decision for a value whose alternative is known.
    fn decided(&self, v: Value, choice: ResidualChoice, other: Alternative) -> Decision {
        let readings = self.changes.readings(v);
        let mut forms = storage(self.plan);
        // What is not stored would be so in its narrowest form.
        if !readings.iter().any(|r| {
            matches!(r.how, ValueSource::Memory | ValueSource::Again { .. } | ValueSource::Given)
        }) {
            forms[v] = narrow(&self.changes.forms.facts, &self.changes.forms.ranges, v)
                .unwrap_or(Storage::Plain);
        }
        Decision {
            value: v,
            phase: phase_of(self.f, v),
            readings: readings.to_vec(),
            bytes: bytes(&self.changes.forms.facts, &forms, v).unwrap_or(u64::MAX),
            saved: self.changes.crossing.saved[v],
            at_peak: self.at_peak.contains(v),
            bound: self.bound(v, &choice, &other),
            choice,
            other,
            priced_for: None,
        }
    }

    /// What else could be decided.
    fn other(&self, v: Value, choice: &ResidualChoice) -> Result<Alternative, Diagnostic> {
        let make: fn(Difference) -> Alternative = match choice {
            ResidualChoice::Parameter => return Ok(Alternative::None(NoAlternative::Parameter)),
            ResidualChoice::Constant => return Ok(Alternative::None(NoAlternative::Constant)),
            ResidualChoice::Output => return Ok(Alternative::None(NoAlternative::Output)),
            ResidualChoice::Save | ResidualChoice::Compress { .. } | ResidualChoice::Lossy(_) => {
                Alternative::Remat
            }
            ResidualChoice::Remat { .. } | ResidualChoice::Shared => Alternative::Keep,
        };
        let (mut best, mut refused): (Option<PlanPoint>, Option<String>) = (None, None);
        for made in self.tried(v, choice)? {
            match made {
                Ok(point) if best.as_ref().is_none_or(|b| self.before(&point, b, choice)) => {
                    best = Some(point);
                }
                Ok(_) => {}
                Err(d) => {
                    refused.get_or_insert(d.message);
                }
            }
        }
        Ok(match best {
            None => Alternative::None(NoAlternative::Refused(refused.unwrap_or_default())),
            Some(b) => make(Difference::between(b, &self.point)),
        })
    }

    /// The plans that differ in a value alone, and what each takes or what is in its way.
    fn tried(
        &self,
        v: Value,
        choice: &ResidualChoice,
    ) -> Result<Vec<Result<PlanPoint, Diagnostic>>, Diagnostic> {
        let price = |plan| {
            let plan = self.changes.forms.given(self.f, plan)?;
            Ok(measured(self.f, plan, self.options, self.engine)?.point)
        };
        Ok(self.changes.plans(v, choice)?.into_iter().map(price).collect())
    }

    /// Whether one alternative to a choice comes before another: within the budget first, then what does
    /// what it is for, then faster, then smaller.
    fn before(&self, a: &PlanPoint, b: &PlanPoint, choice: &ResidualChoice) -> bool {
        let over = |p: &PlanPoint| self.budget.is_some_and(|budget| p.peak > budget);
        // To compute one value again in order to keep another as large frees nothing.
        let kept = matches!(
            choice,
            ResidualChoice::Save | ResidualChoice::Compress { .. } | ResidualChoice::Lossy(_)
        );
        let vain = |p: &PlanPoint| kept && p.saved >= self.point.saved && p.peak >= self.point.peak;
        let first = (over(a), vain(a)).cmp(&(over(b), vain(b)));
        let times = a.seconds.total_cmp(&b.seconds);
        first.then(times).then((a.peak, a.saved).cmp(&(b.peak, b.saved))).is_lt()
    }

    /// What settles a decision.
    fn bound(&self, v: Value, choice: &ResidualChoice, other: &Alternative) -> Constraint {
        if matches!(self.f.def(v), ValueDef::Inst(i, _) if is_kept(self.f, i)) {
            return Constraint::Checkpoint;
        }
        let d = match other {
            Alternative::None(_) => return Constraint::Legality,
            Alternative::NotPriced => return Constraint::NotPriced,
            Alternative::Keep(d) | Alternative::Remat(d) => d,
        };
        if matches!(choice, ResidualChoice::Save | ResidualChoice::Compress { .. })
            && let Some((of, allowed)) = self.inverted(v)
        {
            return Constraint::Exactness { of, allowed };
        }
        // Sums of the same times in another order need not be equal.
        let alike = ALIKE * self.point.seconds;
        if d.seconds > alike {
            return Constraint::Time;
        }
        let peak = i128::from(self.point.peak) + i128::from(d.peak);
        let over = self.budget.map_or(0, |b| peak - i128::from(b));
        match u64::try_from(over) {
            Ok(over) if over > 0 => Constraint::Budget { over },
            _ if d.seconds < -LEAST_GAIN * self.point.seconds => Constraint::Search,
            _ if d.peak < 0 || d.peak == 0 && d.saved < 0 => Constraint::Search,
            _ if d.seconds < -alike => Constraint::Slight,
            _ => Constraint::Bytes,
        }
    }

    /// A value that is kept too, of which this one could be made if rounding did not matter, and whether a mode lets it.
    fn inverted(&self, v: Value) -> Option<(Value, bool)> {
        let f = self.f;
        let users = self.changes.forms.facts.users[v].iter();
        let operand = |&&u: &&Inst| Some((u, f.args(u).iter().position(|&a| a == v)?));
        let loose = Fp::Reproducible;
        let floats = || self.floats.get_or_init(|| ranges_for(f, loose));
        let held = |at: (Inst, usize)| inverse_of(f, at, loose, floats()).is_some();
        let rounds = |&(u, k): &(Inst, usize)| {
            let ty = f.ty(v).dtype;
            let mut stated = f.op(u).inverses().iter().filter(|inverse| inverse.operand == k);
            let near = |i: &Inverse| i.accuracy != Accuracy::Exact && i.accepts(ty, ty);
            // Of two operands one may have lost the other.
            stated.any(near) && (f.args(u).len() == 1 || held((u, k)))
        };
        let mut made = users.filter_map(|u| operand(&u)).filter(rounds);
        let kept = |y: &Value| {
            let memory = self.changes.readings(*y).iter().any(|r| r.how == ValueSource::Memory);
            memory || self.f.results().contains(y)
        };
        let (u, k) = made.find(|&(u, _)| kept(&f.inst_results(u)[0]))?;
        Some((f.inst_results(u)[0], self.options.fp == Fp::Strict && held((u, k))))
    }
}

/// Whether what one value's alternative costs holds for another one of its class.
fn is_alike(a: &Decision, b: &Decision) -> bool {
    std::mem::discriminant(&a.choice) == std::mem::discriminant(&b.choice)
        && (a.at_peak, a.saved) == (b.at_peak, b.saved)
}

/// Whether nothing else can be decided.
fn has_no_alternative(choice: &ResidualChoice) -> bool {
    matches!(choice, ResidualChoice::Parameter | ResidualChoice::Constant | ResidualChoice::Output)
}

/// The part of a plan's time that is not looked for, in the decision about one value.
pub(crate) const LEAST_GAIN: f64 = 2e-4;

/// The part of a plan's time by which others differ that count as as fast.
pub(crate) const ALIKE: f64 = 1e-9;

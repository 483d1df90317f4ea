//! The step as a rank compiles it: whether the optimizer's state is divided is decided here, by what is asked for and by the budget.

use super::definition::{ResultTarget, StepDefinition, TracedStep};
use super::objective::Objective;
use super::parallel::{BUCKETS, Division};
use super::sharding::{OptimizerSharding, RankRequest, RankStep, ShardingReport};
use crate::backends::ranks::AXIS;
use crate::device::Device;
use crate::engine::{PlannedFunction, Session};
use crate::fusion::exchange_seconds;
use crate::ir::rewrite::{
    ShardedSums, ShardedTensor, StatePair, StateSharding, joined_exchanges, sharded,
};
use crate::ir::{Diagnostic, Fp, Kind, Module};
use crate::nn::Param;
use crate::trace::{Tensor, Traced};
use crate::tree::Params;
use std::sync::Arc;

/// Tensors of fewer bytes are not divided: that would save nothing that counts, and each is sent.
const DIVIDED_BYTES: u64 = 64 << 10;

impl<M: Params<Param>, B: Params<Tensor>, R: Objective> StepDefinition<M, B, R> {
    /// The step as it is compiled for a rank: with the optimizer's state divided or whole, and small exchanges joined.
    ///
    /// # Errors
    /// Those of plans, and of rewrites; [`Kind::Limit`] where the budget is too small for both.
    pub(super) fn rank_step(
        &self,
        device: &Device,
        traced: &TracedStep<R>,
        (division, request): (Division, RankRequest<'_>),
    ) -> Result<RankStep, Diagnostic> {
        if division.ranks() == 1 {
            return Ok(RankStep { f: traced.f.clone(), sharding: None, plan: None });
        }
        let whole = joined(&traced.f)?;
        if let Some(report) = request.divided {
            let f = joined(&traced.f.with_function(sharded(&traced.f, &report.decision)?))?;
            return Ok(RankStep { f, sharding: Some(Arc::clone(report)), plan: None });
        }
        let whole = RankStep { f: whole, sharding: None, plan: None };
        let asked = match request.sharding {
            OptimizerSharding::Never => return Ok(whole),
            OptimizerSharding::Always => true,
            OptimizerSharding::Auto if device.budget().is_free() => return Ok(whole),
            OptimizerSharding::Auto => false,
        };
        let decision = self.divisible(device, traced, division);
        if decision.is_empty() {
            return Ok(whole);
        }
        let f = joined(&traced.f.with_function(sharded(&traced.f, &decision)?))?;
        let (reason, plan) = if asked {
            ("it was asked for".to_string(), None)
        } else {
            let donated = self.donated(&traced.targets);
            let decided = within_budget(device, &donated, [&whole.f, &f])?;
            match decided.divided {
                Some(reason) => (reason, Some(decided.plan)),
                None => return Ok(RankStep { plan: Some(decided.plan), ..whole }),
            }
        };
        let name = |t: &ShardedTensor| traced.f.name_of(traced.f.params()[t.param]);
        let names = decision.tensors.iter().filter_map(name).map(str::to_string).collect();
        let report = ShardingReport {
            names,
            saved_bytes: decision.saved_bytes(&traced.f),
            exchange_seconds: exchange_seconds(&f, device.machine_model())?,
            whole_exchange_seconds: exchange_seconds(&whole.f, device.machine_model())?,
            reason,
            decision,
        };
        Ok(RankStep { f, sharding: Some(Arc::new(report)), plan })
    }

    /// The tensors that ranks can divide.
    fn divisible(
        &self,
        device: &Device,
        traced: &TracedStep<R>,
        division: Division,
    ) -> StateSharding {
        let first_result = 1 + traced.aux_count;
        let mut kept = self.params.len()..;
        let pair = |(k, &target): (usize, &ResultTarget)| {
            let param = match target {
                ResultTarget::Param(param) => Some(param),
                ResultTarget::Kept => kept.next(),
                ResultTarget::Steps => None,
            };
            param.map(|param| StatePair { param, result: first_result + k })
        };
        let bytes = |pair: &StatePair| traced.f.ty(traced.f.params()[pair.param]).bytes();
        let pairs = traced.targets.iter().enumerate().filter_map(pair);
        let pairs = pairs.filter(|pair| bytes(pair).is_some_and(|bytes| bytes >= DIVIDED_BYTES));
        let pairs: Vec<StatePair> = pairs.collect();
        let sums = match device.mode() {
            Fp::Strict => ShardedSums::InOrder,
            _ => ShardedSums::ByRank,
        };
        StateSharding::of(&traced.f, (AXIS, division.ranks()), sums, &pairs)
    }
}

/// A step with small exchanges joined.
fn joined(f: &Traced) -> Result<Traced, Diagnostic> {
    Ok(f.with_function(joined_exchanges(f, BUCKETS)?))
}

/// What the budget decided.
struct BudgetDecision {
    /// Why state is divided; `None` where whole state is better.
    divided: Option<String>,
    /// The plan within the budget.
    plan: PlannedFunction,
}

/// By how much a step with divided state may be slower than the fastest with whole state would be without a budget, and be taken without
/// a plan of whole state within the budget, which cannot be faster than that: such plans take longer than all else.
const NEARLY: f64 = 1.02;

/// Plans the step with whole state and with divided state within the budget, and takes the faster.
///
/// # Errors
/// [`Kind::Limit`] where neither fits.
fn within_budget(
    device: &Device,
    donated: &[usize],
    [whole, divided]: [&Traced; 2],
) -> Result<BudgetDecision, Diagnostic> {
    let (budget, session) = (device.budget(), device.session(donated)?);
    let fits = |plan: &PlannedFunction| budget.has_room_for(&plan.point);
    let planned = |session: &Session, f: &Traced| {
        session.planned_function(&Module::from(f.clone()), f.function())
    };
    let mut free = session.clone();
    (free.settings.mem_budget, free.settings.compile_budget) = (None, None);
    let fastest = planned(&free, whole)?;
    if fits(&fastest) {
        return Ok(BudgetDecision { divided: None, plan: fastest });
    }
    let least = fastest.point.seconds;
    let is_near = |plan: &PlannedFunction| plan.point.seconds <= least * NEARLY;
    let why = "the budget is too small for the fastest step with whole state";
    let other = planned(&free, divided)?;
    if fits(&other) && is_near(&other) {
        return Ok(BudgetDecision { divided: Some(why.into()), plan: other });
    }
    let other = match planned(&session, divided) {
        Ok(plan) if is_near(&plan) => {
            return Ok(BudgetDecision { divided: Some(why.into()), plan });
        }
        Err(d) if d.kind != Kind::Limit => return Err(d),
        other => other,
    };
    match (planned(&session, whole), other) {
        (Ok(whole), Ok(plan)) if plan.point.seconds < whole.point.seconds => {
            let [own, whole] = [&plan, &whole].map(|plan| plan.point.seconds * 1e3);
            let why = format!(
                "a step within the budget takes {own:.3} ms in place of {whole:.3} (predicted)"
            );
            Ok(BudgetDecision { divided: Some(why), plan })
        }
        (Ok(plan), _) => Ok(BudgetDecision { divided: None, plan }),
        (Err(d), Ok(plan)) if d.kind == Kind::Limit => {
            let why = "the budget is too small for whole state".into();
            Ok(BudgetDecision { divided: Some(why), plan })
        }
        // Where neither fits, the error says the least that would do: that of divided state.
        (Err(d), Err(divided)) if d.kind == Kind::Limit => {
            Err(divided.hint("that is with the optimizer's state divided among the ranks"))
        }
        (Err(d), _) => Err(d),
    }
}

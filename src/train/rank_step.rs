//! The step as a rank compiles it: whether the optimizer's state is divided is decided here, by what is asked for and by the budget.

use super::definition::{ResultTarget, StepDefinition, TracedStep};
use super::objective::Objective;
use super::parallel::{BUCKETS, Division};
use super::sharding::{OptimizerSharding, RankRequest, RankStep, ShardingReport};
use crate::backends::ranks::AXIS;
use crate::device::Device;
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
            return Ok(RankStep { f: traced.f.clone(), sharding: None });
        }
        let whole = joined(&traced.f)?;
        if let Some(report) = request.divided {
            let f = joined(&traced.f.with_function(sharded(&traced.f, &report.decision)?))?;
            return Ok(RankStep { f, sharding: Some(Arc::clone(report)) });
        }
        let whole = RankStep { f: whole, sharding: None };
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
        let reason = match asked {
            true => "it was asked for".to_string(),
            false => {
                let donated = self.donated(&traced.targets);
                match reason(device, &donated, [&whole.f, &f])? {
                    Some(reason) => reason,
                    None => return Ok(whole),
                }
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
        Ok(RankStep { f, sharding: Some(Arc::new(report)) })
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

/// Why a budget asks for divided state: the step with whole state does not fit, or takes longer within the budget. `None`
/// where the whole state is better.
fn reason(
    device: &Device,
    donated: &[usize],
    [whole, divided]: [&Traced; 2],
) -> Result<Option<String>, Diagnostic> {
    let session = device.session(donated)?;
    let planned = |f: &Traced| session.planned_point(&Module::from(f.clone()), f.function());
    let refused = match planned(whole) {
        Ok(point) => match device.budget().has_room_for(&device.fastest(donated, whole)?) {
            true => return Ok(None),
            false => Ok(point),
        },
        Err(d) if d.kind == Kind::Limit => Err(d),
        Err(d) => return Err(d),
    };
    let other = match (planned(divided), &refused) {
        (Ok(point), _) => point,
        // Neither fits: what is said is about the whole state, which users know.
        (Err(d), Err(first)) if d.kind == Kind::Limit => return Err(first.clone()),
        (Err(d), Ok(_)) if d.kind == Kind::Limit => return Ok(None),
        (Err(d), _) => return Err(d),
    };
    Ok(match refused {
        Err(_) => Some("the budget is too small for whole state".into()),
        Ok(point) if other.seconds < point.seconds => {
            let [own, whole] = [other.seconds, point.seconds].map(|s| s * 1e3);
            Some(format!(
                "a step within the budget takes {own:.3} ms in place of {whole:.3} (predicted)"
            ))
        }
        Ok(_) => None,
    })
}

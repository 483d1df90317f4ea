//! Whether the optimizer's state is divided among ranks (ZeRO-1), and the arrays of tensors that are.
//!
//! The decision is [`StateSharding`], which a rewrite of the step carries out. Here it is taken, by what is asked for and by the
//! budget, and tensors go from whole ones to parts and back: files and callers have whole ones.

use super::definition::{ResultTarget, StepDefinition, TracedStep};
use super::objective::Objective;
use super::parallel::Division;
use crate::backends::Array;
use crate::backends::ranks::AXIS;
use crate::device::Device;
use crate::fusion::exchange_seconds;
use crate::ir::kernel::ExchangeKind;
use crate::ir::rewrite::{
    ShardedSums, ShardedTensor, StatePair, StateSharding, joined_exchanges, sharded,
};
use crate::ir::{At, Diagnostic, Fp, Kind, Module, TensorType};
use crate::nn::Param;
use crate::trace::{Tensor, Traced};
use crate::tree::Params;
use std::fmt;
use std::sync::Arc;

/// Tensors of fewer bytes are not divided: that would save nothing that counts, and each is sent.
const DIVIDED_BYTES: u64 = 64 << 10;

/// Whether the ranks of a training step divide the optimizer's state among them (ZeRO-1): each keeps and updates a part of the
/// tensors, and sends its part of the new parameters to the others.
///
/// Tensors are divided that have at least 64 KiB and whose next values are computed element by element, as those of
/// [`Adam`](crate::optim::Adam), [`Lion`](crate::optim::Lion) and [`Sgd`](crate::optim::Sgd) are. In mixed precision the `f32` parameters are
/// divided too, and gathered in 16 bits. In strict mode no bit of a step changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OptimizerSharding {
    /// Where the device has a budget that the whole state does not fit in, or within which a step with divided state is predicted to
    /// be faster.
    #[default]
    Auto,
    /// On any number of ranks but one.
    Always,
    /// Never.
    Never,
}

/// What is divided, and what that changes.
#[derive(Clone, PartialEq, Debug)]
pub struct ShardingReport {
    /// The decision.
    pub decision: StateSharding,
    /// The names of the parameters of the step's program that are divided.
    pub names: Vec<String>,
    /// The bytes that each rank does not keep.
    pub saved_bytes: u64,
    /// The predicted seconds of a step's exchanges.
    pub exchange_seconds: f64,
    /// The predicted seconds of a step's exchanges without the decision.
    pub whole_exchange_seconds: f64,
    /// Why it was taken.
    pub reason: String,
}

/// A sentence of what is divided, what it saves, and what it costs.
impl fmt::Display for ShardingReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n, ranks, kib) = (self.names.len(), self.decision.ranks, self.saved_bytes >> 10);
        let [own, whole] = [self.exchange_seconds, self.whole_exchange_seconds].map(|s| s * 1e3);
        write!(
            out,
            "{n} tensors of the optimizer are divided among {ranks} ranks: {kib} KiB fewer on each, exchanges of {own:.3} ms in place of {whole:.3} (predicted); {}",
            self.reason
        )
    }
}

/// What a step of leaves is asked for, beside its definition.
#[derive(Clone, Copy)]
pub(super) struct RankRequest<'a> {
    pub(super) leaves: u32,
    pub(super) sharding: OptimizerSharding,
    /// What is divided already, which stays so.
    pub(super) divided: Option<&'a Arc<ShardingReport>>,
}

/// A step as it is compiled.
pub(super) struct RankStep {
    pub(super) f: Traced,
    pub(super) sharding: Option<Arc<ShardingReport>>,
}

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
    Ok(f.with_function(joined_exchanges(f, super::parallel::BUCKETS)?))
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

/// Tensors of a state on the ranks of a device.
pub(super) struct StateTensors<'a> {
    pub(super) device: &'a Device,
    pub(super) ranks: u32,
}

impl StateTensors<'_> {
    /// What this process keeps of a whole tensor: its part, or the parts of all ranks that it simulates, one a row.
    ///
    /// # Errors
    /// [`Kind::Limit`] where there is no memory for a copy.
    pub(super) fn divided(&self, whole: &Array, t: ShardedTensor) -> Result<Array, Diagnostic> {
        let (dtype, part) = (whole.dtype(), t.part(self.ranks));
        let bytes = (part * dtype.bytes()) as usize;
        let (first, count) = match self.device.simulated() {
            1 => (self.device.group().rank() as usize, 1),
            ranks => (0, ranks as usize),
        };
        let all = whole.bytes();
        let [from, to] = [first, first + count].map(|rank| (rank * bytes).min(all.len()));
        let mut own = all[from..to].to_vec();
        own.resize(count * bytes, 0);
        match self.device.simulated() {
            1 => Array::from_le_bytes(dtype, &[part], &own),
            ranks => Array::from_le_bytes(dtype, &[ranks.into(), part], &own),
        }
    }

    /// The whole tensor of what the ranks keep. All of them ask for it.
    ///
    /// # Errors
    /// [`Kind::LostRank`] when a rank is gone.
    pub(super) fn whole(&self, own: &Array, ty: &TensorType) -> Result<Array, Diagnostic> {
        let dims = ty.dims().unwrap_or_default();
        let bytes = ty.bytes().unwrap_or(0) as usize;
        let all;
        let parts = match self.device.group().communicator() {
            Some(communicator) => {
                let mut gathered = vec![0; own.bytes().len() * self.ranks as usize];
                communicator.exchange(ExchangeKind::AllGather, own.bytes(), &mut gathered)?;
                all = gathered;
                all.as_slice()
            }
            None => own.bytes(),
        };
        let first = parts.get(..bytes).ok_or_else(|| {
            Diagnostic::new(At::default(), Kind::Internal, "the parts of a tensor are too short")
        })?;
        Array::from_le_bytes(ty.dtype, &dims, first)
    }
}

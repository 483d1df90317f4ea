//! Whether the optimizer's state is divided among ranks (ZeRO-1), and the arrays of tensors that are.
//!
//! The decision is [`StateSharding`], which a rewrite of the step carries out. Tensors go from whole ones to parts and back here: files and
//! callers have whole ones.

use crate::backends::Array;
use crate::device::Device;
use crate::engine::PlannedFunction;
use crate::ir::kernel::ExchangeKind;
use crate::ir::rewrite::{ShardedTensor, StateSharding};
use crate::ir::{At, Diagnostic, Kind, TensorType};
use crate::trace::Traced;
use std::fmt;
use std::sync::Arc;

/// Whether the ranks of a training step divide the optimizer's state among them (ZeRO-1): each keeps and updates a part of the
/// tensors, and sends its part of the new parameters to the others.
///
/// Tensors are divided that have at least 64 KiB and whose next values are computed element by element, as those of
/// [`Adam`](crate::optim::Adam), [`Lion`](crate::optim::Lion) and [`Sgd`](crate::optim::Sgd) are. In mixed precision the `f32` parameters are
/// divided too, and gathered in 16 bits. In strict mode no bit of a step changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OptimizerSharding {
    /// Where the device has a budget that the fastest step with whole state does not fit in, if a step with divided state fits and is
    /// predicted to be as fast, within 2 %, or faster than what fits with whole state.
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
    /// The plan that the decision was taken by.
    pub(super) plan: Option<PlannedFunction>,
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

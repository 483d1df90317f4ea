//! The time of exchanges between ranks.

use crate::plan::machine_model::MachineModel;
use adfuse_ir::kernel::{Exchange, ExchangeKind};
use adfuse_ir::rewrite::with_exchanges;
use adfuse_ir::{Diagnostic, Function, Inst, Op};

/// Predicted seconds of the exchanges between ranks of a function, one after the other.
///
/// # Errors
/// Where an extent is not known.
pub fn exchange_seconds(f: &Function, device: &MachineModel) -> Result<f64, Diagnostic> {
    let f = with_exchanges(f.clone())?;
    let seconds = |&i: &Inst| {
        let kind = match f.op(i) {
            Op::AllGather => ExchangeKind::AllGather,
            Op::AllToAll => ExchangeKind::AllToAll,
            Op::Broadcast => ExchangeKind::Broadcast { root: 0 },
            _ => return 0.0,
        };
        let bytes = f.inst_results(i).first().and_then(|&v| f.ty(v).bytes()).unwrap_or(0);
        link_s(kind, f.attrs(i).int("ranks") as u32, bytes, device)
    };
    Ok(f.body_insts().iter().map(seconds).sum())
}

/// Seconds in which a rank is given what it gets of others, of a result of this many bytes.
pub(super) fn exchange_s(exchange: &Exchange, bytes: u64, device: &MachineModel) -> f64 {
    link_s(exchange.kind, exchange.ranks, bytes, device)
}

fn link_s(kind: ExchangeKind, ranks: u32, bytes: u64, device: &MachineModel) -> f64 {
    let ranks = f64::from(ranks.max(1));
    let others = match kind {
        ExchangeKind::Index => return 0.0,
        // Each rank hands on what it is given.
        ExchangeKind::Broadcast { .. } => 1.0,
        ExchangeKind::AllGather | ExchangeKind::AllToAll => (ranks - 1.0) / ranks,
    };
    device.link_s + bytes as f64 * others / device.link_bytes_per_s
}

//! A contraction whose sums are stored, as it is run.

use super::shape::volume;
use super::tiling::{ProductTiling, TileDecision};
use super::work::Lowering;
use adfuse_ir::kernel::{Buffer, Member};
use adfuse_ir::{At, Diagnostic, Kind};

/// Steps of the depth that are counted in 32 bits.
const MOST_STEPS: i64 = 1 << 30;

/// A product with its tiles, and memory for the sums of parts where the depth is split.
pub(crate) struct ScheduledProduct {
    pub(crate) member: Member,
    pub(crate) decision: TileDecision,
    pub(crate) tiling: ProductTiling,
    pub(crate) parts: Option<Buffer>,
}

/// A product as it is run.
///
/// # Errors
/// [`Kind::Limit`] for depths that no launch counts.
pub(crate) fn scheduled(
    low: &mut Lowering,
    member: Member,
    decision: TileDecision,
) -> Result<ScheduledProduct, Diagnostic> {
    let m = &member;
    let tiling = ProductTiling::new(&low.program, m, &decision);
    if tiling.steps > MOST_STEPS {
        let m = format!("a sum of {} products is more than a launch counts", volume(&m.depth));
        return Err(Diagnostic::new(At::default(), Kind::Limit, m));
    }
    let parts = (tiling.parts > 1).then(|| {
        let (batch, rows, cols) = (volume(&m.batch), volume(&m.rows), volume(&m.cols));
        let dims = [tiling.parts, batch, rows, cols].into_iter().collect();
        low.temp(m.sum, dims)
    });
    Ok(ScheduledProduct { member, decision, tiling, parts })
}

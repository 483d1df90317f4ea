//! What programs are scheduled for.

use crate::gpu::target::GpuTarget;
use crate::runtime::functions::Registry;
use adfuse_ir::Fp;
use adfuse_ir::kernel::ProductTimes;

/// What a schedule depends on beside the program.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleContext<'f> {
    /// What is launched on.
    pub target: GpuTarget,
    /// What may happen to numbers.
    pub fp: Fp,
    /// The user functions, for programs that call any.
    pub functions: Option<&'f Registry>,
    /// Times of products that were measured, by which tiles are chosen before prices.
    pub products: Option<&'f ProductTimes>,
}

impl ScheduleContext<'_> {
    /// For programs that call no user functions.
    pub fn new(target: GpuTarget, fp: Fp) -> ScheduleContext<'static> {
        ScheduleContext { target, fp, functions: None, products: None }
    }
}

//! From a verified program to the launches of a GPU, with no driver there.

use super::schedule::library_split::{DivisionContext, divided};
use super::schedule::{GpuSchedule, ScheduleContext, schedule_but};
use super::target::GpuTarget;
use adfuse_ir::kernel::{ProductTimes, Program, Verified};
use adfuse_ir::{At, Diagnostic, Fp, Kind};

/// What a device of this version of the instruction set is given.
pub(crate) fn target((major, minor): (u32, u32)) -> Result<GpuTarget, Diagnostic> {
    GpuTarget::of_capability(major, minor).ok_or_else(|| {
        let m = format!("no code is made for GPUs of compute capability {major}.{minor}");
        Diagnostic::new(At::default(), Kind::Unsupported, m)
    })
}

/// Whether code can be made for devices of this compute capability.
pub fn has_code_for((major, minor): (u32, u32)) -> bool {
    GpuTarget::of_capability(major, minor).is_some()
}

/// Adds the program's name to an error that has none.
pub(crate) fn within(program: &Program) -> impl Fn(Diagnostic) -> Diagnostic {
    |mut d| {
        d.at.func.get_or_insert_with(|| program.name.clone());
        d
    }
}

/// What a device of this compute capability runs, with none there and where no library multiplies: the program as the
/// engine divides it, and its schedule, with tiles by times of products that were measured.
///
/// # Errors
/// [`Kind::Unsupported`] for what has no lowering, with the step, and for devices older than every target.
pub fn schedule_for(
    program: &Verified<Program>,
    compute: (u32, u32),
    fp: Fp,
    products: &ProductTimes,
) -> Result<(Verified<Program>, GpuSchedule), Diagnostic> {
    let target = target(compute)?;
    let context = DivisionContext { fp, target: &target, library: false, products };
    let program = divided(program, context)?.program;
    let context = ScheduleContext { products: Some(products), ..ScheduleContext::new(target, fp) };
    let made = schedule_but(&program, context, &[]).map_err(within(&program))?;
    Ok((program, made))
}

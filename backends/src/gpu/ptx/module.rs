//! Printing: what each piece of a program's work becomes as PTX text.

use super::entry::Out;
use crate::gpu::launches::{Module, StepCode};
use crate::gpu::schedule::work::{Lowering, Work};
use crate::gpu::target::Target;
use adfuse_ir::kernel::{Program, Verified};
use adfuse_ir::{At, Diagnostic, Fp};

/// Makes PTX of a program.
///
/// # Errors
/// Where a step has no lowering to PTX ([`adfuse_ir::Kind::Unsupported`]) or outgrows what a launch can have; the error
/// names the step.
pub fn compile(program: &Verified<Program>, target: Target, fp: Fp) -> Result<Module, Diagnostic> {
    compile_but(program, target, fp, &[])
}

/// The same without the steps for which `done` says that something else does them: they have no launches.
///
/// # Errors
/// As [`compile`].
pub fn compile_but(
    program: &Verified<Program>,
    target: Target,
    fp: Fp,
    done: &[bool],
) -> Result<Module, Diagnostic> {
    let mut low = Lowering::new(program, fp);
    let mut out = Out::new(target, fp);
    let within = |mut d: Diagnostic, step: Option<usize>| {
        let inst = step.and_then(|n| Some(format!("step {n}: {}", program.steps.get(n)?.title())));
        d.at = At { func: Some(program.name.clone()), inst: inst.or(d.at.inst), ..At::default() };
        d
    };
    out.prefix = "enter".to_owned();
    let works = low.copies(true).and_then(|works| made(&mut low, &mut out, works));
    let enter = works.map_err(|d| within(d, None))?;
    let mut steps = Vec::new();
    for (n, step) in program.steps.iter().enumerate() {
        if done.get(n) == Some(&true) {
            steps.push(StepCode::default());
            continue;
        }
        out.prefix = format!("s{n}_{}", spelled(step.name()));
        let works = low.step(step).and_then(|works| made(&mut low, &mut out, works));
        steps.push(works.map_err(|d| within(d, Some(n)))?);
    }
    out.prefix = "leave".to_owned();
    let works = low.copies(false).and_then(|works| made(&mut low, &mut out, works));
    let leave = works.map_err(|d| within(d, None))?;
    Ok(Module { text: out.module(), enter, steps, leave })
}

/// Launches of the work of one step.
fn made(low: &mut Lowering, out: &mut Out, works: Vec<Work>) -> Result<StepCode, Diagnostic> {
    out.entries = 0;
    for work in works {
        match work {
            Work::Flat(flat) => crate::gpu::ptx::fold::flat(low, out, &flat)?,
            Work::Rows(kernel) => crate::gpu::ptx::rows::rows(low, out, &kernel)?,
            Work::Join(join) => crate::gpu::ptx::tree_fold::join(low, out, &join)?,
            Work::Scan(scan) => crate::gpu::ptx::scan::scan(low, out, &scan)?,
            Work::Pack { from, to } => crate::gpu::ptx::pack::pack(low, out, from, to)?,
            Work::Product(member) => crate::gpu::ptx::matmul::product(low, out, &member)?,
            Work::Scatter(scatter) => crate::gpu::ptx::scatter::scatter(low, out, &scatter)?,
            Work::Sort(sort) => crate::gpu::ptx::sort::sort(low, out, &sort)?,
        }
    }
    Ok(StepCode { launches: std::mem::take(&mut out.launches), scratch: low.ended()? })
}

/// A name as entry points may have it.
fn spelled(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    name.chars().take(40).map(plain).collect()
}

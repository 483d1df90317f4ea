//! Errors with the step in which they occurred.

use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::Program;

/// The diagnostic with the step it is about.
pub(crate) fn within(mut d: Diagnostic, program: &Program, step: Option<usize>) -> Diagnostic {
    if d.at.func.is_none() {
        d.at.func = Some(program.name.clone());
    }
    if let Some((n, step)) = step.and_then(|n| Some((n, program.steps.get(n)?))) {
        d.at.inst.get_or_insert_with(|| format!("step {n}: {}", step.title()).into());
    }
    d
}

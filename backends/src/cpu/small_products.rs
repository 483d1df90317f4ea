//! Contractions of few products: sweeps that compute a sum in a register each, rather than matrices that are packed and
//! multiplied. Dividing a product into tiles takes longer than so few products do.

use super::kernel::compile::CompileContext;
use super::steps::CompiledStep;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::{Bundle, Contract, Kernel, Sink, unrolled};

impl CompileContext<'_> {
    /// A contraction of which every member has few products; `None` for others.
    pub(super) fn small_products(
        &mut self,
        step: &Contract,
    ) -> Result<Option<CompiledStep>, Diagnostic> {
        let kernels: Option<Vec<Kernel>> =
            step.members.iter().map(|m| unrolled(&step.name, m)).collect();
        let Some(kernels) = kernels else { return Ok(None) };
        let made = match kernels.as_slice() {
            [kernel] => CompiledStep::Kernel(self.kernel(kernel, None)?),
            // Kernels of a bundle do not fold over their points.
            all if all.iter().any(folds) => return Ok(None),
            _ => {
                let bundle = Bundle { name: step.name.clone(), kernels };
                CompiledStep::Bundle(self.bundle(&bundle)?)
            }
        };
        self.note_swept_products();
        Ok(Some(made))
    }
}

fn folds(kernel: &Kernel) -> bool {
    let sinks = kernel.stages.iter().flat_map(|s| &s.sinks);
    sinks.into_iter().any(|sink| matches!(sink, Sink::Fold { .. }))
}

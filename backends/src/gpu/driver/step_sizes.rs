//! The sizes of single steps: what each is divided into and the memory that this needs, whatever program it is in. Plans that
//! are compared have most steps in common.

use super::block_memory::reads_again;
use super::engine::GpuEngine;
use super::executable::reported;
use super::place::Places;
use super::prepare::{step_scratch, tuned};
use crate::gpu::launches::{PtxModule, StepCode};
use crate::gpu::schedule::ScheduleContext;
use crate::gpu::schedule::library_split::{DivisionContext, SplitProgram, split};
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::backend::{StepDivision, StepSizing};
use adfuse_ir::kernel::{Program, Step};
use adfuse_ir::{At, Diagnostic, Fp, Kind};

impl StepSizing for GpuEngine {
    fn scratch(&self, program: &Program) -> Result<Vec<u64>, Diagnostic> {
        let (steps, origin) = self.alone(program)?;
        // Steps that one is divided into run one after the other.
        let mut scratch = vec![0; program.steps.len()];
        for (&origin, &bytes) in origin.iter().zip(&steps.scratch) {
            if let Some(most) = scratch.get_mut(origin) {
                *most = bytes.max(*most);
            }
        }
        Ok(scratch)
    }

    fn peak(&self, buffers: &Program, layout: &ArenaLayout) -> Result<u64, Diagnostic> {
        let (enter, leave) = (StepCode::default(), StepCode::default());
        let (text, users, concurrent, steps) = Default::default();
        let module = PtxModule { text, users, concurrent, enter, steps, leave };
        let needed = |place: &Option<(u64, u64)>| place.map_or(0, |(_, bytes)| bytes);
        let needed: Vec<u64> = layout.scratch.iter().map(needed).collect();
        let places = Places::new(buffers, layout, &module, &needed, 0)?;
        Ok(reported(buffers, &places, layout).peak())
    }

    fn divides(&self) -> bool {
        true
    }

    fn divided(&self, program: &Program) -> Result<Option<StepDivision>, Diagnostic> {
        Ok(Some(self.alone(program)?.0))
    }
}

impl GpuEngine {
    /// What some steps are divided into, with the number of the step that each is made of.
    ///
    /// # Errors
    /// Where a whole program with these steps is not divided step by step, beside those of scheduling.
    fn alone(&self, program: &Program) -> Result<(StepDivision, Vec<usize>), Diagnostic> {
        let GpuEngine { device, options, functions, products, forms, .. } = self;
        if program
            .steps
            .iter()
            .any(|step| matches!(step, Step::Library(_)) || !step.blocks().is_empty())
        {
            return Err(as_whole());
        }
        let target = device.target()?;
        let asks = options.library && options.fp != Fp::Strict;
        let own = DivisionContext { fp: options.fp, target: &target, library: false, products };
        let mut parts = split(program, DivisionContext { library: asks, ..own })?;
        let mut found = parts.multiplied(options.fp, asks);
        let mut library = None;
        if asks {
            let any = found.iter().any(Option::is_some);
            library = if any { device.library()? } else { None };
            let without = split(program, own)?;
            if !any && !is_equal(&without, &parts) {
                // It depends on whether the library multiplies anything of the whole.
                return Err(as_whole());
            }
            if library.is_none() {
                parts = without;
                found = parts.multiplied(options.fp, false);
            }
        }
        let tuned = tuned(device, (&found, library), options.fp)?.ok_or_else(as_whole)?;
        let multiplied: Vec<bool> = tuned.iter().map(Option::is_some).collect();
        let context = ScheduleContext {
            target,
            fp: options.fp,
            functions: Some(functions),
            products: Some(products),
        };
        let module = forms.launches(&parts.program, context, &multiplied)?;
        if !module.enter.launches.is_empty() || !module.leave.launches.is_empty() {
            return Err(as_whole());
        }
        let both = module.steps.iter().zip(&tuned);
        let scratch = both.map(|(code, tuned)| step_scratch(code.scratch, tuned.as_deref()));
        let (scratch, reads_again) = (scratch.collect(), reads_again(&module.steps));
        let SplitProgram { program, origin, .. } = parts;
        Ok((StepDivision { program, scratch, reads_again }, origin))
    }
}

fn is_equal(a: &SplitProgram, b: &SplitProgram) -> bool {
    a.program == b.program
}

/// Steps whose sizes depend on the program that they are in.
fn as_whole() -> Diagnostic {
    let m = "what these steps need depends on the program that they are in";
    Diagnostic::new(At::default(), Kind::Unsupported, m)
}

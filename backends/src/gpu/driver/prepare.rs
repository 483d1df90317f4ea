//! Programs before their memory is planned: divided, as text for the driver, and with what a library
//! multiplies, so that it is known what each step needs beside the buffers.

use super::block_memory::{StepMemory, reads_again, step_memories};
use super::cublaslt::{MatrixLibrary, Tuned};
use super::device::GpuDevice;
use super::place::with_slack;
use crate::gpu::compile::within;
use crate::gpu::launches::PtxModule;
use crate::gpu::ptx::CodeCache;
use crate::gpu::schedule::ScheduleContext;
use crate::gpu::schedule::library_product::Product;
use crate::gpu::schedule::library_split::{Divided, DivisionContext, divided};
use crate::runtime::backend::Arrange;
use crate::runtime::functions::Registry;
use crate::runtime::limits::RunLimits;
use crate::runtime::ranks::{RankGroup, RankProgram};
use adfuse_ir::kernel::{ProductTimes, Program, Step, Verified};
use adfuse_ir::{Diagnostic, Fp};
use std::sync::Arc;

/// How programs are made to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// What may happen to numbers.
    pub fp: Fp,
    /// Whether a library may multiply where the mode lets it and there is one.
    pub library: bool,
    /// Whether steps that leave the chip idle may run at the same time.
    pub branches: bool,
    /// How far runs may go.
    pub limits: RunLimits,
}

impl Default for Options {
    fn default() -> Options {
        let (fp, limits) = (Fp::default(), RunLimits::default());
        Options { fp, library: true, branches: true, limits }
    }
}

/// What programs are made ready with.
#[derive(Clone, Copy)]
pub struct PreparationContext<'m> {
    /// The code of steps that were compiled before.
    pub codes: &'m CodeCache,
    /// What programs call by name.
    pub functions: &'m Registry,
    /// Times of products that were measured.
    pub products: &'m ProductTimes,
    /// Plans the memory of the programs in a program.
    pub arrange: &'m Arrange<'m>,
}

/// A program as a device is to run it.
pub struct GpuPrepared {
    pub(crate) device: Arc<GpuDevice>,
    pub(crate) divided: Divided,
    pub(crate) module: PtxModule,
    /// For each step, how a library multiplies; none where kernels do the step.
    pub(crate) tuned: Vec<Option<Arc<Tuned>>>,
    scratch: Vec<u64>,
    /// For each step, what it has beside the buffers.
    pub(crate) memory: Vec<StepMemory>,
    pub(crate) limits: RunLimits,
    /// The ranks that run it.
    pub(crate) ranks: RankGroup,
    /// What they compare: the program before it was divided for this device.
    pub(crate) of_ranks: RankProgram,
    /// What beside program and text says how it runs: the mode, and the steps that a library does.
    pub(crate) how: String,
}

impl GpuPrepared {
    /// Makes a program ready for a device.
    ///
    /// # Errors
    /// [`Kind::Unsupported`](adfuse_ir::Kind::Unsupported) for what has no lowering, with the step.
    pub fn new(
        device: &Arc<GpuDevice>,
        program: &Verified<Program>,
        options: Options,
        PreparationContext { codes, functions, products, arrange }: PreparationContext<'_>,
    ) -> Result<GpuPrepared, Diagnostic> {
        let target = device.target()?;
        let asks = options.library && options.fp != Fp::Strict;
        let own = DivisionContext { fp: options.fp, target: &target, library: false, products };
        let mut divided = divided(program, DivisionContext { library: asks, ..own })?;
        // Opening the library takes longer than all else: it is opened where there is something to multiply.
        let library = match divided.products.iter().any(Option::is_some) {
            true => device.library()?,
            false => None,
        };
        if asks && library.is_none() {
            divided = self::divided(program, own)?;
        }
        let tuned = match tuned(device, (&divided.products, library), options.fp)? {
            Some(tuned) => tuned,
            None => {
                // Kernels do then, in one piece.
                divided = self::divided(program, own)?;
                divided.program.steps.iter().map(|_| None).collect()
            }
        };
        let multiplied: Vec<bool> = tuned.iter().map(Option::is_some).collect();
        let context = ScheduleContext {
            target,
            fp: options.fp,
            functions: Some(functions),
            products: Some(products),
        };
        let mut module = codes
            .launches(&divided.program, context, &multiplied)
            .map_err(within(&divided.program))?;
        if !options.branches {
            module.concurrent.clear();
        }
        let memory = step_memories(&divided.program, &module.steps, arrange)?;
        let Options { fp, limits, .. } = options;
        let inner: Vec<_> = memory.iter().filter(|step| !step.blocks.is_empty()).collect();
        let concurrent = &module.concurrent;
        let mut how = format!("{} {multiplied:?} {limits:?} {inner:?} {concurrent:?}", fp.name());
        if !module.users.is_empty() {
            // What users' kernels are given is no part of the program.
            how += &format!(" {:?} {:?}", module.users, module.steps);
        }
        let of_ranks = RankProgram::of(program, &format!("gpu {}", fp.name()));
        let made = GpuPrepared::of(Arc::clone(device), divided, module, (tuned, memory));
        Ok(GpuPrepared { how, limits, of_ranks, ..made })
    }

    /// Of its parts: how a library multiplies is known for each step, or that none does, and the memory of each step
    /// with programs in it.
    pub(crate) fn of(
        device: Arc<GpuDevice>,
        divided: Divided,
        module: PtxModule,
        (tuned, memory): (Vec<Option<Arc<Tuned>>>, Vec<StepMemory>),
    ) -> GpuPrepared {
        let own = |n: usize| {
            let steps = module.steps.get(n).map_or(0, |code| code.scratch);
            // Copies before the first step and after the last use the same memory as those.
            let first = if n == 0 { module.enter.scratch } else { 0 };
            let last = if n + 1 == module.steps.len() { module.leave.scratch } else { 0 };
            steps.max(first).max(last)
        };
        let needed = |(n, tuned): (usize, &Option<Arc<Tuned>>)| {
            step_scratch(own(n), tuned.as_deref()).max(memory.get(n).map_or(0, |step| step.bytes))
        };
        let scratch = tuned.iter().enumerate().map(needed).collect();
        let (limits, ranks, how) = (RunLimits::default(), RankGroup::alone(), String::new());
        let of_ranks = RankProgram::of(&divided.program, "gpu");
        GpuPrepared {
            device,
            divided,
            module,
            tuned,
            scratch,
            memory,
            limits,
            ranks,
            of_ranks,
            how,
        }
    }

    /// The program that runs: what its memory is planned for.
    pub fn program(&self) -> &Verified<Program> {
        &self.divided.program
    }

    /// For each of its steps, the number of the step that it was made of.
    pub fn origin(&self) -> &[usize] {
        &self.divided.origin
    }

    /// Bytes that each of its steps needs beside the buffers.
    pub fn scratch(&self) -> &[u64] {
        &self.scratch
    }

    /// For each of its steps, whether it reads again what it has read when it has begun to write, so that
    /// nothing it writes may be over what it reads ([`StepCode::reads_first`](crate::gpu::launches::StepCode)).
    pub fn reads_again(&self) -> Vec<bool> {
        reads_again(&self.module.steps)
    }

    /// What is launched.
    pub fn module(&self) -> &PtxModule {
        &self.module
    }

    /// The text that the driver is given. What is only sized has none, since it takes most of the time.
    ///
    /// # Errors
    /// As [`GpuPrepared::new`].
    pub fn text(
        &self,
        fp: Fp,
        codes: &CodeCache,
        (functions, products): (&Registry, &ProductTimes),
    ) -> Result<String, Diagnostic> {
        let (functions, products) = (Some(functions), Some(products));
        let context = ScheduleContext { target: self.device.target()?, fp, functions, products };
        let multiplied: Vec<bool> = self.tuned.iter().map(Option::is_some).collect();
        let program = &self.divided.program;
        let made = codes.compile(program, context, &multiplied).map_err(within(program))?;
        Ok(made.text)
    }
}

/// How a library multiplies each product; none where kernels do the step. `None` where the library does not take all of them.
pub(super) fn tuned(
    device: &GpuDevice,
    (products, library): (&[Option<Product>], Option<MatrixLibrary<'_>>),
    fp: Fp,
) -> Result<Option<Vec<Option<Arc<Tuned>>>>, Diagnostic> {
    let mut tuned = Vec::with_capacity(products.len());
    for product in products {
        let found = match (product, library) {
            (Some(product), Some(library)) => device.tunings.tuned(library, product, fp)?,
            _ => None,
        };
        if product.is_some() && found.is_none() {
            return Ok(None);
        }
        tuned.push(found.map(Arc::new));
    }
    Ok(Some(tuned))
}

/// Bytes of scratch memory of a step whose kernels need so much, or which a library does.
pub(super) fn step_scratch(kernels: u64, tuned: Option<&Tuned>) -> u64 {
    with_slack(tuned.map_or(kernels, |tuned| tuned.workspace.max(kernels)))
}

/// Whether a step is a copy between memories, an effect, which begins with one, or an exchange between ranks.
pub(crate) fn is_transfer(step: &Step) -> bool {
    matches!(step, Step::Transfer(_) | Step::Exchange(_) | Step::Print(_))
}

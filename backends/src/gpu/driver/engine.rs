//! The engine `gpu`: a device, how programs run on it, and the executables that were made.

use super::device::GpuDevice;
use super::executable::GpuExecutable;
use super::load::{KeptCode, key as code_key};
use super::memory::DeviceArray;
use super::prepare::{GpuPrepared, Options, PreparationContext};
use crate::gpu::facts::{FactsCache, FactsOptions};
use crate::gpu::ptx::CodeCache;
use crate::gpu::schedule::capabilities::CAPABILITIES;
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::array::Array;
use crate::runtime::backend::{self, Arrange, Backend, Capabilities, Parallelism, StepSizing};
use crate::runtime::executable_cache::{ExecutableCache, key};
use crate::runtime::functions::Registry;
use crate::runtime::ranks::RankGroup;
use crate::runtime::report::{MemoryReport, StepReport};
use crate::runtime::resident::Resident;
use crate::runtime::trace::Trace;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::facts::KernelFacts;
use adfuse_ir::kernel::{ProductTimes, Program, Verified};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Executables kept at most. Each has memory of the device.
const KEPT: usize = 16;

/// The engine on a device. Clones share the device and the executables that are kept.
#[derive(Clone)]
pub struct GpuEngine {
    pub(super) device: Arc<GpuDevice>,
    pub(super) options: Options,
    /// The ranks that it is one of.
    ranks: RankGroup,
    /// The functions that its programs may call.
    pub(super) functions: Registry,
    /// Times of products that were measured, by which it chooses how to multiply.
    pub(super) products: ProductTimes,
    /// Where the code of kernels is kept from one run for the next.
    code: Option<Arc<dyn KeptCode>>,
    made: Arc<ExecutableCache<GpuExecutable>>,
    /// The code of steps by their forms: plans that are compared have most of them in common.
    pub(super) forms: Arc<CodeCache>,
    /// The facts of steps by their forms.
    facts: Arc<FactsCache>,
}

impl GpuEngine {
    /// What tells plans for this engine from those for others.
    pub const NAME: &str = crate::gpu::NAME;

    /// What tells plans that were counted for a device that is not there.
    pub const DESCRIBED: &str = "described-gpu";

    /// The engine on a device.
    pub fn new(device: Arc<GpuDevice>) -> GpuEngine {
        let made = Arc::new(ExecutableCache::new(KEPT));
        let (options, ranks) = (Options::default(), RankGroup::alone());
        let (forms, facts) = (Arc::default(), Arc::default());
        let (functions, products) = (Registry::new(), ProductTimes::default());
        GpuEngine { device, options, ranks, functions, products, code: None, made, forms, facts }
    }

    /// The same with other options, and another place for the code of kernels.
    #[must_use]
    pub fn with(&self, options: Options, code: Option<Arc<dyn KeptCode>>) -> GpuEngine {
        GpuEngine { options, code, ..self.clone() }
    }

    /// The same with functions for programs to call, of which it launches the kernels.
    #[must_use]
    pub fn with_functions(&self, functions: Registry) -> GpuEngine {
        GpuEngine { functions, ..self.clone() }
    }

    /// The same, choosing how to multiply by these times where a product is among them, and by prices elsewhere.
    #[must_use]
    pub fn with_products(&self, products: ProductTimes) -> GpuEngine {
        GpuEngine { products, ..self.clone() }
    }

    /// The same as the engine of one of these ranks: its device is connected with theirs, by NCCL. All ranks call this.
    ///
    /// # Errors
    /// [`Kind::NoDevice`](adfuse_ir::Kind::NoDevice) where there is no NCCL; [`Kind::LostRank`](adfuse_ir::Kind::LostRank) when a
    /// rank is gone.
    pub fn among(&self, ranks: RankGroup) -> Result<GpuEngine, Diagnostic> {
        if ranks.ranks() > 1 {
            self.device.connect(&ranks)?;
        }
        Ok(GpuEngine { ranks, ..self.clone() })
    }

    /// The GPU that programs are loaded to, which its engines share.
    pub fn device(&self) -> &Arc<GpuDevice> {
        &self.device
    }
}

impl Backend for GpuEngine {
    type Executable = GpuExecutable;

    fn name(&self) -> &'static str {
        match self.device.is_described() {
            false => GpuEngine::NAME,
            true => GpuEngine::DESCRIBED,
        }
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn facts(&self, program: &Program, machine: Parallelism) -> Option<Vec<KernelFacts>> {
        if machine != Parallelism::Threads {
            return None;
        }
        let Options { fp, library, .. } = self.options;
        let target = self.device.target().ok()?;
        let products = self.products.clone();
        self.facts.of(program, &FactsOptions { target, fp, library, products })
    }

    fn place(&self, array: &Array) -> Result<Resident, Diagnostic> {
        Ok(Resident::on_device(DeviceArray::upload(&self.device, array)?))
    }

    fn step_sizing(&self) -> Option<&dyn StepSizing> {
        Some(self)
    }

    fn prepare<'a>(
        &'a self,
        program: &Verified<Program>,
        arrange: &Arrange<'_>,
    ) -> Result<Box<dyn backend::Prepared<Executable = GpuExecutable> + 'a>, Diagnostic> {
        let GpuEngine { forms: codes, functions, products, .. } = self;
        let context = PreparationContext { codes, functions, products, arrange };
        let mut prepared = GpuPrepared::new(&self.device, program, self.options, context)?;
        prepared.ranks = self.ranks.clone();
        Ok(Box::new(OfEngine { engine: self, prepared }))
    }
}

/// A prepared program, and the engine that keeps what is made of it.
struct OfEngine<'a> {
    engine: &'a GpuEngine,
    prepared: GpuPrepared,
}

impl backend::Prepared for OfEngine<'_> {
    type Executable = GpuExecutable;

    fn program(&self) -> &Verified<Program> {
        self.prepared.program()
    }

    fn origin(&self) -> Option<&[usize]> {
        Some(self.prepared.origin())
    }

    fn scratch(&self) -> &[u64] {
        self.prepared.scratch()
    }

    fn reads_again(&self) -> Vec<bool> {
        self.prepared.reads_again()
    }

    fn concurrent(&self) -> &[Range<usize>] {
        &self.prepared.module().concurrent
    }

    fn peak(&self, layout: &ArenaLayout) -> Result<u64, Diagnostic> {
        Ok(self.prepared.report(layout)?.peak())
    }

    fn compile(&self, layout: &ArenaLayout) -> Result<Arc<GpuExecutable>, Diagnostic> {
        let OfEngine { engine, prepared } = self;
        let text = prepared.text(
            engine.options.fp,
            &engine.forms,
            (&engine.functions, &engine.products),
        )?;
        let code = code_key(&text, engine.device.facts());
        let how = format!("{code} {}", prepared.how);
        let make = || prepared.finish(&text, layout, engine.code.as_deref());
        engine.made.get_or_make(key(prepared.program(), layout, &how), make)
    }
}

impl backend::Executable for GpuExecutable {
    fn run(&self, args: &[Array]) -> Result<Vec<Array>, Diagnostic> {
        // Copies on the device are the engine's own: what a plan writes to is none of the caller's.
        self.run(args)
    }

    fn place(&self, array: &Array) -> Result<Resident, Diagnostic> {
        Ok(Resident::on_device(DeviceArray::upload(self.device(), array)?))
    }

    fn run_resident(&self, args: Vec<Resident>) -> Result<Vec<Resident>, Diagnostic> {
        if self.is_hosted() {
            // What is in the caller's memory goes through arrays.
            let args = args.iter().map(Resident::fetch).collect::<Result<Vec<_>, _>>()?;
            return self.run(&args)?.iter().map(|result| self.place(result)).collect();
        }
        let place = |arg: Resident| match arg.into_device::<DeviceArray>() {
            Ok(array) => Ok(array),
            Err(other) => DeviceArray::upload(self.device(), &other.into_array()?),
        };
        let args = args.into_iter().map(place).collect::<Result<Vec<_>, _>>()?;
        Ok(self.run_on_donating(args)?.into_iter().map(Resident::on_device).collect())
    }

    fn trace(&self, args: &[Array]) -> Result<Trace, Diagnostic> {
        let upload = |a: &Array| DeviceArray::upload(self.device(), a);
        let args = args.iter().map(upload).collect::<Result<Vec<_>, _>>()?;
        Ok(self.traced(&args, 1)?.pop().unwrap_or_default())
    }

    fn steps(&self) -> &[StepReport] {
        self.steps()
    }

    fn memory(&self) -> MemoryReport {
        self.memory()
    }
}

impl fmt::Debug for GpuEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuEngine").field("device", &self.device).finish_non_exhaustive()
    }
}

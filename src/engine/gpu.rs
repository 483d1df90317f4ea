//! The engine `gpu`: functions as graphs of kernels on a GPU.

use super::session::{OwnSession, OwnSizes};
use super::{
    Compiled, CompiledSymbolic, Engine, PlanDecision, PreparedPlan, ReadyFunction, Session,
    Settings,
};
use crate::backends::functions::Registry;
use crate::backends::gpu::{self, GpuDevice, GpuExecutable, KeptCode};
use crate::backends::limits::RunLimits;
use crate::backends::ranks::RankGroup;
use crate::fusion::{self, Effort, Fp, Lossy, Plan, SizedProgram, StepSizes};
use crate::ir::kernel::{Program, Verified};
use crate::ir::{Diagnostic, Function, Module};
use crate::kernel_cache::KernelCache;
use crate::plan_cache::PlanCache;
use std::sync::Arc;
use std::time::Duration;

/// A function that is compiled for a GPU.
pub type OnGpu = Compiled<GpuExecutable>;

/// The engine that plans a function and runs it on a GPU.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// The options of plans.
    pub plan: fusion::PlanOptions,
    /// Whether a library may multiply matrices, in the modes that are not strict and where there is one.
    pub library: bool,
    /// Whether steps that leave the GPU idle may run at the same time, as branches of a graph. No bit depends on it.
    pub branches: bool,
    /// As [`Settings::mem_budget`].
    pub mem_budget: Option<u64>,
    /// As [`Settings::compile_budget`].
    pub compile_budget: Option<Duration>,
    /// As [`Settings::cache`].
    pub cache: Option<PlanCache>,
    /// The cache of GPU code.
    pub code: Option<KernelCache>,
    /// As [`Settings::lossy`].
    pub lossy: Lossy,
    /// As [`Settings::donated`].
    pub donated: Vec<usize>,
    /// The user functions, of which it launches the kernels.
    pub functions: Registry,
    /// As [`Settings::limits`].
    pub limits: RunLimits,
    /// As [`Settings::ranks`]; the engine is that of one of them ([`Gpu::among`]).
    pub ranks: RankGroup,
    /// The device, and the executables that are kept there: clones of an engine share both.
    pub engine: gpu::GpuEngine,
}

impl Gpu {
    /// The name that identifies plans for this engine.
    pub const NAME: &str = gpu::GpuEngine::NAME;

    /// Has the driver begin, which opening a GPU waits for. It may be called on another thread before.
    pub fn begin_driver() {
        GpuDevice::begin_driver();
    }

    /// The engine on the GPU of a number, counted from 0, planning for [`Gpu::planned_for`]. The driver makes the GPU's context on another thread: what it
    /// has against that is an error of what first works on the GPU.
    ///
    /// # Errors
    /// [`Kind::NoDevice`](crate::ir::Kind::NoDevice) where there is no driver, or no such GPU.
    pub fn open(number: u32) -> Result<Gpu, Diagnostic> {
        Ok(Gpu::on(GpuDevice::open(number)?))
    }

    /// The engine on a GPU that is not there: it plans for [`Gpu::planned_for`] as the engine on one does, but that the workspaces of the library of
    /// matrices are not known and not counted. What would run is refused as [`Kind::NoDevice`](crate::ir::Kind::NoDevice).
    pub fn described() -> Gpu {
        Gpu::on(GpuDevice::described())
    }

    fn on(device: Arc<GpuDevice>) -> Gpu {
        let plan = fusion::PlanOptions {
            device: Gpu::planned_for(),
            effort: Effort::Default,
            fp: Fp::default(),
        };
        Gpu {
            engine: gpu::GpuEngine::new(device),
            plan,
            library: true,
            branches: true,
            mem_budget: None,
            compile_budget: None,
            cache: None,
            code: None,
            lossy: Lossy::default(),
            donated: Vec::new(),
            functions: Registry::new(),
            limits: RunLimits::default(),
            ranks: RankGroup::alone(),
        }
    }

    /// The same as the engine of one of these ranks: the GPUs of all are connected, by NCCL. All ranks call this.
    ///
    /// # Errors
    /// [`Kind::NoDevice`](crate::ir::Kind::NoDevice) where there is no NCCL; [`Kind::LostRank`](crate::ir::Kind::LostRank) when a
    /// rank is gone.
    pub fn among(self, ranks: RankGroup) -> Result<Gpu, Diagnostic> {
        Ok(Gpu { engine: self.engine.among(ranks.clone())?, ranks, ..self })
    }

    /// The default machine of plans.
    pub fn planned_for() -> fusion::MachineModel {
        fusion::MachineModel::h200()
    }

    /// The GPU that programs are loaded to, which its engines share.
    pub fn device(&self) -> &Arc<GpuDevice> {
        self.engine.device()
    }

    /// A session with the present settings.
    pub fn session(&self) -> Session<gpu::GpuEngine> {
        let Gpu { plan, mem_budget, compile_budget, cache, lossy, donated, functions, .. } =
            self.clone();
        let Gpu { limits, ranks, .. } = self.clone();
        let Gpu { library, branches, .. } = *self;
        let options = gpu::Options { fp: plan.fp, library, branches, limits };
        let code = self.code.clone().map(|code| Arc::new(code) as Arc<dyn KeptCode>);
        let engine = self.engine.with_functions(functions.clone());
        let engine = engine.with_products(plan.device.products.clone());
        let settings = Settings {
            mem_budget,
            compile_budget,
            cache,
            lossy,
            donated,
            functions,
            ranks,
            limits,
            ..Settings::new(plan)
        };
        Session { settings, backend: Arc::new(engine.with(options, code)) }
    }

    /// As [`Session::compile`]: plans a function of a verified module and makes it ready.
    ///
    /// # Errors
    /// As there.
    pub fn compile(&self, module: &Module, f: &Function) -> Result<OnGpu, Diagnostic> {
        self.session().compile(module, f)
    }

    /// As [`Session::compile_symbolic`]: a function that runs arguments of any extents.
    ///
    /// # Errors
    /// As there.
    pub fn compile_symbolic(
        &self,
        module: &Module,
        f: &Function,
    ) -> Result<CompiledSymbolic<gpu::GpuEngine>, Diagnostic> {
        self.session().compile_symbolic(module, f)
    }

    /// As [`Session::plan_prepared`].
    ///
    /// # Errors
    /// As there.
    pub fn plan_prepared(&self, function: &Function) -> Result<PreparedPlan, Diagnostic> {
        self.session().plan_prepared(function)
    }

    /// As [`Session::decide`].
    ///
    /// # Errors
    /// As there.
    pub fn decide(&self, function: &Function) -> Result<PlanDecision, Diagnostic> {
        self.session().decide(function)
    }

    /// As [`Session::follow`].
    ///
    /// # Errors
    /// As there.
    pub fn follow(&self, function: &Function, plan: &Plan) -> Result<OnGpu, Diagnostic> {
        self.session().follow(function, plan)
    }

    /// As [`Session::follow_prepared`].
    ///
    /// # Errors
    /// As there.
    pub fn follow_prepared(&self, made: &PreparedPlan) -> Result<OnGpu, Diagnostic> {
        self.session().follow_prepared(made)
    }

    /// As [`Session::of_program`].
    ///
    /// # Errors
    /// As there.
    pub fn of_program(&self, program: Verified<Program>) -> Result<OnGpu, Diagnostic> {
        self.session().of_program(program)
    }
}

impl From<Gpu> for Session {
    fn from(engine: Gpu) -> Session {
        engine.session().erased()
    }
}

impl fusion::EngineModel for Gpu {
    fn donated(&self) -> &[usize] {
        &self.donated
    }

    fn facts(
        &self,
        program: &Program,
        device: &fusion::MachineModel,
    ) -> Option<Vec<fusion::KernelFacts>> {
        fusion::EngineModel::facts(&self.session(), program, device)
    }

    fn window_prologues(&self, fp: Fp) -> bool {
        fusion::EngineModel::window_prologues(&self.session(), fp)
    }

    fn step_sizes(&self) -> Option<Box<dyn StepSizes + '_>> {
        Some(Box::new(OwnSizes::of(self.session())?))
    }

    fn sized<'a>(&'a self, program: &'a Program) -> Result<Box<dyn SizedProgram + 'a>, Diagnostic> {
        Ok(Box::new(OwnSession::sized(self.session(), program)?))
    }
}

impl Engine for Gpu {
    fn ready<'a>(
        &'a self,
        module: &'a Module,
        f: &'a Function,
        _: &str,
    ) -> Result<ReadyFunction<'a>, Diagnostic> {
        self.session().callable(module, f)
    }
}

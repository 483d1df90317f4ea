//! The engine `gpu`: functions as graphs of kernels on a GPU.

use super::{Decided, Engine, Ready, arena, decided, given_up, verified, within};
use crate::backends::gpu::{self, Device, Executable, Prepared};
use crate::fusion::{
    self, Effort, Fp, Lossy, Memory, Narrowed, PREPASSES, Plan, keep_lossy, memory_apart,
};
use crate::ir::kernel::{Program, Verified};
use crate::ir::{Diagnostic, Function, Module};
use crate::kernel_cache::KernelCache;
use crate::pipeline::{self, Compiler, Unit};
use crate::plan_cache::PlanCache;
use std::sync::Arc;

/// A function on a GPU, and what that was made of.
#[derive(Debug)]
pub struct OnGpu {
    /// Its kernels, before the engine divides them.
    pub program: Verified<Program>,
    /// What they take, as the engine divides them.
    pub memory: Memory,
    /// What runs; the engine keeps it too.
    pub executable: Arc<Executable>,
}

/// The engine that plans a function and runs it on a GPU.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// What is planned for.
    pub plan: fusion::Options,
    /// Whether a library may multiply matrices, in the modes that are not strict and where there is one.
    pub library: bool,
    /// The most bytes that inputs, outputs, constants and everything between may take together. It is
    /// kept, or nothing is made.
    pub mem_budget: Option<u64>,
    /// Where plans for budgets are kept from one run for the next.
    pub cache: Option<PlanCache>,
    /// Where the code of kernels is kept from one run for the next.
    pub code: Option<KernelCache>,
    /// What may be kept for later passes in a narrower type than it has; nothing, if not asked for.
    pub lossy: Lossy,
    /// The parameters that the caller gives up, by position: plans put results and temporaries into their
    /// memory.
    pub donated: Vec<usize>,
    pub(crate) device: Arc<Device>,
    pub(crate) kept: Arc<gpu::Kept>,
}

impl Gpu {
    /// What tells plans for this engine from those for others.
    pub const NAME: &str = "gpu";

    /// The engine on the GPU of a number, counted from 0, planning for [`Gpu::planned_for`].
    ///
    /// # Errors
    /// [`Kind::NoDevice`](crate::ir::Kind::NoDevice) where there is no driver, or no such GPU.
    pub fn open(number: u32) -> Result<Gpu, Diagnostic> {
        let device = Device::open(number)?;
        let plan = fusion::Options {
            device: Gpu::planned_for(),
            effort: Effort::Default,
            fp: Fp::default(),
        };
        let (lossy, donated) = (Lossy::default(), Vec::new());
        let (mem_budget, cache, code, kept) = (None, None, None, Arc::default());
        Ok(Gpu { plan, library: true, mem_budget, cache, code, lossy, donated, device, kept })
    }

    /// The machine that is planned for unless another is named.
    pub fn planned_for() -> fusion::Device {
        fusion::Device::h200()
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Plans a function of a verified module and makes it ready.
    ///
    /// # Errors
    /// [`Kind::Unsupported`](crate::ir::Kind::Unsupported) for what has no lowering, which the error names;
    /// [`Kind::Limit`](crate::ir::Kind::Limit) when memory is not enough, or the budget is too small for
    /// every plan.
    pub fn compile(&self, module: &Module, f: &Function) -> Result<OnGpu, Diagnostic> {
        self.run(Unit::of(module, f), PREPASSES[0].name)
    }

    /// A [prepared](crate::fusion::prepare()) function that keeps what it may with losses, where that pays.
    ///
    /// # Errors
    /// As [`keep_lossy`].
    pub fn narrowed(&self, function: &Function) -> Result<Narrowed, Diagnostic> {
        keep_lossy(function, &self.lossy, &self.plan, self)
    }

    /// The plan for a [prepared](crate::fusion::prepare()) function, within the budget if there is one.
    ///
    /// # Errors
    /// As [`Gpu::compile`].
    pub fn decide(&self, function: &Function) -> Result<Decided, Diagnostic> {
        let engine = (self as &dyn fusion::Engine, Gpu::NAME);
        decided(function, &self.plan, self.mem_budget, engine, self.cache.as_ref())
    }

    /// Makes a plan of a prepared function ready.
    ///
    /// # Errors
    /// As [`Gpu::compile`], and [`Kind::Usage`](crate::ir::Kind::Usage) for a plan that does not fit, or that
    /// uses the memory of a parameter that the caller does not give up.
    pub fn follow(&self, function: &Function, plan: &Plan) -> Result<OnGpu, Diagnostic> {
        self.run(Unit::planned(function, plan), "lower")
    }

    /// Makes a program ready.
    ///
    /// # Errors
    /// As [`Gpu::compile`].
    pub fn of_program(&self, program: Verified<Program>) -> Result<OnGpu, Diagnostic> {
        self.run(Unit::of_program(program), "ptx")
    }

    /// The passes from one on.
    fn run(&self, mut unit: Unit<'_>, from: &str) -> Result<OnGpu, Diagnostic> {
        pipeline::run(self, &mut unit, from, "load")?;
        let (program, memory, executable) = unit.made(|unit| unit.loaded.take())?;
        Ok(OnGpu { program, memory, executable })
    }

    /// A program as this engine runs it, before it has memory.
    fn prepared(&self, program: &Verified<Program>) -> Result<Prepared, Diagnostic> {
        let options = gpu::Options { fp: self.plan.fp, library: self.library };
        Prepared::new(&self.device, program, options)
    }

    /// What a program takes, and where its temporaries are.
    fn memory(&self, prepared: &Prepared) -> Result<Memory, Diagnostic> {
        let (scratch, again) = (prepared.scratch(), prepared.reads_again());
        memory_apart(prepared.program(), self.plan.effort, scratch, &again)
    }
}

impl Compiler for Gpu {
    fn engine(&self) -> &'static str {
        Gpu::NAME
    }

    fn options(&self) -> &fusion::Options {
        &self.plan
    }

    fn narrow(&self, f: Function) -> Result<Function, Diagnostic> {
        Ok(self.narrowed(&f)?.function)
    }

    fn choose(&self, f: &Function) -> Result<Plan, Diagnostic> {
        Ok(self.decide(f)?.plan)
    }

    fn admit(&self, f: &Function, plan: &Plan) -> Result<(), Diagnostic> {
        given_up(f, plan, &self.donated)
    }

    fn launch(&self, unit: &mut Unit<'_>) -> Result<(), Diagnostic> {
        unit.prepared = Some(self.prepared(unit.program()?)?);
        Ok(())
    }

    fn arrange_launches(&self, unit: &mut Unit<'_>) -> Result<(), Diagnostic> {
        let prepared = unit.prepared()?;
        let memory = self.memory(prepared)?;
        let layout = arena(&memory);
        within(self.mem_budget, unit.program()?, prepared.report(&layout)?.peak())?;
        unit.memory = Some((memory, layout));
        Ok(())
    }

    fn load(&self, unit: &mut Unit<'_>) -> Result<(), Diagnostic> {
        let code = self.code.as_ref().map(|c| c as &dyn gpu::KeptCode);
        unit.loaded = Some(self.kept.executable(unit.prepared()?, unit.layout()?, code)?);
        Ok(())
    }
}

/// Frontiers count what the engine needs beside the buffers.
impl fusion::Engine for Gpu {
    fn donated(&self) -> &[usize] {
        &self.donated
    }

    fn scratch(&self, program: &Program) -> Result<Vec<u64>, Diagnostic> {
        let prepared = self.prepared(&verified(program.clone())?)?;
        let mut most = vec![0; program.steps.len()];
        for (&origin, &bytes) in prepared.origin().iter().zip(prepared.scratch()) {
            if let Some(most) = most.get_mut(origin) {
                *most = bytes.max(*most);
            }
        }
        Ok(most)
    }

    fn peak(&self, program: &Program, _: &Memory) -> Result<u64, Diagnostic> {
        // What steps are divided into has buffers that the program does not know of.
        let prepared = self.prepared(&verified(program.clone())?)?;
        Ok(prepared.report(&arena(&self.memory(&prepared)?))?.peak())
    }
}

impl Engine for Gpu {
    fn ready<'a>(
        &'a self,
        module: &'a Module,
        f: &'a Function,
        _: &str,
    ) -> Result<Ready<'a>, Diagnostic> {
        let made = self.compile(module, f)?.executable;
        // Copies on the device are the engine's own: what a plan writes to is none of the caller's.
        Ok(Box::new(move |args| made.run(args)))
    }
}

//! Devices: an engine with the options of its plans, by one type for all engines.
//!
//! ```
//! use adfuse::prelude::*;
//!
//! let device = Device::cpu().threads(2).mem_budget(1 << 20);
//! let f = trace("f", |t| t.input("x", f32s([3])).square())?;
//! let f = device.compile(&f)?;
//! assert_eq!(f.executable.run(&[Array::from_f32s(&[3], &[1.0, 2.0, 3.0])?])?[0].to_f64s(), [1.0, 4.0, 9.0]);
//! # Ok::<(), adfuse::ir::Diagnostic>(())
//! ```

mod bytes;
mod program_cache;

pub use bytes::{SizeError, bytes};
pub(crate) use program_cache::{ArgumentKey, ProgramCache};

use crate::backends::backend::Executable;
use crate::backends::functions::Registry;
use crate::backends::{AnyBackend, RankGroup, RunLimits};
use crate::engine::registry::{NamedEngine, Request, names, usual};
use crate::engine::{Compiled, CompiledSymbolic, Session, Settings};
use crate::fusion::{Effort, Fp, MachineModel, PlanBudget, PlanOptions};
use crate::ir::{At, Diagnostic, Kind, Module};
use crate::plan_cache::PlanCache;
use crate::trace::Traced;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Where programs run, and how they are planned. Clones share threads, compiled programs and the memory of the device.
#[derive(Clone, Debug)]
pub struct Device {
    engine: NamedEngine,
    request: Request,
    mem_budget: Option<u64>,
    compile_budget: Option<Duration>,
    plan_cache: Option<PlanCache>,
    /// Ranks that it runs by itself.
    simulated: u32,
    /// What has been opened for these options.
    opened: Arc<Mutex<Option<Arc<AnyBackend>>>>,
}

impl Device {
    /// The processor, with all of its threads.
    pub fn cpu() -> Device {
        Device::of(usual())
    }

    /// The GPU of a number, counted from 0.
    ///
    /// # Errors
    /// [`Kind::NoDevice`] where there is no driver, or no such GPU.
    #[cfg(feature = "gpu")]
    pub fn gpu(number: u32) -> Result<Device, Diagnostic> {
        Device::named(&format!("{}:{number}", crate::engine::Gpu::NAME))
    }

    /// A device by the name of its engine, as the command line takes it: `cpu`, `gpu`, `gpu:1`, `evaluator`.
    ///
    /// # Errors
    /// [`Kind::Usage`] where no engine that plans has the name; [`Kind::NoDevice`] where it is not on this host.
    pub fn named(name: &str) -> Result<Device, Diagnostic> {
        let planned = || names(|row| row.open.is_some());
        let wrong = || {
            let m = format!("no device is called {name:?}: devices are {}", planned());
            Diagnostic::new(At::default(), Kind::Usage, m)
        };
        let engine: NamedEngine = name.parse().map_err(|_| wrong())?;
        if engine.is_unplanned() {
            return Err(wrong());
        }
        let device = Device::of(engine);
        device.backend()?;
        Ok(device)
    }

    fn of(engine: NamedEngine) -> Device {
        let plan =
            PlanOptions { device: engine.device(), effort: Effort::Default, fp: Fp::default() };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut request = Request { number: engine.number.unwrap_or(0), ..Request::new(plan) };
        request.threads = threads;
        let (mem_budget, compile_budget, plan_cache) = (None, None, None);
        let (simulated, opened) = (1, Arc::default());
        Device { engine, request, mem_budget, compile_budget, plan_cache, simulated, opened }
    }

    /// With this many threads of the host, at least one. They change no bit.
    #[must_use]
    pub fn threads(self, threads: usize) -> Device {
        self.with(|request| request.threads = threads.max(1))
    }

    /// In a floating-point mode; strict by default.
    #[must_use]
    pub fn fp(self, fp: Fp) -> Device {
        self.with(|request| request.plan.fp = fp)
    }

    /// With more or less effort of the planner.
    #[must_use]
    pub fn effort(self, effort: Effort) -> Device {
        self.with(|request| request.plan.effort = effort)
    }

    /// With another machine to plan for than the engine's own, such as one whose file `adfuse tune` wrote: the numbers by which plans are
    /// priced, and the times by which a GPU chooses how to multiply.
    ///
    /// ```
    /// use adfuse::fusion::MachineModel;
    /// use adfuse::prelude::*;
    ///
    /// let mine = MachineModel::from_toml("base = \"cpu\"\nname = \"mine\"\nlaunch_s = 1e-6\n")?;
    /// let f = trace("f", |t| t.input("x", f32s([3])).square())?;
    /// Device::cpu().machine(mine).compile(&f)?;
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[must_use]
    pub fn machine(self, machine: MachineModel) -> Device {
        self.with(|request| request.plan.device = machine)
    }

    /// With limits of runs.
    #[must_use]
    pub fn limits(self, limits: RunLimits) -> Device {
        self.with(|request| request.limits = limits)
    }

    /// With user functions, which programs call by name. See [`functions`](crate::functions).
    #[must_use]
    pub fn functions(self, functions: Registry) -> Device {
        self.with(|request| request.functions = functions)
    }

    /// As the device of one of these ranks: programs with collectives exchange with the others, and a training step divides its
    /// batch among them. A GPU exchanges by NCCL.
    ///
    /// ```no_run
    /// use adfuse::backends::RankGroup;
    /// use adfuse::prelude::*;
    ///
    /// let device = Device::cpu().ranks(RankGroup::from_env()?);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[must_use]
    pub fn ranks(self, ranks: RankGroup) -> Device {
        self.with(|request| request.ranks = ranks)
    }

    /// The ranks that it is one of; one alone where nothing was said.
    pub fn group(&self) -> &RankGroup {
        &self.request.ranks
    }

    /// As a device that runs this number of ranks by itself, a power of two: training steps have the bits that they have on as many
    /// processes. For tests, and to see what a program of many ranks does.
    #[must_use]
    pub fn simulated_ranks(mut self, ranks: u32) -> Device {
        self.simulated = ranks.max(1);
        self
    }

    /// How many ranks it runs by itself.
    pub(crate) fn simulated(&self) -> u32 {
        self.simulated
    }

    /// The most bytes that inputs, outputs, constants and everything between may take together in a run. It is kept, or nothing is made.
    #[must_use]
    pub fn mem_budget(mut self, bytes: u64) -> Device {
        self.mem_budget = Some(bytes);
        self
    }

    /// The most that compiling a program may take, as it is predicted: the fastest plan within it is taken. It is kept, or
    /// nothing is made.
    #[must_use]
    pub fn compile_budget(mut self, most: Duration) -> Device {
        self.compile_budget = Some(most);
        self
    }

    /// With a folder in which plans are kept, those for budgets and those of 64 instructions or more, so that the next run of
    /// the process finds them.
    ///
    /// ```
    /// use adfuse::plan_cache::PlanCache;
    /// use adfuse::prelude::*;
    ///
    /// # let folder = std::env::temp_dir().join(format!("adfuse-device-{}", std::process::id()));
    /// let device = Device::cpu().mem_budget(1 << 20).plan_cache(PlanCache::new(&folder));
    /// let f = trace("f", |t| t.input("x", f32s([3])).square())?;
    /// device.compile(&f)?;
    /// assert_eq!(PlanCache::new(&folder).list().unwrap().len(), 1);
    /// # PlanCache::new(&folder).clear().unwrap();
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[must_use]
    pub fn plan_cache(mut self, cache: PlanCache) -> Device {
        self.plan_cache = Some(cache);
        self
    }

    /// What plans may take.
    pub(crate) fn budget(&self) -> PlanBudget {
        let compile_seconds = self.compile_budget.map(|most| most.as_secs_f64());
        PlanBudget { memory: self.mem_budget, compile_seconds }
    }

    /// The machine that is planned for.
    pub(crate) fn machine_model(&self) -> &MachineModel {
        &self.request.plan.device
    }

    /// The floating-point mode.
    pub(crate) fn mode(&self) -> Fp {
        self.request.plan.fp
    }

    /// The name of the engine.
    pub fn name(&self) -> &'static str {
        self.engine.row.name
    }

    fn with(mut self, change: impl FnOnce(&mut Request)) -> Device {
        change(&mut self.request);
        self.opened = Arc::default();
        self
    }

    fn backend(&self) -> Result<Arc<AnyBackend>, Diagnostic> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backend) = &*opened {
            return Ok(Arc::clone(backend));
        }
        let open = self.engine.row.open.ok_or_else(|| {
            let m = format!("the engine {} makes no plans", self.engine.row.name);
            Diagnostic::new(At::default(), Kind::Usage, m)
        })?;
        Ok(Arc::clone(opened.insert(open(&self.request)?)))
    }

    /// A session with these options that may put results into the memory of these parameters, by position.
    ///
    /// # Errors
    /// [`Kind::NoDevice`] where the engine is not on this host.
    pub fn session(&self, donated: &[usize]) -> Result<Session, Diagnostic> {
        let settings = Settings {
            mem_budget: self.mem_budget,
            compile_budget: self.compile_budget,
            cache: self.plan_cache.clone(),
            donated: donated.to_vec(),
            functions: self.request.functions.clone(),
            ranks: self.request.ranks.clone(),
            limits: self.request.limits,
            ..Settings::new(self.request.plan.clone())
        };
        Ok(Session { settings, backend: self.backend()? })
    }

    /// Plans and compiles a traced function.
    ///
    /// # Errors
    /// As [`Session::compile`].
    pub fn compile(&self, f: &Traced) -> Result<Compiled<dyn Executable>, Diagnostic> {
        self.compile_donating(f, &[])
    }

    /// As [`Device::compile`], with parameters by position whose memory callers donate.
    ///
    /// # Errors
    /// As there.
    pub fn compile_donating(
        &self,
        f: &Traced,
        donated: &[usize],
    ) -> Result<Compiled<dyn Executable>, Diagnostic> {
        self.session(donated)?.compile(&Module::from(f.clone()), f.function())
    }

    /// Plans a traced function, and reports about the plan; parameters by position whose memory callers donate.
    ///
    /// # Errors
    /// As [`Device::compile`].
    #[cfg(feature = "report")]
    pub fn report(
        &self,
        f: &Traced,
        donated: &[usize],
        request: &crate::engine::ReportRequest,
    ) -> Result<crate::report::Report, Diagnostic> {
        self.session(donated)?.report(&Module::from(f.clone()), f.function(), request)
    }

    /// A traced function that runs arguments of any extents where it has symbols
    /// ([`Tracer::symbol`](crate::trace::Tracer::symbol)).
    ///
    /// # Errors
    /// As [`Session::compile_symbolic`].
    pub fn compile_symbolic(&self, f: &Traced) -> Result<CompiledSymbolic, Diagnostic> {
        self.session(&[])?.compile_symbolic(&Module::from(f.clone()), f.function())
    }
}

/// Devices are equal where engine and options are: programs for one are programs for the other.
impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        let asked = |d: &Device| {
            let r = &d.request;
            let options = (r.plan.clone(), r.threads, r.vectors, r.limits);
            let ranks = (d.simulated, r.ranks.ranks(), r.ranks.rank());
            (d.engine.row.name, r.number, options, (d.mem_budget, d.compile_budget), ranks)
        };
        asked(self) == asked(other) && self.group().is(other.group())
    }
}

impl Default for Device {
    fn default() -> Device {
        Device::cpu()
    }
}

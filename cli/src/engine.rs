//! The options that choose an engine and its number of threads.

use super::budget::{self, MemBudget, free_peak};
use super::device::device;
use super::failure::Failure;
use super::freedom::Freedom;
use super::given::PlanFile;
use super::losses;
use super::machine::{TripLimit, machine, session};
use super::program::LoadedProgram;
use super::streams::Streams;
use super::values::whole;
use adfuse::backends::RankGroup;
use adfuse::backends::backend::Executable;
use adfuse::backends::cpu::Vectors;
use adfuse::backends::limits::RunLimits;
use adfuse::engine::registry::{self, EngineStart, NamedEngine, Request};
use adfuse::engine::{
    Compiled, Engine as Runs, ReadyFunction, Reference, Session, Settings, WithFallback,
};
use adfuse::fusion::{Effort, Fp, Lossy, MachineModel, PlanOptions};
use adfuse::ir::rewrite::AttentionSteps;
use adfuse::ir::{Diagnostic, Function, Kind as Wrong, Module};
use adfuse::kernel_cache::KernelCache;
use adfuse::pipeline::prepared_with;
use adfuse::plan_cache::PlanCache;
use clap::Args;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

/// What runs a function.
#[derive(Args)]
pub(super) struct EngineArgs {
    #[arg(long, value_name = "ENGINE", value_parser = machine, help = help())]
    engine: Option<NamedEngine>,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    width: VectorsArg,
    #[command(flatten)]
    trips: TripLimit,
}

/// What engines there are.
fn help() -> String {
    let (all, usual) = (registry::described(), registry::usual().row.name);
    format!(
        "What runs functions: {all}; without this, {usual}, and reference for what that cannot run"
    )
}

/// How wide vectors are.
#[derive(Args)]
pub(super) struct VectorsArg {
    /// Bits of a vector of the engine `cpu`: 128, 256 or 512; without this, the most that the host has
    #[arg(long, value_name = "BITS")]
    vectors: Option<u32>,
}

/// On how many threads.
#[derive(Args)]
pub(super) struct Threads {
    /// Threads of the engine `cpu`, 1 to 256; without this, one for each core
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=MOST_THREADS as u64))]
    threads: Option<usize>,
}

/// A function that an engine has made ready.
pub(super) type AnyCompiled = Compiled<dyn Executable>;

/// What [`Freedom`] comes to, once the files that it names are read.
pub(super) struct ResolvedFreedom {
    /// How numbers may differ from the text's.
    pub(super) fp: Fp,
    /// The plan that was given.
    given: Option<PlanFile>,
    /// The machine that it was made for; without a plan, the one that is named, or the engine's.
    machine: MachineModel,
    effort: Effort,
    /// Of memory, in bytes, and of the time to compile.
    budget: (Option<MemBudget>, Option<Duration>),
    cache: Option<PlanCache>,
    code: Option<KernelCache>,
    lossy: Lossy,
    /// Whether any of it was asked for.
    asked: bool,
}

/// The most threads that may be asked for.
const MOST_THREADS: usize = 256;

/// Says that profilers shall see the names of functions made at run time.
const PERF_MAP: &str = "ADFUSE_PERF_MAP";

impl Threads {
    /// How many threads.
    pub(super) fn count(&self) -> usize {
        let cores = || available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
        self.threads.unwrap_or_else(cores)
    }
}

impl VectorsArg {
    /// How wide.
    pub(super) fn vectors(&self) -> Result<Vectors, Failure> {
        let Some(bits) = self.vectors else { return Ok(Vectors::host()) };
        let known = Vectors::of_bits(bits)
            .ok_or_else(|| Failure::usage(format!("--vectors is 128, 256 or 512, found {bits}")))?;
        known.checked().map_err(Failure::Usage)
    }
}

impl ResolvedFreedom {
    /// What was asked for, with the plan that is to be followed if there is one, and the machine that is planned for if one
    /// is named.
    pub(super) fn of(
        freedom: &Freedom,
        lossy: Lossy,
        (given, planned_for): (Option<PlanFile>, Option<&str>),
        engine: &EngineArgs,
    ) -> Result<ResolvedFreedom, Failure> {
        let budget = (freedom.budget.memory(), freedom.budget.compiling());
        let cache = freedom.budget.cache();
        let code = freedom.budget.code();
        let named = engine.named().device();
        let differs = given.is_some() || planned_for.is_some() || !lossy.is_nothing();
        let asked = freedom.is_asked() || differs;
        let machine = match (&given, planned_for) {
            (Some(plan), Some(_)) => plan.device(planned_for)?,
            // The engine knows its machine.
            (Some(plan), None) => plan.machine_of(&named)?,
            (None, Some(name)) => device(name)?,
            (None, None) => named,
        };
        let fp = match &given {
            Some(plan) => plan.fp(freedom.fp())?,
            None => freedom.fp().unwrap_or_default(),
        };
        let effort = freedom.effort();
        Ok(ResolvedFreedom { fp, given, machine, effort, budget, cache, code, lossy, asked })
    }
}

impl EngineArgs {
    fn named(&self) -> NamedEngine {
        self.engine.unwrap_or_else(registry::usual)
    }

    /// Which attention the engine that was asked for has a step for.
    pub(super) fn attention(&self) -> AttentionSteps {
        self.named().attention()
    }

    /// Starts the engine's driver on its own thread, while the program is prepared.
    pub(super) fn begin(&self) -> EngineStart {
        self.named().begin()
    }

    /// How far programs may go.
    pub(super) fn limits(&self) -> RunLimits {
        self.trips.limits()
    }

    /// A function that is made of the program's, ready, with the module that it calls; none
    /// where the reference engine is to run it. `of` is the name that the user knows it by.
    pub(super) fn compile(
        &self,
        program: &LoadedProgram,
        (module, f, of): (&Module, &Function, &str),
        (mut settled, donated): (ResolvedFreedom, Vec<usize>),
        streams: &mut Streams<'_>,
    ) -> Result<Option<AnyCompiled>, Failure> {
        let asked = settled.asked || !donated.is_empty();
        let (given, fp, budget) = (settled.given.take(), settled.fp, settled.budget.0);
        let ranks = ranks_of(module, f, |d| program.wrong(d))?;
        let settled = ResolvedFreedom { asked, ..settled };
        let Some(engine) = self.session(settled, donated, ranks)? else {
            return Ok(None);
        };
        let make = || -> Result<Result<AnyCompiled, Diagnostic>, Failure> {
            let function = match prepared_with(module, f, (engine.attention(), fp)) {
                Ok(function) => function,
                Err(d) => return Ok(Err(d)),
            };
            if let Some(written) = given {
                let (function, plan) = written.plan(&function)?;
                return match engine.follow(&function, &plan) {
                    // What is wrong with a plan is not wrong with the program.
                    Err(d) if d.kind == Wrong::Usage => Err(Failure::Usage(d)),
                    made => Ok(made),
                };
            }
            let engine = &match within(&engine, budget, &function) {
                Err(d) => return Err(losses::fault(program, d)),
                Ok(engine) => engine,
            };
            let decided = match engine.plan_prepared(&function) {
                Err(d) if matches!(d.kind, Wrong::UnknownName | Wrong::Usage) => {
                    return Err(losses::fault(program, d));
                }
                Err(d) => return Ok(Err(d)),
                Ok(decided) => decided,
            };
            losses::tell(&engine.settings.lossy, &decided.narrowed, streams);
            budget::tell(&decided.notes, streams);
            Ok(engine.follow_prepared(&decided))
        };
        match make()? {
            Ok(made) => {
                map_for_profilers(&*made.executable, streams);
                Ok(Some(made))
            }
            Err(d) if self.falls(&d) && !asked => {
                tell(streams, of, &d);
                Ok(None)
            }
            Err(d) => Err(program.wrong(d)),
        }
    }

    /// Has functions run by the engine that is asked for, and tells what it did not run.
    pub(super) fn with<T>(
        &self,
        program: &LoadedProgram,
        settled: ResolvedFreedom,
        streams: &mut Streams<'_>,
        run: impl FnOnce(&dyn Runs) -> Result<T, Diagnostic>,
    ) -> Result<T, Failure> {
        let (asked, budget) = (settled.asked, settled.budget.0);
        let Some(session) = self.session(settled, Vec::new(), RankGroup::alone())? else {
            return run(&Reference { limits: self.limits() }).map_err(|d| program.wrong(d));
        };
        if let Some(budget @ MemBudget::Share(_)) = budget {
            return run(&SharedBudget { session, budget }).map_err(|d| program.wrong(d));
        }
        if self.engine.is_some() || asked {
            return run(&session).map_err(|d| program.wrong(d));
        }
        let either = WithFallback::new(session);
        let result = run(&either);
        either.fallbacks().iter().for_each(|(of, d)| tell(streams, of, d));
        result.map_err(|d| program.wrong(d))
    }

    /// The engine as it was asked for; none for one that does not plan, of which nothing may be asked that only
    /// others have.
    fn session(
        &self,
        settled: ResolvedFreedom,
        donated: Vec<usize>,
        ranks: RankGroup,
    ) -> Result<Option<Session>, Failure> {
        let named = self.named();
        if named.row.open.is_none() && settled.asked {
            let planned = registry::names(|row| row.open.is_some());
            let m = format!(
                "--fp reproducible and fast, --effort, --plan, --device, --mem-budget, --compile-budget, --lossy and --donate are for \
                 --engine {planned}"
            );
            return Err(Failure::usage(m));
        }
        if !named.row.threads {
            self.no_threads()?;
        }
        let ResolvedFreedom { fp, machine, effort, budget, cache, code, lossy, .. } = settled;
        let plan = PlanOptions { device: machine, effort, fp };
        let (threads, vectors) = match named.row.threads {
            true => (self.threads.count(), self.width.vectors()?),
            false => (1, Vectors::host()),
        };
        let usual = Request::new(plan.clone());
        let limits = self.limits();
        let number = named.number_of_rank();
        let request =
            Request { number, threads, vectors, code, limits, ranks: ranks.clone(), ..usual };
        let (memory, compile_budget) = budget;
        let mem_budget = memory.and_then(MemBudget::known);
        let usual = Settings::new(plan);
        let settings =
            Settings { mem_budget, compile_budget, cache, lossy, donated, ranks, limits, ..usual };
        session(named, settings, &request)
    }

    /// Errs when something is asked of another engine that `cpu` alone has.
    fn no_threads(&self) -> Result<(), Failure> {
        match self.threads.threads {
            Some(_) => Err(Failure::usage("--threads is for --engine cpu")),
            None if self.width.vectors.is_some() => {
                Err(Failure::usage("--vectors is for --engine cpu"))
            }
            None => Ok(()),
        }
    }

    /// Whether the reference engine takes over after this error.
    fn falls(&self, d: &Diagnostic) -> bool {
        self.engine.is_none() && d.kind == Wrong::Unsupported
    }
}

/// The ranks that this process is one of, connected, for a function that exchanges with others; it alone for any other. `wrong` makes
/// the failure of what is no fault of the command line.
pub(super) fn ranks_of(
    module: &Module,
    f: &Function,
    wrong: impl FnOnce(Diagnostic) -> Failure,
) -> Result<RankGroup, Failure> {
    match exchanges(module, f) {
        true => RankGroup::from_env().map_err(|d| match d.kind {
            Wrong::LostRank => wrong(d),
            _ => Failure::Usage(d),
        }),
        false => Ok(RankGroup::alone()),
    }
}

/// Whether a function exchanges with other ranks.
pub(super) fn exchanges(module: &Module, f: &Function) -> bool {
    let exchanges = |g: &Function| g.body_insts().iter().any(|&i| g.op(i).collective().is_some());
    exchanges(f) || module.reached(f).funcs.values().any(exchanges)
}

/// The engine with the bytes of a budget that is a part of what a function takes without one.
fn within(
    session: &Session,
    budget: Option<MemBudget>,
    function: &Function,
) -> Result<Session, Diagnostic> {
    let (mut settings, backend) = (session.settings.clone(), Arc::clone(&session.backend));
    if let Some(budget @ MemBudget::Share(_)) = budget {
        let peak = free_peak(function, &settings.plan, &settings.lossy, session)?;
        settings.mem_budget = Some(budget.of(peak));
    }
    Ok(Session { settings, backend })
}

/// An engine whose budget is a part of what each function takes without one.
struct SharedBudget {
    session: Session,
    budget: MemBudget,
}

impl Runs for SharedBudget {
    fn ready<'a>(
        &'a self,
        module: &'a Module,
        f: &'a Function,
        _: &str,
    ) -> Result<ReadyFunction<'a>, Diagnostic> {
        let free = &self.session;
        let function = prepared_with(module, f, (free.attention(), free.settings.plan.fp))?;
        within(free, Some(self.budget), &function)?.callable(module, f)
    }
}

fn tell(streams: &mut Streams<'_>, of: &str, d: &Diagnostic) {
    let at = d.at.inst.as_ref().map_or(String::new(), |i| format!(", at `{i}`"));
    streams.note(format!("@{of} runs on the reference engine: {}{at}", d.message));
}

/// Adds the functions to the map that profilers read, if the environment says so.
pub(super) fn map_for_profilers(executable: &dyn Executable, streams: &mut Streams<'_>) {
    if std::env::var_os(PERF_MAP).is_none_or(|v| v.is_empty() || v == "0") {
        return;
    }
    match executable.write_perf_map() {
        None => {}
        Some(Ok(path)) => streams.note(format!("functions are named in {}", path.display())),
        Some(Err(e)) => streams.note(format!("profilers will see no names of functions: {e}")),
    }
}

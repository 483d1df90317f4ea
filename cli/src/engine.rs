//! Which engine runs a function, on how many threads, and how free it is.

use super::budget;
use super::failure::Failure;
use super::freedom::Freedom;
use super::given::Written;
use super::losses;
use super::machine::{Machine, gpu, machine};
use super::source::Program;
use super::streams::Streams;
use adfuse::backends::Array;
use adfuse::backends::cpu::{Executable, Vectors};
use adfuse::engine::{Compiled, Cpu, Decided, Either, Engine as Runs, Gpu, OnGpu, Reference};
use adfuse::fusion::{Device, Effort, Fp, Lossy, Narrowed, Options, Plan};
use adfuse::ir::{Diagnostic, Function, Kind as Wrong, Module};
use adfuse::kernel_cache::KernelCache;
use adfuse::pipeline::prepared;
use adfuse::plan_cache::PlanCache;
use clap::Args;
use std::num::NonZero;
use std::thread::available_parallelism;

/// What runs a function.
#[derive(Args)]
pub(super) struct Engine {
    /// What runs functions: reference (instruction by instruction; the one that runs effects and `cond`), cpu
    /// (planned, as machine code), gpu or gpu:N (planned, on an NVIDIA GPU); without this, cpu, and
    /// reference what that cannot run
    #[arg(long, value_name = "ENGINE", value_parser = machine)]
    engine: Option<Machine>,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    width: Width,
}

/// How wide vectors are.
#[derive(Args)]
pub(super) struct Width {
    /// Bits of the vectors of the engine `cpu`: 128, 256 or 512; as many as the host has where it is not given
    #[arg(long, value_name = "BITS")]
    vectors: Option<u32>,
}

/// On how many threads.
#[derive(Args)]
pub(super) struct Threads {
    /// Threads of the engine `cpu`, 1 to 256; as many as there are cores where it is not given
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// What [`Freedom`] comes to, once the files that it names are read.
pub(super) struct Settled {
    /// How numbers may differ from the text's.
    pub(super) fp: Fp,
    /// The plan that was given.
    given: Option<Written>,
    effort: Effort,
    budget: Option<u64>,
    cache: Option<PlanCache>,
    code: Option<KernelCache>,
    lossy: Lossy,
    /// Whether any of it was asked for.
    asked: bool,
}

/// A function, made ready by an engine.
pub(super) enum Made {
    /// Machine code.
    Cpu(Compiled),
    /// On a GPU.
    Gpu(OnGpu),
}

impl Made {
    /// Runs it; `gives` says whether the caller gives the arguments up.
    pub(super) fn run(&self, args: Vec<Array>, gives: bool) -> Result<Vec<Array>, Diagnostic> {
        match self {
            Made::Cpu(made) if gives => made.executable.run_donating(args),
            Made::Cpu(made) => made.executable.run(&args),
            Made::Gpu(made) => made.executable.run(&args),
        }
    }
}

/// What engines that follow plans have in common.
trait Follows {
    fn narrowed(&self, f: &Function) -> Result<Narrowed, Diagnostic>;
    fn decide(&self, f: &Function) -> Result<Decided, Diagnostic>;
    fn follow(&self, f: &Function, plan: &Plan) -> Result<Made, Diagnostic>;
    fn lossy(&self) -> &Lossy;
}

impl Follows for Cpu {
    fn narrowed(&self, f: &Function) -> Result<Narrowed, Diagnostic> {
        self.narrowed(f)
    }

    fn decide(&self, f: &Function) -> Result<Decided, Diagnostic> {
        self.decide(f)
    }

    fn follow(&self, f: &Function, plan: &Plan) -> Result<Made, Diagnostic> {
        self.follow(f, plan).map(Made::Cpu)
    }

    fn lossy(&self) -> &Lossy {
        &self.lossy
    }
}

impl Follows for Gpu {
    fn narrowed(&self, f: &Function) -> Result<Narrowed, Diagnostic> {
        self.narrowed(f)
    }

    fn decide(&self, f: &Function) -> Result<Decided, Diagnostic> {
        self.decide(f)
    }

    fn follow(&self, f: &Function, plan: &Plan) -> Result<Made, Diagnostic> {
        self.follow(f, plan).map(Made::Gpu)
    }

    fn lossy(&self) -> &Lossy {
        &self.lossy
    }
}

/// The most threads that may be asked for.
const MOST_THREADS: usize = 256;

/// Says that profilers shall see the names of functions made at run time.
const PERF_MAP: &str = "ADFUSE_PERF_MAP";

impl Threads {
    /// How many threads.
    pub(super) fn count(&self) -> Result<usize, Failure> {
        match self.threads {
            Some(n @ 1..=MOST_THREADS) => Ok(n),
            Some(n) => {
                let m = format!("--threads is from 1 to {MOST_THREADS}, found {n}");
                Err(Failure::usage(m))
            }
            None => Ok(available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS)),
        }
    }
}

impl Width {
    /// How wide.
    pub(super) fn vectors(&self) -> Result<Vectors, Failure> {
        let Some(bits) = self.vectors else { return Ok(Vectors::host()) };
        let known = Vectors::of_bits(bits)
            .ok_or_else(|| Failure::usage(format!("--vectors is 128, 256 or 512, found {bits}")))?;
        known.checked().map_err(Failure::Usage)
    }
}

impl Settled {
    /// What was asked for, with the plan that is to be followed if there is one.
    pub(super) fn of(
        freedom: &Freedom,
        lossy: Lossy,
        given: Option<Written>,
        engine: &Engine,
    ) -> Result<Settled, Failure> {
        let (budget, cache) = (freedom.budget.bytes(), freedom.budget.cache());
        let code = freedom.budget.code();
        let machine = engine.engine.unwrap_or(Machine::Cpu).device();
        let asked = freedom.is_asked() || given.is_some() || !lossy.is_nothing();
        let fp = match &given {
            // The engine knows its machine.
            Some(plan) => plan.device(Some(machine)).and_then(|_| plan.fp(freedom.fp()))?,
            None => freedom.fp().unwrap_or_default(),
        };
        let effort = freedom.effort();
        Ok(Settled { fp, given, effort, budget, cache, code, lossy, asked })
    }
}

impl Engine {
    /// A function that is made of the program's, ready, with the module that it calls; none
    /// where the reference engine is to run it. `of` is the name that the user knows it by.
    pub(super) fn compile(
        &self,
        program: &Program,
        (module, f, of): (&Module, &Function, &str),
        (settled, donated): (Settled, Vec<usize>),
        streams: &mut Streams<'_>,
    ) -> Result<Option<Made>, Failure> {
        let asked = settled.asked || !donated.is_empty();
        let Settled { given, .. } = settled;
        let settled = Settled { given: None, ..settled };
        let engine: Box<dyn Follows> = match self.engine {
            Some(Machine::Reference) => {
                self.nothing_of_cpu(asked)?;
                return Ok(None);
            }
            Some(Machine::Gpu(number)) => {
                let mut engine = self.gpu(number, settled)?;
                engine.donated = donated;
                Box::new(engine)
            }
            Some(Machine::Cpu) | None => Box::new(Cpu { donated, ..self.cpu(settled)? }),
        };
        let make = || -> Result<Result<Made, Diagnostic>, Failure> {
            let function = match prepared(module, f) {
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
            let kept = match engine.narrowed(&function) {
                Err(d) if matches!(d.kind, Wrong::UnknownName | Wrong::Usage) => {
                    return Err(Failure::Usage(Diagnostic { kind: Wrong::Usage, ..d }));
                }
                Err(d) => return Ok(Err(d)),
                Ok(kept) => kept,
            };
            losses::tell(engine.lossy(), &kept, streams);
            let function = kept.function;
            Ok(engine.decide(&function).and_then(|decided| {
                budget::tell(&decided.notes, streams);
                engine.follow(&function, &decided.plan)
            }))
        };
        match make()? {
            Ok(made) => {
                if let Made::Cpu(made) = &made {
                    map_for_profilers(&made.executable, streams);
                }
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
        program: &Program,
        settled: Settled,
        streams: &mut Streams<'_>,
        run: impl FnOnce(&dyn Runs) -> Result<T, Diagnostic>,
    ) -> Result<T, Failure> {
        let asked = settled.asked;
        if self.engine == Some(Machine::Reference) {
            self.nothing_of_cpu(asked)?;
            return run(&Reference).map_err(|d| program.wrong(d));
        }
        if let Some(Machine::Gpu(number)) = self.engine {
            return run(&self.gpu(number, settled)?).map_err(|d| program.wrong(d));
        }
        let cpu = self.cpu(settled)?;
        if self.engine == Some(Machine::Cpu) || asked {
            return run(&cpu).map_err(|d| program.wrong(d));
        }
        let either = Either::new(cpu);
        let result = run(&either);
        either.fell().iter().for_each(|(of, d)| tell(streams, of, d));
        result.map_err(|d| program.wrong(d))
    }

    /// The engine `cpu` as it was asked for.
    fn cpu(&self, settled: Settled) -> Result<Cpu, Failure> {
        let Settled { fp, effort, budget, cache, lossy, .. } = settled;
        let plan = Options { device: Device::cpu(), effort, fp };
        let (threads, vectors) = (self.threads.count()?, self.width.vectors()?);
        Ok(Cpu { plan, threads, vectors, mem_budget: budget, cache, lossy, ..Cpu::default() })
    }

    /// The engine `gpu` as it was asked for.
    fn gpu(&self, number: u32, settled: Settled) -> Result<Gpu, Failure> {
        self.no_threads()?;
        let Settled { fp, effort, budget, cache, code, lossy, .. } = settled;
        let mut engine = gpu(number)?;
        engine.plan = Options { device: Gpu::planned_for(), effort, fp };
        engine.mem_budget = budget;
        engine.cache = cache;
        engine.code = code;
        engine.lossy = lossy;
        Ok(engine)
    }

    /// Errs when something is asked of the reference engine that it has not.
    fn nothing_of_cpu(&self, asked: bool) -> Result<(), Failure> {
        if asked {
            let m = "--fp reproducible and fast, --effort, --plan, --mem-budget, --lossy and --donate are for \
                 --engine cpu and gpu";
            return Err(Failure::usage(m));
        }
        self.no_threads()
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

fn tell(streams: &mut Streams<'_>, of: &str, d: &Diagnostic) {
    let at = d.at.inst.as_ref().map_or(String::new(), |i| format!(", at `{i}`"));
    streams.note(format!("@{of} runs on the reference engine: {}{at}", d.message));
}

/// Adds the functions to the map that profilers read, if the environment says so.
pub(super) fn map_for_profilers(executable: &Executable, streams: &mut Streams<'_>) {
    if std::env::var_os(PERF_MAP).is_none_or(|v| v.is_empty() || v == "0") {
        return;
    }
    match executable.write_perf_map() {
        Ok(path) => streams.note(format!("functions are named in {}", path.display())),
        Err(e) => streams.note(format!("profilers will see no names of functions: {e}")),
    }
}

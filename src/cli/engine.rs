//! Which engine runs a function, on how many threads, and how free it is.

use super::budget::{self, Budget};
use super::failure::Failure;
use super::given::Written;
use super::losses::{self, Losses};
use super::planning::{Look, Mode};
use super::source::Program;
use super::streams::Streams;
use crate::backends::cpu::{Executable, Vectors};
use crate::engine::{Compiled, Cpu, Either, Engine as Runs, Reference};
use crate::fusion::{Device, Effort, Fp, Lossy, Options, prepare};
use crate::ir::{Diagnostic, Function, Kind as Wrong, Module};
use crate::plan_cache::PlanCache;
use clap::{Args, ValueEnum};
use std::num::NonZero;
use std::path::PathBuf;
use std::thread::available_parallelism;

/// What runs a function.
#[derive(Args)]
pub(super) struct Engine {
    /// What runs functions; without this, cpu, and reference what that cannot run
    #[arg(long, value_enum)]
    engine: Option<Kind>,
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

/// How free the engine `cpu` is.
#[derive(Args)]
pub(super) struct Freedom {
    /// How numbers may differ from the text's; without this, strict: not at all
    #[arg(long, value_enum)]
    fp: Option<Mode>,
    /// How hard to look for a plan; without this, default
    #[arg(long, value_enum, conflicts_with = "plan")]
    effort: Option<Look>,
    /// A plan to follow, as text or JSON, instead of making one; the mode is the plan's
    #[arg(long, value_name = "PLAN")]
    plan: Option<PathBuf>,
    #[command(flatten)]
    budget: Budget,
    #[command(flatten)]
    losses: Losses,
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
    lossy: Lossy,
    /// Whether any of it was asked for.
    asked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Instruction by instruction, plain and slow; the one that runs effects and `cond`
    Reference,
    /// Planned, as machine code
    Cpu,
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

impl Freedom {
    /// Reads what is named.
    pub(super) fn settle(&self) -> Result<Settled, Failure> {
        let fp = self.fp.map(Mode::fp);
        let given = self.plan.as_deref().map(Written::read).transpose()?;
        let (budget, cache) = (self.budget.bytes(), self.budget.cache()?);
        let effort = self.effort.unwrap_or(Look::Default).effort();
        let lossy = self.losses.allowed()?;
        let asked = fp.is_some()
            || self.effort.is_some()
            || given.is_some()
            || budget.is_some()
            || !lossy.is_nothing();
        let fp = match &given {
            // The engine knows its machine.
            Some(plan) => plan.device(Some("cpu")).and_then(|_| plan.fp(fp))?,
            None => fp.unwrap_or(Fp::Strict),
        };
        Ok(Settled { fp, given, effort, budget, cache, lossy, asked })
    }
}

impl Engine {
    /// Machine code of a function that is made of the program's, with the module that it calls; none
    /// where the reference engine is to run it. `of` is the name that the user knows it by.
    pub(super) fn compile(
        &self,
        program: &Program,
        (module, f, of): (&Module, &Function, &str),
        (settled, donated): (Settled, Vec<usize>),
        streams: &mut Streams<'_>,
    ) -> Result<Option<Compiled>, Failure> {
        let Settled { fp, given, effort, budget, cache, lossy, asked } = settled;
        if self.engine == Some(Kind::Reference) {
            if asked || !donated.is_empty() {
                let m = "--fp, --effort, --plan, --mem-budget, --lossy and --donate are for --engine cpu";
                return Err(Failure::usage(m));
            }
            self.nothing_of_cpu()?;
            return Ok(None);
        }
        let plan = Options { device: Device::cpu(), effort, fp };
        let (threads, vectors) = (self.threads.count()?, self.width.vectors()?);
        let asked = asked || !donated.is_empty();
        let cpu = Cpu { plan, threads, vectors, mem_budget: budget, cache, lossy, donated };
        let make = || -> Result<Result<Compiled, Diagnostic>, Failure> {
            let function = match prepare(module, f) {
                Ok(function) => function,
                Err(d) => return Ok(Err(d)),
            };
            if let Some(written) = given {
                let (function, plan) = written.plan(&function)?;
                return match cpu.follow(&function, &plan) {
                    // What is wrong with a plan is not wrong with the program.
                    Err(d) if d.kind == Wrong::Usage => Err(Failure::Usage(d)),
                    made => Ok(made),
                };
            }
            let kept = match cpu.narrowed(&function) {
                Err(d) if matches!(d.kind, Wrong::UnknownName | Wrong::Usage) => {
                    return Err(Failure::Usage(Diagnostic { kind: Wrong::Usage, ..d }));
                }
                Err(d) => return Ok(Err(d)),
                Ok(kept) => kept,
            };
            losses::tell(&kept.left, streams);
            let function = kept.function;
            Ok(cpu.decide(&function).and_then(|decided| {
                budget::tell(&decided.notes, streams);
                cpu.follow(&function, &decided.plan)
            }))
        };
        match make()? {
            Ok(made) => {
                map_for_profilers(&made.executable, streams);
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
        streams: &mut Streams<'_>,
        run: impl FnOnce(&dyn Runs) -> Result<T, Diagnostic>,
    ) -> Result<T, Failure> {
        if self.engine == Some(Kind::Reference) {
            self.nothing_of_cpu()?;
            return run(&Reference).map_err(|d| program.wrong(d));
        }
        let (threads, vectors) = (self.threads.count()?, self.width.vectors()?);
        let cpu = Cpu { threads, vectors, ..Cpu::default() };
        if self.engine == Some(Kind::Cpu) {
            return run(&cpu).map_err(|d| program.wrong(d));
        }
        let either = Either::new(cpu);
        let result = run(&either);
        either.fell().iter().for_each(|(of, d)| tell(streams, of, d));
        result.map_err(|d| program.wrong(d))
    }

    fn nothing_of_cpu(&self) -> Result<(), Failure> {
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

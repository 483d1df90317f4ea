//! Budgets of memory and of the time to compile on the command line, and the folder of their plans.

use super::streams::Streams;
use adfuse::device::bytes as size;
use adfuse::engine::{Cpu, Session, Settings};
use adfuse::fusion::{
    AnyEngine, EngineModel, KernelFacts, Lossy, LoweringMemo, MachineModel, PlanOptions,
    SizedProgram, StepSizes, decide_loops, lower, memory_beside, narrow_storage, plan_among,
};
use adfuse::ir::kernel::{Program, verify};
use adfuse::ir::{At, Diagnostic, Fp, Function, Kind};
use adfuse::kernel_cache::KernelCache;
use adfuse::plan_cache::PlanCache;
use clap::Args;
use etcetera::base_strategy::{BaseStrategy, choose_base_strategy};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How much memory there is.
#[derive(Args)]
pub(super) struct Budget {
    /// The most memory that inputs, results, constants and all values between may take together: 64MiB,
    /// 1.5GB, bytes, or 50% of what the plan without a budget takes
    ///
    /// What does not fit is computed again where it is needed. Of the plans that fit, the fastest is taken. If none
    /// fits, the error names the smallest budget that would do, and the exit status is 1.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = mem_budget,
        allow_hyphen_values = true
    )]
    mem_budget: Option<MemBudget>,
    /// The most time that compiling may take, as predicted: 50ms, 1.5s
    ///
    /// Of the plans that compile within it, and fit the memory budget if there is one, the fastest is taken. If there
    /// is none, the error names the shortest time in which one compiles, and the exit status is 1.
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    compile_budget: Option<Duration>,
    #[command(flatten)]
    folder: Folder,
    /// Do not use or keep plans and GPU code
    #[arg(long, conflicts_with = "cache")]
    no_cache: bool,
}

/// Where plans are kept.
#[derive(Args)]
pub(super) struct Folder {
    /// The folder where plans and GPU code are kept; without this, the one that ADFUSE_CACHE names, or
    /// `adfuse` in the user's folder of caches
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

/// A budget of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MemBudget {
    /// In bytes.
    Bytes(u64),
    /// As a part, from 0 to 1, of the peak of the plan without a budget.
    Share(f64),
}

impl MemBudget {
    /// The bytes, where the plan without a budget takes this many.
    pub(super) fn of(self, peak: u64) -> u64 {
        match self {
            MemBudget::Bytes(bytes) => bytes,
            MemBudget::Share(part) => (peak as f64 * part) as u64,
        }
    }

    /// The bytes, where they are known already.
    pub(super) fn known(self) -> Option<u64> {
        match self {
            MemBudget::Bytes(bytes) => Some(bytes),
            MemBudget::Share(_) => None,
        }
    }
}

/// Reads a budget of memory as people write it.
fn mem_budget(text: &str) -> Result<MemBudget, String> {
    let Some(percent) = text.strip_suffix('%') else {
        return size(text)
            .map(MemBudget::Bytes)
            .map_err(|e| format!("{e} (or a part of what a plan without a budget takes: 50%)"));
    };
    match percent.trim().parse::<f64>() {
        Ok(x) if (0.0..=100.0).contains(&x) => Ok(MemBudget::Share(x / 100.0)),
        _ => Err("expected a part from 0% to 100% of what the plan without a budget takes".into()),
    }
}

/// The peak of the plan that is made of a prepared function without a budget, as `plan` prints it.
///
/// # Errors
/// As planning.
pub(super) fn free_peak(
    f: &Function,
    options: &PlanOptions,
    lossy: &Lossy,
    engine: &dyn EngineModel,
) -> Result<u64, Diagnostic> {
    let kept = narrow_storage(f, lossy, options, engine)?;
    let f = decide_loops(&kept.function, options, engine)?.function;
    let plan = plan_among(&f, options, engine)?.plan.donating(engine.donated());
    let program = verify(lower(&f, &plan, &options.device)?).map_err(|all| {
        let unknown = || Diagnostic::new(At::default(), Kind::Internal, "the plan has no program");
        all.into_iter().next().unwrap_or_else(unknown)
    })?;
    let sized = engine.sized(&program)?;
    sized.peak(&memory_beside(&program, options.effort, sized.scratch())?)
}

/// Reads a time as people write it.
fn duration(text: &str) -> Result<Duration, String> {
    let such = "expected a time, such as 50ms, 1.5s or 800us";
    if text.starts_with('-') {
        return Err(format!("{such}, not below 0"));
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale = match unit.trim_start() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        // Nothing is nothing in every unit, as it is of bytes.
        "" if number.parse() == Ok(0.0) => 1.0,
        "" => return Err(such.to_owned()),
        other => return Err(format!("{such}; `{other}` is no unit")),
    };
    let number: f64 = number.parse().map_err(|_| such.to_owned())?;
    Duration::try_from_secs_f64(number * scale).map_err(|_| such.to_owned())
}

/// Names the folder where plans are kept.
const CACHE: &str = "ADFUSE_CACHE";

impl Budget {
    /// The budget of memory.
    pub(super) fn memory(&self) -> Option<MemBudget> {
        self.mem_budget
    }

    /// The budget of the time to compile.
    pub(super) fn compiling(&self) -> Option<Duration> {
        self.compile_budget
    }

    /// Whether there is a budget.
    pub(super) fn is_given(&self) -> bool {
        self.mem_budget.is_some() || self.compile_budget.is_some()
    }

    /// Where plans are kept; nowhere, if that is wanted or there is no such folder.
    pub(super) fn cache(&self) -> Option<PlanCache> {
        (!self.no_cache).then(|| self.folder.cache()).flatten()
    }

    /// Where the code of GPUs is kept; nowhere, if that is wanted or there is no such folder.
    pub(super) fn code(&self) -> Option<KernelCache> {
        let folder = || self.folder.place().map(KernelCache::new);
        (!self.no_cache).then(folder).flatten()
    }
}

impl Folder {
    /// The plans of the folder; `None` for users who have none.
    pub(super) fn cache(&self) -> Option<PlanCache> {
        self.place().map(PlanCache::new)
    }

    /// The folder.
    pub(super) fn place(&self) -> Option<PathBuf> {
        let named = || std::env::var_os(CACHE).filter(|v| !v.is_empty()).map(PathBuf::from);
        let own = || Some(choose_base_strategy().ok()?.cache_dir().join("adfuse"));
        self.cache.clone().or_else(named).or_else(own)
    }
}

/// Tells what was wrong with the place where plans are kept.
pub(super) fn tell(notes: &[String], streams: &mut Streams<'_>) {
    notes.iter().for_each(|note| streams.note(note));
}

/// What counts the memory of plans for a machine, with what was lowered of them.
pub(super) struct Counting {
    by: CountedBy,
    memo: Arc<LoweringMemo>,
}

/// What counts memory.
enum CountedBy {
    /// An engine.
    On(Box<Session>),
    /// An engine; what it does not run is counted by what programs say of themselves.
    OnOrAny(Box<Session>),
    /// No engine, with the donated parameters.
    Any(Vec<usize>),
}

impl Counting {
    /// For a machine. Those whose threads share registers are not what the engine `cpu` runs on.
    fn of(options: &PlanOptions, donated: &[usize]) -> Counting {
        match options.device.is_gpu() {
            true => Counting::new(CountedBy::Any(donated.to_vec()), options),
            false => Counting::here(options, donated),
        }
    }

    fn new(by: CountedBy, options: &PlanOptions) -> Counting {
        Counting { by, memo: Arc::new(LoweringMemo::new(&options.device)) }
    }

    /// As an engine counts that is there.
    fn on(session: Session, options: &PlanOptions) -> Counting {
        Counting::new(CountedBy::On(Box::new(session)), options)
    }

    /// For what runs on this host, whatever machine it is planned for.
    fn here(options: &PlanOptions, donated: &[usize]) -> Counting {
        let (plan, donated) = (options.clone(), donated.to_vec());
        let cpu = Cpu { plan, donated, ..Cpu::default() };
        // On hosts for which it makes no code programs are counted all the same.
        Counting::new(CountedBy::OnOrAny(Box::new(cpu.into())), options)
    }

    /// As the engine that plans run on counts it, or for the machine.
    pub(super) fn by(
        runs_on: Option<&Session>,
        options: &PlanOptions,
        donated: &[usize],
    ) -> Counting {
        match runs_on {
            None => Counting::of(options, donated),
            Some(session) if session.backend.name() == Cpu::NAME => {
                Counting::here(options, donated)
            }
            Some(session) => {
                let (plan, donated) = (options.clone(), donated.to_vec());
                let settings = Settings { plan, donated, ..session.settings.clone() };
                let backend = Arc::clone(&session.backend);
                Counting::on(Session { settings, backend }, options)
            }
        }
    }

    /// What tells its plans from those of others.
    pub(super) fn name(&self) -> &'static str {
        match &self.by {
            CountedBy::On(session) | CountedBy::OnOrAny(session) => session.backend.name(),
            CountedBy::Any(_) => "any",
        }
    }
}

impl EngineModel for Counting {
    fn memo(&self) -> Option<&Arc<LoweringMemo>> {
        Some(&self.memo)
    }

    fn donated(&self) -> &[usize] {
        match &self.by {
            CountedBy::On(session) | CountedBy::OnOrAny(session) => session.donated(),
            CountedBy::Any(donated) => donated,
        }
    }

    fn facts(&self, program: &Program, device: &MachineModel) -> Option<Vec<KernelFacts>> {
        match &self.by {
            CountedBy::On(session) | CountedBy::OnOrAny(session) => session.facts(program, device),
            CountedBy::Any(_) => None,
        }
    }

    fn window_prologues(&self, fp: Fp) -> bool {
        match &self.by {
            CountedBy::On(session) | CountedBy::OnOrAny(session) => session.window_prologues(fp),
            CountedBy::Any(_) => false,
        }
    }

    fn step_sizes(&self) -> Option<Box<dyn StepSizes + '_>> {
        match &self.by {
            CountedBy::On(session) | CountedBy::OnOrAny(session) => session.step_sizes(),
            CountedBy::Any(_) => AnyEngine.step_sizes(),
        }
    }

    fn sized<'a>(&'a self, program: &'a Program) -> Result<Box<dyn SizedProgram + 'a>, Diagnostic> {
        match &self.by {
            CountedBy::On(session) => session.sized(program),
            CountedBy::Any(_) => AnyEngine.sized(program),
            CountedBy::OnOrAny(session) => match session.sized(program) {
                Err(d) if d.kind == Kind::Unsupported => AnyEngine.sized(program),
                sized => sized,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_bytes_or_parts() {
        assert_eq!(mem_budget("1KiB"), Ok(MemBudget::Bytes(1024)));
        assert_eq!(mem_budget("50%").map(|b| b.of(1001)), Ok(500));
        assert_eq!(mem_budget("12.5 %").map(|b| b.of(64)), Ok(8));
        assert_eq!(mem_budget("100%").map(|b| b.of(7)), Ok(7));
        for wrong in ["101%", "-1%", "%", "half", "nan%", "5%%"] {
            assert!(mem_budget(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_read_or_refused() {
        for (text, due) in [
            ("50ms", Some(50_000_000)),
            ("1.5s", Some(1_500_000_000)),
            ("800 us", Some(800_000)),
            ("0ms", Some(0)),
            ("0", Some(0)),
            ("0.0", Some(0)),
            ("", None),
            ("50", None),
            ("ms", None),
            ("-1s", None),
            ("1.2.3s", None),
            ("3 hours", None),
        ] {
            let due = due.map(Duration::from_nanos);
            assert_eq!(duration(text).ok(), due, "{text}");
        }
        let told = |text: &str| duration(text).expect_err(text);
        assert!(told("-1ms").ends_with("800us, not below 0"), "{}", told("-1ms"));
        assert!(told("3 hours").ends_with("`hours` is no unit"), "{}", told("3 hours"));
    }
}

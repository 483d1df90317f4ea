//! What `plan`, `emit` and `bench` share: the function to plan, the options, and the plan.

use super::budget::{Counting, MemBudget, free_peak, tell};
use super::clock::Clock;
use super::derivative::Wrt;
use super::device::device;
use super::failure::Failure;
use super::freedom::{Freedom, PlanArg};
use super::given::PlanFile;
use super::losses::{self, Donated, Losses};
use super::machine::session;
use super::program::LoadedProgram;
use super::read_program::{ProgramArgs, ReadProgram};
use super::streams::Streams;
use super::target::FunctionArgs;
use adfuse::budget::{BudgetChoice, choose};
use adfuse::engine::registry::{self, NamedEngine, Request};
use adfuse::engine::{Session, Settings, check_donations};
use adfuse::fusion::{
    BudgetPoint, Effort, EngineModel, InverseChoice, LoopResiduals, Lossy, Memory, Narrowed, Plan,
    PlanBudget, PlanOptions, PlanPoint, PlanWithAttempts, PlannedGroups, Rewrites, StackGoal,
    budget_frontier, decide_loops, loop_residuals, lower, memory_beside, narrow_storage,
    plan_among, plan_for, value_named, ways_back,
};
use adfuse::ir::kernel::{Program as Kernels, Verified, verify};
use adfuse::ir::{Diagnostic, Function, Inst, Kind, Value};
use adfuse::kernel_cache::KernelCache;
use adfuse::pipeline::{Selection, attention_steps, text};
use clap::Args;
use std::cell::OnceCell;
use std::time::Duration;

/// The arguments that say what is planned, and how.
#[derive(Args)]
pub(super) struct PlanningArgs {
    #[command(flatten)]
    target: FunctionArgs,
    /// Differentiate first: the results, then a gradient for each parameter of --wrt
    #[arg(long)]
    grad: bool,
    #[command(flatten)]
    wrt: Wrt,
    /// The machine: cpu (two cores), cpu1 (one of them), h200, or a file that describes one; without this, the plan's, or cpu
    #[arg(long, value_name = "NAME|FILE.toml")]
    device: Option<String>,
    #[command(flatten)]
    freedom: Freedom,
    #[command(flatten)]
    followed: PlanArg,
    #[command(flatten)]
    losses: Losses,
    #[command(flatten)]
    donated: Donated,
}

/// A function ready to be planned.
pub(super) struct PlanRequest {
    /// Where it came from.
    pub(super) source: LoadedProgram,
    /// What of it is compiled.
    pub(super) selection: Selection,
    /// As it was prepared, before anything was decided.
    pub(super) prepared: Function,
    /// As the planner sees it.
    pub(super) function: Function,
    /// What it is planned for.
    pub(super) options: PlanOptions,
    /// What was recognised and rewritten, in order: rules, and the names of their results.
    pub(super) recognised: Vec<(&'static str, String)>,
    /// How many arguments it takes before cotangents.
    pub(super) arguments: usize,
    /// The most bytes that a plan may take.
    pub(super) budget: Option<u64>,
    /// The most that compiling may take.
    pub(super) compile_budget: Option<Duration>,
    /// What may be kept with losses, and what was decided before planning: the function before its loops are decided, and
    /// what is decided for these.
    pub(super) kept: Option<(Lossy, Narrowed)>,
    /// What the budget has chosen, or why there is no plan within it.
    choice: Result<Option<BudgetChoice>, Diagnostic>,
    /// The donated parameters, by position.
    pub(super) donated: Vec<usize>,
    /// The plan that was given.
    given: Option<Plan>,
    /// What counts the memory of its plans: the engine that runs it, whatever machine it is planned for, if it is run.
    counting: Counting,
    /// The plan that was made without a budget, and what it was chosen from.
    among: OnceCell<PlanWithAttempts>,
}

/// A function as it is planned, with what was decided.
struct DecidedFunction {
    function: Function,
    kept: Option<(Lossy, Narrowed)>,
    choice: Result<Option<BudgetChoice>, Diagnostic>,
}

/// A plan, and what it was chosen from where a budget decided.
pub(super) struct ChosenPlan {
    pub(super) plan: Plan,
    pub(super) choice: Option<BudgetChoice>,
}

/// What opens no engine.
type NoSession = fn(&PlanOptions) -> Result<Option<Session>, Failure>;

/// The engine that an engine's name stands for where plans are counted: what runs functions as they are has no plans, which are those of the usual one.
fn planning(named: NamedEngine) -> NamedEngine {
    if named.is_unplanned() { registry::usual() } else { named }
}

impl PlanningArgs {
    /// Reads, rewrites, differentiates and prepares the function, and reads the plan.
    pub(super) fn ready(&self) -> Result<PlanRequest, Failure> {
        self.ready_for("cpu")
    }

    /// The same, priced and counted as an engine holds it, or, where its device is not there, as the engine does for a description of that device,
    /// which is told.
    pub(super) fn ready_counted(
        &self,
        engine: Option<NamedEngine>,
        streams: &mut Streams<'_>,
    ) -> Result<PlanRequest, Failure> {
        let Some(named) = engine else { return self.ready() };
        let machine = named.row.machine;
        let open = |options: &PlanOptions| match self.session(named, options) {
            Err(Failure::Usage(d)) if d.kind == Kind::NoDevice => {
                streams.note(format!("{}: the engine counts for the machine {machine}", d.message));
                Ok(self.described(named, options))
            }
            session => session,
        };
        self.ready_by(machine, Some((named, open)), &mut Clock::new())
    }

    /// The same, planned for another machine than `cpu` where none is named.
    pub(super) fn ready_for(&self, usual: &str) -> Result<PlanRequest, Failure> {
        let none: Option<(NamedEngine, NoSession)> = None;
        self.ready_by(usual, none, &mut Clock::new())
    }

    /// The same for an engine to run it, with the phases `parse` and `ad` timed.
    pub(super) fn ready_on(
        &self,
        named: NamedEngine,
        clock: &mut Clock,
    ) -> Result<PlanRequest, Failure> {
        let open = |options: &PlanOptions| self.session(named, options);
        self.ready_by(named.row.machine, Some((named, open)), clock)
    }

    /// The same, planned for a machine where none is named, and for an engine, which is opened once the program is prepared. It begins before: what its
    /// opening waits for takes longer than that.
    pub(super) fn ready_by(
        &self,
        usual: &str,
        engine: Option<(
            NamedEngine,
            impl FnOnce(&PlanOptions) -> Result<Option<Session>, Failure>,
        )>,
        clock: &mut Clock,
    ) -> Result<PlanRequest, Failure> {
        self.wrt_needs_grad()?;
        let given = self.followed.read()?;
        let options = self.options(given.as_ref(), usual)?;
        let named = engine.as_ref().map(|(named, _)| planning(*named));
        let _start = named.map(|named| named.begin());
        let attention = named
            .map_or_else(|| attention_steps(options.device.is_gpu()), |named| named.attention());
        let prepared = self.program().read((attention, options.fp), clock);
        let runs_on = match engine {
            Some((_, open)) => open(&options)?,
            None => None,
        };
        // An engine that is not there is told before what is wrong with the program.
        let ReadProgram {
            source,
            selection,
            function: prepared,
            recognised,
            arguments,
            mut donated,
        } = prepared?;
        let counts = |donated: &[usize]| Counting::by(runs_on.as_ref(), &options, donated);
        clock.begin();
        let (decided, given, counting, budget) = match given {
            Some(written) => {
                let (function, plan) = written.plan(&prepared)?;
                check_donations(&function, &plan, &donated).map_err(Failure::Usage)?;
                donated.clone_from(&plan.donated);
                let counting = counts(&donated);
                let decided = DecidedFunction { function, kept: None, choice: Ok(None) };
                (decided, Some(plan), counting, None)
            }
            None => {
                let counting = counts(&donated);
                let budget = self.bytes(&source, &prepared, &options, &counting)?;
                let decided = self.decided(&source, &prepared, (&options, budget), &counting)?;
                (decided, None, counting, budget)
            }
        };
        clock.end("plan");
        let DecidedFunction { function, kept, choice } = decided;
        Ok(PlanRequest {
            source,
            selection,
            prepared,
            function,
            options,
            recognised,
            arguments,
            budget,
            compile_budget: self.freedom.budget.compiling(),
            kept,
            choice,
            donated,
            given,
            counting,
            among: OnceCell::new(),
        })
    }

    /// What is decided about a prepared function before it is planned, or with its plan where there is a budget.
    fn decided(
        &self,
        source: &LoadedProgram,
        prepared: &Function,
        (options, memory): (&PlanOptions, Option<u64>),
        counting: &Counting,
    ) -> Result<DecidedFunction, Failure> {
        let lossy = self.losses.allowed()?;
        let compile_seconds = self.compile_budget().map(|most| most.as_secs_f64());
        let budget = PlanBudget { memory, compile_seconds };
        let fault = |d| losses::fault(source, d);
        let mut choice = Ok(None);
        if !budget.is_free() {
            let engine = (counting as &dyn EngineModel, counting.name());
            let cache = self.freedom.budget.cache();
            choice = match choose(prepared, &lossy, options, budget, engine, cache.as_ref()) {
                // It is told after what is kept with losses.
                Err(d) if d.kind == Kind::Limit => Err(d),
                choice => Ok(Some(choice.map_err(fault)?)),
            };
        }
        let (kept, decided) = match &choice {
            Ok(Some(BudgetChoice { rewritten, .. })) => {
                (rewritten.narrowed.clone(), rewritten.decided.clone())
            }
            _ => {
                let kept = narrow_storage(prepared, &lossy, options, counting).map_err(fault)?;
                let decided = decide_loops(&kept.function, options, counting);
                (kept, decided.map_err(|d| source.wrong(d))?)
            }
        };
        let function = decided.function;
        let rewrites = match &choice {
            Ok(Some(choice)) => choice.rewritten.rewrites(),
            _ => Rewrites { loops: decided.choices, ..kept.rewrites },
        };
        let kept = Narrowed { rewrites, ..kept };
        Ok(DecidedFunction { function, kept: Some((lossy, kept)), choice })
    }

    /// The most bytes that a plan may take.
    fn bytes(
        &self,
        source: &LoadedProgram,
        function: &Function,
        options: &PlanOptions,
        counting: &Counting,
    ) -> Result<Option<u64>, Failure> {
        let Some(budget) = self.freedom.budget.memory() else { return Ok(None) };
        if let Some(bytes) = budget.known() {
            return Ok(Some(bytes));
        }
        let peak = free_peak(function, options, &self.losses.allowed()?, counting);
        Ok(Some(budget.of(peak.map_err(|d| losses::fault(source, d))?)))
    }

    fn program(&self) -> ProgramArgs<'_> {
        let wrt = self.grad.then_some(&self.wrt);
        ProgramArgs { target: &self.target, wrt, donated: &self.donated }
    }

    fn wrt_needs_grad(&self) -> Result<(), Failure> {
        match self.wrt.is_given() && !self.grad {
            true => Err(Failure::usage("--wrt needs --grad")),
            false => Ok(()),
        }
    }

    /// The engine, with what counting the memory of plans asks for. What runs functions as they are has no plans:
    /// these are counted for the one that is usual.
    fn session(
        &self,
        named: NamedEngine,
        options: &PlanOptions,
    ) -> Result<Option<Session>, Failure> {
        let named = planning(named);
        let (plan, code) = (options.clone(), self.code());
        let request = Request { number: named.number_of_rank(), code, ..Request::new(plan) };
        session(named, self.settings(options), &request)
    }

    /// What plans for an engine are priced and counted by where its device is not there.
    fn described(&self, named: NamedEngine, options: &PlanOptions) -> Option<Session> {
        let backend = named.row.described?(&Request::new(options.clone())).ok()?;
        Some(Session { settings: self.settings(options), backend })
    }

    fn settings(&self, options: &PlanOptions) -> Settings {
        let mem_budget = self.budget().and_then(MemBudget::known);
        let compile_budget = self.freedom.budget.compiling();
        Settings { mem_budget, compile_budget, ..Settings::new(options.clone()) }
    }

    /// Where the code of GPUs is kept.
    pub(super) fn code(&self) -> Option<KernelCache> {
        self.freedom.budget.code()
    }

    fn options(&self, given: Option<&PlanFile>, usual: &str) -> Result<PlanOptions, Failure> {
        let (fp, effort) = (self.freedom.fp(), self.freedom.effort());
        let (device, fp) = match given {
            Some(plan) => (plan.device(self.device.as_deref())?, plan.fp(fp)?),
            None => (device(self.device.as_deref().unwrap_or(usual))?, fp.unwrap_or_default()),
        };
        Ok(PlanOptions { device, effort, fp })
    }

    /// The most bytes that a plan may take.
    pub(super) fn budget(&self) -> Option<MemBudget> {
        self.freedom.budget.memory()
    }

    /// The most that compiling may take.
    pub(super) fn compile_budget(&self) -> Option<Duration> {
        self.freedom.budget.compiling()
    }

    /// Follows the plan of a measurement, where nothing is asked for that makes or names another.
    pub(super) fn follow_measured(&mut self, file: String, plan: String) {
        if !self.is_decided() && !self.freedom.has_effort() {
            self.followed.follow(file, plan);
        }
    }

    /// Whether there is a program to plan.
    pub(super) fn has_program(&self) -> bool {
        self.target.is_given()
    }

    /// Whether a budget is given, or a plan to follow.
    pub(super) fn is_decided(&self) -> bool {
        self.followed.is_given() || self.freedom.budget.is_given()
    }
}

impl PlanRequest {
    /// The plan: the one given, or one made, within the budget if there is one.
    pub(super) fn decide(&self, streams: &mut Streams<'_>) -> Result<ChosenPlan, Failure> {
        self.tell_losses(streams);
        if let Some(plan) = &self.given {
            return Ok(ChosenPlan { plan: plan.clone(), choice: None });
        }
        if let Some(choice) = self.choice.as_ref().map_err(|d| self.source.wrong(d.clone()))? {
            tell(&choice.notes, streams);
            let plan = choice.point.plan.clone();
            return Ok(ChosenPlan { plan, choice: Some(choice.clone()) });
        }
        let made = plan_among(&self.function, &self.options, &self.counting);
        let made = made.map_err(|d| self.source.wrong(d))?;
        let plan = self.among.get_or_init(|| made).plan.clone().donating(&self.donated);
        Ok(ChosenPlan { plan: self.with_loops(plan), choice: None })
    }

    /// What ways back read of the loops whose residuals are stacked.
    pub(super) fn stacked(&self) -> Result<Vec<LoopResiduals>, Diagnostic> {
        let Some((_, kept)) = &self.kept else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for goal in [StackGoal::Time, StackGoal::Bytes] {
            let chosen = ways_back(&kept.function).into_iter().zip(&kept.rewrites.loops);
            let chosen: Vec<Inst> =
                chosen.filter(|(_, c)| c.goal() == Some(goal)).map(|(i, _)| i).collect();
            if !chosen.is_empty() {
                let found = loop_residuals(&kept.function, goal)?;
                all.extend(found.into_iter().filter(|of| chosen.contains(&of.inst)));
            }
        }
        Ok(all)
    }

    /// What was decided about the function before it is planned.
    fn rewrites(&self) -> Option<&Rewrites> {
        match (&self.given, &self.kept) {
            (Some(plan), _) => Some(&plan.rewrites),
            (None, kept) => kept.as_ref().map(|(_, kept)| &kept.rewrites),
        }
    }

    /// What later phases recover from answers.
    pub(super) fn inverses(&self) -> &[InverseChoice] {
        self.rewrites().map_or(&[], |made| &made.inverses)
    }

    /// The plan, with what was decided for its function before.
    fn with_loops(&self, plan: Plan) -> Plan {
        match &self.kept {
            None => plan,
            Some((_, kept)) => Plan { rewrites: kept.rewrites.clone(), ..plan },
        }
    }

    fn tell_losses(&self, streams: &mut Streams<'_>) {
        if let Some((lossy, kept)) = &self.kept {
            losses::tell(lossy, kept, streams);
        }
    }

    /// The plan for every budget.
    pub(super) fn frontier(&self, streams: &mut Streams<'_>) -> Result<Vec<BudgetPoint>, Failure> {
        self.tell_losses(streams);
        let lossy = self.kept.as_ref().map(|(lossy, _)| lossy.clone()).unwrap_or_default();
        let found = budget_frontier(&self.prepared, &lossy, &self.options, &self.counting);
        Ok(found.map_err(|d| self.source.wrong(d))?.points().to_vec())
    }

    /// What a program takes, with what the engine needs beside the buffers; the peak is as the engine
    /// counts it.
    pub(super) fn memory(&self, program: &Kernels, effort: Effort) -> Result<Memory, Failure> {
        let counted = || {
            let sized = self.counting.sized(program)?;
            let memory = memory_beside(program, effort, sized.scratch())?;
            let peak = sized.peak(&memory)?;
            Ok(Memory { peak, ..memory })
        };
        counted().map_err(|d| self.source.wrong(d))
    }

    /// What counts the memory of its plans.
    pub(super) fn counting(&self) -> &Counting {
        &self.counting
    }

    /// How hard the plan was looked for.
    pub(super) fn effort(&self) -> &'static str {
        match self.options.effort {
            _ if self.given.is_some() => "replayed",
            effort => effort.name(),
        }
    }

    /// The plan of this effort.
    pub(super) fn plan_with(&self, effort: Effort) -> Result<Plan, Failure> {
        let options = PlanOptions { effort, ..self.options.clone() };
        let made =
            plan_for(&self.function, &options, &self.counting).map_err(|d| self.source.wrong(d))?;
        Ok(made.donating(&self.donated))
    }

    /// Of the plans that the one without a budget was chosen from, the one of the least peak, if that is below a number of
    /// bytes.
    pub(super) fn leanest_below(&self, peak: u64) -> Result<Option<(Effort, PlanPoint)>, Failure> {
        let Some(among) = self.among.get() else { return Ok(None) };
        let found = among.leanest_below(&self.function, &self.options, &self.counting, peak);
        found.map_err(|d| self.source.wrong(d))
    }

    /// The program of a plan, verified.
    pub(super) fn program(&self, plan: &Plan) -> Result<Verified<Kernels>, Failure> {
        let device = &self.options.device;
        let program = match self.among.get() {
            Some(among) => among.lower(&self.function, plan, device),
            None => lower(&self.function, plan, device),
        };
        let program = program.map_err(|d| self.wrong(d))?;
        verify(program).map_err(|errors| self.source.source.wrong(errors))
    }

    /// What was found on the way to the plan without a budget.
    pub(super) fn groups(&self) -> Option<PlannedGroups> {
        self.among.get().and_then(|among| among.groups().cloned())
    }

    /// The failure that an error of a pass is.
    pub(super) fn wrong(&self, d: Diagnostic) -> Failure {
        match d.kind {
            // What is wrong with a plan is not wrong with the program.
            Kind::Usage if self.given.is_some() => Failure::Usage(d),
            _ => self.source.wrong(d),
        }
    }

    /// The failure that something of this function does not read back.
    pub(super) fn broken(&self, what: &str) -> Failure {
        self.source.wrong(text::broken(&self.function.name, what))
    }

    /// The values of these names.
    pub(super) fn values(&self, names: &[String]) -> Result<Vec<Value>, Failure> {
        names.iter().map(|name| self.value(name)).collect()
    }

    /// The value of this name.
    pub(super) fn value(&self, name: &str) -> Result<Value, Failure> {
        let found = value_named(&self.function, name);
        found.map_err(|d| Failure::Usage(Diagnostic { kind: Kind::Usage, ..d }))
    }
}

//! Sessions: a backend with planning options. Preparation, storage narrowing, planning and replay are here, for every
//! engine that plans.

mod planning;
mod sizing;

pub(crate) use planning::PlannedFunction;
pub use planning::{PlanDecision, PreparedPlan};
pub(super) use sizing::{OwnSession, OwnSizes};

use super::compiled::Compiled;
use super::{Engine, ReadyFunction};
use crate::backends::ArenaLayout;
use crate::backends::backend::{AnyBackend, Backend, Executable, Prepared, erased};
use crate::backends::functions::Registry;
use crate::backends::limits::RunLimits;
use crate::backends::ranks::RankGroup;
use crate::budget::BudgetChoice;
use crate::fusion::{
    self, DecidedLoops, Lossy, MemoEngine, Memory, PREPASSES, Plan, PlanBudget, PlannedGroups,
    Recovered, SegmentedFunction, block_memory, decide_loops, keep_lossy, memory_apart,
    memory_spaced, recover_operands,
};
use crate::ir::kernel::{Program, Verified, verify};
use crate::ir::rewrite::AttentionSteps;
use crate::ir::text::Names;
use crate::ir::{At, Diagnostic, Fp, Function, Kind, Module};
use crate::pipeline::{self, CompileUnit, Compiler, missing};
use crate::plan_cache::PlanCache;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Planning options that all engines share.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The options of plans.
    pub plan: fusion::PlanOptions,
    /// The most bytes that inputs, outputs, constants and everything between may take together. It is
    /// kept, or nothing is made.
    pub mem_budget: Option<u64>,
    /// The most that compiling may take, as it is predicted: of the plans within it the fastest is taken, or nothing is
    /// made.
    pub compile_budget: Option<Duration>,
    /// The cache of plans for budgets.
    pub cache: Option<PlanCache>,
    /// Which residuals may be stored in narrower types; none by default.
    pub lossy: Lossy,
    /// The donated parameters, by position: plans put results and temporaries into their
    /// memory.
    pub donated: Vec<usize>,
    /// The user functions, for backends that call any.
    pub functions: Registry,
    /// The ranks that run the same program.
    pub ranks: RankGroup,
    /// How far programs may go.
    pub limits: RunLimits,
}

impl Settings {
    /// Settings with these options and defaults otherwise.
    pub fn new(plan: fusion::PlanOptions) -> Settings {
        Settings {
            plan,
            mem_budget: None,
            compile_budget: None,
            cache: None,
            lossy: Lossy::default(),
            donated: Vec::new(),
            functions: Registry::new(),
            ranks: RankGroup::alone(),
            limits: RunLimits::default(),
        }
    }
}

impl Settings {
    /// What plans may take.
    pub fn budget(&self) -> PlanBudget {
        let compile_seconds = self.compile_budget.map(|most| most.as_secs_f64());
        PlanBudget { memory: self.mem_budget, compile_seconds }
    }
}

/// A backend, and what is asked of its plans.
#[derive(Debug)]
pub struct Session<B: ?Sized = AnyBackend> {
    /// What is asked of plans.
    pub settings: Settings,
    /// What runs them.
    pub backend: Arc<B>,
}

impl<B: ?Sized> Clone for Session<B> {
    fn clone(&self) -> Session<B> {
        Session { settings: self.settings.clone(), backend: Arc::clone(&self.backend) }
    }
}

impl<B> Session<B>
where
    B: Backend + 'static,
    B::Executable: Sized + 'static,
{
    /// The session without the type of its backend.
    pub fn erased(self) -> Session {
        Session { settings: self.settings, backend: erased(self.backend) }
    }
}

impl<B: Backend + ?Sized> Session<B> {
    /// Plans and compiles a function of a verified module.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for what has no lowering, which the error names, and what the backend does not run;
    /// [`Kind::UnknownName`] for a call of a function that is not there; [`Kind::Limit`] when memory is not
    /// enough, or the budget is too small for every plan. Functions with symbols are for
    /// [`Session::compile_symbolic`].
    pub fn compile(
        &self,
        module: &Module,
        f: &Function,
    ) -> Result<Compiled<B::Executable>, Diagnostic> {
        let any_extent = |d: Diagnostic| match d.kind {
            Kind::Unsupported if !f.symbols.is_empty() && d.hint.is_none() => {
                d.hint("`compile_symbolic` gives what runs arguments of any extent")
            }
            _ => d,
        };
        self.run(CompileUnit::of(module, f), Some(PREPASSES[0].name)).map_err(any_extent)
    }

    /// What decides which forms formulas have: the attention that this engine has a step for, and the floating-point mode.
    pub fn mode(&self) -> (AttentionSteps, Fp) {
        (self.attention(), self.settings.plan.fp)
    }

    /// Which attention this engine has a step for.
    pub fn attention(&self) -> AttentionSteps {
        self.backend.capabilities().attention
    }

    /// Compiles a prepared function with a given plan.
    ///
    /// # Errors
    /// As [`Session::compile`], and [`Kind::Usage`] for a plan that does not fit, or that uses the memory of a
    /// parameter that the caller does not donate.
    pub fn follow(
        &self,
        function: &Function,
        plan: &Plan,
    ) -> Result<Compiled<B::Executable>, Diagnostic> {
        self.run(CompileUnit::planned(function, plan), Some("lower"))
    }

    /// As [`Session::follow`], for a plan of this session: its program is put together from what was lowered to find it.
    ///
    /// # Errors
    /// As there.
    pub fn follow_prepared(
        &self,
        made: &PreparedPlan,
    ) -> Result<Compiled<B::Executable>, Diagnostic> {
        let running = self.passes();
        running.groups.replace(made.groups.clone());
        let unit = CompileUnit::planned(&made.narrowed.function, &made.plan);
        self.run_with(&running, unit, Some("lower"))
    }

    /// Compiles a program.
    ///
    /// # Errors
    /// As [`Session::compile`].
    pub fn of_program(
        &self,
        program: Verified<Program>,
    ) -> Result<Compiled<B::Executable>, Diagnostic> {
        self.run(CompileUnit::of_program(program), None)
    }

    /// Compiles a program of a plan that was made with these groups: its memory is packed as it was to find the plan.
    ///
    /// # Errors
    /// As [`Session::of_program`].
    pub fn of_planned_program(
        &self,
        program: Verified<Program>,
        groups: Option<PlannedGroups>,
    ) -> Result<Compiled<B::Executable>, Diagnostic> {
        let running = self.passes();
        running.groups.replace(groups);
        self.run_with(&running, CompileUnit::of_program(program), None)
    }

    /// The passes from one on, or from the first that is the engine's own. One that has none arranges its memory
    /// and makes what runs all the same.
    fn run(
        &self,
        unit: CompileUnit<'_>,
        from: Option<&str>,
    ) -> Result<Compiled<B::Executable>, Diagnostic> {
        self.run_with(&self.passes(), unit, from)
    }

    fn run_with(
        &self,
        running: &PassState<'_, B>,
        mut unit: CompileUnit<'_>,
        from: Option<&str>,
    ) -> Result<Compiled<B::Executable>, Diagnostic> {
        let mut own = pipeline::own_passes(self.backend.name()).map(|pass| pass.name);
        let (first, last) = (own.next(), own.next_back());
        if let Some(from) = from.or(first) {
            let to = last.or(first).unwrap_or("lower");
            pipeline::run(running, &mut unit, from, to)?;
        }
        if first.is_none() {
            running.arrange(&mut unit)?;
            running.make(&mut unit)?;
        }
        let executable = running.made.take().ok_or_else(|| missing("executable"))?;
        let (program, memory) = unit.arranged()?;
        let code_time = running.code_time.get();
        Ok(Compiled { program, memory, executable, code_time })
    }

    fn passes(&self) -> PassState<'_, B> {
        PassState {
            session: self,
            planner: MemoEngine::new(self, &self.settings.plan.device),
            chosen: RefCell::default(),
            groups: RefCell::default(),
            prepared: RefCell::default(),
            made: RefCell::default(),
            code_time: Cell::default(),
        }
    }

    /// The memory plan of a program.
    ///
    /// # Errors
    /// [`Kind::Limit`] when the buffers are too large to count, and as [`Backend::prepare`].
    pub fn layout(&self, program: &Verified<Program>) -> Result<(Memory, ArenaLayout), Diagnostic> {
        let memory = self.memory_to_run(&*self.prepared(program)?, None)?;
        let layout = arena_layout(&memory);
        Ok((memory, layout))
    }

    /// A function, ready to be run at arguments that are only lent: where the plan uses their memory, copies of
    /// them are donated. One with symbols is compiled when it is run.
    ///
    /// # Errors
    /// As [`Session::compile`].
    pub fn callable(
        &self,
        module: &Module,
        f: &Function,
    ) -> Result<ReadyFunction<'static>, Diagnostic>
    where
        B: 'static,
        B::Executable: 'static,
    {
        if !f.symbols.is_empty() {
            let made = self.compile_symbolic(module, f)?;
            return Ok(Box::new(move |args| made.run(args)));
        }
        let made = self.compile(module, f)?;
        Ok(Box::new(move |args| made.run(args)))
    }

    /// A program as the backend runs it; the programs in it have the memory that this session plans.
    fn prepared<'a>(
        &'a self,
        program: &Verified<Program>,
    ) -> Result<Box<dyn Prepared<Executable = B::Executable> + 'a>, Diagnostic> {
        let effort = self.settings.plan.effort;
        self.backend.prepare(program, &|program, scratch, again| {
            Ok(arena_layout(&block_memory(program, effort, scratch, again)?))
        })
    }

    fn memory<E: ?Sized>(
        &self,
        prepared: &dyn Prepared<Executable = E>,
        groups: Option<&PlannedGroups>,
    ) -> Result<Memory, Diagnostic> {
        let (scratch, again) = (prepared.scratch(), prepared.reads_again());
        let (program, effort) = (prepared.program(), self.settings.plan.effort);
        match groups {
            Some(groups) => groups.memory_apart(program, effort, scratch, &again),
            None => memory_apart(program, effort, scratch, &again),
        }
    }

    /// The same for a program that is to run: what steps use that run at the same time is apart, where the peak is no higher.
    fn memory_to_run<E: ?Sized>(
        &self,
        prepared: &dyn Prepared<Executable = E>,
        groups: Option<&PlannedGroups>,
    ) -> Result<Memory, Diagnostic> {
        let plain = self.memory(prepared, groups)?;
        let ranges = prepared.concurrent();
        if ranges.is_empty() {
            return Ok(plain);
        }
        let (program, again) = (prepared.program(), prepared.reads_again());
        let effort = self.settings.plan.effort;
        let scratch = prepared.scratch();
        let spaced = memory_spaced(program, effort, (scratch, &again), ranges, &plain)?;
        let peak = |memory: &Memory| prepared.peak(&arena_layout(memory));
        match spaced {
            Some(spaced) if peak(&spaced)? <= peak(&plain)? => Ok(spaced),
            _ => Ok(plain),
        }
    }
}

/// A session on its way through the passes, with what its backend has made so far.
struct PassState<'s, B: Backend + ?Sized> {
    session: &'s Session<B>,
    /// The engine that passes plan by, with what was lowered by the passes before.
    planner: MemoEngine<'s>,
    /// What the budget has chosen, before the first pass whose result that is.
    chosen: RefCell<Option<BudgetChoice>>,
    /// What was lowered and packed to find the plan.
    groups: RefCell<Option<PlannedGroups>>,
    prepared: RefCell<Option<Box<dyn Prepared<Executable = B::Executable> + 's>>>,
    made: RefCell<Option<Arc<B::Executable>>>,
    /// How long that took.
    code_time: Cell<Duration>,
}

impl<B: Backend + ?Sized> PassState<'_, B> {
    /// Has the program prepared, unless it is.
    fn prepare(&self, unit: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        let mut prepared = self.prepared.borrow_mut();
        if prepared.is_none() {
            let made = self.session.prepared(unit.program()?)?;
            unit.backend.prepared = Some((made.program().clone(), made.reads_again()));
            *prepared = Some(made);
        }
        Ok(())
    }

    /// Makes what runs.
    fn make(&self, unit: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        let prepared = self.prepared.borrow();
        let prepared = prepared.as_ref().ok_or_else(|| missing("prepared program"))?;
        let layout = unit.layout()?;
        let begun = Instant::now();
        let made = prepared.compile(layout)?;
        self.code_time.set(begun.elapsed());
        within(self.session.settings.mem_budget, unit.program()?, made.memory().peak())?;
        unit.backend.executable = true;
        *self.made.borrow_mut() = Some(made);
        Ok(())
    }
}

impl<B: Backend + ?Sized> Compiler for PassState<'_, B> {
    fn engine(&self) -> &'static str {
        self.session.backend.name()
    }

    fn options(&self) -> &fusion::PlanOptions {
        &self.session.settings.plan
    }

    fn attention(&self) -> AttentionSteps {
        self.session.backend.capabilities().attention
    }

    fn price(&self, f: Function) -> Result<Function, Diagnostic> {
        let side = self.session.backend.capabilities().functions;
        self.session.settings.functions.priced(&f, side)
    }

    fn segment(&self, f: Function) -> Result<SegmentedFunction, Diagnostic> {
        let chosen = self.session.chosen(&f)?;
        let segmented = chosen.as_ref().map(|choice| choice.rewritten.segmented.clone());
        *self.chosen.borrow_mut() = chosen;
        Ok(segmented.unwrap_or_else(|| SegmentedFunction::undivided(f)))
    }

    fn recover(&self, f: Function) -> Result<Recovered, Diagnostic> {
        match &*self.chosen.borrow() {
            Some(choice) => Ok(choice.rewritten.recovered.clone()),
            None => recover_operands(&f, self.options(), &self.planner),
        }
    }

    fn narrow(&self, f: Function) -> Result<Function, Diagnostic> {
        if let Some(choice) = &*self.chosen.borrow() {
            return Ok(choice.rewritten.narrowed.function.clone());
        }
        let settings = &self.session.settings;
        Ok(keep_lossy(&f, &settings.lossy, &settings.plan, &self.planner)?.function)
    }

    fn loops(&self, f: Function) -> Result<DecidedLoops, Diagnostic> {
        match &*self.chosen.borrow() {
            Some(choice) => Ok(choice.rewritten.decided.clone()),
            None => decide_loops(&f, self.options(), &self.planner),
        }
    }

    fn choose(&self, f: &Function) -> Result<Plan, Diagnostic> {
        match &*self.chosen.borrow() {
            Some(choice) => Ok(choice.point.plan.clone()),
            None => {
                let made = self.session.decide_by(f, &self.planner)?;
                *self.groups.borrow_mut() = made.groups;
                Ok(made.plan)
            }
        }
    }

    fn lower(&self, f: &Function, plan: &Plan) -> Result<Program, Diagnostic> {
        let device = &self.options().device;
        match &*self.groups.borrow() {
            Some(groups) => groups.lower(f, plan, device),
            None => fusion::lower(f, plan, device),
        }
    }

    fn admit(&self, f: &Function, plan: &Plan) -> Result<(), Diagnostic> {
        check_donations(f, plan, &self.session.settings.donated)?;
        self.session.settings.ranks.admit(f)?;
        let side = self.session.backend.capabilities().functions;
        self.session.settings.functions.check(f, side)
    }

    fn schedule(&self, unit: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        self.prepare(unit)
    }

    fn launch(&self, unit: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        self.prepare(unit)
    }

    fn arrange(&self, unit: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        self.prepare(unit)?;
        let prepared = self.prepared.borrow();
        let prepared = prepared.as_ref().ok_or_else(|| missing("prepared program"))?;
        let groups = self.groups.borrow();
        let memory = self.session.memory_to_run(&**prepared, groups.as_ref())?;
        let layout = arena_layout(&memory);
        let peak = prepared.peak(&layout)?;
        within(self.session.settings.mem_budget, unit.program()?, peak)?;
        unit.memory = Some((Memory { peak, ..memory }, layout));
        Ok(())
    }

    fn emit(&self, unit: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        self.make(unit)
    }

    fn load(&self, unit: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        self.make(unit)
    }
}

impl<B> Engine for Session<B>
where
    B: Backend + ?Sized + 'static,
    B::Executable: 'static,
{
    fn ready<'a>(
        &'a self,
        module: &'a Module,
        f: &'a Function,
        _: &str,
    ) -> Result<ReadyFunction<'a>, Diagnostic> {
        self.callable(module, f)
    }
}

/// The layout of a plan of memory, in the form that backends take.
pub fn arena_layout(memory: &Memory) -> ArenaLayout {
    let (offsets, scratch) = (memory.offsets.clone(), memory.scratch.clone());
    let (in_donor, apart) = (memory.in_donor.clone(), memory.apart.clone());
    ArenaLayout { bytes: memory.arena, offsets, scratch, in_donor, apart }
}

/// Refuses a plan that uses the memory of a parameter that the caller does not donate; `donated` has their positions.
///
/// # Errors
/// [`Kind::Usage`], with the first such parameter.
pub fn check_donations(
    function: &Function,
    plan: &Plan,
    donated: &[usize],
) -> Result<(), Diagnostic> {
    let Some(&kept) = plan.donated.iter().find(|k| !donated.contains(k)) else { return Ok(()) };
    let names = Names::of(function);
    let name = function.params().get(kept).map_or_else(String::new, |&p| names.get(p));
    let at = At { func: Some(function.name.clone()), ..At::default() };
    let m = format!("the plan uses the memory of %{name}, which is not donated");
    Err(Diagnostic::new(at, Kind::Usage, m))
}

/// Refuses a program that exceeds the budget.
fn within(mem_budget: Option<u64>, program: &Program, peak: u64) -> Result<(), Diagnostic> {
    match mem_budget.filter(|&budget| peak > budget) {
        None => Ok(()),
        Some(budget) => {
            let at = At { func: Some(program.name.clone()), ..At::default() };
            let m = format!("the program takes {peak} bytes, the budget is {budget}");
            Err(Diagnostic::new(at, Kind::Limit, m))
        }
    }
}

fn verified(program: Program) -> Result<Verified<Program>, Diagnostic> {
    verify(program).map_err(|mut errors| errors.swap_remove(0))
}

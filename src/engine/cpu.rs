//! The engine `cpu`: functions as machine code of the host.

use super::session::{OwnSession, OwnSizes};
use super::{
    Compiled, CompiledSymbolic, Engine, PlanDecision, PreparedPlan, ReadyFunction, Session,
    Settings,
};
use crate::backends::cpu::{self, ArenaLayout};
use crate::backends::functions::Registry;
use crate::backends::limits::RunLimits;
use crate::backends::ranks::RankGroup;
use crate::fusion::{
    self, Effort, Fp, KernelFacts, Lossy, MachineModel, Memory, Plan, PlannedGroups, SizedProgram,
    StepSizes,
};
use crate::ir::kernel::{Program, Verified};
use crate::ir::{Diagnostic, Function, Module};
use crate::plan_cache::PlanCache;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What the engine `cpu` has made, with the threads for it: clones of an engine share both, and nothing is
/// made twice.
#[derive(Clone, Debug, Default)]
pub struct SharedCpuEngine(Arc<Mutex<Option<Arc<cpu::CpuEngine>>>>);

impl SharedCpuEngine {
    /// The engine for these options, functions and ranks: the same as before, unless that was
    /// made for others.
    fn engine(
        &self,
        options: cpu::CpuOptions,
        functions: &Registry,
        ranks: &RankGroup,
    ) -> Arc<cpu::CpuEngine> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some(engine)
                if engine.options() == options
                    && engine.functions().is(functions)
                    && engine.ranks().is(ranks) =>
            {
                Arc::clone(engine)
            }
            _ => {
                let engine = cpu::CpuEngine::with_functions(options, functions.clone());
                Arc::clone(kept.insert(Arc::new(engine.among(ranks.clone()))))
            }
        }
    }
}

/// The engine that plans functions and compiles them to machine code.
#[derive(Clone, Debug)]
pub struct Cpu {
    /// The options of plans.
    pub plan: fusion::PlanOptions,
    /// Threads that work on it; they change no bit.
    pub threads: usize,
    /// The largest vector width; it changes no bit.
    pub vectors: cpu::Vectors,
    /// As [`Settings::mem_budget`].
    pub mem_budget: Option<u64>,
    /// As [`Settings::compile_budget`].
    pub compile_budget: Option<Duration>,
    /// As [`Settings::cache`].
    pub cache: Option<PlanCache>,
    /// As [`Settings::lossy`].
    pub lossy: Lossy,
    /// As [`Settings::donated`]; runs are [`Executable::run_donating`](cpu::CpuExecutable::run_donating)'s.
    pub donated: Vec<usize>,
    /// The user functions.
    pub functions: Registry,
    /// The ranks that run the same program; this process alone by default.
    pub ranks: RankGroup,
    /// How far programs may go.
    pub limits: RunLimits,
    /// The cache of executables, and their thread pool.
    pub kept: SharedCpuEngine,
}

impl Default for Cpu {
    fn default() -> Cpu {
        let plan = fusion::PlanOptions {
            device: MachineModel::cpu(),
            effort: Effort::Default,
            fp: Fp::default(),
        };
        Cpu {
            plan,
            threads: 1,
            vectors: cpu::Vectors::host(),
            mem_budget: None,
            compile_budget: None,
            cache: None,
            lossy: Lossy::default(),
            donated: Vec::new(),
            functions: Registry::new(),
            ranks: RankGroup::alone(),
            limits: RunLimits::default(),
            kept: SharedCpuEngine::default(),
        }
    }
}

impl Cpu {
    /// The name that identifies plans for this engine.
    pub const NAME: &str = cpu::CpuEngine::NAME;

    /// A session with the present settings.
    pub fn session(&self) -> Session<cpu::CpuEngine> {
        let Cpu {
            plan,
            mem_budget,
            compile_budget,
            cache,
            lossy,
            donated,
            functions,
            ranks,
            limits,
            ..
        } = self.clone();
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
        Session {
            settings,
            backend: self.kept.engine(self.options(), &self.functions, &self.ranks),
        }
    }

    /// As [`Session::compile`]: plans a function of a verified module and makes machine code of it.
    ///
    /// # Errors
    /// As there; [`Kind::Unsupported`](crate::ir::Kind::Unsupported) also on hosts for which no machine code
    /// is made.
    pub fn compile(&self, module: &Module, f: &Function) -> Result<Compiled, Diagnostic> {
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
    ) -> Result<CompiledSymbolic<cpu::CpuEngine>, Diagnostic> {
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
    pub fn follow(&self, function: &Function, plan: &Plan) -> Result<Compiled, Diagnostic> {
        self.session().follow(function, plan)
    }

    /// As [`Session::follow_prepared`].
    ///
    /// # Errors
    /// As there.
    pub fn follow_prepared(&self, made: &PreparedPlan) -> Result<Compiled, Diagnostic> {
        self.session().follow_prepared(made)
    }

    /// As [`Session::of_program`].
    ///
    /// # Errors
    /// As there.
    pub fn of_program(&self, program: Verified<Program>) -> Result<Compiled, Diagnostic> {
        self.session().of_program(program)
    }

    /// As [`Session::of_planned_program`].
    ///
    /// # Errors
    /// As there.
    pub fn of_planned_program(
        &self,
        program: Verified<Program>,
        groups: Option<PlannedGroups>,
    ) -> Result<Compiled, Diagnostic> {
        self.session().of_planned_program(program, groups)
    }

    /// As [`Session::layout`].
    ///
    /// # Errors
    /// As there.
    pub fn layout(&self, program: &Verified<Program>) -> Result<(Memory, ArenaLayout), Diagnostic> {
        self.session().layout(program)
    }

    /// How executables run.
    pub fn options(&self) -> cpu::CpuOptions {
        cpu::CpuOptions {
            threads: self.threads,
            fp: self.plan.fp,
            vectors: self.vectors,
            limits: self.limits,
        }
    }
}

impl From<Cpu> for Session {
    fn from(engine: Cpu) -> Session {
        engine.session().erased()
    }
}

impl fusion::EngineModel for Cpu {
    fn donated(&self) -> &[usize] {
        &self.donated
    }

    fn facts(&self, program: &Program, device: &MachineModel) -> Option<Vec<KernelFacts>> {
        fusion::EngineModel::facts(&self.session(), program, device)
    }

    fn step_sizes(&self) -> Option<Box<dyn StepSizes + '_>> {
        Some(Box::new(OwnSizes::of(self.session())?))
    }

    fn sized<'a>(&'a self, program: &'a Program) -> Result<Box<dyn SizedProgram + 'a>, Diagnostic> {
        Ok(Box::new(OwnSession::sized(self.session(), program)?))
    }
}

impl Engine for Cpu {
    fn ready<'a>(
        &'a self,
        module: &'a Module,
        f: &'a Function,
        _: &str,
    ) -> Result<ReadyFunction<'a>, Diagnostic> {
        self.session().callable(module, f)
    }
}

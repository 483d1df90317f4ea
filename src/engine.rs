//! Engines: from a function to something that runs it.

#[cfg(feature = "gpu")]
mod gpu;

#[cfg(feature = "gpu")]
pub use gpu::{Gpu, OnGpu};

use crate::backends::Array;
use crate::backends::cpu::{self, ArenaLayout, Executable};
use crate::backends::functions::Registry;
use crate::backends::reference::{Silent, run, run_with};
use crate::budget::choose;
use crate::fusion::{
    self, Device, Effort, Fp, Lossy, Memory, Narrowed, PREPASSES, Plan, keep_lossy,
};
use crate::ir::kernel::{Program, Verified, verify};
use crate::ir::text::Names;
use crate::ir::{At, Diagnostic, Function, Kind, Module};
use crate::pipeline::{self, Compiler, Unit};
use crate::plan_cache::PlanCache;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

/// A function as machine code, and what that was made of.
#[derive(Debug)]
pub struct Compiled {
    /// Its kernels.
    pub program: Verified<Program>,
    /// What they take.
    pub memory: Memory,
    /// What runs; the engine keeps it too.
    pub executable: Arc<Executable>,
}

/// What the engine `cpu` has made, with the threads for it: clones of an engine share both, and nothing is
/// made twice.
#[derive(Clone, Debug, Default)]
pub struct Kept(Arc<Mutex<Option<Made>>>);

/// An engine, and how its executables run.
type Made = (cpu::Options, Arc<cpu::Engine>);

impl Kept {
    /// What makes executables that run like this and call these functions: the same as before, unless that was
    /// asked for others.
    fn engine(&self, options: cpu::Options, functions: &Registry) -> Arc<cpu::Engine> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((of, engine)) if *of == options && engine.functions().is(functions) => {
                Arc::clone(engine)
            }
            _ => {
                let engine = cpu::Engine::with_functions(options, functions.clone());
                let engine = Arc::new(engine);
                *kept = Some((options, Arc::clone(&engine)));
                engine
            }
        }
    }
}

/// A function, ready to be run at arguments as often as one likes.
pub type Ready<'a> = Box<dyn Fn(&[Array]) -> Result<Vec<Array>, Diagnostic> + 'a>;

/// What runs functions.
pub trait Engine {
    /// Makes a function of a verified module, or one made of it, ready. `of` is the function that the
    /// user knows it by.
    ///
    /// # Errors
    /// What the engine has against it.
    fn ready<'a>(
        &'a self,
        module: &'a Module,
        f: &'a Function,
        of: &str,
    ) -> Result<Ready<'a>, Diagnostic>;
}

/// The engine that defines what programs mean. It keeps no print.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

/// The engine that plans a function and makes machine code of it.
#[derive(Clone, Debug)]
pub struct Cpu {
    /// What is planned for.
    pub plan: fusion::Options,
    /// Threads that work on it; they change no bit.
    pub threads: usize,
    /// How wide vectors may be; that changes no bit either.
    pub vectors: cpu::Vectors,
    /// The most bytes that inputs, outputs, constants and everything between may take together. It is
    /// kept, or nothing is made.
    pub mem_budget: Option<u64>,
    /// Where plans for budgets are kept from one run for the next.
    pub cache: Option<PlanCache>,
    /// What may be kept for later passes in a narrower type than it has; nothing, if not asked for.
    pub lossy: Lossy,
    /// The parameters that the caller gives up, by position: plans put results and temporaries into their
    /// memory, and runs are [`Executable::run_donating`]'s.
    pub donated: Vec<usize>,
    /// The functions that programs call by name.
    pub functions: Registry,
    /// Executables, and the threads that they share.
    pub kept: Kept,
}

/// What is followed, and what there was to say.
#[derive(Clone, Debug)]
pub struct Decided {
    /// The plan.
    pub plan: Plan,
    /// What was wrong with the place where plans are kept.
    pub notes: Vec<String>,
}

/// Machine code where there is some for a function, the reference engine elsewhere.
#[derive(Debug, Default)]
pub struct Either {
    /// The first choice.
    pub cpu: Cpu,
    fell: RefCell<Vec<(String, Diagnostic)>>,
}

impl Default for Cpu {
    fn default() -> Cpu {
        let plan =
            fusion::Options { device: Device::cpu(), effort: Effort::Default, fp: Fp::default() };
        let (lossy, donated) = (Lossy::default(), Vec::new());
        let vectors = cpu::Vectors::host();
        let (functions, kept) = (Registry::new(), Kept::default());
        Cpu {
            plan,
            threads: 1,
            vectors,
            mem_budget: None,
            cache: None,
            lossy,
            donated,
            functions,
            kept,
        }
    }
}

impl Cpu {
    /// What tells plans for this engine from those for others.
    pub const NAME: &str = "cpu";

    /// Plans a function of a verified module and makes machine code of it.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for what has no lowering, which the error names, and on hosts for which no
    /// machine code is made; [`Kind::UnknownName`] for a call of a function that is not there; [`Kind::Limit`] when memory is not enough, or the budget is too small for
    /// every plan.
    pub fn compile(&self, module: &Module, f: &Function) -> Result<Compiled, Diagnostic> {
        self.run(Unit::of(module, f), PREPASSES[0].name)
    }

    /// A [prepared](crate::fusion::prepare()) function that keeps what it may with losses, where that pays: what is
    /// decided and followed then.
    ///
    /// # Errors
    /// As [`keep_lossy`].
    pub fn narrowed(&self, function: &Function) -> Result<Narrowed, Diagnostic> {
        keep_lossy(function, &self.lossy, &self.plan, self)
    }

    /// The plan for a [prepared](crate::fusion::prepare()) function, within the budget if there is one.
    ///
    /// # Errors
    /// As [`Cpu::compile`].
    pub fn decide(&self, function: &Function) -> Result<Decided, Diagnostic> {
        let engine = (self as &dyn fusion::Engine, Cpu::NAME);
        decided(function, &self.plan, self.mem_budget, engine, self.cache.as_ref())
    }

    /// Makes machine code of a plan of a prepared function.
    ///
    /// # Errors
    /// As [`Cpu::compile`], and [`Kind::Usage`] for a plan that does not fit, or that uses the memory of a
    /// parameter that the caller does not give up.
    pub fn follow(&self, function: &Function, plan: &Plan) -> Result<Compiled, Diagnostic> {
        self.run(Unit::planned(function, plan), "lower")
    }

    /// Makes machine code of a program.
    ///
    /// # Errors
    /// As [`Cpu::compile`].
    pub fn of_program(&self, program: Verified<Program>) -> Result<Compiled, Diagnostic> {
        self.run(Unit::of_program(program), "layout")
    }

    /// The passes from one on.
    fn run(&self, mut unit: Unit<'_>, from: &str) -> Result<Compiled, Diagnostic> {
        pipeline::run(self, &mut unit, from, "machine_code")?;
        let (program, memory, executable) = unit.made(|unit| unit.executable.take())?;
        Ok(Compiled { program, memory, executable })
    }

    /// How executables run.
    pub fn options(&self) -> cpu::Options {
        cpu::Options { threads: self.threads, fp: self.plan.fp, vectors: self.vectors }
    }

    /// What a program takes, and where its temporaries are.
    ///
    /// # Errors
    /// [`Kind::Limit`] when the buffers are too large to count, and as [`cpu::scratch`].
    pub fn layout(&self, program: &Verified<Program>) -> Result<(Memory, ArenaLayout), Diagnostic> {
        let memory = fusion::memory_beside(program, self.plan.effort, &cpu::scratch(program)?)?;
        let layout = arena(&memory);
        Ok((memory, layout))
    }
}

impl Compiler for Cpu {
    fn engine(&self) -> &'static str {
        Cpu::NAME
    }

    fn options(&self) -> &fusion::Options {
        &self.plan
    }

    fn price(&self, f: Function) -> Result<Function, Diagnostic> {
        self.functions.priced(&f)
    }

    fn narrow(&self, f: Function) -> Result<Function, Diagnostic> {
        Ok(self.narrowed(&f)?.function)
    }

    fn choose(&self, f: &Function) -> Result<Plan, Diagnostic> {
        Ok(self.decide(f)?.plan)
    }

    fn admit(&self, f: &Function, plan: &Plan) -> Result<(), Diagnostic> {
        given_up(f, plan, &self.donated)?;
        self.functions.check(f)
    }

    fn arrange(&self, program: &Verified<Program>) -> Result<(Memory, ArenaLayout), Diagnostic> {
        let (memory, layout) = self.layout(program)?;
        within(self.mem_budget, program, cpu::peak(program, &layout)?)?;
        Ok((memory, layout))
    }

    fn emit(&self, unit: &mut Unit<'_>) -> Result<(), Diagnostic> {
        let (program, layout) = (unit.program()?, unit.layout()?);
        let engine = self.kept.engine(Cpu::options(self), &self.functions);
        let executable = engine.executable(program, layout)?;
        within(self.mem_budget, program, executable.memory().peak())?;
        unit.executable = Some(executable);
        Ok(())
    }
}

/// Frontiers count what the engine needs beside the buffers.
impl fusion::Engine for Cpu {
    fn donated(&self) -> &[usize] {
        &self.donated
    }

    fn scratch(&self, program: &Program) -> Result<Vec<u64>, Diagnostic> {
        cpu::scratch(&verified(program.clone())?)
    }

    fn peak(&self, program: &Program, memory: &Memory) -> Result<u64, Diagnostic> {
        cpu::peak(&verified(program.clone())?, &arena(memory))
    }
}

/// Where temporaries are, as the engine is told.
pub(crate) fn arena(memory: &Memory) -> ArenaLayout {
    let (offsets, scratch) = (memory.offsets.clone(), memory.scratch.clone());
    ArenaLayout { bytes: memory.arena, offsets, scratch, donated: memory.donated.clone() }
}

/// The plan for a [prepared](crate::fusion::prepare()) function, within the budget if there is one.
fn decided(
    function: &Function,
    options: &fusion::Options,
    mem_budget: Option<u64>,
    (engine, name): (&dyn fusion::Engine, &str),
    cache: Option<&PlanCache>,
) -> Result<Decided, Diagnostic> {
    let Some(budget) = mem_budget else {
        let plan = fusion::plan(function, options)?.donating(engine.donated());
        return Ok(Decided { plan, notes: Vec::new() });
    };
    let choice = choose(function, options, budget, (engine, name), cache)?;
    Ok(Decided { plan: choice.point.plan, notes: choice.notes })
}

/// Refuses a plan that uses the memory of a parameter that the caller does not give up.
fn given_up(function: &Function, plan: &Plan, donated: &[usize]) -> Result<(), Diagnostic> {
    let Some(&kept) = plan.donated.iter().find(|k| !donated.contains(k)) else { return Ok(()) };
    let names = Names::of(function);
    let name = function.params().get(kept).map_or_else(String::new, |&p| names.get(p));
    let at = At { func: Some(function.name.clone()), ..At::default() };
    let m = format!("the plan uses the memory of %{name}, which is not given up");
    Err(Diagnostic::new(at, Kind::Usage, m))
}

/// Refuses what takes more than the budget.
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

impl Either {
    /// Machine code by this engine where there is some.
    pub fn new(cpu: Cpu) -> Either {
        Either { cpu, fell: RefCell::default() }
    }

    /// The functions that the reference engine ran, each once by the name that the user knows, and
    /// why.
    pub fn fell(self) -> Vec<(String, Diagnostic)> {
        self.fell.into_inner()
    }
}

impl Engine for Reference {
    fn ready<'a>(
        &'a self,
        module: &'a Module,
        f: &'a Function,
        _: &str,
    ) -> Result<Ready<'a>, Diagnostic> {
        Ok(Box::new(move |args| run(module, f, args, &mut Silent)))
    }
}

impl Engine for Cpu {
    fn ready<'a>(
        &'a self,
        module: &'a Module,
        f: &'a Function,
        _: &str,
    ) -> Result<Ready<'a>, Diagnostic> {
        let made = self.compile(module, f)?.executable;
        let lent = self.donated.is_empty();
        Ok(Box::new(move |args| match lent {
            true => made.run(args),
            // The arguments are only lent here: copies of them are given up.
            false => made.run_donating(args.to_vec()),
        }))
    }
}

impl Engine for Either {
    fn ready<'a>(
        &'a self,
        module: &'a Module,
        f: &'a Function,
        of: &str,
    ) -> Result<Ready<'a>, Diagnostic> {
        match self.cpu.ready(module, f, of) {
            Err(d) if d.kind == Kind::Unsupported => {
                let mut fell = self.fell.borrow_mut();
                if fell.iter().all(|(name, _)| name != of) {
                    fell.push((of.into(), d));
                }
                let functions = &self.cpu.functions;
                Ok(Box::new(move |args| run_with(module, f, args, &mut Silent, functions)))
            }
            other => other,
        }
    }
}

//! Steps as machine code: what each of them is made of, and the order in which they are compiled.

use super::accumulated::AccumulatedProduct;
use super::argsort::CompiledArgsort;
use super::attend::CompiledAttention;
use super::block::{CompiledBlock, CompiledBranch, CompiledLoop, LoopPlaces};
use super::contract::CompiledMember;
use super::host_services::HostServices;
use super::kernel::CompiledKernel;
use super::kernel::bundle::CompiledBundle;
use super::kernel::compile::CompileContext;
use super::legal::LegalProgram;
use super::library_call::{CompiledCall, CompiledExchange, CompiledPrint};
use super::machine_code::SweepCompiler;
use super::places::BufferPlace;
use super::scalar_loop::{self, CompiledScalarLoop, ScalarTrips};
use super::scatter::CompiledScatter;
use super::scratch::ScratchLayout;
use super::step_report;
use crate::runtime::errors::within;
use crate::runtime::host_memory::OffsetAllocator;
use crate::runtime::report::StepReport;
use adfuse_ir::kernel::{Loop, Program, Step};
use adfuse_ir::{At, Diagnostic, Kind};
use cranelift_entity::EntityRef;

/// A step, made.
pub(super) enum CompiledStep {
    Kernel(CompiledKernel),
    /// Kernels that share nothing.
    Bundle(CompiledBundle),
    Contract(Vec<CompiledMember>),
    Scatter(CompiledScatter),
    Argsort(CompiledArgsort),
    Attend(Box<CompiledAttention>),
    /// A user function.
    Call(CompiledCall),
    /// An exchange between ranks.
    Exchange(CompiledExchange),
    /// An effect.
    Print(CompiledPrint),
    /// Bytes from one buffer to another.
    Copy(usize, usize, usize),
    Loop(Box<CompiledLoop>),
    /// A loop that is one function.
    ScalarLoop(CompiledScalarLoop),
    Branch(Box<CompiledBranch>),
}

impl CompiledStep {
    /// What is reported of it, with the step of the program that it was made of.
    pub(super) fn title(&self, made: &StepReport) -> String {
        let word = match self {
            CompiledStep::Kernel(_) => "kernel",
            CompiledStep::Bundle(_) => "bundle",
            CompiledStep::Contract(_) => "contract",
            CompiledStep::Scatter(_)
            | CompiledStep::Argsort(_)
            | CompiledStep::Attend(_)
            | CompiledStep::Exchange(_)
            | CompiledStep::Print(_)
            | CompiledStep::Copy(..) => {
                return format!("step {}: {}", made.origin, made.name);
            }
            CompiledStep::Call(_) => "library",
            CompiledStep::Loop(_) | CompiledStep::ScalarLoop(_) => "loop",
            CompiledStep::Branch(_) => "branch",
        };
        format!("step {}: {word} @{}", made.origin, made.name)
    }

    /// The programs in it.
    pub(super) fn blocks(&self) -> Vec<&CompiledBlock> {
        match self {
            CompiledStep::Loop(step) => step.blocks().collect(),
            CompiledStep::Branch(branch) => branch.blocks.iter().collect(),
            CompiledStep::Kernel(_)
            | CompiledStep::Bundle(_)
            | CompiledStep::Contract(_)
            | CompiledStep::Scatter(_)
            | CompiledStep::Argsort(_)
            | CompiledStep::Attend(_)
            | CompiledStep::Call(_)
            | CompiledStep::Exchange(_)
            | CompiledStep::Print(_)
            | CompiledStep::ScalarLoop(_)
            | CompiledStep::Copy(..) => Vec::new(),
        }
    }
}

/// The steps of a program, compiled.
pub(super) struct CompiledSteps {
    pub(super) steps: Vec<CompiledStep>,
    pub(super) made: Vec<StepReport>,
    /// The most slots that a step has.
    pub(super) slots: u32,
    /// Bytes of the arena, and of what steps need beside it.
    pub(super) arena: u64,
}

/// The table of pointers of a program's sweeps, before it is made.
pub(super) struct TableLayout<'l> {
    pub(super) program: &'l Program,
    pub(super) places: Vec<BufferPlace>,
    pub(super) slots: u32,
    /// Where the memory of the program begins in that of the executable.
    pub(super) base: u64,
}

/// Compiles steps, those of programs within steps too.
pub(super) struct StepCompiler<'a, 'l> {
    pub(super) compiler: &'a mut SweepCompiler,
    pub(super) host: HostServices<'a>,
    /// What each worker needs.
    pub(super) own: OffsetAllocator,
    pub(super) constants: OffsetAllocator,
    /// Of the programs within steps; that of the whole program comes before them.
    pub(super) tables: Vec<TableLayout<'l>>,
    /// Values that each loop carries, forward and back.
    pub(super) loops: Vec<[usize; 2]>,
    /// What is said to multiply, where that is not for this host to choose.
    pub(super) products: Option<&'static str>,
}

/// The place of a program among the steps of the whole one.
#[derive(Clone, Default)]
pub(super) struct StepScope {
    /// Where its memory begins.
    pub(super) base: u64,
    /// The step of the whole program that it is in.
    pub(super) step: Option<usize>,
    /// What the names of its steps begin with.
    pub(super) title: String,
}

/// What the steps of a program take beside its buffers, once they are compiled.
pub(super) struct StepNeeds<'l> {
    /// Bytes that each worker needs.
    pub(super) own: OffsetAllocator,
    pub(super) constants: OffsetAllocator,
    pub(super) tables: Vec<TableLayout<'l>>,
    pub(super) loops: Vec<[usize; 2]>,
}

/// Compiles every step of a whole program, after constants that have their places. `products` is what is said to multiply, where that is
/// not for this host to choose.
pub(super) fn compile_program<'l>(
    compiler: &mut SweepCompiler,
    (host, products): (HostServices<'_>, Option<&'static str>),
    (program, legal): (&Program, &'l LegalProgram),
    rooms: &ScratchLayout,
    constants: OffsetAllocator,
) -> Result<(CompiledSteps, StepNeeds<'l>), Diagnostic> {
    loop {
        let mut compiling = StepCompiler::new(&mut *compiler, host);
        compiling.constants = constants;
        compiling.products = products;
        let compiled = compiling.steps(program, legal, rooms, &StepScope::default())?;
        let StepCompiler { own, constants, tables, loops, .. } = compiling;
        let needs = StepNeeds { own, constants, tables, loops };
        if compiler.settled().map_err(|d| within(d, program, None))? {
            return Ok((compiled, needs));
        }
    }
}

impl<'a, 'l> StepCompiler<'a, 'l> {
    /// One that has compiled nothing.
    pub(super) fn new(
        compiler: &'a mut SweepCompiler,
        host: HostServices<'a>,
    ) -> StepCompiler<'a, 'l> {
        StepCompiler {
            compiler,
            host,
            own: OffsetAllocator::default(),
            constants: OffsetAllocator::default(),
            tables: Vec::new(),
            loops: Vec::new(),
            products: None,
        }
    }

    /// Compiles every step of a program.
    pub(super) fn steps(
        &mut self,
        program: &Program,
        legal: &'l LegalProgram,
        rooms: &ScratchLayout,
        scope: &StepScope,
    ) -> Result<CompiledSteps, Diagnostic> {
        let low = &legal.low;
        let mut all =
            CompiledSteps { steps: Vec::new(), made: Vec::new(), slots: 0, arena: rooms.end };
        for (n, step) in low.program.steps.iter().enumerate() {
            let origin = low.origin.get(n).copied();
            // Steps run one after the other: each has all of what is not kept.
            self.own.free();
            let within_step = StepScope {
                base: scope.base,
                step: Some(scope.step.unwrap_or(n)),
                title: format!("{}{}", scope.title, step.name()),
            };
            self.compiler.listing.begin(within_step.step.unwrap_or(n), &within_step.title);
            let before = self.compiler.listing.noted.len();
            let mut shared = rooms.of(origin);
            let compiled = match step {
                Step::Loop(l) => self.looped(l, (legal, n), &mut shared, &within_step),
                Step::Branch(branch) => self
                    .branched(branch, (legal, n), &mut shared, &within_step)
                    .map(|branch| CompiledStep::Branch(Box::new(branch))),
                step => {
                    let mut making = CompileContext {
                        compiler: Some(&mut *self.compiler),
                        facts: None,
                        program: &low.program,
                        shared: &mut shared,
                        own: &mut self.own,
                        slots: all.slots,
                        host: Some(self.host),
                    };
                    let compiled = work(&mut making, step, legal.accumulation(n));
                    all.slots = making.slots;
                    compiled
                }
            };
            let compiled = compiled.map_err(|d| within(d, program, origin))?;
            let report = self.report((&low.program, step), origin, &compiled, before);
            all.made.push(report);
            all.steps.push(compiled);
            all.arena = all.arena.max(shared.most);
        }
        Ok(all)
    }

    /// Compiles a loop: to one function if all that it computes is scalars.
    fn looped(
        &mut self,
        step: &Loop,
        (legal, n): (&'l LegalProgram, usize),
        shared: &mut OffsetAllocator,
        scope: &StepScope,
    ) -> Result<CompiledStep, Diagnostic> {
        let (program, blocks) = (&legal.low.program, &legal.blocks[n]);
        let Some(planned) = scalar_loop::plan(program, step, blocks, self.compiler.contracts())
        else {
            let made = self.repeated(step, (legal, n), shared, scope)?;
            return Ok(CompiledStep::Loop(Box::new(made)));
        };
        // Plans count what loops take that run block by block.
        LoopPlaces::take(shared, program, step, blocks)?;
        legal.constants_of(n, &mut self.constants)?;
        let function = self.compiler.scalar_loop(&planned)?;
        let (op, index) = (step.op(), planned.index);
        let trips = ScalarTrips::of(&step.trips);
        Ok(CompiledStep::ScalarLoop(CompiledScalarLoop { op, function, trips, index }))
    }

    /// What is known of a step, whose functions begin with one of these numbers.
    fn report(
        &self,
        (program, step): (&Program, &Step),
        origin: Option<usize>,
        compiled: &CompiledStep,
        before: usize,
    ) -> StepReport {
        let emitters = self.compiler.listing.emitters(before);
        let by: Vec<&str> = match compiled {
            CompiledStep::Contract(members) => {
                members.iter().map(|m| self.products.unwrap_or_else(|| m.generator())).collect()
            }
            CompiledStep::Attend(step) => vec![self.products.unwrap_or_else(|| step.generator())],
            _ => Vec::new(),
        };
        let origin = origin.unwrap_or_default();
        let mut report = step_report::told(program, step, origin, &emitters, &by);
        if matches!(compiled, CompiledStep::ScalarLoop(_)) {
            report.notes.push("all steps are in one function, values in registers".into());
        }
        for block in compiled.blocks() {
            step_report::add_block(&mut report, &block.role, &block.made);
        }
        report
    }
}

/// Compiles a step that has no programs in it; one that was taken out of a loop adds to what it carried.
pub(super) fn work(
    making: &mut CompileContext<'_>,
    step: &Step,
    accumulated: Option<&AccumulatedProduct>,
) -> Result<CompiledStep, Diagnostic> {
    let unsupported = |m: String| Diagnostic::new(At::default(), Kind::Unsupported, m);
    Ok(match step {
        Step::Kernel(kernel) => CompiledStep::Kernel(making.kernel(kernel, None)?),
        Step::Bundle(bundle) => CompiledStep::Bundle(making.bundle(bundle)?),
        Step::Contract(c) if accumulated.is_some() => {
            let member = |m| making.accumulated(m, accumulated);
            CompiledStep::Contract(c.members.iter().map(member).collect::<Result<_, _>>()?)
        }
        Step::Contract(c) => match making.small_products(c)? {
            Some(small) => small,
            None => CompiledStep::Contract(
                c.members.iter().map(|m| making.member(m)).collect::<Result<_, _>>()?,
            ),
        },
        Step::Scatter(s) => CompiledStep::Scatter(making.scatter(s)?),
        Step::Argsort(s) => CompiledStep::Argsort(making.argsort(s)?),
        Step::Transfer(t) => {
            let n = making.program.buffers[t.from].bytes() as usize;
            CompiledStep::Copy(t.from.index(), t.to.index(), n)
        }
        Step::Library(l) => CompiledStep::Call(making.library(l)?),
        Step::Exchange(exchange) => CompiledStep::Exchange(making.exchange(exchange)?),
        Step::Print(print) => CompiledStep::Print(making.print(print)),
        Step::Attend(s) => CompiledStep::Attend(Box::new(making.attend(s)?)),
        Step::Loop(_) | Step::Branch(_) => {
            return Err(unsupported("a step with programs in it has no code of its own".into()));
        }
    })
}

//! The engine `evaluator`: runs planned programs by the kernel evaluator.
//!
//! It is slow, safe, and has no code generator, so its results define the meaning of a plan. It checks the layout of
//! the arena as other engines do, although it stores each value separately.

use super::kernel::run_observed;
use super::kernel::state::RunEnvironment;
use crate::runtime::arena_layout::{ArenaLayout, check};
use crate::runtime::array::Array;
use crate::runtime::backend::{Arrange, Backend, Capabilities, Executable, Prepared};
use crate::runtime::functions::{CallSide, Registry};
use crate::runtime::limits::RunLimits;
use crate::runtime::ranks::{Agreement, RankGroup, RankProgram};
use crate::runtime::report::{MemoryReport, StepReport};
use crate::runtime::trace::{SpanRecorder, Trace};
use adfuse_ir::kernel::{Buffer, Program, Role, Space, Step, Verified};
use adfuse_ir::rewrite::AttentionSteps;
use adfuse_ir::{At, Diagnostic, Kind};
use std::sync::Arc;

/// Runs planned programs by evaluating their kernels.
#[derive(Clone, Debug, Default)]
pub struct Evaluator {
    functions: Registry,
    limits: RunLimits,
    ranks: RankGroup,
}

/// A program that is evaluated.
#[derive(Debug)]
pub struct Evaluated {
    program: Verified<Program>,
    functions: Registry,
    limits: RunLimits,
    agreement: Agreement,
    ranks: RankGroup,
    steps: Vec<StepReport>,
    memory: MemoryReport,
}

impl Evaluator {
    /// The name that identifies plans for this engine.
    pub const NAME: &str = "evaluator";

    /// With functions for programs to call.
    pub fn new(functions: Registry) -> Evaluator {
        Evaluator { functions, ..Evaluator::default() }
    }

    /// The same within other limits.
    pub fn within(self, limits: RunLimits) -> Evaluator {
        Evaluator { limits, ..self }
    }

    /// The same, as the engine of one of these ranks.
    #[must_use]
    pub fn among(self, ranks: RankGroup) -> Evaluator {
        Evaluator { ranks, ..self }
    }
}

impl Backend for Evaluator {
    type Executable = Evaluated;

    fn name(&self) -> &'static str {
        Evaluator::NAME
    }

    // Whatever a verified program may hold has a meaning.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            attention: AttentionSteps::Defined,
            any_layout: true,
            schedules: true,
            functions: CallSide::Host,
        }
    }

    fn prepare<'a>(
        &'a self,
        program: &Verified<Program>,
        arrange: &Arrange<'_>,
    ) -> Result<Box<dyn Prepared<Executable = Evaluated> + 'a>, Diagnostic> {
        let scratch = scratch(program, arrange)?;
        Ok(Box::new(Counted { engine: self, program: program.clone(), scratch }))
    }
}

/// Bytes of the constants of a program and of the programs in it.
fn constants(program: &Program) -> u64 {
    let own = program.buffers.values().filter(|data| matches!(data.role, Role::Constant(_)));
    let blocks = program.steps.iter().flat_map(Step::blocks);
    let blocks = blocks.map(|(_, block)| constants(&block.program));
    own.map(|data| data.bytes()).chain(blocks).fold(0, u64::saturating_add)
}

/// What each step needs by its structure; the programs in a step run one after the other.
fn scratch(program: &Program, arrange: &Arrange<'_>) -> Result<Vec<u64>, Diagnostic> {
    let mut all = Vec::new();
    for step in &program.steps {
        let mut most = 0;
        for (_, block) in step.blocks() {
            let within = scratch(&block.program, arrange)?;
            most = most.max(arrange(&block.program, &within, &[])?.bytes);
        }
        all.push(program.scratch(step).saturating_add(most));
    }
    Ok(all)
}

/// A program, and what its steps need by their structure.
struct Counted<'a> {
    engine: &'a Evaluator,
    program: Verified<Program>,
    scratch: Vec<u64>,
}

impl Counted<'_> {
    /// What a run takes as the layout has it; the evaluator's own representation of values is not counted.
    fn report(&self, layout: &ArenaLayout) -> Result<MemoryReport, Diagnostic> {
        let program = &self.program;
        let sum = |buffers: &mut dyn Iterator<Item = Buffer>| {
            let on_device = buffers.filter(|&b| program.buffers[b].space == Space::Device);
            let mut sizes = on_device.map(|b| program.buffers[b].bytes());
            sizes.try_fold(0, u64::checked_add).ok_or_else(|| {
                let at = At { func: Some(program.name.clone()), ..At::default() };
                Diagnostic::new(at, Kind::Limit, "the buffers take more bytes than can be counted")
            })
        };
        let of_role = |wanted: fn(&Role) -> bool| {
            let all = program.buffers.iter().filter(move |(_, data)| wanted(&data.role));
            all.map(|(b, _)| b)
        };
        let own = |b: &Buffer| layout.in_donor[*b].is_none();
        let unhanded = of_role(|role| *role == Role::Output);
        let unhanded = unhanded.filter(|b| !program.outputs.contains(b));
        Ok(MemoryReport {
            arena: layout.bytes,
            constants: constants(program),
            inputs: sum(&mut program.inputs())?,
            outputs: sum(&mut program.outputs.iter().copied().chain(unhanded).filter(own))?,
            ..MemoryReport::default()
        })
    }
}

impl Prepared for Counted<'_> {
    type Executable = Evaluated;

    fn program(&self) -> &Verified<Program> {
        &self.program
    }

    fn origin(&self) -> Option<&[usize]> {
        None
    }

    fn scratch(&self) -> &[u64] {
        &self.scratch
    }

    // A step's values are computed before any is stored.
    fn reads_again(&self) -> Vec<bool> {
        Vec::new()
    }

    fn peak(&self, layout: &ArenaLayout) -> Result<u64, Diagnostic> {
        Ok(self.report(layout)?.peak())
    }

    fn compile(&self, layout: &ArenaLayout) -> Result<Arc<Evaluated>, Diagnostic> {
        check(&self.program, layout, &[])?;
        let steps = self.program.steps.iter().enumerate().map(|(origin, step)| StepReport {
            origin,
            name: step.name().into(),
            generator: Evaluator::NAME.into(),
            ..StepReport::default()
        });
        Ok(Arc::new(Evaluated {
            program: self.program.clone(),
            functions: self.engine.functions.clone(),
            limits: self.engine.limits,
            agreement: Agreement::about(
                &self.engine.ranks,
                RankProgram::of(&self.program, Evaluator::NAME),
            ),
            ranks: self.engine.ranks.clone(),
            steps: steps.collect(),
            memory: self.report(layout)?,
        }))
    }
}

impl Evaluated {
    /// Runs it, and tells when each step is done.
    fn observed(
        &self,
        args: &[Array],
        done: &mut dyn FnMut(usize),
    ) -> Result<(Vec<Array>, u64), Diagnostic> {
        self.agreement.reach()?;
        let (functions, ranks) = (&mut self.functions.clone(), self.ranks.clone());
        let mut env = RunEnvironment { functions, limits: self.limits, ranks };
        run_observed(&self.program, args, &mut env, done)
    }
}

impl Executable for Evaluated {
    // The arguments are copied: none is written to, donated or not.
    fn run(&self, args: &[Array]) -> Result<Vec<Array>, Diagnostic> {
        Ok(self.observed(args, &mut |_| {})?.0)
    }

    fn trace(&self, args: &[Array]) -> Result<Trace, Diagnostic> {
        let mut recorder = SpanRecorder::new(0);
        let mut begin = recorder.now();
        let mut done = |step| {
            recorder.step(step, begin);
            begin = recorder.now();
        };
        self.observed(args, &mut done)?;
        Ok(recorder.finish())
    }

    fn steps(&self) -> &[StepReport] {
        &self.steps
    }

    fn memory(&self) -> MemoryReport {
        self.memory
    }
}

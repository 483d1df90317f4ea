//! The kernel evaluator: runs verified programs of kernels, slowly and safely, in the orders that strict mode defines.
//!
//! It does for steps what the reference engine does for instructions, with the same orders and the same scalar
//! interpreter. So lowering is tested without any other engine. It also measures the memory that a program takes, with
//! which memory plans are compared.

mod block;
pub(crate) mod contract;
pub(crate) mod read;
pub(crate) mod sink;
pub(crate) mod state;
pub(crate) mod steps;

use super::map::outputs;
use super::{EvalTensor, reserve};
use crate::runtime::array::Array;
use crate::runtime::effects::print_effect;
use crate::runtime::errors::within;
pub use crate::runtime::library_functions::{LibraryFunctions, NoFunctions};
use crate::runtime::limits::RunLimits;
use crate::runtime::ranks::RankGroup;
use adfuse_ir::kernel::{
    Buffer, Kernel, Param, Program, Role, Space, Stage, Step, Storage, Verified,
};
use adfuse_ir::scalar::ScalarProgram;
use adfuse_ir::{Diagnostic, Literal, TensorType, check_arguments};
use cranelift_entity::SecondaryMap;
use read::ParamReader;
use state::{KernelState, ProgramRun, RunEnvironment, coordinates, internal, joined, volume};

/// Runs a program on arrays of its inputs' types.
///
/// # Errors
/// When the arguments do not have the inputs' types, when memory is not enough, and when the program
/// calls a function of a library.
pub fn run(program: &Verified<Program>, args: &[Array]) -> Result<Vec<Array>, Diagnostic> {
    run_with(program, args, &mut NoFunctions)
}

/// Runs a program on arrays of its inputs' types, with functions for it to call.
///
/// # Errors
/// As [`run`]; and when a function is unknown, fails, or gives arrays of other types than its outputs.
pub fn run_with(
    program: &Verified<Program>,
    args: &[Array],
    functions: &mut dyn LibraryFunctions,
) -> Result<Vec<Array>, Diagnostic> {
    run_measured(program, args, functions).map(|(results, _)| results)
}

/// As [`run_with`], and the most bytes of the engine's memory that were in use at once: of the inputs,
/// constants and outputs that are there to the end, of the temporaries from the step that writes them
/// to the last that reads them, and beside a step its [`scratch`](Program::scratch).
///
/// # Errors
/// As [`run_with`].
pub fn run_measured(
    program: &Verified<Program>,
    args: &[Array],
    functions: &mut dyn LibraryFunctions,
) -> Result<(Vec<Array>, u64), Diagnostic> {
    let mut env =
        RunEnvironment { functions, limits: RunLimits::default(), ranks: RankGroup::alone() };
    run_observed(program, args, &mut env, &mut |_| {})
}

/// As [`run_with`], within these limits.
///
/// # Errors
/// As [`run_with`]; and when a loop takes more steps than it may.
pub fn run_within(
    program: &Verified<Program>,
    args: &[Array],
    functions: &mut dyn LibraryFunctions,
    limits: RunLimits,
) -> Result<Vec<Array>, Diagnostic> {
    let mut env = RunEnvironment { functions, limits, ranks: RankGroup::alone() };
    run_observed(program, args, &mut env, &mut |_| {}).map(|(results, _)| results)
}

/// As [`run_measured`], and tells when each step is done, by its number.
pub(crate) fn run_observed(
    program: &Verified<Program>,
    args: &[Array],
    env: &mut RunEnvironment<'_>,
    done: &mut dyn FnMut(usize),
) -> Result<(Vec<Array>, u64), Diagnostic> {
    let wanted: Vec<(String, TensorType)> =
        program.inputs().filter_map(|b| program.buffers[b].named_type()).collect();
    let found: Vec<TensorType> = args.iter().map(Array::ty).collect();
    check_arguments(&program.name, &wanted, &found)?;
    let inputs: Result<Vec<Vec<u64>>, Diagnostic> =
        args.iter().map(|a| Ok(EvalTensor::from_array(a)?.bits)).collect();
    let (results, peak) = evaluate(program, inputs?, env, done)?;
    let results: Result<Vec<Array>, Diagnostic> =
        results.iter().map(EvalTensor::to_array).collect();
    Ok((results?, peak))
}

/// Runs a program on the bits of its inputs' elements; gives its results, and the most bytes that were in use.
fn evaluate(
    program: &Program,
    inputs: Vec<Vec<u64>>,
    env: &mut RunEnvironment<'_>,
    done: &mut dyn FnMut(usize),
) -> Result<(Vec<EvalTensor>, u64), Diagnostic> {
    let mut run = ProgramRun { program, tensors: SecondaryMap::new(), live: 0, peak: 0, within: 0 };
    for (b, bits) in program.inputs().zip(inputs) {
        run.put(b, bits)?;
    }
    for (b, data) in program.buffers.iter() {
        if let Role::Constant(values) = &data.role {
            run.put(b, values.iter().map(|l| l.bits()).collect())?;
        }
    }
    let mut last_reads: SecondaryMap<Buffer, Option<usize>> = SecondaryMap::new();
    for (n, step) in program.steps.iter().enumerate() {
        for b in step.writes().chain(step.reads()) {
            last_reads[b] = Some(n);
        }
    }
    run.peak = run.live;
    for (n, step) in program.steps.iter().enumerate() {
        run.within = 0;
        run.step(step, env).map_err(|d| within(d, program, Some(n)))?;
        done(n);
        let scratch = program.scratch(step).saturating_add(run.within);
        run.peak = run.peak.max(run.live.saturating_add(scratch));
        for b in step.writes().chain(step.reads()) {
            if program.buffers[b].role == Role::Temp && last_reads[b] == Some(n) {
                run.drop(b);
            }
        }
    }
    let results: Result<Vec<EvalTensor>, Diagnostic> =
        program.outputs.iter().map(|&b| run.tensor(b).cloned()).collect();
    Ok((results?, run.peak))
}

impl ProgramRun<'_> {
    fn tensor(&self, b: Buffer) -> Result<&EvalTensor, Diagnostic> {
        self.tensors[b].as_ref().ok_or_else(|| internal("a buffer is read before it is written"))
    }

    /// Gives a buffer its values, in the order of its coordinates; memory keeps what its elements hold.
    fn put(&mut self, b: Buffer, mut bits: Vec<u64>) -> Result<(), Diagnostic> {
        let data = &self.program.buffers[b];
        if bits.len() as u64 != volume(&data.dims)? {
            return Err(internal("a buffer is given another number of elements than it has"));
        }
        let mask = match data.storage {
            Storage::Plain => u64::MAX,
            Storage::Packed(width) => !(u64::MAX << width.min(63)),
        };
        for b in &mut bits {
            *b = Literal::from_bits(data.dtype, *b & mask).bits();
        }
        // A stack is put when the loop begins, and what is carried when it ends.
        self.live += if self.tensors[b].is_some() { 0 } else { self.bytes(b) };
        self.tensors[b] = Some(EvalTensor { dtype: data.dtype, dims: data.dims.clone(), bits });
        Ok(())
    }

    /// Forgets the values of a buffer.
    fn drop(&mut self, b: Buffer) {
        if self.tensors[b].take().is_some() {
            self.live -= self.bytes(b);
        }
    }

    /// Bytes of the engine's memory that a buffer takes.
    fn bytes(&self, b: Buffer) -> u64 {
        let data = &self.program.buffers[b];
        if data.space == Space::Device { data.bytes() } else { 0 }
    }

    fn step(&mut self, step: &Step, env: &mut RunEnvironment<'_>) -> Result<(), Diagnostic> {
        match step {
            Step::Kernel(kernel) => self.kernel(kernel),
            Step::Bundle(step) => step.kernels.iter().try_for_each(|k| self.kernel(k)),
            Step::Contract(step) => self.contract(step),
            Step::Attend(step) => self.attend(step),
            Step::Scatter(step) => self.scatter(step),
            Step::Argsort(step) => self.argsort(step),
            Step::Library(step) => self.library(step, env.functions),
            Step::Transfer(step) => self.put(step.to, self.tensor(step.from)?.bits.clone()),
            Step::Exchange(step) => self.exchange(step, &env.ranks),
            Step::Print(step) => {
                print_effect(&step.label, &self.tensor(step.from)?.to_array()?);
                Ok(())
            }
            Step::Loop(step) => self.repeat(step, env),
            Step::Branch(step) => self.branch(step, env),
        }
    }

    /// Runs each stage at all points before the next: points are independent, so this is the same as
    /// running all stages at each.
    fn kernel(&mut self, kernel: &Kernel) -> Result<(), Diagnostic> {
        let mut kept = KernelState::default();
        kernel.stages.iter().try_for_each(|stage| self.stage(&kernel.domain, stage, &mut kept))
    }

    fn stage(
        &mut self,
        domain: &[i64],
        stage: &Stage,
        kept: &mut KernelState,
    ) -> Result<(), Diagnostic> {
        let values = self.values(domain, &stage.axes, &stage.params, &stage.program, kept)?;
        for (k, values) in values.into_iter().enumerate() {
            self.sink(domain, stage, k, values, kept)?;
        }
        Ok(())
    }

    /// The outputs of a program at all coordinates.
    fn values(
        &self,
        domain: &[i64],
        axes: &[i64],
        params: &[Param],
        program: &ScalarProgram,
        kept: &KernelState,
    ) -> Result<Vec<Vec<u64>>, Diagnostic> {
        let extents = joined(domain, axes);
        let within = volume(axes)?;
        let mut reader = ParamReader::new(self, params, &program.params, kept);
        outputs(program, volume(&extents)?, &mut |start, n, lanes| {
            for lane in 0..n {
                let place = (start + lane) as u64;
                reader.read(&coordinates(&extents, place), place / within, place)?;
                for (to, &bits) in lanes.iter_mut().zip(&reader.bits) {
                    to[lane] = bits;
                }
            }
            Ok(())
        })
    }
}

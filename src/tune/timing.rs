//! Times of planned programs on an engine.

use super::programs::TunedProgram;
use crate::backends::Array;
use crate::engine::Cpu;
use crate::fusion::{EngineModel, PlanOptions, lower, plan_for, prepare};
use crate::ir::kernel::{Program, Verified, verify};
use crate::ir::op::Domain;
use crate::ir::text::parse;
use crate::ir::{At, Diagnostic, Kind};
use crate::sample::{rng, sample};
use std::time::{Duration, Instant};

/// A program with its plan, as it is predicted and measured.
#[derive(Clone, Debug)]
pub struct PlannedProgram {
    /// As [`TunedProgram::family`].
    pub family: String,
    /// As [`TunedProgram::name`].
    pub name: String,
    /// Its kernels.
    pub program: Verified<Program>,
}

impl PlannedProgram {
    /// Plans the first function of a program.
    ///
    /// # Errors
    /// For a text that is wrong, and for what has no plan.
    pub fn new(
        of: &TunedProgram,
        options: &PlanOptions,
        engine: &dyn EngineModel,
    ) -> Result<PlannedProgram, Diagnostic> {
        let first = |mut all: Vec<Diagnostic>| all.swap_remove(0);
        let module = parse(&of.text).map_err(first)?;
        crate::ir::verify::verify(&module).map_err(first)?;
        let Some(f) = module.funcs.values().next() else {
            let m = format!("`{}` has no function", of.name);
            return Err(Diagnostic::new(At::default(), Kind::Usage, m));
        };
        let function = prepare(&module, f)?;
        let plan = plan_for(&function, options, engine)?;
        let program = verify(lower(&function, &plan, &options.device)?).map_err(first)?;
        Ok(PlannedProgram { family: of.family.clone(), name: of.name.clone(), program })
    }
}

/// What measures programs.
pub trait ProgramTimer {
    /// Seconds of a run: the least of several.
    ///
    /// # Errors
    /// For a program that the engine does not run.
    fn seconds(&mut self, of: &PlannedProgram) -> Result<f64, Diagnostic>;
}

/// Measures on the engine `cpu`.
#[derive(Clone, Debug)]
pub struct CpuTimer {
    /// The engine, with its number of threads.
    pub engine: Cpu,
    /// For how long a program is run again, unless that is fewer than three runs.
    pub least: Duration,
}

/// Runs of a program that count, at least and at most.
const RUNS: [u32; 2] = [3, 2000];

impl ProgramTimer for CpuTimer {
    fn seconds(&mut self, of: &PlannedProgram) -> Result<f64, Diagnostic> {
        let executable = self.engine.of_program(of.program.clone())?.executable;
        let types = of.program.inputs().filter_map(|b| of.program.buffers[b].ty());
        let draw = |(ty, stream): (crate::ir::TensorType, u64)| {
            let domain = if ty.dtype.is_int() { INTEGERS } else { Domain::Normal };
            sample(&ty, domain, &mut rng(0, stream))
        };
        let args: Vec<Array> = types.zip(0..).map(draw).collect::<Result<_, _>>()?;
        let results = executable.run(&args)?;
        let mut results: Vec<Vec<u8>> = results.iter().map(|a| a.bytes().to_vec()).collect();
        let inputs: Vec<&[u8]> = args.iter().map(Array::bytes).collect();
        let mut outputs: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
        let mut fastest = f64::INFINITY;
        let begin = Instant::now();
        for run in 0..RUNS[1] {
            if run >= RUNS[0] && begin.elapsed() >= self.least {
                break;
            }
            let begin = Instant::now();
            executable.run_into(&inputs, &mut outputs)?;
            fastest = fastest.min(begin.elapsed().as_secs_f64());
        }
        Ok(fastest)
    }
}

/// Integers are positions in tables of as many rows.
const INTEGERS: Domain = Domain::Ints(0, 32_768);

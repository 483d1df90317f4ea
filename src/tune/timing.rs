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
        let args = arguments(of)?;
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

/// Measures on the engine `gpu`: the time of captured launches, by the device's clock.
#[cfg(feature = "gpu")]
#[derive(Clone, Debug)]
pub struct GpuTimer {
    /// The engine.
    pub engine: crate::engine::Gpu,
    /// For how long a program is run again, unless that is fewer than three samples.
    pub least: Duration,
}

/// Seconds of a sample on a GPU, at least: the clock's resolution is then no part of it.
#[cfg(feature = "gpu")]
const SAMPLE: f64 = 1e-3;

#[cfg(feature = "gpu")]
impl ProgramTimer for GpuTimer {
    fn seconds(&mut self, of: &PlannedProgram) -> Result<f64, Diagnostic> {
        use crate::backends::gpu::DeviceArray;
        let executable = self.engine.of_program(of.program.clone())?.executable;
        let upload = |a: &Array| DeviceArray::upload(self.engine.device(), a);
        let inputs: Vec<DeviceArray> =
            arguments(of)?.iter().map(upload).collect::<Result<_, _>>()?;
        fastest_run(&executable, &inputs, self.least)
    }
}

/// Seconds of a run on a device: the least of samples that are taken for some time, at least three.
#[cfg(feature = "gpu")]
pub(super) fn fastest_run(
    executable: &crate::backends::gpu::GpuExecutable,
    inputs: &[crate::backends::gpu::DeviceArray],
    least: Duration,
) -> Result<f64, Diagnostic> {
    // The first run draws the graph, and clocks rise in the next.
    let mut fastest = f64::INFINITY;
    for _ in 0..RUNS[0] {
        fastest = fastest.min(executable.timed(inputs, 1)?);
    }
    let runs = (SAMPLE / fastest.max(1e-9)).ceil().clamp(1.0, f64::from(RUNS[1])) as u32;
    let begin = Instant::now();
    let mut samples = 0;
    while samples < RUNS[0] || begin.elapsed() < least {
        fastest = fastest.min(executable.timed(inputs, runs)?);
        samples += 1;
    }
    Ok(fastest)
}

/// Elements of an argument that are drawn; a larger one has them again and again.
#[cfg(feature = "gpu")]
const DRAWN: u64 = 1 << 20;

/// An argument of a type, the same each time.
#[cfg(feature = "gpu")]
pub(super) fn sized(ty: &crate::ir::TensorType, stream: u64) -> Result<Array, Diagnostic> {
    let domain = if ty.dtype.is_int() { INTEGERS } else { Domain::Normal };
    let dims = ty.dims().unwrap_or_default();
    let all: u64 = dims.iter().product();
    let drawn = crate::ir::TensorType::of(ty.dtype, &[all.min(DRAWN)]);
    let drawn = sample(&drawn, domain, &mut rng(0, stream))?;
    if all <= DRAWN {
        return Array::from_le_bytes(ty.dtype, &dims, drawn.bytes());
    }
    let due = (all * ty.dtype.bytes()) as usize;
    let mut bytes = Vec::with_capacity(due);
    while bytes.len() < due {
        bytes.extend_from_slice(&drawn.bytes()[..drawn.bytes().len().min(due - bytes.len())]);
    }
    Array::from_le_bytes(ty.dtype, &dims, &bytes)
}

/// Arguments of a program, the same each time.
fn arguments(of: &PlannedProgram) -> Result<Vec<Array>, Diagnostic> {
    let types = of.program.inputs().filter_map(|b| of.program.buffers[b].ty());
    let draw = |(ty, stream): (crate::ir::TensorType, u64)| {
        let domain = if ty.dtype.is_int() { INTEGERS } else { Domain::Normal };
        sample(&ty, domain, &mut rng(0, stream))
    };
    types.zip(0..).map(draw).collect()
}

/// Integers are positions in tables of as many rows.
const INTEGERS: Domain = Domain::Ints(0, 32_768);

//! A contest: plans of one function, compiled and timed in turns, so that what slows the machine down slows all of them.

use crate::draw::arguments;
use crate::{BenchProgram, TimeSpread};
use adfuse::backends::Array;
use adfuse::backends::backend::{Backend, Executable};
use adfuse::backends::cpu::CpuExecutable;
use adfuse::backends::gpu::{DeviceArray, GpuExecutable};
use adfuse::engine::{Compiled, Cpu, Gpu, Session};
use adfuse::fusion::{Effort, EngineModel, Fp, MachineModel, Plan};
use adfuse::ir::{Diagnostic, Function};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What runs the plans.
#[derive(Clone, Debug)]
pub enum Host {
    /// The cores of this machine, with a number of threads.
    Cpu(Box<Cpu>),
    /// A GPU.
    Gpu(Box<Gpu>),
}

impl Host {
    /// The engine `cpu` with a number of threads. Plans for one thread are made for one core.
    pub fn cpu(threads: usize, fp: Fp) -> Host {
        let mut cpu = Cpu { threads, ..Cpu::default() };
        cpu.plan.fp = fp;
        if threads == 1 {
            cpu.plan.device = MachineModel::cpu1();
        }
        Host::Cpu(Box::new(cpu))
    }

    /// The engine `gpu` on the GPU of a number.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn gpu(number: u32, fp: Fp) -> Result<Host, Diagnostic> {
        let mut gpu = Gpu::open(number)?;
        gpu.plan.fp = fp;
        Ok(Host::Gpu(Box::new(gpu)))
    }

    /// Whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        matches!(self, Host::Gpu(_))
    }

    /// The mode of floating point.
    pub fn fp(&self) -> Fp {
        match self {
            Host::Cpu(cpu) => cpu.plan.fp,
            Host::Gpu(gpu) => gpu.plan.fp,
        }
    }
}

/// A plan that takes part, with its times.
#[derive(Debug)]
pub struct Contender {
    /// The efforts that made this plan.
    pub efforts: Vec<Effort>,
    /// Seconds of a run by the cost model.
    pub predicted: f64,
    /// Kernels begun in a run.
    pub launches: u32,
    /// Bytes that kernels read and write, by the cost model.
    pub bytes: u64,
    /// Operations on floats, by the cost model; a multiply-add is two.
    pub flops: u64,
    /// Bytes that a run takes: inputs, results, constants, and the arena.
    pub peak: u64,
    /// Seconds of planning and of making code.
    pub made_in: f64,
    /// Seconds of a run, a sample a round.
    pub seconds: Vec<f64>,
    runner: Runner,
    /// Runs of a sample.
    times: u32,
}

impl Contender {
    /// Its times.
    pub fn spread(&self) -> TimeSpread {
        TimeSpread::of(self.seconds.iter().copied())
    }
}

/// What runs a plan at the arguments of the contest.
#[derive(Debug)]
enum Runner {
    Cpu { executable: Arc<CpuExecutable>, inputs: Rc<Vec<Array>>, outputs: Vec<Vec<u8>> },
    Gpu { executable: Arc<GpuExecutable>, inputs: Rc<Vec<DeviceArray>> },
}

impl Runner {
    /// Runs so often; the seconds of a run.
    fn run(&mut self, times: u32) -> Result<f64, Diagnostic> {
        match self {
            Runner::Gpu { executable, inputs } => executable.timed(inputs, times),
            Runner::Cpu { executable, inputs, outputs } => {
                let inputs: Vec<&[u8]> = inputs.iter().map(Array::bytes).collect();
                let mut outputs: Vec<&mut [u8]> =
                    outputs.iter_mut().map(Vec::as_mut_slice).collect();
                let begin = Instant::now();
                for _ in 0..times {
                    executable.run_into(&inputs, &mut outputs)?;
                }
                Ok(begin.elapsed().as_secs_f64() / f64::from(times.max(1)))
            }
        }
    }
}

/// How long a sample takes at least, unless one run takes longer.
const SAMPLE: f64 = 2e-4;

/// Runs of a sample at most.
const MOST_RUNS: f64 = 1000.0;

/// Plans of one function.
#[derive(Debug)]
pub struct Contest {
    /// Instructions of the function that is planned.
    pub instructions: usize,
    /// The plans, each once, in the order of the efforts.
    pub contenders: Vec<Contender>,
}

impl Contest {
    /// Plans a program with each of the efforts and makes code of every plan. Efforts that find the same plan share a contender.
    ///
    /// # Errors
    /// What planning, making code and the first run have against it.
    pub fn new(
        program: &BenchProgram,
        host: &Host,
        efforts: &[Effort],
    ) -> Result<Contest, Diagnostic> {
        let function = program.prepared(host.is_gpu(), host.fp())?;
        let inputs = arguments(&function)?;
        match host {
            Host::Cpu(cpu) => {
                let inputs = Rc::new(inputs);
                let session = |effort| {
                    let mut cpu = cpu.clone();
                    cpu.plan.effort = effort;
                    cpu.session()
                };
                Contest::of(&function, efforts, session, |made: &Compiled| {
                    let results = made.executable.run(&inputs)?;
                    let outputs = results.iter().map(|a| a.bytes().to_vec()).collect();
                    let executable = Arc::clone(&made.executable);
                    let runner = Runner::Cpu { executable, inputs: Rc::clone(&inputs), outputs };
                    Ok((runner, None, made.executable.memory().peak()))
                })
            }
            Host::Gpu(gpu) => {
                let upload = |a: &Array| DeviceArray::upload(gpu.device(), a);
                let inputs = Rc::new(inputs.iter().map(upload).collect::<Result<Vec<_>, _>>()?);
                let session = |effort| {
                    let mut gpu = gpu.clone();
                    gpu.plan.effort = effort;
                    gpu.session()
                };
                Contest::of(&function, efforts, session, |made: &Compiled<GpuExecutable>| {
                    let executable = Arc::clone(&made.executable);
                    let launches = Some(executable.launches());
                    let peak = executable.memory().peak();
                    Ok((Runner::Gpu { executable, inputs: Rc::clone(&inputs) }, launches, peak))
                })
            }
        }
    }

    /// `ready` gives what runs, the launches where the engine counts them, and the peak.
    fn of<B: Backend>(
        function: &Function,
        efforts: &[Effort],
        session: impl Fn(Effort) -> Session<B>,
        ready: impl Fn(&Compiled<B::Executable>) -> Result<(Runner, Option<u32>, u64), Diagnostic>,
    ) -> Result<Contest, Diagnostic>
    where
        B::Executable: Executable + Sized,
    {
        let mut contenders: Vec<Contender> = Vec::new();
        let mut plans: Vec<(Function, Plan)> = Vec::new();
        let mut instructions = 0;
        for &effort in efforts {
            let begin = Instant::now();
            let session = session(effort);
            let decided = session.plan_prepared(function)?;
            let (function, plan) = (&decided.narrowed.function, &decided.plan);
            instructions = instructions.max(function.body_insts().len());
            let text = plan.text(function);
            let same = |(f, p): &(Function, Plan)| p.text(f) == text;
            if let Some(known) = plans.iter().position(same) {
                contenders[known].efforts.push(effort);
                continue;
            }
            let made = session.follow_prepared(&decided)?;
            let machine: &MachineModel = &session.settings.plan.device;
            // As its engine's plans are priced.
            let cost = session.cost(&made.program, machine);
            let (runner, launches, peak) = ready(&made)?;
            contenders.push(Contender {
                efforts: vec![effort],
                predicted: cost.seconds,
                launches: launches.unwrap_or(cost.launches),
                bytes: cost.bytes_moved,
                flops: cost.flops(),
                peak,
                made_in: begin.elapsed().as_secs_f64(),
                seconds: Vec::new(),
                runner,
                times: 1,
            });
            plans.push((decided.narrowed.function, decided.plan));
        }
        Ok(Contest { instructions, contenders })
    }

    /// Takes samples of all in turns, for this long and at least this number of rounds. Each goes first as often as the others, and runs once before it is
    /// timed, since what came before has taken the caches.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn run(&mut self, least: Duration, rounds: usize) -> Result<(), Diagnostic> {
        for contender in &mut self.contenders {
            contender.runner.run(1)?;
            let fastest = contender.runner.run(1)?;
            contender.times = (SAMPLE / fastest.max(1e-9)).ceil().clamp(1.0, MOST_RUNS) as u32;
        }
        let (begin, count) = (Instant::now(), self.contenders.len());
        let mut round = 0;
        while round < rounds || begin.elapsed() < least {
            for k in 0..count {
                let contender = &mut self.contenders[(k + round) % count];
                contender.runner.run(1)?;
                let seconds = contender.runner.run(contender.times)?;
                contender.seconds.push(seconds);
            }
            round += 1;
        }
        Ok(())
    }

    /// The contender that an effort made.
    pub fn of_effort(&self, effort: Effort) -> Option<&Contender> {
        self.contenders.iter().find(|c| c.efforts.contains(&effort))
    }
}

/// How many times as long `slow` takes as `fast`, round by round.
pub fn ratio(slow: &Contender, fast: &Contender) -> TimeSpread {
    let pairs = slow.seconds.iter().zip(&fast.seconds);
    TimeSpread::of(pairs.map(|(slow, fast)| slow / fast.max(1e-12)))
}

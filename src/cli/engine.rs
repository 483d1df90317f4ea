//! Which engine runs a function, and on how many threads.

use super::failure::Failure;
use super::source::Program;
use crate::backends::Array;
use crate::backends::cpu::{ArenaLayout, Executable, Options as Threads, scratch};
use crate::backends::reference::{self, Effects};
use crate::fusion::{Device, Effort, Fp, Options, compile, memory_beside};
use crate::ir::kernel::verify;
use crate::ir::{Diagnostic, Function};
use clap::{Args, ValueEnum};
use std::num::NonZero;
use std::thread::available_parallelism;

/// What runs a function.
#[derive(Args)]
pub(super) struct Engine {
    /// What runs the function; both give the same bits
    #[arg(long, value_enum, default_value = "reference")]
    engine: Kind,
    /// Threads of the engine `cpu`, 1 to 256; as many as there are cores where it is not given
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Instruction by instruction, plain and slow; the one that runs effects and `cond`
    Reference,
    /// Planned, as machine code
    Cpu,
}

/// The most threads that may be asked for.
const MOST_THREADS: usize = 256;

impl Engine {
    /// Runs a function of the program's module, or one made of it.
    pub(super) fn run(
        &self,
        program: &Program,
        f: &Function,
        args: &[Array],
        effects: &mut dyn Effects,
    ) -> Result<Vec<Array>, Failure> {
        let wrong = |d: Diagnostic| program.wrong(d);
        if self.engine == Kind::Reference {
            if self.threads.is_some() {
                return Err(Failure::usage("--threads is for --engine cpu"));
            }
            return reference::run(&program.module, f, args, effects).map_err(wrong);
        }
        let threads = match self.threads {
            Some(n @ 1..=MOST_THREADS) => n,
            Some(n) => {
                let m = format!("--threads is from 1 to {MOST_THREADS}, found {n}");
                return Err(Failure::usage(m));
            }
            None => available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS),
        };
        let options = Options { device: Device::cpu(), effort: Effort::Default, fp: Fp::Strict };
        let compiled = compile(&program.module, f, &options).map_err(wrong)?;
        let verified = verify(compiled.program).map_err(|errors| program.source.wrong(errors))?;
        let beside = scratch(&verified).map_err(wrong)?;
        let plan = memory_beside(&verified, options.effort, &beside).map_err(wrong)?;
        let layout =
            ArenaLayout { bytes: plan.arena, offsets: plan.offsets, scratch: plan.scratch };
        let executable =
            Executable::compile(&verified, &layout, Threads { threads, fp: Fp::Strict })
                .map_err(wrong)?;
        executable.run(args).map_err(wrong)
    }
}

//! The passes of the pipeline without an engine: the last ones give text, and nothing runs.

use super::{Cpu, arena_layout};
use crate::backends::cpu::{CpuExecutable, Vectors, listing_for};
use crate::backends::functions::{CallSide, Registry};
use crate::backends::{gpu, ptx};
use crate::fusion::{self, memory};
use crate::ir::Diagnostic;
use crate::ir::rewrite::AttentionSteps;
use crate::pipeline::{CompileUnit, Compiler, attention_steps, missing};

/// A compiler for reading: its last passes leave text and nothing that runs.
#[derive(Clone, Debug)]
pub struct ListingCompiler {
    /// The options of plans.
    pub options: fusion::PlanOptions,
    /// What is emitted for.
    pub machine: Machine,
}

/// What code is made for to be read.
#[derive(Clone, Debug)]
pub enum Machine {
    /// This host, with vectors of at most this width.
    Host(Vectors),
    /// A target by its name, with vectors of at most this width.
    Target(&'static str, Vectors),
    /// A GPU of this compute capability, with none there.
    Gpu(u32, u32),
}

impl Compiler for ListingCompiler {
    fn engine(&self) -> &'static str {
        match self.machine {
            Machine::Host(_) | Machine::Target(..) => Cpu::NAME,
            Machine::Gpu(..) => gpu::NAME,
        }
    }

    fn options(&self) -> &fusion::PlanOptions {
        &self.options
    }

    fn attention(&self) -> AttentionSteps {
        attention_steps(matches!(self.machine, Machine::Gpu(..)))
    }

    fn arrange(&self, unit: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        let program = unit.program()?;
        let arranged = match self.machine {
            Machine::Host(_) => {
                Cpu { plan: self.options.clone(), ..Cpu::default() }.layout(program)?
            }
            // What steps need beside the buffers is for the machine that runs them to say.
            _ => {
                let memory = memory(program, self.options.effort)?;
                let layout = arena_layout(&memory);
                (memory, layout)
            }
        };
        unit.memory = Some(arranged);
        Ok(())
    }

    fn emit(&self, unit: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        let program = unit.program()?;
        unit.listing = Some(match self.machine {
            Machine::Target(name, vectors) => listing_for(program, name, vectors, self.options.fp)?,
            Machine::Host(vectors) => {
                // Nobody has given functions for programs to call.
                Registry::new().check(unit.function()?, CallSide::Host)?;
                let cpu = Cpu { plan: self.options.clone(), vectors, ..Cpu::default() };
                let layout = unit.layout()?;
                CpuExecutable::compile_listed(program, layout, cpu.options())?.listing()
            }
            Machine::Gpu(..) => return Err(missing("code generator of this engine")),
        });
        Ok(())
    }

    fn schedule(&self, unit: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        let Machine::Gpu(major, minor) = self.machine else { return Err(missing("GPU")) };
        let made = gpu::schedule_for(
            unit.program()?,
            (major, minor),
            self.options.fp,
            &self.options.device.products,
        )?;
        unit.schedule = Some(made);
        Ok(())
    }

    fn launch(&self, unit: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        let (program, schedule) = unit.schedule()?;
        unit.launches = Some((program.clone(), ptx::print(schedule)?));
        Ok(())
    }
}

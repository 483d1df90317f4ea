//! Engines: from a function to something that runs it.

use crate::backends::Array;
use crate::backends::cpu::{self, ArenaLayout, Executable};
use crate::backends::reference::{Silent, run};
use crate::fusion::{self, Device, Effort, Fp, Memory};
use crate::ir::kernel::{Program, Verified, verify};
use crate::ir::{Diagnostic, Function, Kind, Module};
use std::cell::RefCell;

/// A function as machine code, and what that was made of.
#[derive(Debug)]
pub struct Compiled {
    /// Its kernels.
    pub program: Verified<Program>,
    /// What they take.
    pub memory: Memory,
    /// What runs.
    pub executable: Executable,
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
            fusion::Options { device: Device::cpu(), effort: Effort::Default, fp: Fp::Strict };
        Cpu { plan, threads: 1 }
    }
}

impl Cpu {
    /// Plans a function of a verified module and makes machine code of it.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for what has no lowering, which the error names, and on hosts for which no
    /// machine code is made; [`Kind::Limit`] when memory is not enough.
    pub fn compile(&self, module: &Module, f: &Function) -> Result<Compiled, Diagnostic> {
        let compiled = fusion::compile(module, f, &self.plan)?;
        let program = verify(compiled.program).map_err(|mut errors| errors.swap_remove(0))?;
        self.of_program(program)
    }

    /// Makes machine code of a program.
    ///
    /// # Errors
    /// As [`Cpu::compile`].
    pub fn of_program(&self, program: Verified<Program>) -> Result<Compiled, Diagnostic> {
        let (memory, layout) = self.layout(&program)?;
        let executable = Executable::compile(&program, &layout, self.options())?;
        Ok(Compiled { program, memory, executable })
    }

    /// How executables run.
    pub fn options(&self) -> cpu::Options {
        cpu::Options { threads: self.threads, fp: self.plan.fp }
    }

    /// What a program takes, and where its temporaries are.
    ///
    /// # Errors
    /// [`Kind::Limit`] when the buffers are too large to count, and as [`cpu::scratch`].
    pub fn layout(&self, program: &Verified<Program>) -> Result<(Memory, ArenaLayout), Diagnostic> {
        let memory = fusion::memory_beside(program, self.plan.effort, &cpu::scratch(program)?)?;
        let (offsets, scratch) = (memory.offsets.clone(), memory.scratch.clone());
        let layout = ArenaLayout { bytes: memory.arena, offsets, scratch };
        Ok((memory, layout))
    }
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
        Ok(Box::new(move |args| made.run(args)))
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
                Reference.ready(module, f, of)
            }
            other => other,
        }
    }
}

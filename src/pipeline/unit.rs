//! The unit of compilation: a program with the artifacts of the passes so far.

use super::artifact::Artifact;
use crate::backends::ArenaLayout;
use crate::backends::cpu::ListedStep;
use crate::backends::ptx;
use crate::fusion::{Memory, Plan, Rewrites};
use crate::ir::kernel::{Program, Verified};
use crate::ir::{At, Diagnostic, Function, Kind, Module, Symbol};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// What is compiled of a module.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The function's name; without one, the only function.
    pub func: Option<String>,
    /// The extents of its symbols.
    pub extents: BTreeMap<Symbol, u64>,
    /// The parameters, by position, in which it is differentiated; without them, it is not.
    pub wrt: Option<Vec<usize>>,
}

/// What the engine has compiled so far.
#[derive(Default)]
pub struct EngineArtifacts {
    /// The program whose memory is planned, and for each of its steps whether it reads again what it has read
    /// when it has begun to write.
    pub prepared: Option<(Verified<Program>, Vec<bool>)>,
    /// Whether there is an executable.
    pub executable: bool,
}

/// A program between two passes.
#[derive(Default)]
pub struct CompileUnit<'a> {
    /// The program as it is written.
    pub text: Option<&'a str>,
    /// What is compiled of it.
    pub selection: Selection,
    /// Its functions.
    pub module: Cow<'a, Module>,
    /// The function that is compiled, as the last pass has left it.
    pub function: Option<Function>,
    /// What was decided about it before it is planned.
    pub rewrites: Rewrites,
    /// Its plan.
    pub plan: Option<Plan>,
    /// The program of kernels.
    pub program: Option<Verified<Program>>,
    /// What that takes, and where its temporaries are.
    pub memory: Option<(Memory, ArenaLayout)>,
    /// Machine code as text.
    pub listing: Option<Vec<ListedStep>>,
    /// How a GPU runs a program, and that program: as the engine divides the one that was lowered.
    pub schedule: Option<(Verified<Program>, ptx::GpuSchedule)>,
    /// What a GPU launches, and the program whose steps that does.
    pub launches: Option<(Verified<Program>, ptx::PtxModule)>,
    /// What an engine that runs it has made; that itself has the engine's session.
    pub backend: EngineArtifacts,
}

impl<'a> CompileUnit<'a> {
    /// A unit that begins with `text`, in the IR's own form or StableHLO, and takes the function that `selection` names.
    pub fn of_text(text: &'a str, selection: Selection) -> CompileUnit<'a> {
        CompileUnit { text: Some(text), selection, ..CompileUnit::default() }
    }

    /// Of a function of a verified module, or one made of it.
    pub fn of(module: &'a Module, f: &Function) -> CompileUnit<'a> {
        CompileUnit {
            module: Cow::Borrowed(module),
            function: Some(f.clone()),
            ..CompileUnit::default()
        }
    }

    /// Of a prepared function and its plan.
    pub fn planned(f: &Function, plan: &Plan) -> CompileUnit<'static> {
        CompileUnit {
            function: Some(f.clone()),
            plan: Some(plan.clone()),
            ..CompileUnit::default()
        }
    }

    /// Of a program of kernels.
    pub fn of_program(program: Verified<Program>) -> CompileUnit<'static> {
        CompileUnit { program: Some(program), ..CompileUnit::default() }
    }

    /// Whether this has been made.
    pub(super) fn has(&self, artifact: Artifact) -> bool {
        match artifact {
            Artifact::Text => self.text.is_some(),
            Artifact::Module => self.module.funcs.values().next().is_some(),
            Artifact::Function => self.function.is_some(),
            Artifact::Plan => self.plan.is_some() && self.function.is_some(),
            Artifact::Program => self.program.is_some(),
            Artifact::Layout => self.memory.is_some(),
            Artifact::MachineCode => self.backend.executable || self.listing.is_some(),
            Artifact::Schedule => self.schedule.is_some() || self.backend.prepared.is_some(),
            Artifact::Launches => self.launches.is_some() || self.backend.prepared.is_some(),
            Artifact::Loaded => self.backend.executable,
        }
    }

    /// The name of what is compiled, once it is known.
    pub(super) fn name(&self) -> Option<String> {
        let of_function = self.function.as_ref().map(|f| f.name.clone());
        of_function.or_else(|| self.program.as_ref().map(|p| p.name.clone()))
    }

    /// The function, which a pass makes another of.
    ///
    /// # Errors
    /// [`Kind::Internal`] where there is none, as in what follows.
    pub fn take_function(&mut self) -> Result<Function, Diagnostic> {
        self.function.take().ok_or_else(|| missing("function"))
    }

    /// The function.
    pub(crate) fn function(&self) -> Result<&Function, Diagnostic> {
        self.function.as_ref().ok_or_else(|| missing("function"))
    }

    /// The plan.
    pub(super) fn plan(&self) -> Result<&Plan, Diagnostic> {
        self.plan.as_ref().ok_or_else(|| missing("plan"))
    }

    /// The program of kernels.
    pub(crate) fn program(&self) -> Result<&Verified<Program>, Diagnostic> {
        self.program.as_ref().ok_or_else(|| missing("program"))
    }

    /// Where temporaries are.
    pub(crate) fn layout(&self) -> Result<&ArenaLayout, Diagnostic> {
        self.memory.as_ref().map(|m| &m.1).ok_or_else(|| missing("layout"))
    }

    /// How a GPU runs a program, and that program.
    pub(crate) fn schedule(&self) -> Result<(&Verified<Program>, &ptx::GpuSchedule), Diagnostic> {
        let there = self.schedule.as_ref().map(|(program, schedule)| (program, schedule));
        there.ok_or_else(|| missing("schedule"))
    }

    /// What a GPU launches, and the program whose steps that does.
    pub(super) fn launches(&self) -> Result<(&Verified<Program>, &ptx::PtxModule), Diagnostic> {
        let there = self.launches.as_ref().map(|(program, module)| (program, module));
        there.ok_or_else(|| missing("launches"))
    }

    /// The program and its memory.
    ///
    /// # Errors
    /// As [`CompileUnit::take_function`].
    pub(crate) fn arranged(self) -> Result<(Verified<Program>, Memory), Diagnostic> {
        let program = self.program.ok_or_else(|| missing("program"))?;
        let (memory, _) = self.memory.ok_or_else(|| missing("layout"))?;
        Ok((program, memory))
    }
}

/// The error that a pass comes too early.
pub(crate) fn missing(what: &str) -> Diagnostic {
    let m = format!("a pass of the pipeline comes before there is a {what}");
    Diagnostic::new(At::default(), Kind::Internal, m)
}

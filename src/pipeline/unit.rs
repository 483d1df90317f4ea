//! A program on its way: what passes have made of it so far.

use super::Artifact;
use crate::backends::cpu::{self, ArenaLayout, ListedStep};
use crate::backends::gpu::{self, Prepared};
use crate::backends::ptx;
use crate::fusion::{Memory, Plan};
use crate::ir::kernel::{Program, Verified};
use crate::ir::{At, Diagnostic, Function, Kind, Module, Symbol};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

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

/// A program between two passes.
#[derive(Default)]
pub struct Unit<'a> {
    /// The program as it is written.
    pub text: Option<&'a str>,
    /// What is compiled of it.
    pub selection: Selection,
    /// Its functions.
    pub module: Cow<'a, Module>,
    /// The function that is compiled, as the last pass has left it.
    pub function: Option<Function>,
    /// Its plan.
    pub plan: Option<Plan>,
    /// The program of kernels.
    pub program: Option<Verified<Program>>,
    /// What that takes, and where its temporaries are.
    pub memory: Option<(Memory, ArenaLayout)>,
    /// Machine code that runs.
    pub executable: Option<Arc<cpu::Executable>>,
    /// Machine code as text.
    pub listing: Option<Vec<ListedStep>>,
    /// What a GPU launches, and the program whose steps that does.
    pub launches: Option<(Verified<Program>, ptx::Module)>,
    /// The same for a device that is there.
    pub prepared: Option<Prepared>,
    /// What runs on that.
    pub loaded: Option<Arc<gpu::Executable>>,
}

impl<'a> Unit<'a> {
    /// Of a text.
    pub fn of_text(text: &'a str, selection: Selection) -> Unit<'a> {
        Unit { text: Some(text), selection, ..Unit::default() }
    }

    /// Of a function of a verified module, or one made of it.
    pub fn of(module: &'a Module, f: &Function) -> Unit<'a> {
        Unit { module: Cow::Borrowed(module), function: Some(f.clone()), ..Unit::default() }
    }

    /// Of a prepared function and its plan.
    pub fn planned(f: &Function, plan: &Plan) -> Unit<'static> {
        Unit { function: Some(f.clone()), plan: Some(plan.clone()), ..Unit::default() }
    }

    /// Of a program of kernels.
    pub fn of_program(program: Verified<Program>) -> Unit<'static> {
        Unit { program: Some(program), ..Unit::default() }
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
            Artifact::MachineCode => self.executable.is_some() || self.listing.is_some(),
            Artifact::Launches => self.launches.is_some() || self.prepared.is_some(),
            Artifact::Loaded => self.loaded.is_some(),
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
    pub(super) fn function(&self) -> Result<&Function, Diagnostic> {
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

    /// What a device launches.
    pub(crate) fn prepared(&self) -> Result<&Prepared, Diagnostic> {
        self.prepared.as_ref().ok_or_else(|| missing("program of a device"))
    }

    /// What a GPU launches, and the program whose steps that does.
    pub(super) fn launches(&self) -> Result<(&Verified<Program>, &ptx::Module), Diagnostic> {
        let there = self.launches.as_ref().map(|(program, module)| (program, module));
        let on_device = || self.prepared.as_ref().map(|p| (p.program(), p.module()));
        there.or_else(on_device).ok_or_else(|| missing("launches"))
    }

    /// The program, its memory and what was made of it by the last pass.
    ///
    /// # Errors
    /// As [`Unit::take_function`].
    pub(crate) fn made<T>(
        self,
        last: fn(&mut Unit<'a>) -> Option<T>,
    ) -> Result<(Verified<Program>, Memory, T), Diagnostic> {
        let mut unit = self;
        let last = last(&mut unit).ok_or_else(|| missing("executable"))?;
        let program = unit.program.ok_or_else(|| missing("program"))?;
        let (memory, _) = unit.memory.ok_or_else(|| missing("layout"))?;
        Ok((program, memory, last))
    }
}

/// The error that a pass comes too early.
pub(super) fn missing(what: &str) -> Diagnostic {
    let m = format!("a pass of the pipeline comes before there is a {what}");
    Diagnostic::new(At::default(), Kind::Internal, m)
}

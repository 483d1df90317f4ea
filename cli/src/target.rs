//! The function that a command is about, and its extents.

use super::failure::{Failure, mean};
use super::model::ImportGiven;
use super::program::LoadedProgram;
use super::source::{SourceText, is_stdin};
use super::spec::{InputArg, input};
use adfuse::ir::diag::listed;
use adfuse::ir::rewrite::specialize;
use adfuse::ir::{Function, Symbol};
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The arguments that choose a function.
#[derive(Args)]
pub(super) struct FunctionArgs {
    /// The program, or `-` for standard input
    #[arg(required = true)]
    file: Option<PathBuf>,
    /// The function; without this, the only one or `main`
    #[arg(long, value_name = "NAME")]
    func: Option<String>,
    #[command(flatten)]
    dims: Dims,
    #[command(flatten)]
    fixed: FixedInputs,
}

/// The arguments that give inputs of models values while these are imported.
#[derive(Args)]
pub(super) struct FixedInputs {
    /// The value of an input of a model on which a shape depends; SPEC is as in `run --input`
    #[arg(long, value_name = "NAME=SPEC", value_parser = input)]
    pub(super) fix: Vec<InputArg>,
}

/// The arguments that give symbolic dimensions their extents.
#[derive(Args)]
pub(super) struct Dims {
    /// The extent of a symbolic dimension, such as n=128; may be repeated
    #[arg(long = "dim", value_name = "NAME=N", value_parser = dim)]
    dims: Vec<(Symbol, u64)>,
}

impl FunctionArgs {
    /// The program's file, which a command that does without one does not ask for.
    fn file(&self) -> Result<&Path, Failure> {
        self.file.as_deref().ok_or_else(|| Failure::usage("expected a program"))
    }

    /// Whether a program is given, in a file or on standard input.
    pub(super) fn is_given(&self) -> bool {
        self.file.is_some()
    }

    /// The program's file, if one is named.
    pub(super) fn path(&self) -> Option<&Path> {
        self.file.as_deref().filter(|path| !is_stdin(path))
    }

    /// Reads the program's text.
    pub(super) fn source(&self) -> Result<SourceText, Failure> {
        SourceText::program(self.file()?, &self.dims.given(&self.fixed))
    }

    /// Reads the program.
    pub(super) fn read(&self) -> Result<LoadedProgram, Failure> {
        LoadedProgram::read(self.file()?, &self.dims.given(&self.fixed))
    }

    /// The function of the program that is asked for, if one is.
    pub(super) fn asked<'p>(
        &self,
        program: &'p LoadedProgram,
    ) -> Result<Option<&'p Function>, Failure> {
        let Some(name) = &self.func else { return Ok(None) };
        let name = name.trim_start_matches('@');
        let found = program.module.find(name).ok_or_else(|| {
            let names: Vec<&str> = program.module.funcs.values().map(|f| f.name.as_str()).collect();
            let hint = mean(name, names.iter().copied(), "@");
            let all = format!("the functions are {}", listed(&names, "@"));
            Failure::usage(format!("no function @{name} in `{}`", program.source.name))
                .hint(hint.or(Some(all)))
        });
        found.map(Some)
    }

    /// The chosen function of the program.
    pub(super) fn choose<'p>(&self, program: &'p LoadedProgram) -> Result<&'p Function, Failure> {
        program.has_functions()?;
        if let Some(asked) = self.asked(program)? {
            return Ok(asked);
        }
        let module = &program.module;
        let names: Vec<&str> = module.funcs.values().map(|f| f.name.as_str()).collect();
        match module.funcs.values().next() {
            Some(only) if names.len() == 1 => Ok(only),
            _ => module.find("main").ok_or_else(|| {
                let name = &program.source.name;
                Failure::usage(format!("`{name}` has several functions and no @main"))
                    .hint(Some(format!("choose one with --func: {}", listed(&names, "@"))))
            }),
        }
    }

    /// The extents given for symbols of `f`, but for those that the program was imported at.
    pub(super) fn extents(
        &self,
        program: &LoadedProgram,
        f: &Function,
    ) -> Result<BTreeMap<Symbol, u64>, Failure> {
        self.extents_of(program, &f.symbols, &format!("@{} has", f.name))
    }

    /// The extents given for these symbols, which `owner` names.
    pub(super) fn extents_of(
        &self,
        program: &LoadedProgram,
        symbols: &[Symbol],
        owner: &str,
    ) -> Result<BTreeMap<Symbol, u64>, Failure> {
        self.dims.of(symbols, &program.source, owner)
    }
}

impl Dims {
    /// What is given for a program that is imported.
    pub(super) fn given(&self, fixed: &FixedInputs) -> ImportGiven {
        ImportGiven { extents: self.dims.clone(), fixed: fixed.fix.clone() }
    }

    /// The extents by symbol; each must be one of `known`, which `owner` names, or one that the program was imported at.
    pub(super) fn of(
        &self,
        known: &[Symbol],
        source: &SourceText,
        owner: &str,
    ) -> Result<BTreeMap<Symbol, u64>, Failure> {
        let mut extents = BTreeMap::new();
        for &(s, n) in &self.dims {
            let name = s.as_str();
            if !known.contains(&s) && source.bound.contains(&(s, n)) {
                continue;
            }
            if !known.contains(&s) {
                let m = format!("{owner} no symbolic dimension `{name}`");
                return Err(Failure::usage(m).hint(mean(
                    name,
                    known.iter().map(Symbol::as_str),
                    "",
                )));
            }
            if extents.insert(s, n).is_some() {
                return Err(Failure::usage(format!("--dim {name} is given twice")));
            }
        }
        Ok(extents)
    }
}

/// Errs when these extents leave a symbol of the function open.
pub(super) fn all_bound(f: &Function, extents: &BTreeMap<Symbol, u64>) -> Result<(), Failure> {
    let Some(open) = f.symbols.iter().find(|s| !extents.contains_key(s)) else { return Ok(()) };
    let name = open.as_str();
    let m = format!("nothing gives the symbolic dimension `{name}` of @{} an extent", f.name);
    Err(Failure::usage(m).hint(Some(format!("add --dim {name}=4"))))
}

/// The function at these extents; the symbols not among them stay.
pub(super) fn specialized(
    program: &LoadedProgram,
    f: &Function,
    extents: &BTreeMap<Symbol, u64>,
) -> Result<Function, Failure> {
    if extents.is_empty() {
        return Ok(f.clone());
    }
    specialize(f, extents).map_err(|errors| program.source.wrong(errors))
}

fn dim(text: &str) -> Result<(Symbol, u64), String> {
    let (name, extent) = text.split_once('=').ok_or("expected NAME=N")?;
    let symbol = Symbol::new(name).ok_or_else(|| format!("`{name}` is no name of a dimension"))?;
    let extent = extent.parse().map_err(|_| format!("`{extent}` is no extent"))?;
    Ok((symbol, extent))
}

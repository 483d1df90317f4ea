//! Reading a program: from a file or standard input to a verified module.

use super::failure::Failure;
use super::foreign;
use super::model::{self, ImportGiven};
use super::opened::{opened, unreadable};
use super::source::{ProgramWeights, SourceText, is_stdin};
use super::weights;
use adfuse::frontend::parse;
use adfuse::import::{
    ImportError, ImportOptions, disassemble, is_bytecode, is_stablehlo, stablehlo,
};
use adfuse::ir::text::Limits;
use adfuse::ir::{At, Diagnostic, Kind, Module, verify};
use std::io::{self, Read};
use std::path::Path;

/// What marks the encoding of a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A verified module, and where it came from.
#[derive(Debug)]
pub(super) struct LoadedProgram {
    /// The text.
    pub(super) source: SourceText,
    /// What it says.
    pub(super) module: Module,
}

impl SourceText {
    /// Reads a file, or standard input for `-`. Bytecode becomes the text that it stands for.
    pub(super) fn read(path: &Path) -> Result<SourceText, Failure> {
        SourceText::read_as(path, Failure::File)
    }

    /// Reads the text of a program, whose faults are the program's.
    pub(super) fn of_program(path: &Path) -> Result<SourceText, Failure> {
        SourceText::read_as(path, Failure::Program)
    }

    fn read_as(
        path: &Path,
        fault: fn(SourceText, Vec<Diagnostic>) -> Failure,
    ) -> Result<SourceText, Failure> {
        let wrong = |name: &str, kind: Kind, message: String| {
            let source = SourceText::named(name);
            fault(source, vec![Diagnostic::new(At::default(), kind, message)])
        };
        let name = if is_stdin(path) { "<stdin>".into() } else { path.display().to_string() };
        let most = Limits::default().source;
        let bytes = read_at_most(path, most as u64 + 1)?;
        if bytes.len() > most {
            return Err(wrong(&name, Kind::Limit, format!("`{name}` has more than {most} bytes")));
        }
        if is_bytecode(&bytes) {
            let text =
                disassemble(&bytes).map_err(|e| match e.diagnostics().into_iter().next() {
                    // There is no text that it could point into.
                    Some(d) => wrong(&name, d.kind, format!("cannot read `{name}`: {}", d.message)),
                    None => wrong(&name, Kind::Syntax, format!("cannot read `{name}`")),
                })?;
            return Ok(SourceText::without_weights(name, text));
        }
        let text = String::from_utf8(bytes).map_err(|e| {
            let at = e.utf8_error().valid_up_to();
            let m = format!("`{name}` is not UTF-8 text: byte {at} is wrong");
            let d = Diagnostic::new(At::default(), Kind::Syntax, m);
            let hint = foreign::hint(path, e.as_bytes());
            let source = SourceText::named(&name);
            fault(source, vec![Diagnostic { hint, ..d }])
        })?;
        // Some editors begin a text with the mark of its encoding, which is no part of it.
        let text = text.strip_prefix(BYTE_ORDER_MARK).map_or_else(|| text.clone(), str::to_owned);
        Ok(SourceText::without_weights(name, text))
    }

    /// A file without the text that errors could point into.
    pub(super) fn named(name: &str) -> SourceText {
        SourceText::without_weights(name.to_owned(), String::new())
    }

    fn without_weights(name: String, text: String) -> SourceText {
        SourceText { name, text: text.into(), weights: ProgramWeights::None, bound: [].into() }
    }

    /// Reads a program: a text, or a model that is imported. Weights beside a text are its own. What symbols do not express
    /// is imported at the extents that are given.
    pub(super) fn program(path: &Path, given: &ImportGiven) -> Result<SourceText, Failure> {
        if let Some(bytes) = model::bytes(path)? {
            return model::imported(path, &bytes, given);
        }
        if !given.fixed.is_empty() {
            return Err(Failure::usage("--fix is for models"));
        }
        let mut source = SourceText::of_program(path)?;
        if !given.extents.is_empty() && is_stablehlo(&source.text) {
            let tried = stablehlo(&source.text, &ImportOptions::default());
            if matches!(tried, Err(ImportError::Unsupported(_))) {
                source.bound = given.extents.clone().into();
            }
        }
        let beside = weights::beside(path);
        match beside.filter(|file| file.is_file()) {
            Some(file) => Ok(SourceText { weights: ProgramWeights::Beside(file), ..source }),
            None => Ok(source),
        }
    }

    /// Parses the text, without verifying it.
    pub(super) fn parse(&self) -> Result<Module, Failure> {
        self.parsed().map_err(|failure| match failure {
            Failure::Program(source, mut errors) => {
                // What the file is at all matters more than its first wrong word.
                let hint = foreign::hint(Path::new(&self.name), self.text.as_bytes());
                if let Some(first) = errors.first_mut().filter(|d| d.hint.is_none()) {
                    first.hint = hint;
                }
                Failure::Program(source, errors)
            }
            other => other,
        })
    }

    fn parsed(&self) -> Result<Module, Failure> {
        if self.bound.is_empty() || !is_stablehlo(&self.text) {
            return parse(&self.text).map_err(|errors| self.wrong(errors));
        }
        let imported = stablehlo(&self.text, &self.import_options());
        imported.map(|i| i.module).map_err(|e| self.wrong(e.diagnostics()))
    }

    /// The options that a text of StableHLO is imported with.
    pub(super) fn import_options(&self) -> ImportOptions {
        let options = ImportOptions::default();
        self.bound.iter().fold(options, |options, (s, n)| options.extent(s.as_str(), *n))
    }

    /// The failure that these errors in the program are.
    pub(super) fn wrong(&self, errors: impl Into<Vec<Diagnostic>>) -> Failure {
        Failure::Program(self.clone(), errors.into())
    }
}

impl LoadedProgram {
    /// Reads, parses and verifies a program.
    pub(super) fn read(path: &Path, given: &ImportGiven) -> Result<LoadedProgram, Failure> {
        LoadedProgram::of(SourceText::program(path, given)?)
    }

    /// Parses and verifies a text.
    pub(super) fn of(source: SourceText) -> Result<LoadedProgram, Failure> {
        let module = source.parse()?;
        verify(&module).map_err(|errors| source.wrong(errors))?;
        Ok(LoadedProgram { source, module })
    }

    /// Errs when there is nothing to work on: an empty text is a program, but hardly what was meant.
    pub(super) fn has_functions(&self) -> Result<(), Failure> {
        if self.module.funcs.values().next().is_some() {
            return Ok(());
        }
        let m = format!("`{}` has no functions", self.source.name);
        Err(self.wrong(Diagnostic::new(At::default(), Kind::Syntax, m)))
    }

    /// The failure that an error in the program is.
    pub(super) fn wrong(&self, error: Diagnostic) -> Failure {
        self.source.wrong([error])
    }
}

fn read_at_most(path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    if is_stdin(path) {
        let read = io::stdin().lock().take(most).read_to_end(&mut bytes);
        read.map_err(|e| Failure::usage(format!("cannot read `<stdin>`: {e}")))?;
    } else {
        let read = opened(path)?.take(most).read_to_end(&mut bytes);
        read.map_err(|e| unreadable(path, &e))?;
    }
    Ok(bytes)
}

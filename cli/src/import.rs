//! `import`: programs of other frameworks as `.ir` text.

use super::failure::Failure;
use super::inputs::{GivenValue, Inputs};
use super::model;
use super::params::NamedParam;
use super::source::{SourceText, is_stdin};
use super::spec::{InputArg, input};
use super::streams::Streams;
use super::target::Dims;
use super::whole;
use adfuse::import::{
    FixedValue, ImportError, ImportOptions, OnnxOptions, coverage, onnx, onnx_coverage,
    onnx_params, stablehlo,
};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints a program of StableHLO text, or an ONNX model, as `.ir` text
///
/// What cannot be imported is listed whole. Each reason is listed once for each op, at its first place, with a count.
/// Every other command imports such a file by itself. The weights of a model are its parameters; with --output NAME.ir
/// their values are written to NAME.safetensors, which commands read beside NAME.ir.
#[derive(Args)]
pub(super) struct Import {
    /// The program, or `-` for standard input, which is a text
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write the program to this file
    #[arg(long, short, value_name = "FILE", conflicts_with = "coverage")]
    output: Option<PathBuf>,
    /// Print a table of the ops that the program uses, how often, and which cannot be imported, and succeed
    #[arg(long)]
    coverage: bool,
    #[command(flatten)]
    dims: Dims,
    /// The value of an input of a model on which a shape depends; SPEC is as in `run --input`
    #[arg(long, value_name = "NAME=SPEC", value_parser = input)]
    fix: Vec<InputArg>,
}

impl Import {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        if let Some(path) = self.output.as_ref().filter(|_| !is_stdin(&self.file)) {
            whole::spares(path, [self.file.as_path()])?;
        }
        if let Some(bytes) = model::bytes(&self.file)? {
            return self.model(&bytes, streams);
        }
        if !self.fix.is_empty() || self.dims.is_given() {
            return Err(Failure::usage("--fix and --dim are for models"));
        }
        let source = SourceText::read(&self.file)?;
        let wrong = |e: ImportError| source.wrong(e.diagnostics());
        if self.coverage {
            let table = coverage(&source.text).map_err(wrong)?;
            write!(streams.out, "{table}")?;
            return Ok(ExitCode::SUCCESS);
        }
        let imported = stablehlo(&source.text, &ImportOptions::default()).map_err(wrong)?;
        let text = imported.module.to_string();
        match &self.output {
            None => streams.out.write_all(text.as_bytes())?,
            Some(path) => whole::write(path, |file| file.write_all(text.as_bytes()))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// An ONNX model.
    fn model(&self, bytes: &[u8], streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        let wrong = |e: ImportError| model::refused(&self.file, &e);
        let options = self.options(bytes)?;
        if self.coverage {
            let table = onnx_coverage(bytes, &options).map_err(wrong)?;
            write!(streams.out, "{table}")?;
            return Ok(ExitCode::SUCCESS);
        }
        let imported = onnx(bytes, &options).map_err(wrong)?;
        match &self.output {
            None => streams.out.write_all(imported.module.to_string().as_bytes())?,
            Some(path) => model::write_program(path, &imported)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn options(&self, bytes: &[u8]) -> Result<OnnxOptions, Failure> {
        let mut options = model::options(&self.file);
        for (symbol, extent) in self.dims.all() {
            options = options.extent(symbol.as_str(), *extent);
        }
        let inputs = Inputs::new(self.fix.clone(), 0)?;
        let known = onnx_params(bytes).map_err(|e| model::refused(&self.file, &e))?;
        let params: Vec<NamedParam> =
            known.into_iter().map(|(name, ty)| NamedParam { name, ty }).collect();
        inputs.all_known(&params, "main")?;
        for param in &params {
            let Some(GivenValue::Array(a)) = inputs.read(param)? else { continue };
            let value = FixedValue { dims: a.dims().to_vec(), elements: a.iter().collect() };
            options = options.fix(&param.name, value);
        }
        Ok(options)
    }
}

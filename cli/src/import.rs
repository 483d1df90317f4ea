//! `import`: programs of other frameworks as `.ir` text.

use super::failure::Failure;
use super::model;
use super::source::SourceText;
use super::streams::Streams;
use super::target::{Dims, FixedInputs};
use super::weights::left_out;
use adfuse::import::{
    Coverage, ImportError, OnnxOptions, coverage, is_stablehlo, onnx, onnx_coverage, stablehlo,
};
use adfuse::ir::text::parse;
use adfuse::ir::{At, Diagnostic, Function, Kind};
use clap::Args;
use serde_json::{Map, Value, json};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints a program of StableHLO text, or an ONNX model, as `.ir` text
///
/// All that cannot be imported is listed: each reason once for each op, at its first place, with a count. Every
/// other command imports such a file by itself. The weights of a model are its parameters; with --output NAME.ir
/// their values are written to NAME.safetensors, which commands read beside NAME.ir.
#[derive(Args)]
pub(super) struct Import {
    /// The program, or `-` for standard input, which is a text
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print a table of the ops that the program uses, how often, and which cannot be imported, and succeed
    #[arg(long)]
    coverage: bool,
    #[command(flatten)]
    dims: Dims,
    #[command(flatten)]
    fixed: FixedInputs,
}

impl Import {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        if let Some(bytes) = model::bytes(&self.file)? {
            return self.model(&bytes, streams);
        }
        if !self.fixed.fix.is_empty() {
            return Err(Failure::usage("--fix is for models"));
        }
        let mut source = SourceText::of_program(&self.file)?;
        if !is_stablehlo(&source.text) && parse(&source.text).is_ok() {
            let m = format!("`{}` is neither StableHLO nor an ONNX model", source.name);
            let wrong = Diagnostic::new(At::default(), Kind::Syntax, m);
            return Err(
                source.wrong([wrong.hint("it is `.ir` text, which every command takes as it is")])
            );
        }
        let extents = self.dims.given(&self.fixed).extents;
        // Without extents, the program says which there are.
        if !extents.is_empty()
            && let Ok(plain) = stablehlo(&source.text, &source.import_options())
        {
            let types: Vec<_> =
                plain.module.funcs.values().flat_map(Function::param_types).collect();
            model::symbols_known(&source.name, types.iter(), &extents)?;
        }
        source.bound = extents.into();
        let wrong = |e: ImportError| source.wrong(e.diagnostics());
        if self.coverage {
            let table = coverage(&source.text, &source.import_options()).map_err(wrong)?;
            print_coverage(&table, streams)?;
            return Ok(ExitCode::SUCCESS);
        }
        let imported = stablehlo(&source.text, &source.import_options()).map_err(wrong)?;
        let text = imported.module.to_string();
        streams.print(|| text.clone(), || json!({ "text": text }))?;
        Ok(ExitCode::SUCCESS)
    }

    /// An ONNX model.
    fn model(&self, bytes: &[u8], streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        let wrong = |e: ImportError| model::refused(&self.file, &e);
        let options = self.options(bytes)?;
        if self.coverage {
            let table = onnx_coverage(bytes, &options).map_err(wrong)?;
            print_coverage(&table, streams)?;
            return Ok(ExitCode::SUCCESS);
        }
        let imported = onnx(bytes, &options).map_err(wrong)?;
        match streams.output.take() {
            Some(_) if streams.json => {
                let m = "--output writes the program with its weights, and --json prints it";
                return Err(Failure::usage(m).hint(Some("leave out one of the two".into())));
            }
            Some(file) => model::write_program(&file.path, &imported)?,
            None => {
                let text = imported.module.to_string();
                if !imported.weights.is_empty() {
                    streams.note(left_out(imported.weights.len()));
                }
                streams.print(|| text.clone(), || json!({ "text": text }))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn options(&self, bytes: &[u8]) -> Result<OnnxOptions, Failure> {
        let given = self.dims.given(&self.fixed);
        Ok(given.options_at_extents(given.options(&self.file, bytes)?))
    }
}

/// The table, or the same as JSON.
fn print_coverage(table: &Coverage, streams: &mut Streams<'_>) -> io::Result<()> {
    if !streams.json {
        return write!(streams.out, "{table}");
    }
    let refused: Vec<Value> =
        table.issues.iter().map(|i| json!({ "op": i.op, "why": i.what })).collect();
    let uses: Map<String, Value> =
        table.usage.counts().map(|(op, n)| (op.to_owned(), json!(n))).collect();
    let all = json!({
        "complete": table.is_complete(), "uses": uses, "refused": refused, "needed": table.needed,
    });
    writeln!(streams.out, "{all:#}")
}

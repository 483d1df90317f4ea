//! `check`: verifies a program and checks its derivatives numerically.

use super::engine::{EngineArgs, ResolvedFreedom};
use super::failure::Failure;
use super::freedom::Freedom;
use super::json;
use super::machine::SeedArg;
use super::program::LoadedProgram;
use super::stable_forms::module_in_mode;
use super::streams::Streams;
use super::target::FunctionArgs;
use adfuse::check::{CheckOptions, CheckRow, CheckedMode, Outcome, check_on};
use adfuse::engine::Engine as Runs;
use adfuse::fusion::Lossy;
use adfuse::ir::verify::at_inst;
use adfuse::ir::{Diagnostic, Function, Kind, Symbol};
use clap::Args;
use std::io::{self, Write};
use std::process::ExitCode;

/// Verifies a program and checks its derivatives
///
/// It does so for every differentiable input of every function, in f64. Forward mode is compared with central
/// differences, and reverse mode with forward mode. The error is given as a share of the tolerance. Where two
/// disagree, the op at fault is named, and the exit status is 1. What cannot be compared is counted as
/// unsupported, and is no failure. With a mode other than strict, an effort or a budget, functions run on an
/// engine that plans, or the error says why not. Inputs, and the directions in which derivatives are compared,
/// depend on --seed.
#[derive(Args)]
#[command(mut_arg("func", |a| a.help("The function; without this, every function")))]
pub(super) struct CheckCommand {
    #[command(flatten)]
    target: FunctionArgs,
    #[command(flatten)]
    seed: SeedArg,
    /// The relative tolerance of an element
    #[arg(long, value_name = "X", default_value_t = CheckOptions::default().rtol, value_parser = tolerance)]
    rtol: f64,
    /// The absolute tolerance of an element, scaled by the size of the result where that is above 1
    #[arg(long, value_name = "X", default_value_t = CheckOptions::default().atol, value_parser = tolerance)]
    atol: f64,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    freedom: Freedom,
}

impl CheckCommand {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        let program = self.target.read()?;
        program.has_functions()?;
        let only = self.target.asked(&program)?;
        let checked: Vec<&Function> = match only {
            Some(f) => vec![f],
            None => program.module.funcs.values().collect(),
        };
        checked.iter().try_for_each(|f| runs_alone(&program, f))?;
        let mut symbols: Vec<Symbol> =
            checked.iter().flat_map(|f| f.symbols.iter().copied()).collect();
        symbols.sort();
        symbols.dedup();
        let owner = match only {
            Some(f) => format!("@{} has", f.name),
            None => format!("`{}` has", program.source.name),
        };
        let extents = self.target.extents_of(&program, &symbols, &owner)?;
        let options = CheckOptions {
            seed: self.seed.seed,
            rtol: self.rtol,
            atol: self.atol,
            extents,
            only: only.map(|f| f.name.clone()),
        };
        let settled =
            ResolvedFreedom::of(&self.freedom, Lossy::default(), (None, None), &self.engine)?;
        let module = module_in_mode(&program, settled.fp)?;
        let check = |engine: &dyn Runs| check_on(&module, &options, engine);
        let rows = self.engine.with(&program, settled, streams, check)?;
        let failed = rows.iter().filter(|r| r.failed()).count();
        if streams.json {
            write_json(streams.out, &rows)?;
        } else {
            write_table(streams.out, &rows)?;
            writeln!(streams.out, "{}", verdict(&rows))?;
        }
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Errs where a function exchanges with other ranks: it is evaluated in this process alone, whatever has started it.
fn runs_alone(program: &LoadedProgram, f: &Function) -> Result<(), Failure> {
    let exchange = f
        .body_insts()
        .iter()
        .find(|&&i| f.op(i).collective().is_some() && f.attrs(i).int("ranks") != 1);
    let Some(&i) = exchange else { return Ok(()) };
    let m = format!(
        "check runs @{} in one process, and here {} ranks exchange",
        f.name,
        f.attrs(i).int("ranks")
    );
    let hint =
        "`adfuse vmap --axis-name` prints the function that does the work of all ranks: check that";
    Err(program.wrong(Diagnostic::new(at_inst(f, i), Kind::Unsupported, m).hint(hint)))
}

fn unsupported(rows: &[CheckRow]) -> usize {
    rows.iter().filter(|r| matches!(r.outcome, Outcome::Unsupported(_))).count()
}

/// The last line: what was not compared is told apart from what passed.
fn verdict(rows: &[CheckRow]) -> String {
    let n = rows.iter().filter(|r| r.outcome != Outcome::Nothing).count();
    let mut line = match rows.iter().filter(|r| r.failed()).count() {
        0 => format!("{n} checks, none failed"),
        failed => format!("{n} checks, {failed} failed"),
    };
    let unsupported = unsupported(rows);
    if unsupported > 0 {
        line += &format!(", {unsupported} unsupported");
    }
    line
}

fn tolerance(text: &str) -> Result<f64, String> {
    let x: f64 = text.parse().map_err(|_| "expected a number")?;
    if x >= 0.0 && x.is_finite() { Ok(x) } else { Err("expected a finite number from 0 on".into()) }
}

fn mode(row: &CheckRow) -> &'static str {
    match (&row.outcome, row.mode) {
        (Outcome::Nothing, _) => "-",
        (_, CheckedMode::Forward) => "forward",
        (_, CheckedMode::Reverse) => "reverse",
    }
}

/// The result, the error, and more to say about it.
fn result(row: &CheckRow) -> (&'static str, Option<f64>, Option<String>) {
    match &row.outcome {
        Outcome::Pass(error) => ("ok", Some(*error), None),
        Outcome::Flat => ("ok, all zero", Some(0.0), None),
        Outcome::Fail(error, at) => {
            ("FAILED", Some(*error), at.as_ref().map(|at| format!("at fault: {at}")))
        }
        Outcome::NotFinite(which) => {
            let m = format!("no inputs were found where all results are finite: {which} is not");
            ("FAILED", None, Some(m))
        }
        Outcome::Unsupported(why) => ("unsupported", None, Some(why.clone())),
        Outcome::Nothing => ("nothing to check", None, None),
    }
}

fn write_table(out: &mut dyn Write, rows: &[CheckRow]) -> io::Result<()> {
    let title = ["function", "input", "mode", "result", "error"].map(String::from);
    let mut lines = vec![(title, None)];
    for row in rows {
        let (result, error, more) = result(row);
        let func = format!("@{}", row.func);
        let input = if row.input.is_empty() { "-".into() } else { format!("%{}", row.input) };
        let error = error.map_or("-".into(), |e| format!("{e:.1e}"));
        lines.push(([func, input, mode(row).into(), result.into(), error], more));
    }
    let width =
        |c: usize| lines.iter().map(|(cells, _)| cells[c].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..5).map(width).collect();
    for (cells, more) in &lines {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, w)| format!("{cell:w$}")).collect();
        writeln!(out, "{}", padded.join("  ").trim_end())?;
        if let Some(more) = more {
            writeln!(out, "    {more}")?;
        }
    }
    Ok(())
}

fn write_json(out: &mut dyn Write, rows: &[CheckRow]) -> io::Result<()> {
    let passed = !rows.iter().any(CheckRow::failed);
    let unsupported = unsupported(rows);
    write!(out, "{{\"passed\": {passed}, \"unsupported\": {unsupported}, \"checks\": [")?;
    for (k, row) in rows.iter().enumerate() {
        let (result, error, more) = result(row);
        let optional = |text: Option<String>| text.map_or("null".into(), |t| json::quoted(&t));
        let input = (!row.input.is_empty()).then(|| row.input.clone());
        let mode = (row.outcome != Outcome::Nothing).then(|| mode(row).to_string());
        write!(
            out,
            "{}\n  {{\"function\": {}, \"input\": {}, \"mode\": {}, \"result\": {}, \"error\": {}, \
             \"message\": {}}}",
            if k > 0 { "," } else { "" },
            json::quoted(&row.func),
            optional(input),
            optional(mode),
            json::quoted(&result.to_lowercase()),
            error.map_or("null".into(), json::number),
            optional(more),
        )?;
    }
    writeln!(out, "{}]}}", if rows.is_empty() { "" } else { "\n" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<CheckRow> {
        let row = |input: &str, mode, outcome| CheckRow {
            func: "f".into(),
            input: input.into(),
            mode,
            outcome,
        };
        vec![
            row("x", CheckedMode::Forward, Outcome::Pass(0.25)),
            row(
                "x",
                CheckedMode::Reverse,
                Outcome::Fail(f64::INFINITY, Some("%0 = sin %x".into())),
            ),
            row("long", CheckedMode::Reverse, Outcome::Unsupported("no rule".into())),
            row("", CheckedMode::Forward, Outcome::NotFinite("result 1".into())),
            row("", CheckedMode::Forward, Outcome::Nothing),
        ]
    }

    #[test]
    fn a_table_has_columns_and_names_the_op_at_fault() {
        let mut out = Vec::new();
        write_table(&mut out, &rows()).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "function  input  mode     result            error\n\
             @f        %x     forward  ok                2.5e-1\n\
             @f        %x     reverse  FAILED            inf\n    at fault: %0 = sin %x\n\
             @f        %long  reverse  unsupported       -\n    no rule\n\
             @f        -      forward  FAILED            -\n    \
             no inputs were found where all results are finite: result 1 is not\n\
             @f        -      -        nothing to check  -\n"
        );
    }

    #[test]
    fn the_verdict_counts_what_is_unsupported_apart() {
        let rows = rows();
        assert_eq!(verdict(&rows), "4 checks, 2 failed, 1 unsupported");
        assert_eq!(verdict(&rows[..1]), "1 checks, none failed");
        assert_eq!(verdict(&rows[2..3]), "1 checks, none failed, 1 unsupported");
    }

    #[test]
    fn json_says_the_same() {
        let mut out = Vec::new();
        write_json(&mut out, &rows()).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json["passed"], false);
        assert_eq!(json["unsupported"], 1);
        assert_eq!(json["checks"][0]["error"], 0.25);
        assert_eq!(json["checks"][0]["result"], "ok");
        assert_eq!(json["checks"][1]["error"], "inf");
        assert_eq!(json["checks"][1]["message"], "at fault: %0 = sin %x");
        assert_eq!(json["checks"][4]["mode"], serde_json::Value::Null);
        assert_eq!(json["checks"].as_array().map(Vec::len), Some(5));
    }
}

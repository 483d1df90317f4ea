//! The command line: turns what a person types into calls of the library, and the library's results into text, JSON,
//! digests or files.
//!
//! Standard output carries results only; everything else goes to standard error. The exit status is 0 on success, 1 if
//! the program is wrong or a check fails, and 2 if the command line, or a file that it names, cannot be used.

mod bench;
mod budget;
mod cache;
mod check;
mod clock;
mod command_hints;
mod completions;
mod derivative;
mod device;
mod emit;
mod engine;
mod failure;
mod fmt;
mod foreign;
mod freedom;
mod given;
mod import;
mod inputs;
mod json;
mod launch;
mod losses;
mod machine;
mod model;
mod npz;
mod opened;
mod outputs;
mod pack;
mod params;
mod plan;
mod plan_json;
mod planning;
mod program;
mod read_program;
mod render;
mod report;
mod run;
mod serve;
mod shared;
mod show;
mod signals;
mod source;
mod spec;
mod stable_forms;
mod steps;
mod streams;
mod target;
mod tune;
mod tune_products;
mod values;
mod vmap;
mod weights;
mod whole;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::Failure;
use mimalloc::MiMalloc;
use shared::SharedArgs;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use streams::{Messages, PipeWriter, Streams};

/// Planning makes millions of short-lived lists on threads of its own, whose memory the allocator of the C library gets and
/// gives back page by page.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Runs the command line of the process.
fn main() -> ExitCode {
    // A chain of calls is followed by recursion, as deep as the program makes it. Pages of the stack
    // that are not touched cost nothing.
    match std::thread::Builder::new().stack_size(STACK).spawn(command_line) {
        // The thread has told of its panic already; 101 is what a panic exits with.
        Ok(thread) => thread.join().unwrap_or(ExitCode::from(101)),
        Err(_) => command_line(),
    }
}

const STACK: usize = 512 << 20;

/// Differentiates, plans, runs and measures programs over tensors.
#[derive(Parser)]
#[command(name = "adfuse", version, after_help = AFTER)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    shared: SharedArgs,
}

const AFTER: &str = "\
Every FILE may be `-`, standard input. A program is `.ir` text, StableHLO or an ONNX model; adfuse tells them apart by their first bytes.

Exit status: 0 if all is well, 1 if the program is wrong or a check fails, 2 if the command line or \
another file it names cannot be used. With --json every command but `launch` prints JSON; `launch` \
passes on what its ranks print, and help and versions are text.";

#[derive(Subcommand)]
enum Command {
    Grad(derivative::Grad),
    Jvp(derivative::Jvp),
    Hvp(derivative::Hvp),
    Jacobian(derivative::Jacobian),
    Hessian(derivative::Hessian),
    Vmap(vmap::Vmap),
    Run(run::RunCommand),
    Launch(launch::LaunchCommand),
    Check(check::CheckCommand),
    Bench(bench::Bench),
    Emit(emit::EmitCommand),
    Fmt(fmt::Fmt),
    Import(import::Import),
    Plan(plan::Show),
    Report(report::ReportCommand),
    Pack(pack::Pack),
    Cache(cache::Cache),
    Tune(tune::Tune),
    Completions(completions::Completions),
    Man(completions::ManPages),
}

/// The definition of the command line, from which parsing, help, completions and the manual follow.
fn definition() -> clap::Command {
    with_negative_numbers(Cli::command())
}

/// The commands with flags that take negative numbers: what is wrong with one is told by the flag.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let command =
        command.mut_args(|arg| match arg.is_positional() || !arg.get_action().takes_values() {
            true => arg,
            false => arg.allow_negative_numbers(true),
        });
    command.mut_subcommands(with_negative_numbers)
}

fn command_line() -> ExitCode {
    let args = shared::completed(std::env::args_os().collect::<Vec<OsString>>());
    let (choice, as_json) = shared::asked(&args);
    let mut command = definition().color(choice);
    command.build();
    let parsed = command
        .clone()
        .try_get_matches_from(&args)
        .map_err(|e| command_hints::with_tips(e, &command, &args))
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(e) if as_json && e.use_stderr() => {
            Messages::new(true).end(Some(&shared::wrong(&e)), false);
            return ExitCode::from(2);
        }
        Err(e) => {
            // Nobody is left to tell when it cannot be printed.
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    let (json, colors) = (cli.shared.json, cli.shared.colors());
    let mut messages = Messages::new(json);
    let ended =
        outputs::none_is_lost(&command, &matches).and_then(|()| execute(cli, &mut messages));
    messages.end(ended.as_ref().err(), colors);
    ended.unwrap_or_else(|failure| failure.code())
}

/// Runs a command, and prints its result, or writes that to a file once it is whole.
fn execute(cli: Cli, err: &mut Messages) -> Result<ExitCode, Failure> {
    let (json, output) = (cli.shared.json, cli.shared.output);
    // `-` is standard output, as it is standard input where a file is read.
    let output = output.filter(|file| file.path.as_os_str() != "-");
    let Some(file) = output else {
        let mut out = PipeWriter::new(io::stdout().lock());
        let code =
            run_command(cli.command, &mut Streams { out: &mut out, err, json, output: None })?;
        out.flush()?;
        return Ok(code);
    };
    let mut made = Vec::new();
    let mut streams = Streams { out: &mut made, err, json, output: Some(file) };
    let code = run_command(cli.command, &mut streams)?;
    // Commands that make more than text have written it themselves, and said more.
    match streams.output.take() {
        Some(file) => whole::write(&file.path, |file| file.write_all(&made))?,
        None => {
            let mut out = PipeWriter::new(io::stdout().lock());
            out.write_all(&made)?;
            out.flush()?;
        }
    }
    Ok(code)
}

fn run_command(command: Command, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
    match command {
        Command::Grad(command) => command.execute(streams),
        Command::Jvp(command) => command.execute(streams),
        Command::Hvp(command) => command.execute(streams),
        Command::Jacobian(command) => command.execute(streams),
        Command::Hessian(command) => command.execute(streams),
        Command::Vmap(command) => command.execute(streams),
        Command::Run(command) => command.execute(streams),
        Command::Launch(command) => command.execute(streams),
        Command::Check(command) => command.execute(streams),
        Command::Bench(command) => command.execute(streams),
        Command::Emit(command) => command.execute(streams),
        Command::Fmt(command) => command.execute(streams),
        Command::Import(command) => command.execute(streams),
        Command::Plan(command) => command.execute(streams),
        Command::Report(command) => command.execute(streams),
        Command::Pack(command) => command.execute(streams),
        Command::Cache(command) => command.execute(streams),
        Command::Tune(command) => command.execute(streams),
        Command::Completions(command) => command.execute(definition(), streams),
        Command::Man(command) => command.execute(definition(), streams),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        definition().debug_assert();
    }
}

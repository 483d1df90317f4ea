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
mod derivative;
mod device;
mod emit;
mod engine;
mod failure;
mod fmt;
mod freedom;
mod given;
mod import;
mod inputs;
mod json;
mod losses;
mod machine;
mod model;
mod npz;
mod pack;
mod params;
mod plan;
mod plan_json;
mod planning;
mod program;
mod render;
mod report;
mod run;
mod serve;
mod show;
mod source;
mod spec;
mod stable_forms;
mod steps;
mod streams;
mod target;
mod tune;
mod vmap;
mod weights;
mod whole;

use clap::{Parser, Subcommand};
use failure::Failure;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use streams::{PipeWriter, Streams};

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

/// Differentiates, runs and checks programs in `.ir` text.
#[derive(Parser)]
#[command(name = "adfuse", version, after_help = AFTER)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
Every FILE may be `-`, standard input. A program is `.ir` text or StableHLO text; what it begins with tells which.

Exit status: 0 if all is well, 1 if the program is wrong or a check fails, 2 if the command line or \
a file it names cannot be used. NO_COLOR turns colors off.";

#[derive(Subcommand)]
enum Command {
    Grad(derivative::Grad),
    Jvp(derivative::Jvp),
    Hvp(derivative::Hvp),
    Jacobian(derivative::Jacobian),
    Hessian(derivative::Hessian),
    Vmap(vmap::Vmap),
    Run(run::RunCommand),
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
}

fn command_line() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Nobody is left to tell when this cannot be printed.
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    let mut out = PipeWriter::new(io::stdout().lock());
    let mut err = io::stderr().lock();
    let color = err.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let mut streams = Streams { out: &mut out, err: &mut err };
    let result = match cli.command {
        Command::Grad(command) => command.execute(&mut streams),
        Command::Jvp(command) => command.execute(&mut streams),
        Command::Hvp(command) => command.execute(&mut streams),
        Command::Jacobian(command) => command.execute(&mut streams),
        Command::Hessian(command) => command.execute(&mut streams),
        Command::Vmap(command) => command.execute(&mut streams),
        Command::Run(command) => command.execute(&mut streams),
        Command::Check(command) => command.execute(&mut streams),
        Command::Bench(command) => command.execute(&mut streams),
        Command::Emit(command) => command.execute(&mut streams),
        Command::Fmt(command) => command.execute(&mut streams),
        Command::Import(command) => command.execute(&mut streams),
        Command::Plan(command) => command.execute(&mut streams),
        Command::Report(command) => command.execute(&mut streams),
        Command::Pack(command) => command.execute(&mut streams),
        Command::Cache(command) => command.execute(&mut streams),
        Command::Tune(command) => command.execute(&mut streams),
    };
    let result = result.and_then(|code| Ok(out.flush().map(|()| code)?));
    result.unwrap_or_else(|failure: Failure| {
        let _ = err.write_all(failure.render(color).as_bytes());
        failure.code()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

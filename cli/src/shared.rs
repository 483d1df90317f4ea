//! The flags that every command takes: where the result goes, as what, and in which colors.

use super::failure::Failure;
use super::whole;
use clap::{ArgMatches, Args, ColorChoice, Command, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

/// The flags that every command takes.
#[derive(Args)]
pub(super) struct SharedArgs {
    /// Write the result to this file, whole or not at all, instead of printing it
    #[arg(short, long, alias = "out", value_name = "FILE", global = true)]
    pub(super) output: Option<PathBuf>,
    /// Print JSON where there are data, and errors as JSON in any case
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// When to use colors; `auto` is where standard error is a terminal and NO_COLOR is not set
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto", global = true)]
    pub(super) color: ColorWhen,
}

/// When colors are used.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ColorWhen {
    Auto,
    Always,
    Never,
}

impl SharedArgs {
    /// Whether errors are colored.
    pub(super) fn colors(&self) -> bool {
        let wanted = || std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        match self.color {
            ColorWhen::Auto => io::stderr().is_terminal() && wanted(),
            ColorWhen::Always => true,
            ColorWhen::Never => false,
        }
    }

    /// Errs where the output would replace a file that the command line names otherwise.
    pub(super) fn spares(&self, command: &Command, matches: &ArgMatches) -> Result<(), Failure> {
        let Some(output) = &self.output else { return Ok(()) };
        let (mut command, mut matches) = (command, matches);
        while let Some((name, inner)) = matches.subcommand() {
            let Some(found) = command.find_subcommand(name) else { break };
            (command, matches) = (found, inner);
        }
        let ids = command.get_arguments().map(|a| a.get_id().as_str()).filter(|id| *id != "output");
        for raw in ids.filter_map(|id| matches.try_get_raw(id).ok().flatten()).flatten() {
            whole::spares(output, paths(raw).iter().map(PathBuf::as_path))?;
        }
        Ok(())
    }
}

/// The paths that an argument may name: itself, and the file of `NAME=FILE#ARRAY`.
fn paths(raw: &OsStr) -> Vec<PathBuf> {
    let mut all = vec![PathBuf::from(raw)];
    if let Some((_, file)) = raw.to_str().and_then(|text| text.split_once('=')) {
        all.push(file.split('#').next().unwrap_or(file).into());
    }
    all.retain(|path| path != Path::new("") && path != Path::new("-"));
    all
}

/// What is asked for by arguments that may be wrong: colors, and whether errors are JSON.
pub(super) fn asked(args: &[OsString]) -> (ColorChoice, bool) {
    let is = |k: usize, text: &str| args.get(k).is_some_and(|a| a == text);
    let says = |when: &str| {
        (1..args.len())
            .any(|k| is(k, &format!("--color={when}")) || is(k, "--color") && is(k + 1, when))
    };
    let choice = match (says("always"), says("never")) {
        (true, _) => ColorChoice::Always,
        (_, true) => ColorChoice::Never,
        _ => ColorChoice::Auto,
    };
    let end = args.iter().position(|a| a == "--").unwrap_or(args.len());
    (choice, args[..end].iter().any(|a| a == "--json"))
}

/// A wrong command line as the failure that commands have.
pub(super) fn wrong(e: &clap::Error) -> Failure {
    let text = e.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let message = text.split("\n\n").next().unwrap_or(text);
    let lines: Vec<&str> = message.lines().map(str::trim).collect();
    let tips: Vec<&str> = text.lines().filter_map(|l| l.trim().strip_prefix("tip: ")).collect();
    let hint = (!tips.is_empty()).then(|| tips.join("; "));
    Failure::usage(lines.join(" ")).hint(hint)
}

//! The flags that every command takes: where the result goes, as what, and in which colors.

use super::failure::Failure;
use super::outputs::OutputFile;
use clap::{Args, ColorChoice, ValueEnum};
use std::ffi::OsString;
use std::io::{self, IsTerminal};

/// The flags that every command takes.
#[derive(Args)]
pub(super) struct SharedArgs {
    /// Write the result to this file, whole or not at all, instead of printing it
    #[arg(short, long, alias = "out", value_name = "FILE", value_parser = OutputFile::or_stdout(), global = true)]
    pub(super) output: Option<OutputFile>,
    /// Print the result as JSON, and errors and notes as one JSON object on standard error
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// When to use colors; `auto` colors errors if standard error is a terminal and NO_COLOR is not set
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
    let is_json =
        |a: &OsString| a == "--json" || a.to_str().is_some_and(|a| a.starts_with("--json="));
    (choice, args[..end].iter().any(is_json))
}

/// Flags whose value may be left out, and what it is then.
const LEFT_OUT: [(&str, &str); 1] = [("--frontier", "10")];

/// The arguments with the values that were left out before something that is no value: `--frontier FILE`.
pub(super) fn completed(args: Vec<OsString>) -> Vec<OsString> {
    let end = args.iter().position(|a| a == "--").unwrap_or(args.len());
    let is_value = |a: &OsString| a.to_str().is_some_and(|a| a.parse::<i64>().is_ok());
    let mut all = Vec::with_capacity(args.len());
    for (k, arg) in args.iter().enumerate() {
        let flag = LEFT_OUT.iter().find(|(flag, _)| k < end && arg == flag);
        match flag.filter(|_| !args.get(k + 1).is_some_and(is_value)) {
            Some((flag, value)) => all.push(format!("{flag}={value}").into()),
            None => all.push(arg.clone()),
        }
    }
    all
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

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn values_that_are_left_out_are_filled_in() {
        for (given, due) in [
            ("plan --frontier x.ir", "plan --frontier=10 x.ir"),
            ("plan x.ir --frontier", "plan x.ir --frontier=10"),
            ("plan --frontier 3 x.ir", "plan --frontier 3 x.ir"),
            ("plan --frontier -3 x.ir", "plan --frontier -3 x.ir"),
            ("plan --frontier --json x.ir", "plan --frontier=10 --json x.ir"),
            ("launch -- run --frontier x", "launch -- run --frontier x"),
        ] {
            assert_eq!(completed(words(given)), words(due), "{given}");
        }
    }

    #[test]
    fn json_is_asked_for_by_arguments_that_are_wrong_too() {
        for (args, due) in
            [("run --json x", true), ("run --json=yes", true), ("run -- --json", false)]
        {
            assert_eq!(asked(&words(args)).1, due, "{args}");
        }
    }
}

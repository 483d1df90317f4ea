//! Tips for wrong command lines: flags of other commands and habits of other programs, in place of what is merely spelled alike.

use adfuse::ir::diag::{listed, misspelled};
use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// Flags that people know from elsewhere, a flag that a command must have for the tip to hold, and the tip.
const FLAGS: [(&str, &str, &str); 4] = [
    ("--device", "--engine", "an engine is chosen by `--engine cpu` or `--engine gpu`"),
    ("--batch", "--dim", "`--dim NAME=N` gives a symbolic extent its size"),
    ("--batch-size", "--dim", "`--dim NAME=N` gives a symbolic extent its size"),
    ("--memory", "--mem-budget", "`--mem-budget SIZE` limits memory"),
];

/// Commands that people know from elsewhere, and the tip.
const COMMANDS: [(&str, &str); 3] = [
    ("version", "`adfuse --version` prints the version"),
    ("compile", "`adfuse emit` prints what compilation makes of a program"),
    ("explain", "`adfuse plan --explain %VALUE` explains a plan"),
];

/// The error with the tips of this program.
pub(super) fn with_tips(mut e: clap::Error, command: &Command, args: &[OsString]) -> clap::Error {
    match e.kind() {
        ErrorKind::UnknownArgument => unknown_flag(&mut e, chosen(command, args), command),
        ErrorKind::InvalidSubcommand => unknown_command(&mut e, chosen(command, args)),
        _ => {}
    }
    e
}

/// The command that the arguments name.
fn chosen<'c>(command: &'c Command, args: &[OsString]) -> &'c Command {
    let mut found = command;
    for arg in args.iter().skip(1) {
        if let Some(inner) = arg.to_str().and_then(|name| found.find_subcommand(name)) {
            found = inner;
        }
    }
    found
}

/// Whether a name is one of these, misspelled or cut or with an end of its own.
fn is_near<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> bool {
    let mut all = known.clone();
    all.any(|k| k.starts_with(name) || name.starts_with(k)) || misspelled(name, known).is_some()
}

fn has(command: &Command, flag: &str) -> bool {
    let long = flag.trim_start_matches('-');
    command.get_arguments().any(|arg| arg.get_long() == Some(long))
}

fn unknown_flag(e: &mut clap::Error, command: &Command, all: &Command) {
    let Some(ContextValue::String(flag)) = e.get(ContextKind::InvalidArg) else { return };
    let flag = flag.clone();
    let name = flag.trim_start_matches('-');
    let flags: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    let habit = FLAGS.iter().find(|(of, needs, _)| *of == flag && has(command, needs));
    let others = || {
        let others = all.get_subcommands().filter(|c| has(c, &flag) && flag.starts_with("--"));
        let names: Vec<&str> = others.map(Command::get_name).collect();
        (!names.is_empty()).then(|| format!("{flag} is a flag of {}", listed(&names, "")))
    };
    let tip = match habit {
        Some((_, _, tip)) => Some((*tip).to_string()),
        None if is_near(name, flags.into_iter()) => return,
        None => others(),
    };
    e.remove(ContextKind::SuggestedArg);
    e.remove(ContextKind::Suggested);
    let usage = command.clone().render_usage();
    e.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    if let Some(tip) = tip {
        e.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
}

fn unknown_command(e: &mut clap::Error, command: &Command) {
    let Some(ContextValue::String(name)) = e.get(ContextKind::InvalidSubcommand) else { return };
    let name = name.clone();
    let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
    let known = names.into_iter();
    let habit = COMMANDS.iter().find(|(of, _)| *of == name);
    if habit.is_none() && is_near(&name, known) {
        return;
    }
    e.remove(ContextKind::SuggestedSubcommand);
    e.remove(ContextKind::Suggested);
    if let Some((_, tip)) = habit {
        let tip = (*tip).to_string();
        e.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition;

    fn told(line: &str) -> String {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let mut command = definition();
        command.build();
        let e = command.clone().try_get_matches_from(&args).expect_err("wrong");
        with_tips(e, &command, &args).render().to_string()
    }

    #[test]
    fn tips_are_of_use() {
        for (line, tip) in [
            ("adfuse check x.ir --device cpu", "--engine cpu"),
            ("adfuse grad x.ir --fp fast", "--fp is a flag of"),
            ("adfuse run x.ir --sed 1", "--seed"),
            ("adfuse version", "--version"),
            ("adfuse pan x.ir", "plan"),
            ("adfuse gradient x.ir", "grad"),
        ] {
            let told = told(line);
            assert!(told.contains(tip), "{line}: {told}");
        }
        for line in ["adfuse grad x.ir --nothing", "adfuse run x.ir -q", "adfuse horizon"] {
            let told = told(line);
            assert!(!told.contains("tip:"), "{line}: {told}");
        }
        let told = told("adfuse run x.ir --batch 3");
        assert!(!told.contains("--serve <FILE>"), "{told}");
    }
}

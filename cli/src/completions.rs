//! `completions` and `man`: what shells and readers of manuals need to know of the command line.

use super::failure::Failure;
use super::outputs::OutputFolder;
use super::streams::Streams;
use super::whole;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use serde_json::json;
use std::fs;
use std::io::Write;
use std::process::ExitCode;

/// Prints what a shell needs to complete commands and flags
///
/// For bash: `adfuse completions bash -o ~/.local/share/bash-completion/completions/adfuse`.
#[derive(Args)]
pub(super) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Writes the pages of the manual into a folder: adfuse.1, and one for each command
#[derive(Args)]
pub(super) struct ManPages {
    /// The folder; it is made where it is not there
    #[arg(value_name = "DIR", value_parser = OutputFolder::of("1"))]
    folder: OutputFolder,
}

impl Completions {
    /// Runs the command, for the whole command line.
    pub(super) fn execute(
        self,
        mut whole: Command,
        streams: &mut Streams<'_>,
    ) -> Result<ExitCode, Failure> {
        // The generators do not tell what went wrong with writing.
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut whole, "adfuse", &mut text);
        let text = String::from_utf8_lossy(&text);
        let shell = self.shell.to_string();
        streams.print(|| text.to_string(), || json!({ "shell": shell, "text": text }))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl ManPages {
    /// Runs the command, for the whole command line.
    pub(super) fn execute(
        self,
        line: Command,
        streams: &mut Streams<'_>,
    ) -> Result<ExitCode, Failure> {
        let folder = &self.folder.path;
        fs::create_dir_all(folder)
            .map_err(|e| Failure::usage(format!("cannot make `{}`: {e}", folder.display())))?;
        let mut command = line.disable_help_subcommand(true);
        command.build();
        let mut made = Vec::new();
        for page in with_inner(command) {
            let man = Man::new(page);
            let name = man.get_filename();
            let path = folder.join(&name);
            let mut text = Vec::new();
            man.render(&mut text)?;
            whole::write(&path, |file| file.write_all(&text))?;
            made.push(path.display().to_string());
        }
        let lines = || made.iter().map(|path| format!("{path}\n")).collect();
        streams.print(lines, || json!({ "files": made }))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A command, and all that are in it.
fn with_inner(command: Command) -> Vec<Command> {
    let inner: Vec<Command> = command.get_subcommands().cloned().collect();
    let inner = inner.into_iter().flat_map(with_inner);
    std::iter::once(command).chain(inner).collect()
}

//! Files and folders that flags name to be written. Their types say so: no two flags of a command write one file, and none
//! replaces what another flag reads.

use super::failure::Failure;
use super::whole::{self, is_same_place};
use adfuse::backends::ranks::RankEnvironment;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// A file that a flag names to be written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OutputFile {
    pub(super) path: PathBuf,
    /// Whether each rank has a file of its own.
    of_rank: bool,
}

/// A folder in which files of one kind are written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OutputFolder {
    pub(super) path: PathBuf,
    /// The extension of the files.
    kind: &'static str,
}

/// What stands for the number of the rank in a file's name.
const RANK: &str = "{rank}";

impl OutputFile {
    /// Reads a file's name, or `-` for standard output.
    pub(super) fn or_stdout() -> impl TypedValueParser<Value = OutputFile> {
        OsStringValueParser::new().try_map(|text| Ok::<_, String>(OutputFile::of(text)))
    }

    /// Reads a file's name.
    pub(super) fn named() -> impl TypedValueParser<Value = OutputFile> {
        OsStringValueParser::new().try_map(|text| match text == "-" {
            true => Err("standard output is for the result: name a file".to_string()),
            false => Ok(OutputFile::of(text)),
        })
    }

    /// Reads the name of a file of arrays.
    pub(super) fn of_arrays() -> impl TypedValueParser<Value = OutputFile> {
        OutputFile::named().try_map(|file| match file.has_extension(&["npz", "npy"]) {
            true => Ok(file),
            false => Err("arrays are written to .npz and .npy files".to_string()),
        })
    }

    fn of(text: OsString) -> OutputFile {
        match text.to_str().filter(|text| text.contains(RANK)) {
            None => OutputFile { path: text.into(), of_rank: false },
            Some(text) => {
                // What is wrong with the variables is told by what connects the ranks.
                let rank = RankEnvironment::read().ok().flatten().map_or(0, |found| found.rank);
                OutputFile { path: text.replace(RANK, &rank.to_string()).into(), of_rank: true }
            }
        }
    }

    /// Whether the file's name ends with one of these, in any case.
    pub(super) fn has_extension(&self, known: &[&str]) -> bool {
        let extension = self.path.extension();
        extension.is_some_and(|e| known.iter().any(|known| e.eq_ignore_ascii_case(known)))
    }

    /// Errs where several ranks run the command and all would write this file.
    pub(super) fn is_of_one_rank(&self, ranks: u32) -> Result<(), Failure> {
        if self.of_rank || ranks < 2 {
            return Ok(());
        }
        let path = self.path.display();
        let m = format!("all {ranks} ranks would write `{path}`");
        let hint = format!("put {RANK} into the name: it stands for the number of the rank");
        Err(Failure::usage(m).hint(Some(hint)))
    }
}

impl OutputFolder {
    /// Reads the name of a folder for files with this extension.
    pub(super) fn of(kind: &'static str) -> impl TypedValueParser<Value = OutputFolder> {
        OsStringValueParser::new().try_map(move |text| match text == "-" {
            true => Err("expected the name of a folder".to_string()),
            false => Ok(OutputFolder { path: text.into(), kind }),
        })
    }
}

/// What a flag writes.
enum WrittenPath {
    File(PathBuf),
    Folder(OutputFolder),
}

/// Errs where the command line names one file twice and writes it.
pub(super) fn none_is_lost(command: &Command, matches: &ArgMatches) -> Result<(), Failure> {
    let (mut command, mut matches) = (command, matches);
    while let Some((name, inner)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(name) else { break };
        (command, matches) = (found, inner);
    }
    let (mut written, mut read) = (Vec::new(), Vec::new());
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        // What is given by nobody names no file.
        let given = matches!(matches.try_contains_id(id), Ok(true))
            && matches.value_source(id) == Some(ValueSource::CommandLine);
        if !given {
            continue;
        }
        if let Some(file) = of_type::<OutputFile>(arg, matches) {
            written.push((flag(arg), WrittenPath::File(file.path.clone())));
        } else if let Some(folder) = of_type::<OutputFolder>(arg, matches) {
            written.push((flag(arg), WrittenPath::Folder(folder.clone())));
        } else if let Ok(Some(raw)) = matches.try_get_raw(id) {
            read.extend(raw.flat_map(paths));
        }
    }
    written.retain(|(_, what)| !matches!(what, WrittenPath::File(path) if path.as_os_str() == "-"));
    for (k, (flag, what)) in written.iter().enumerate() {
        is_reachable(what)?;
        if let WrittenPath::File(path) = what {
            whole::spares(path, read.iter().map(PathBuf::as_path))?;
        }
        for (other, before) in &written[..k] {
            if let Some(path) = both(what, before) {
                let m = format!("{other} and {flag} both write `{}`", path.display());
                return Err(Failure::usage(m).hint(Some("name two files".into())));
            }
        }
    }
    Ok(())
}

/// Errs where the folder of a file is not there: what takes minutes is not begun for a result that cannot be written.
fn is_reachable(what: &WrittenPath) -> Result<(), Failure> {
    let WrittenPath::File(path) = what else { return Ok(()) };
    match path.parent().filter(|folder| *folder != Path::new("") && !folder.is_dir()) {
        None => Ok(()),
        Some(folder) => {
            let m = format!("cannot write `{}`: no folder `{}`", path.display(), folder.display());
            Err(Failure::usage(m))
        }
    }
}

/// The value of an argument, if it is of this type.
fn of_type<'m, T: Clone + Send + Sync + 'static>(
    arg: &Arg,
    matches: &'m ArgMatches,
) -> Option<&'m T> {
    let is = arg.get_value_parser().type_id() == TypeId::of::<T>();
    is.then(|| matches.get_one::<T>(arg.get_id().as_str())).flatten()
}

/// The argument as it is written.
fn flag(arg: &Arg) -> String {
    match (arg.get_long(), arg.get_value_names()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some([name, ..])) => name.to_string(),
        (None, _) => arg.get_id().to_string(),
    }
}

/// The file that both would write.
fn both<'w>(a: &'w WrittenPath, b: &'w WrittenPath) -> Option<&'w Path> {
    match (a, b) {
        (WrittenPath::File(a), WrittenPath::File(b)) => is_same_place(a, b).then_some(a),
        (WrittenPath::File(file), WrittenPath::Folder(folder))
        | (WrittenPath::Folder(folder), WrittenPath::File(file)) => {
            let of_kind = file.extension().is_some_and(|e| e == folder.kind);
            let beside = file.parent().map(|p| if p == Path::new("") { Path::new(".") } else { p });
            let inside = beside.is_some_and(|beside| is_same_place(beside, &folder.path));
            (of_kind && inside).then_some(file)
        }
        (WrittenPath::Folder(_), WrittenPath::Folder(_)) => None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_rank_is_a_file_of_its_own() {
        let of = |text: &str| OutputFile::of(text.into());
        assert_eq!(of("a.{rank}.npz"), OutputFile { path: "a.0.npz".into(), of_rank: true });
        assert!(
            of("a.{rank}.npz").is_of_one_rank(2).is_ok() && of("a.npz").is_of_one_rank(1).is_ok()
        );
        let told = of("a.npz").is_of_one_rank(2).unwrap_err().render(false);
        assert!(told.contains("all 2 ranks would write `a.npz`"), "{told}");
    }

    #[test]
    fn a_folder_and_a_file_meet_where_their_names_do() {
        let folder =
            |path: &str| WrittenPath::Folder(OutputFolder { path: path.into(), kind: "svg" });
        let file = |path: &str| WrittenPath::File(path.into());
        assert!(both(&folder("none"), &file("none/a.svg")).is_some());
        assert!(both(&file("a.svg"), &folder(".")).is_some());
        for other in ["none/a.html", "none/b/a.svg", "a.svg"] {
            assert!(both(&folder("none"), &file(other)).is_none(), "{other}");
        }
        assert!(
            both(&file("none/../a"), &file("a")).is_none()
                && both(&file("a"), &file("./a")).is_some()
        );
    }
}

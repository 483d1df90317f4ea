//! Lines of programs that build functions.
//!
//! A line is no part of what a function is: the printer, equality of instructions and hashes pass over it.

use std::fmt;
use std::panic::Location;

/// A line of a program that builds functions, such as the one that asked a tracer for an operation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SourceLine {
    /// The file, from the folder of its package on.
    pub file: Box<str>,
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1.
    pub column: u32,
}

impl SourceLine {
    /// The line of a caller. Of an absolute path, only what is from the folder of the package on is kept, so that
    /// what is written of a function does not depend on the host that compiled the program.
    pub fn of(caller: &Location<'_>) -> SourceLine {
        SourceLine::new(caller.file(), caller.line(), caller.column())
    }

    /// A line of a file, of whose path the same is kept.
    pub fn new(path: &str, line: u32, column: u32) -> SourceLine {
        SourceLine { file: in_package(path).into(), line, column }
    }
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// The folders of a package in which there are source files.
const SOURCE_FOLDERS: [&str; 4] = ["src", "tests", "examples", "benches"];

/// A relative path as it is; of an absolute one the last folder of sources, the one that it is in, and what follows.
fn in_package(path: &str) -> &str {
    let separator = |c: char| c == '/' || c == '\\';
    let is_absolute = path.starts_with(separator) || path.get(1..2) == Some(":");
    if !is_absolute {
        return path;
    }
    // Where each component begins.
    let begins: Vec<usize> = path
        .char_indices()
        .filter(|&(k, c)| !separator(c) && (k == 0 || path[..k].ends_with(separator)))
        .map(|(k, _)| k)
        .collect();
    let component = |at: usize| path[begins[at]..].split(separator).next().unwrap_or_default();
    let last = begins.len().saturating_sub(1);
    let sources = (1..last).rev().find(|&at| SOURCE_FOLDERS.contains(&component(at)));
    let first = sources.map_or(last, |at| at - 1);
    begins.get(first).map_or("", |&k| &path[k..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_no_folder_of_the_host() {
        for (path, kept) in [
            ("src/main.rs", "src/main.rs"),
            ("examples/examples/gpt.rs", "examples/examples/gpt.rs"),
            ("/home/ada/net-1.2.0/src/layers/dense.rs", "net-1.2.0/src/layers/dense.rs"),
            ("/home/src/ada/net/examples/gpt.rs", "net/examples/gpt.rs"),
            ("C:\\code\\net\\src\\lib.rs", "net\\src\\lib.rs"),
            ("/main.rs", "main.rs"),
            ("/home/ada/main.rs", "main.rs"),
            ("/src/main.rs", "main.rs"),
            ("/", ""),
        ] {
            assert_eq!(in_package(path), kept, "{path}");
        }
    }
}

//! Lines of the source that instructions come from: of the text that was read, or of the program that was traced.

use adfuse_ir::{Function, Inst};
use std::collections::BTreeSet;

/// Where the lines of a source begin.
pub(super) struct SourceLines<'a> {
    function: &'a Function,
    /// The file's name, without its folders.
    name: &'a str,
    starts: Vec<usize>,
}

impl<'a> SourceLines<'a> {
    /// Of a function that was read from this text; of one that was traced the text is empty.
    pub(super) fn of(function: &'a Function, origin: &'a str, text: &str) -> SourceLines<'a> {
        let starts = match text.is_empty() {
            true => Vec::new(),
            false => {
                std::iter::once(0).chain(text.match_indices('\n').map(|(k, _)| k + 1)).collect()
            }
        };
        let name = origin.rsplit(['/', '\\']).next().unwrap_or(origin);
        SourceLines { function, name, starts }
    }

    /// The line of an instruction with its file, lines counted from 1: `mlp.ir:4`, `src/net.rs:12:9`.
    pub(super) fn of_inst(&self, i: Inst) -> Option<String> {
        if let Some(line) = self.function.source_line(i) {
            return Some(line.to_string());
        }
        Some(format!("{}:{}", self.name, self.in_text(i)?))
    }

    fn in_text(&self, i: Inst) -> Option<usize> {
        let start = self.function.span(i)?.start as usize;
        let line = self.starts.partition_point(|&s| s <= start);
        (line > 0).then_some(line)
    }

    /// The lines of some instructions, each once, in the order of the source.
    pub(super) fn of_insts(&self, insts: &[Inst]) -> Vec<String> {
        let traced: BTreeSet<_> =
            insts.iter().filter_map(|&i| self.function.source_line(i)).collect();
        let untraced = insts.iter().filter(|&&i| self.function.source_line(i).is_none());
        let read: BTreeSet<usize> = untraced.filter_map(|&i| self.in_text(i)).collect();
        let read = read.into_iter().map(|line| format!("{}:{line}", self.name));
        traced.into_iter().map(ToString::to_string).chain(read).collect()
    }
}

//! Errors as plain data: what went wrong, of which kind, and where.

use crate::source_line::SourceLine;
use std::fmt;
use std::sync::Arc;

/// A byte range of the source text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The range from `start` to `end`.
    pub fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }

    /// The least range that holds both.
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// Where an instruction comes from; nothing where it was made from nothing that a person wrote.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Provenance {
    /// Its place in the text that was read.
    pub span: Option<Span>,
    /// The line of the program that asked for it.
    pub line: Option<Arc<SourceLine>>,
}

impl From<Span> for Provenance {
    fn from(span: Span) -> Provenance {
        Provenance { span: Some(span), line: None }
    }
}

/// The class of an error; tests and callers match on this, people read the message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// The text does not follow the grammar.
    Syntax,
    /// A limit (nesting, count, size) is exceeded.
    Limit,
    /// A name that nothing defines.
    UnknownName,
    /// An op that is not in the table.
    UnknownOp,
    /// A name defined twice.
    Redefinition,
    /// Wrong number of operands, results, regions or arguments.
    Arity,
    /// A missing, unknown or ill-valued attribute.
    Attribute,
    /// An element type that does not fit.
    DType,
    /// A shape that does not fit.
    Shape,
    /// A literal that its slot cannot take.
    Literal,
    /// A value used where it is not defined yet, or out of its region.
    Dominance,
    /// A token that is used more than once.
    Effect,
    /// A custom rule whose signature does not fit its function.
    CustomRule,
    /// No derivative exists, or none is known.
    Derivative,
    /// An access that is not proven to stay inside of its buffer.
    Bounds,
    /// Writes that are not proven disjoint, or that leave elements out.
    Overlap,
    /// A call the caller got wrong: unknown input, wrong argument.
    Usage,
    /// Something this build or engine does not do.
    Unsupported,
    /// The device that something is to run on is not there.
    NoDevice,
    /// Another process that runs the program is gone.
    LostRank,
    /// A broken invariant of the compiler itself.
    Internal,
}

/// Where an error is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct At {
    /// The function, without `@`.
    pub func: Option<String>,
    /// The instruction, printed (for functions that were never text).
    pub inst: Option<Box<str>>,
    /// Place in the source text.
    pub span: Option<Span>,
    /// The line of the program that asked for it, where it was traced from one.
    pub line: Option<Arc<SourceLine>>,
}

impl At {
    /// A place in the source text.
    pub fn span(span: Span) -> At {
        At { span: Some(span), ..At::default() }
    }
}

/// One error: plain data with a location.
#[derive(Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where.
    pub at: At,
    /// Of which class.
    pub kind: Kind,
    /// What is wrong, one line.
    pub message: String,
    /// What may help: a near name, expected and found types.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// An error without hint.
    pub fn new(at: At, kind: Kind, message: impl Into<String>) -> Diagnostic {
        Diagnostic { at, kind, message: message.into(), hint: None }
    }

    /// Adds a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Diagnostic {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(func) = &self.at.func {
            write!(f, "in @{func}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(inst) = &self.at.inst {
            write!(f, ", at `{inst}`")?;
        }
        if let Some(line) = &self.at.line {
            write!(f, ", from {line}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

/// The same message as `Display`: this is what a `main` that returns an error prints.
impl fmt::Debug for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Diagnostic {}

/// Of the given names, the one nearest to `name` in edits, if near enough to suggest.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = name.len() / 3 + 1;
    let plain = name.to_ascii_lowercase();
    known
        .into_iter()
        .map(|k| {
            (
                edit_distance(&plain, &k.to_ascii_lowercase()),
                std::cmp::Reverse(common_prefix(name, k)),
                k,
            )
        })
        // Of a name of one letter something must stay.
        .filter(|&(d, _, k)| d <= limit && d < name.len().max(k.len()))
        .min()
        .map(|(.., k)| k)
}

/// Of the given names, the one that `name` is misspelled from: one letter is wrong, missing, too many or swapped with the next,
/// or two are in a name of eight letters or more.
///
/// Where all names have meanings that differ, such as those of ops, a name that is merely similar helps nobody
/// ([`did_you_mean`]).
pub fn misspelled<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = match name.len() {
        0 | 1 => return None,
        2..8 => 1,
        _ => 2,
    };
    let letters = |text: &str| {
        let mut letters: Vec<u8> = text.bytes().collect();
        letters.sort_unstable();
        letters
    };
    let own = letters(name);
    // Letters in the wrong order are likelier than a wrong letter, and beginnings are right more often than ends.
    let near = known
        .into_iter()
        .map(|k| (edits(name, k), letters(k) != own, std::cmp::Reverse(common_prefix(name, k)), k));
    near.filter(|&(edits, ..)| edits <= most).min().map(|(.., k)| k)
}

/// A hint for a name that is none of those there are: the nearest, or, where none is near, what there is.
pub fn instead(name: &str, known: &[&str], sigil: &str) -> Option<String> {
    let near = did_you_mean(name, known.iter().copied());
    match near {
        Some(near) => Some(format!("did you mean {sigil}{near}?")),
        None if known.is_empty() => None,
        None => Some(format!("there is {}", listed(known, sigil))),
    }
}

/// Names as a message lists them, cut where there are many.
pub fn listed<S: AsRef<str>>(names: &[S], sigil: &str) -> String {
    const MOST: usize = 12;
    let mut shown: Vec<String> =
        names.iter().take(MOST).map(|n| format!("{sigil}{}", n.as_ref())).collect();
    if names.len() > MOST {
        shown.push(format!("and {} more", names.len() - MOST));
    }
    shown.join(", ")
}

/// How many edits lead from one text to another, where a swap of neighbours is one.
fn edits(a: &str, b: &str) -> usize {
    let cut = |s: &str| s.bytes().take(64).collect::<Vec<_>>();
    let (a, b) = (cut(a), cut(b));
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

fn common_prefix(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count()
}

/// Levenshtein distance, bytes; long names are cut, since suggestions for them help nobody.
fn edit_distance(a: &str, b: &str) -> usize {
    let cut = |s: &str| s.bytes().take(64).collect::<Vec<_>>();
    let (a, b) = (cut(a), cut(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

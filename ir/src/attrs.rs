//! Attributes of instructions: a small closed set of value kinds, and the schema an op row declares.

use crate::elements::{EMPTY, Elements};
use smallvec::SmallVec;
use std::fmt;

/// A list of integers, as most attributes are.
pub type Ints = SmallVec<[i64; 4]>;

/// The value of one attribute.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Attr {
    /// `3`
    Int(i64),
    /// `[0, 2]`
    Ints(Ints),
    /// `[1] x [0]`: one list for each of two operands.
    Pair(Ints, Ints),
    /// `true`
    Bool(bool),
    /// `"text"`
    Str(String),
    /// `@name`
    Func(String),
    /// One of a row's own keywords.
    Word(&'static str),
    /// `dense [1.0, 2.0]`: element values, row-major.
    Literals(Elements),
}

/// The kind of value an attribute takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttrKind {
    /// An integer.
    Int,
    /// An integer between these two, both included.
    Within(i64, i64),
    /// A list of integers.
    Ints,
    /// Two lists of integers.
    Pair,
    /// `true` or `false`.
    Bool,
    /// A quoted string.
    Str,
    /// A function's name.
    Func,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Element values.
    Literals,
}

impl fmt::Display for AttrKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttrKind::Int => f.write_str("an integer"),
            AttrKind::Within(low, high) => write!(f, "an integer from {low} to {high}"),
            AttrKind::Ints => f.write_str("a list of integers"),
            AttrKind::Pair => f.write_str("two lists of integers, as [0] x [1]"),
            AttrKind::Bool => f.write_str("true or false"),
            AttrKind::Str => f.write_str("a quoted string"),
            AttrKind::Func => f.write_str("a function name, as @f"),
            AttrKind::Word(words) => write!(f, "one of {}", words.join(", ")),
            AttrKind::Literals => f.write_str("element values, as dense [1.0, 2.0]"),
        }
    }
}

/// One attribute in an op's schema.
#[derive(Clone, Copy, Debug)]
pub struct AttrSpec {
    /// Its name in text.
    pub name: &'static str,
    /// What values it takes.
    pub kind: AttrKind,
    /// The value when it is not written; attributes that equal it are not printed.
    pub default: Option<Attr0>,
}

/// Defaults that a schema may name in a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attr0 {
    /// `[] x []`
    EmptyPair,
    /// `[]`
    NoInts,
    /// `0`
    Nought,
    /// `1`
    One,
    /// `false`
    False,
    /// `""`
    NoText,
}

impl Attr0 {
    /// The attribute value.
    pub fn value(self) -> Attr {
        match self {
            Attr0::EmptyPair => Attr::Pair(Ints::new(), Ints::new()),
            Attr0::NoInts => Attr::Ints(Ints::new()),
            Attr0::Nought => Attr::Int(0),
            Attr0::One => Attr::Int(1),
            Attr0::False => Attr::Bool(false),
            Attr0::NoText => Attr::Str(String::new()),
        }
    }
}

/// A required attribute.
pub const fn need(name: &'static str, kind: AttrKind) -> AttrSpec {
    AttrSpec { name, kind, default: None }
}

/// An attribute with a default.
pub const fn maybe(name: &'static str, kind: AttrKind, default: Attr0) -> AttrSpec {
    AttrSpec { name, kind, default: Some(default) }
}

impl Attr {
    /// Whether this value is of the given kind.
    pub fn is(&self, kind: AttrKind) -> bool {
        match (self, kind) {
            (Attr::Int(_), AttrKind::Int)
            | (Attr::Ints(_), AttrKind::Ints)
            | (Attr::Pair(..), AttrKind::Pair)
            | (Attr::Bool(_), AttrKind::Bool)
            | (Attr::Str(_), AttrKind::Str)
            | (Attr::Func(_), AttrKind::Func)
            | (Attr::Literals(_), AttrKind::Literals) => true,
            (Attr::Int(n), AttrKind::Within(low, high)) => (low..=high).contains(n),
            (Attr::Word(w), AttrKind::Word(words)) => words.contains(w),
            _ => false,
        }
    }
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attr::Int(x) => write!(f, "{x}"),
            Attr::Ints(x) => list(f, x),
            Attr::Pair(a, b) => {
                list(f, a)?;
                f.write_str(" x ")?;
                list(f, b)
            }
            Attr::Bool(x) => write!(f, "{x}"),
            Attr::Str(s) => {
                f.write_str("\"")?;
                for c in s.chars() {
                    match c {
                        '"' => f.write_str("\\\"")?,
                        '\\' => f.write_str("\\\\")?,
                        '\n' => f.write_str("\\n")?,
                        '\t' => f.write_str("\\t")?,
                        '\r' => f.write_str("\\r")?,
                        c if c.is_control() => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                        c => write!(f, "{c}")?,
                    }
                }
                f.write_str("\"")
            }
            Attr::Func(s) => write!(f, "@{s}"),
            Attr::Word(w) => f.write_str(w),
            Attr::Literals(x) => {
                f.write_str("dense ")?;
                list(f, x.iter())
            }
        }
    }
}

fn list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    items: impl IntoIterator<Item = T>,
) -> fmt::Result {
    f.write_str("[")?;
    for (i, x) in items.into_iter().enumerate() {
        write!(f, "{}{x}", if i > 0 { ", " } else { "" })?;
    }
    f.write_str("]")
}

/// The attributes of one instruction, in the order of its op's schema, defaults filled in.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Attrs(SmallVec<[(&'static str, Attr); 2]>);

impl Attrs {
    /// No attributes.
    pub fn none() -> Attrs {
        Attrs::default()
    }

    /// Adds an attribute.
    pub fn with(mut self, name: &'static str, value: Attr) -> Attrs {
        self.0.push((name, value));
        self
    }

    /// Adds a list of integers.
    pub fn with_ints(self, name: &'static str, value: impl IntoIterator<Item = i64>) -> Attrs {
        self.with(name, Attr::Ints(value.into_iter().collect()))
    }

    /// With an attribute that takes the place of one of the same name.
    pub fn setting(mut self, name: &'static str, value: Attr) -> Attrs {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
        self
    }

    /// Adds an integer.
    pub fn with_int(self, name: &'static str, value: i64) -> Attrs {
        self.with(name, Attr::Int(value))
    }

    /// The attribute of this name.
    pub fn get(&self, name: &str) -> Option<&Attr> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, a)| a)
    }

    /// All attributes in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Attr)> {
        self.0.iter().map(|(n, a)| (*n, a))
    }

    /// An integer attribute; 0 where the schema was not followed, which the verifier reports.
    pub fn int(&self, name: &str) -> i64 {
        match self.get(name) {
            Some(&Attr::Int(x)) => x,
            _ => 0,
        }
    }

    /// A list attribute; empty where absent.
    pub fn ints(&self, name: &str) -> &[i64] {
        match self.get(name) {
            Some(Attr::Ints(x)) => x,
            _ => &[],
        }
    }

    /// A pair attribute; empty where absent.
    pub fn pair(&self, name: &str) -> (&[i64], &[i64]) {
        match self.get(name) {
            Some(Attr::Pair(a, b)) => (a, b),
            _ => (&[], &[]),
        }
    }

    /// A flag; false where absent.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name) == Some(&Attr::Bool(true))
    }

    /// A word attribute; empty where absent.
    pub fn word(&self, name: &str) -> &'static str {
        match self.get(name) {
            Some(&Attr::Word(w)) => w,
            _ => "",
        }
    }

    /// A string or function name; empty where absent.
    pub fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Some(Attr::Str(s) | Attr::Func(s)) => s,
            _ => "",
        }
    }

    /// Element values; empty where absent.
    pub fn literals(&self, name: &str) -> &Elements {
        match self.get(name) {
            Some(Attr::Literals(x)) => x,
            _ => &EMPTY,
        }
    }

    /// These attributes in the schema's order, with its defaults.
    ///
    /// # Errors
    /// A sentence: an attribute that the schema does not have, one that is missing, or a value of another kind.
    pub fn conform(self, schema: &[AttrSpec]) -> Result<Attrs, String> {
        let extra = self.0.iter().find(|(n, _)| schema.iter().all(|s| s.name != *n));
        if let Some((name, _)) = extra {
            return Err(format!("no attribute `{name}` here"));
        }
        let mut out = Attrs::none();
        for spec in schema {
            match (self.get(spec.name), spec.default) {
                (Some(a), _) if a.is(spec.kind) => out = out.with(spec.name, a.clone()),
                (Some(a), _) => {
                    return Err(format!("`{}` is {}, found {a}", spec.name, spec.kind));
                }
                (None, Some(d)) => out = out.with(spec.name, d.value()),
                (None, None) => return Err(format!("attribute `{}` is missing", spec.name)),
            }
        }
        Ok(out)
    }
}

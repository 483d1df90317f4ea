//! The syntax of `--input NAME=SPEC`.

use adfuse::ir::types::MAX_RANK;
use adfuse::ir::{DType, Literal, Number};
use std::path::PathBuf;

/// One `--input`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InputArg {
    /// The parameter's name, without `%`.
    pub(super) name: String,
    /// Where its value comes from.
    pub(super) spec: Spec,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Spec {
    /// A `.npy` file.
    Npy(PathBuf),
    /// An array of a `.npz` file; without a name, the one named like the input.
    Npz(PathBuf, Option<String>),
    /// A rule for every element.
    Fill(Fill),
    /// A nested list.
    List(List),
}

/// A rule for every element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fill {
    /// All 0 (or false).
    Zeros,
    /// All 1 (or true).
    Ones,
    /// The standard normal distribution.
    Randn,
    /// The uniform distribution from 0 to 1.
    Uniform,
    /// Normal for floats, small integers for integers, either for truth values.
    Any,
    /// A number written out.
    Number(Number),
}

/// A nested list of numbers: its extents, and its elements in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct List {
    /// The extents.
    pub(super) dims: Vec<u64>,
    /// The numbers.
    pub(super) numbers: Vec<Number>,
}

impl List {
    /// The elements' bits in a type, or the first number that is none of this type.
    pub(super) fn bits(&self, dtype: DType) -> Result<Vec<u64>, Number> {
        self.numbers.iter().map(|&n| n.typed(dtype).map(Literal::bits).ok_or(n)).collect()
    }
}

/// Reads `NAME=SPEC`.
pub(super) fn input(text: &str) -> Result<InputArg, String> {
    let (name, spec) = text.split_once('=').ok_or("expected NAME=SPEC")?;
    let name = name.trim_start_matches('%').to_string();
    if name.is_empty() {
        return Err("expected a name before `=`".into());
    }
    let fill = |f| Ok(Spec::Fill(f));
    let spec = match spec {
        "zeros" => fill(Fill::Zeros),
        "ones" => fill(Fill::Ones),
        "randn" => fill(Fill::Randn),
        "uniform" => fill(Fill::Uniform),
        s if s.ends_with(".npy") => Ok(Spec::Npy(s.into())),
        s if s.ends_with(".npz") => Ok(Spec::Npz(s.into(), None)),
        s => match s.rsplit_once(".npz#") {
            Some((_, "")) => Err("expected the name of an array after `#`".into()),
            Some((path, member)) => {
                Ok(Spec::Npz(format!("{path}.npz").into(), Some(member.to_string())))
            }
            None if s.trim_start().starts_with('[') => list(s).map(Spec::List),
            None => match number(s.trim()) {
                Some(n) => written(n, s.trim()).and_then(|n| fill(Fill::Number(n))),
                None => {
                    Err("expected x.npy, file.npz#name, zeros, ones, randn, uniform, a number \
                             or a list such as [[1,2],[3,4]]"
                        .into())
                }
            },
        },
    };
    Ok(InputArg { name, spec: spec? })
}

fn number(text: &str) -> Option<Number> {
    match text {
        "true" => return Some(Number::Bool(true)),
        "false" => return Some(Number::Bool(false)),
        "nan" => return Some(Number::Float(f64::NAN)),
        "inf" => return Some(Number::Float(f64::INFINITY)),
        "-inf" => return Some(Number::Float(f64::NEG_INFINITY)),
        _ => {}
    }
    // What Rust reads as a number beyond this, `infinity` and its kind, is no number here.
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let int = text.parse().ok().map(Number::Int);
    int.or_else(|| text.parse().ok().map(Number::Float))
}

/// The number that `text` was read as, unless it became infinite in reading.
fn written(n: Number, text: &str) -> Result<Number, String> {
    match n {
        Number::Float(x) if x.is_infinite() && !text.ends_with("inf") => {
            let inf = if x > 0.0 { "inf" } else { "-inf" };
            Err(format!("`{}` is beyond every float; infinity is `{inf}`", shortened(text)))
        }
        n => Ok(n),
    }
}

/// Reads a nested list; all lists of one depth have one length.
fn list(text: &str) -> Result<List, String> {
    let mut reader = ListParser { rest: text, depth: 0, dims: Vec::new(), numbers: Vec::new() };
    reader.list()?;
    match reader.rest.trim() {
        "" => {
            let dims = reader.dims.into_iter().map(|n| n.unwrap_or(0)).collect();
            Ok(List { dims, numbers: reader.numbers })
        }
        rest => Err(format!("`{}` after the list", shortened(rest))),
    }
}

struct ListParser<'t> {
    rest: &'t str,
    depth: usize,
    /// The lengths of the lists of each depth, as far as they are known.
    dims: Vec<Option<u64>>,
    numbers: Vec<Number>,
}

impl ListParser<'_> {
    fn eat(&mut self, c: char) -> bool {
        self.rest = self.rest.trim_start();
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// A list, from its bracket on.
    fn list(&mut self) -> Result<(), String> {
        let depth = self.depth;
        if depth == MAX_RANK {
            return Err(format!("the list is nested deeper than {MAX_RANK}"));
        }
        if self.dims.len() == depth {
            if !self.numbers.is_empty() {
                return Err("numbers and lists side by side".into());
            }
            self.dims.push(None);
        }
        self.eat('[');
        let mut length = 0;
        while !self.eat(']') {
            if length > 0 && !self.eat(',') {
                return Err(match self.rest {
                    "" => "a list is not closed".into(),
                    rest => format!("expected `,` or `]` before `{}`", shortened(rest)),
                });
            }
            self.depth = depth + 1;
            self.element()?;
            self.depth = depth;
            length += 1;
        }
        match self.dims[depth].replace(length) {
            Some(other) if other != length => {
                Err(format!("lists of lengths {other} and {length} side by side"))
            }
            _ => Ok(()),
        }
    }

    fn element(&mut self) -> Result<(), String> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with('[') {
            return self.list();
        }
        let end = self.rest.find([',', ']', '[']).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        let Some(n) = number(text.trim()) else {
            return Err(match text.trim() {
                "" if rest.is_empty() => "a list is not closed".into(),
                "" => "a number is missing in the list".into(),
                text => format!("`{}` is no number", shortened(text)),
            });
        };
        if self.dims.len() != self.depth {
            return Err("numbers and lists side by side".into());
        }
        self.numbers.push(written(n, text.trim())?);
        self.rest = rest;
        Ok(())
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(text: &str) -> Result<(Vec<u64>, usize), String> {
        list(text).map(|l| (l.dims, l.numbers.len()))
    }

    #[test]
    fn lists_have_extents() {
        for (text, expected) in [
            ("[]", vec![0]),
            ("[1]", vec![1]),
            (" [ 1 , 2.5,nan ] ", vec![3]),
            ("[[1,2],[3,4],[5,6]]", vec![3, 2]),
            ("[[],[]]", vec![2, 0]),
            ("[[[true]]]", vec![1, 1, 1]),
        ] {
            let n: u64 = expected.iter().product();
            assert_eq!(dims(text), Ok((expected, n as usize)), "{text}");
        }
        assert_eq!(dims(&("[".repeat(16) + &"]".repeat(16))).map(|d| d.0.len()), Ok(16));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for (text, part) in [
            ("[", "not closed"),
            ("[1", "not closed"),
            ("[1,", "not closed"),
            ("[1,]", "missing"),
            ("[,1]", "missing"),
            ("[1 2]", "`1 2` is no number"),
            ("[1][2]", "after the list"),
            ("[[1,2],[3]]", "lengths 2 and 1"),
            ("[[],[3]]", "lengths 0 and 1"),
            ("[1,[2]]", "side by side"),
            ("[[2],1]", "side by side"),
            ("[[],1]", "side by side"),
            ("[[1],[[2]]]", "side by side"),
            ("[[[1]],[2]]", "side by side"),
            ("[x]", "`x` is no number"),
            ("[1e999,0]", "`1e999` is beyond every float; infinity is `inf`"),
            ("[0,-1e999]", "infinity is `-inf`"),
        ] {
            let found = dims(text);
            assert!(found.as_ref().is_err_and(|e| e.contains(part)), "{text}: {found:?}");
        }
        let deep = dims(&"[".repeat(100_000));
        assert!(deep.is_err_and(|e| e.contains("deeper than 16")));
    }

    #[test]
    fn numbers_are_those_of_programs() {
        assert_eq!(number("-2"), Some(Number::Int(-2)));
        assert_eq!(number("1e3"), Some(Number::Float(1000.0)));
        assert_eq!(number("-.5"), Some(Number::Float(-0.5)));
        assert_eq!(number("-inf"), Some(Number::Float(f64::NEG_INFINITY)));
        for text in ["", "-", "infinity", "+1", "NaN", "0x10", "1_000", "--1", "1 "] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn specs_are_told_apart() {
        let spec = |text: &str| input(&format!("%x={text}")).map(|i| i.spec);
        assert_eq!(spec("a=b.npy"), Ok(Spec::Npy("a=b.npy".into())));
        let member = |m: Option<&str>| Ok(Spec::Npz("d/a.npz".into(), m.map(Into::into)));
        assert_eq!(spec("d/a.npz#w.0"), member(Some("w.0")));
        assert_eq!(spec("d/a.npz"), member(None));
        assert_eq!(spec("3"), Ok(Spec::Fill(Fill::Number(Number::Int(3)))));
        assert_eq!(spec("inf"), Ok(Spec::Fill(Fill::Number(Number::Float(f64::INFINITY)))));
        for wrong in ["", "a.npz#", "a.txt", "rand", "ones(3)", "1e999", "-1e999"] {
            assert!(spec(wrong).is_err(), "{wrong}");
        }
        assert!(input("x").is_err() && input("=1").is_err());
    }
}

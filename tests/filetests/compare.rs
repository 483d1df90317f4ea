//! Compares the outcome of a test with the expectation in its file, and formats failures.

use crate::case::{Got, Line};
use crate::file::{Case, Key, TestFile};
use crate::value;

/// Nothing, or what differs.
pub(crate) fn compare(file: &TestFile, k: usize, got: &Got) -> Result<(), String> {
    let case = &file.cases[k];
    let no_results = |what: &str| match case.results.first() {
        None => Ok(()),
        Some((key, text)) => Err(format!("expected {key:?}: {text}\nfound {what}")),
    };
    match got {
        Got::Holds => no_results("that it holds"),
        Got::Broken(why) => Err(why.clone()),
        Got::Text(text) => {
            no_results(&format!("no error, but\n{text}"))?;
            let empty = String::new();
            let expected = file.expects.get(&case.directive.text).unwrap_or(&empty);
            if expected == text {
                return Ok(());
            }
            Err(format!("not the expected text (- expected, + found)\n{}", diff(expected, text)))
        }
        Got::Lines(lines) => lines_match(case, lines),
    }
}

fn lines_match(case: &Case, lines: &[Line]) -> Result<(), String> {
    let mut wrong = String::new();
    for key in [Key::Error, Key::Prints, Key::Output] {
        let expected = case.results(key);
        let found: Vec<&Line> = lines.iter().filter(|l| l.key == key).collect();
        for i in 0..expected.len().max(found.len()) {
            let why = match (expected.get(i), found.get(i)) {
                (Some(e), Some(f)) => match mismatch(case, e, f) {
                    Some(why) => format!("- {e}\n+ {}\n  {why}\n", f.text),
                    None => continue,
                },
                (Some(e), None) => format!("- {e}\n"),
                (None, Some(f)) => format!("+ {}\n", f.text),
                (None, None) => continue,
            };
            wrong.push_str(&format!("{key:?} {i}:\n{why}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("(- expected, + found)\n{wrong}")) }
}

fn mismatch(case: &Case, expected: &str, found: &Line) -> Option<String> {
    match (found.key, &found.value) {
        (Key::Error, _) => {
            // Place and class must be equal; of the message a part is enough.
            let split = |s: &str| -> Option<(String, String)> {
                let mut parts = s.splitn(3, ' ');
                let head = format!("{} {}", parts.next()?, parts.next()?);
                Some((head, parts.next().unwrap_or_default().trim().to_string()))
            };
            let (Some(e), Some(f)) = (split(expected), split(&found.text)) else {
                return Some("an expected error has a place, a class, and a message".into());
            };
            if e.1.is_empty() {
                return Some("an expected error needs a part of its message".into());
            }
            (e.0 != f.0 || !f.1.contains(&e.1)).then(|| "another error".into())
        }
        (_, Some(array)) => {
            let (label, values) = match found.key {
                Key::Prints => expected.split_once(' ').unwrap_or((expected, "")),
                _ => ("", expected),
            };
            if !found.text.starts_with(label) {
                return Some("another label".into());
            }
            value::difference(values, array, case.tol)
        }
        (_, None) => (expected != found.text).then(|| "another text".into()),
    }
}

/// A line-by-line difference: the longest common subsequence stays, indented by two.
fn diff(old: &str, new: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let mut length = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            length[i][j] = match a[i] == b[j] {
                true => length[i + 1][j + 1] + 1,
                false => length[i + 1][j].max(length[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut out = String::new();
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            out.push_str(&format!("  {}\n", a[i]));
            (i, j) = (i + 1, j + 1);
        } else if j >= b.len() || i < a.len() && length[i + 1][j] >= length[i][j + 1] {
            out.push_str(&format!("- {}\n", a[i]));
            i += 1;
        } else {
            out.push_str(&format!("+ {}\n", b[j]));
            j += 1;
        }
    }
    out
}

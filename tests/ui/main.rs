//! Typical mistakes of people who write models with the library, each with what a failing `main` prints.
//!
//! A mistake is a function that fails; what its error says is in the file of its name, `tests/ui/NAME.txt`. Places in
//! these sources are shown with the line there instead of its number. `ADFUSE_BLESS=1` rewrites the files.

mod arguments;
mod derivatives;
mod engines;
mod layers;
mod traces;

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// What a program whose `main` returns errors does.
type Outcome = Result<(), Box<dyn Error>>;

/// A mistake, by name.
type Mistake = (&'static str, fn() -> Outcome);

/// Functions with their names.
#[macro_export]
macro_rules! named {
    ($($name:ident)+) => {
        &[$((stringify!($name), $name)),+]
    };
}

fn folder() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
    if built.is_dir() { built } else { "tests/ui".into() }
}

/// The text with the source line in place of each `tests/ui/FILE.rs:LINE:COLUMN`.
fn with_lines(text: &str) -> String {
    const HERE: &str = "tests/ui/";
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(HERE) {
        let end = rest[at..].find(".rs:").map_or(rest.len(), |n| at + n + 3);
        let place = &rest[at + HERE.len()..end];
        let (line, after) = number(&rest[end..]);
        let (_, after) = number(after);
        let source = fs::read_to_string(folder().join(place)).unwrap_or_default();
        let source = source.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim();
        out += &format!("{}{place}, `{source}`", &rest[..at + HERE.len()]);
        rest = after;
    }
    out + rest
}

/// The number after a colon, and what follows it.
fn number(text: &str) -> (usize, &str) {
    let Some(digits) = text.strip_prefix(':') else { return (0, text) };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    (digits[..end].parse().unwrap_or(0), &digits[end..])
}

#[test]
fn mistakes_are_told_as_expected() {
    let bless = std::env::var_os("ADFUSE_BLESS").is_some_and(|v| v != "0");
    let all = [
        arguments::MISTAKES,
        derivatives::MISTAKES,
        engines::MISTAKES,
        layers::MISTAKES,
        traces::MISTAKES,
    ];
    let all: Vec<&Mistake> = all.into_iter().flatten().collect();
    let mut wrong = Vec::new();
    for (name, mistake) in &all {
        let told = mistake().err().map_or("nothing failed".into(), |e| e.to_string());
        let told = with_lines(&told) + "\n";
        let file = folder().join(format!("{name}.txt"));
        if bless {
            fs::write(&file, &told).expect("is written");
            continue;
        }
        let due = fs::read_to_string(&file).unwrap_or_default();
        if told != due {
            wrong.push(format!("{name}\n  expected: {due}  found:    {told}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(all.len() >= 25, "{} mistakes", all.len());
    let names: BTreeSet<String> = all.iter().map(|(name, _)| format!("{name}.txt")).collect();
    assert_eq!(names.len(), all.len(), "two mistakes have one name");
    for file in fs::read_dir(folder()).expect("the folder") {
        let name = file.expect("a file").file_name().to_string_lossy().into_owned();
        assert!(!name.ends_with(".txt") || names.contains(&name), "{name} is of no mistake");
    }
}

#[test]
fn places_are_shown_as_lines() {
    let text = "wrong (asked for at tests/ui/main.rs:1:7), and more";
    assert_eq!(
        with_lines(text),
        "wrong (asked for at tests/ui/main.rs, `//! Typical mistakes of people who write models with \
         the library, each with what a failing `main` prints.`), and more"
    );
}

//! A test file: directives in the comments at its top, a program, expected texts at its end.

use crate::case::Got;
use std::collections::BTreeMap;

/// A file, taken apart.
pub(crate) struct TestFile {
    /// All of it, as the compiler reads it.
    pub(crate) text: String,
    /// The tests that it asks for.
    pub(crate) cases: Vec<Case>,
    /// Expected texts by the directive that they belong to.
    pub(crate) expects: BTreeMap<String, String>,
}

/// One directive with the lines that belong to it.
pub(crate) struct Case {
    /// What is asked for.
    pub(crate) directive: Directive,
    /// `input NAME = VALUE` lines.
    pub(crate) inputs: Vec<(String, String)>,
    /// `tol:`, 0 for equal bits.
    pub(crate) tol: f64,
    /// `output:`, `prints:` and `error:` lines.
    pub(crate) results: Vec<(Key, String)>,
}

/// `test: name word key=value`
pub(crate) struct Directive {
    /// All of it.
    pub(crate) text: String,
    /// The first word.
    pub(crate) name: String,
    /// The other words.
    pub(crate) words: Vec<String>,
    /// The `key=value` pairs.
    pub(crate) options: BTreeMap<String, String>,
}

/// What a line of results is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    /// A diagnostic.
    Error,
    /// What a `debug_print` wrote.
    Prints,
    /// A result's value.
    Output,
}

impl Key {
    const ALL: [(Key, &'static str); 3] =
        [(Key::Error, "error"), (Key::Prints, "prints"), (Key::Output, "output")];

    fn name(self) -> &'static str {
        Key::ALL[self as usize].1
    }
}

const TEST: &str = "// test:";
const EXPECT: &str = "// expect:";

impl TestFile {
    /// Reads the directives.
    pub(crate) fn parse(text: &str) -> Result<TestFile, String> {
        let mut file =
            TestFile { text: text.to_string(), cases: Vec::new(), expects: BTreeMap::new() };
        let (head, program, tail) = parts(text);
        for (number, line) in head.lines().enumerate() {
            let content = line.trim().trim_start_matches('/').trim();
            let at = |m: String| format!("line {}: {m}", number + 1);
            if let Some(directive) = line.strip_prefix(TEST) {
                let directive = Directive::parse(directive.trim()).map_err(at)?;
                file.cases.push(Case {
                    directive,
                    inputs: Vec::new(),
                    tol: 0.0,
                    results: Vec::new(),
                });
            } else if let Some(case) = file.cases.last_mut()
                && !content.is_empty()
            {
                case.line(content).map_err(at)?;
            }
        }
        if file.cases.is_empty() {
            return Err(format!("no line begins with `{TEST}`"));
        }
        if let Some(line) = program.lines().find(|l| l.trim_start().starts_with(TEST)) {
            return Err(format!("`{line}` stands after the program has begun"));
        }
        let mut block: Option<(String, String)> = None;
        for line in tail.lines() {
            if let Some(directive) = line.strip_prefix(EXPECT) {
                file.expects.extend(block.replace((directive.trim().into(), String::new())));
            } else if let (Some((_, text)), false) = (&mut block, line.is_empty()) {
                let rest = line.strip_prefix("//").ok_or(format!("no comment: `{line}`"))?;
                text.push_str(rest.strip_prefix(' ').unwrap_or(rest));
                text.push('\n');
            }
        }
        file.expects.extend(block);
        let known = |d: &str| file.cases.iter().any(|c| c.directive.text == d);
        match file.expects.keys().find(|d| !known(d)) {
            Some(d) => Err(format!("`{EXPECT} {d}` belongs to no test of the file")),
            None => Ok(file),
        }
    }

    /// The program without the comments around it and in it.
    pub(crate) fn program(&self) -> String {
        let (_, program, _) = parts(&self.text);
        let code = program.lines().filter(|l| !l.trim_start().starts_with("//"));
        let joined: String = code.flat_map(|l| [l, "\n"]).collect();
        format!("{}\n", joined.trim())
    }

    /// The file's text with the results of test `k` replaced by these.
    pub(crate) fn blessed(&self, k: usize, got: &Got) -> Result<String, String> {
        let mut expects = self.expects.clone();
        let mut lines = Vec::new();
        match got {
            Got::Holds => return Ok(self.text.clone()),
            Got::Broken(why) => return Err(why.clone()),
            Got::Text(text) => {
                expects.insert(self.cases[k].directive.text.clone(), text.clone());
            }
            Got::Lines(results) => {
                lines.extend(results.iter().map(|r| (r.key, r.text.clone())));
            }
        }
        let (head, program, _) = parts(&self.text);
        let mut out = String::new();
        let mut case = 0;
        for line in head.lines() {
            let starts = line.starts_with(TEST);
            if starts || line.trim().is_empty() {
                // The new results end the lines of their directive.
                if case == k + 1 {
                    push_results(&mut out, &mut lines);
                }
                case += usize::from(starts);
            }
            let content = line.trim_start_matches('/').trim_start();
            let is_result = Key::ALL.iter().any(|(_, n)| content.starts_with(&format!("{n}:")));
            if case != k + 1 || !is_result {
                out.push_str(line);
                out.push('\n');
            }
        }
        push_results(&mut out, &mut lines);
        out.push_str(program.trim_end());
        out.push('\n');
        let order = self.cases.iter().map(|c| c.directive.text.clone());
        for directive in order {
            if let Some(text) = expects.remove(&directive) {
                out.push_str(&format!("\n{EXPECT} {directive}\n"));
                for line in text.lines() {
                    out.push_str(format!("// {line}").trim_end());
                    out.push('\n');
                }
            }
        }
        Ok(out)
    }
}

fn push_results(out: &mut String, lines: &mut Vec<(Key, String)>) {
    for (key, text) in lines.drain(..) {
        out.push_str(&format!("// {}: {text}\n", key.name()));
    }
}

/// The comments and empty lines before the program, the program, and what begins at `// expect:`.
fn parts(text: &str) -> (&str, &str, &str) {
    let of_head = |l: &&str| l.trim().is_empty() || l.starts_with("//") && !l.starts_with(EXPECT);
    let head: usize = text.split_inclusive('\n').take_while(of_head).map(str::len).sum();
    let rest = &text[head..];
    let of_program = |l: &&str| !l.starts_with(EXPECT);
    let program: usize = rest.split_inclusive('\n').take_while(of_program).map(str::len).sum();
    (&text[..head], &rest[..program], &rest[program..])
}

impl Case {
    /// Takes a line that follows the directive.
    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some((name, value)) = line.strip_prefix("input ").and_then(|l| l.split_once('=')) {
            self.inputs.push((name.trim().into(), value.trim().into()));
            return Ok(());
        }
        let (key, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.trim();
        if let Some((key, _)) = Key::ALL.into_iter().find(|(_, n)| *n == key) {
            self.results.push((key, value.into()));
        } else if key == "tol" {
            self.tol = value.parse().map_err(|_| format!("`{value}` is no tolerance"))?;
        } else if key != "note" {
            return Err(format!("`{key}` is not one of input, tol, output, prints, error, note"));
        }
        Ok(())
    }

    /// The lines of one kind.
    pub(crate) fn results(&self, key: Key) -> Vec<&str> {
        self.results.iter().filter(|r| r.0 == key).map(|r| r.1.as_str()).collect()
    }
}

impl Directive {
    fn parse(text: &str) -> Result<Directive, String> {
        let mut words = text.split_whitespace().map(str::to_string);
        let name = words.next().ok_or("a directive without a name")?;
        let mut directive = Directive {
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            name,
            words: Vec::new(),
            options: BTreeMap::new(),
        };
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => {
                    if directive.options.insert(key.into(), value.into()).is_some() {
                        return Err(format!("`{key}` is given twice"));
                    }
                }
                None => directive.words.push(word),
            }
        }
        Ok(directive)
    }

    /// The items of a list option.
    pub(crate) fn list(&self, key: &str) -> Option<Vec<String>> {
        let items = self.options.get(key)?.split(',');
        Some(items.filter(|i| !i.is_empty()).map(str::to_string).collect())
    }

    /// Whether this word stands in the directive.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|w| w == word)
    }
}

//! Runs one test of a file and returns its outcome.

use crate::common::effects::{Printed, printing};
use crate::engine::{ENGINES, Engine};
use crate::file::{Case, Directive, Key, TestFile};
use crate::stage::{Stage, find, reads_back};
use crate::value;
use adfuse::backends::Array;
use adfuse::check::{CheckOptions, Outcome, check};
use adfuse::ir::text::{parse, print_module};
use adfuse::ir::verify::verify;
use adfuse::ir::{DType, Diagnostic, Function, Module};

/// What came of a test.
pub(crate) enum Got {
    /// Nothing to compare, all is well.
    Holds,
    /// What is wrong whatever the file expects.
    Broken(String),
    /// A text for the block at the file's end.
    Text(String),
    /// Lines for the directive.
    Lines(Vec<Line>),
}

/// A line of results.
pub(crate) struct Line {
    /// What it is about.
    pub(crate) key: Key,
    /// As it is written.
    pub(crate) text: String,
    /// The tensor in it.
    pub(crate) value: Option<Array>,
}

/// Runs test `k`. An error is one of the file, not of the compiler.
pub(crate) fn run(file: &TestFile, k: usize) -> Result<Got, String> {
    let case = &file.cases[k];
    let d = &case.directive;
    let module = parse(&file.text).and_then(|m| verify(&m).map(|()| m));
    if d.name == "error" {
        takes(d, &[])?;
        return Ok(match module {
            Ok(_) => Got::Broken("expected errors, found none".into()),
            Err(errors) => Got::Lines(error_lines(&file.text, &errors)),
        });
    }
    let module = match module {
        Ok(module) => module,
        Err(errors) => {
            let lines = error_lines(&file.text, &errors).into_iter().map(|l| l.text);
            return Ok(Got::Broken(lines.collect::<Vec<_>>().join("\n")));
        }
    };
    let f = match d.options.get("func") {
        Some(name) => module.find(name).ok_or(format!("no function @{name}"))?,
        None => module.funcs.values().next().ok_or("no function")?,
    };
    match d.name.as_str() {
        "print" => {
            takes(d, &[])?;
            Ok(fixpoint(&file.program(), &print_module(&module)))
        }
        "run" => match after(&module, f, d)? {
            Ok(Some((module, f))) => run_engines(file, case, &module, &f),
            Ok(None) => run_engines(file, case, &module, f),
            Err(errors) => Ok(Got::Lines(error_lines(&file.text, &errors))),
        },
        "check" => checked(d, &module),
        name => match find(name) {
            Some(stage) => staged(file, &stage, &module, f, d),
            None => Err(format!("no test `{name}`")),
        },
    }
}

/// Checks that a directive has no other words than these.
pub(crate) fn takes(d: &Directive, known: &[&str]) -> Result<(), String> {
    let mut given = d.words.iter().chain(d.options.keys());
    let unknown = |w: &&String| *w != "func" && !known.contains(&w.as_str());
    match given.find(unknown) {
        Some(word) if !known.contains(&"*") => Err(format!("`{}` takes no `{word}`", d.name)),
        _ => Ok(()),
    }
}

/// Whether a program prints as it stands.
pub(crate) fn fixpoint(program: &str, printed: &str) -> Got {
    if printed == program {
        return Got::Holds;
    }
    let pairs = program.lines().zip(printed.lines());
    let first = pairs.clone().position(|(a, b)| a != b).unwrap_or(pairs.count());
    let line = |text: &str| text.lines().nth(first).unwrap_or("").to_string();
    let (a, b) = (line(program), line(printed));
    Got::Broken(format!(
        "not canonical; the first line that differs:\n- {a}\n+ {b}\nall:\n{printed}"
    ))
}

fn staged(
    file: &TestFile,
    stage: &Stage,
    module: &Module,
    f: &Function,
    d: &Directive,
) -> Result<Got, String> {
    takes(d, stage.takes)?;
    Ok(match stage.run(module, f, d) {
        Err(errors) => Got::Lines(error_lines(&file.text, &errors)),
        Ok(text) => match if stage.reads_back { reads_back(&text, module) } else { Ok(()) } {
            Err(why) => Got::Broken(why),
            Ok(()) => Got::Text(text),
        },
    })
}

/// Where an error is, as `LINE:COL`; without a place in the text, the function stands there.
pub(crate) fn place(text: &str, d: &Diagnostic) -> String {
    match (d.at.span, &d.at.func) {
        (Some(span), _) => {
            let before = &text[..span.start as usize];
            let column = before.len() - before.rfind('\n').map_or(0, |i| i + 1) + 1;
            format!("{}:{column}", before.matches('\n').count() + 1)
        }
        (None, Some(func)) => format!("@{func}"),
        (None, None) => "-".into(),
    }
}

/// Errors as `LINE:COL KIND message (hint)`; without a place in the text, the function stands there.
fn error_lines(text: &str, errors: &[Diagnostic]) -> Vec<Line> {
    let line = |d: &Diagnostic| {
        let place = place(text, d);
        let hint = d.hint.as_ref().map_or(String::new(), |h| format!(" ({h})"));
        let text = format!("{place} {:?} {}{hint}", d.kind, d.message);
        Line { key: Key::Error, text, value: None }
    };
    errors.iter().map(line).collect()
}

/// What a `run` with `after=STAGE` evaluates: the first function of the text that the stage makes.
#[allow(clippy::type_complexity)]
fn after(
    module: &Module,
    f: &Function,
    d: &Directive,
) -> Result<Result<Option<(Module, Function)>, Vec<Diagnostic>>, String> {
    let Some(name) = d.options.get("after") else {
        takes(d, &["engines"])?;
        return Ok(Ok(None));
    };
    let stage = find(name).ok_or(format!("no stage `{name}`"))?;
    takes(d, &[stage.takes, &["engines", "after"]].concat())?;
    let text = match stage.run(module, f, d) {
        Ok(text) => text,
        Err(errors) => return Ok(Err(errors)),
    };
    reads_back(&text, module)?;
    let made = parse(&text).map_err(|e| format!("{e:?}"))?;
    let first = made.funcs.values().next().ok_or("no function")?.clone();
    Ok(Ok(Some((made, first))))
}

/// The function's results on every engine, which must agree.
fn run_engines(file: &TestFile, case: &Case, module: &Module, f: &Function) -> Result<Got, String> {
    let mut args = Vec::new();
    let mut used = 0;
    for &p in f.params().iter().filter(|&&p| f.ty(p).dtype != DType::Token) {
        let name = f.name_of(p).unwrap_or("");
        let input = case.inputs.iter().find(|(n, _)| n == name);
        let (_, text) = input.ok_or(format!("no `input {name} = ..`"))?;
        args.push(value::parse(text, f.ty(p)).map_err(|e| format!("input {name}: {e}"))?);
        used += 1;
    }
    if used != case.inputs.len() {
        return Err(format!("{} inputs, {used} are used", case.inputs.len()));
    }
    let only = case.directive.list("engines");
    let wanted = |e: &&Engine| only.as_ref().is_none_or(|l| l.iter().any(|n| n == e.name));
    let mut first: Option<Vec<Line>> = None;
    for engine in ENGINES.iter().filter(wanted) {
        let mut lines = Vec::new();
        let (ran, printed) = printing(|| (engine.run)(module, f, &args));
        match ran {
            Err(d) => lines.extend(error_lines(&file.text, &[d])),
            Ok(results) => {
                lines.extend(printed_lines(printed));
                for value in results {
                    let text = value::print(&value);
                    lines.push(Line { key: Key::Output, text, value: Some(value) });
                }
            }
        }
        // A plan's errors name the step, those of the reference engine the line.
        let said = |line: &Line| match line.key {
            Key::Error => line.text.split_once(' ').map(|(_, said)| said.to_string()),
            _ => Some(line.text.clone()),
        };
        let same = |all: &Vec<Line>| {
            all.len() == lines.len() && all.iter().zip(&lines).all(|(a, b)| said(a) == said(b))
        };
        match &first {
            Some(all) if !same(all) => {
                let show = |l: &[Line]| l.iter().map(|l| l.text.clone()).collect::<Vec<_>>();
                let (a, b, name) = (show(all), show(&lines), engine.name);
                let by = ENGINES[0].name;
                return Ok(Got::Broken(format!("{by} gives {a:#?}, {name} gives {b:#?}")));
            }
            Some(_) => {}
            None => first = Some(lines),
        }
    }
    first.map(Got::Lines).ok_or("no engine of these names".into())
}

/// What was printed, a line each.
pub(crate) fn printed_lines(printed: Printed) -> impl Iterator<Item = Line> {
    let line = |(label, value): (String, Array)| {
        let text = format!("{label} {}", value::print(&value));
        Line { key: Key::Prints, text, value: Some(value) }
    };
    printed.0.into_iter().map(line)
}

/// Derivatives against differences: `check`, `check unsupported`, `check fails OP`.
fn checked(d: &Directive, module: &Module) -> Result<Got, String> {
    let words: Vec<&str> = d.words.iter().map(String::as_str).collect();
    let rows = match check(module, &CheckOptions::default()) {
        Ok(rows) => rows,
        Err(e) => return Ok(Got::Broken(e.to_string())),
    };
    let report = || {
        let lines =
            rows.iter().map(|r| format!("{} {} {:?}: {:?}", r.func, r.input, r.mode, r.outcome));
        lines.collect::<Vec<_>>().join("\n")
    };
    let unsupported = rows.iter().filter(|r| matches!(r.outcome, Outcome::Unsupported(_))).count();
    let compared = rows.iter().any(|r| matches!(r.outcome, Outcome::Pass(_)));
    let failed = rows.iter().any(|r| r.failed());
    let as_wanted = match words.as_slice() {
        [] => compared && !failed && unsupported == 0,
        ["unsupported"] => !failed && unsupported > 0,
        ["fails", op] => {
            let blamed = |o: &Outcome| {
                let word = format!(" {op} ");
                matches!(o, Outcome::Fail(_, Some(inst)) if format!(" {inst} ").contains(&word))
            };
            rows.iter().any(|r| blamed(&r.outcome))
        }
        _ => return Err("`check` takes nothing, `unsupported` or `fails OP`".into()),
    };
    Ok(if as_wanted { Got::Holds } else { Got::Broken(report()) })
}

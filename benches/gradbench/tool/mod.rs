//! The protocol: a message in, an answer out. What cannot be done is an answer too, and ends nothing.

mod compute;
mod gmm;
mod hello;
mod input;
mod kmeans;
mod llsq;
mod lse;

use compute::{Computed, Runs};
use input::Fields;
use serde_json::{Value, json};
use std::io::{self, BufRead, Write};

/// A module that the tool has: its name, and its functions with their names.
struct Module {
    name: &'static str,
    functions: &'static [(&'static str, Evaluate)],
}

/// A function of the input and of how often to run it.
type Evaluate = fn(&Value, &Runs) -> Result<Computed, String>;

const MODULES: [Module; 5] = [
    Module {
        name: "gmm",
        functions: &[("objective", gmm::objective), ("jacobian", gmm::jacobian)],
    },
    Module { name: "hello", functions: &[("square", hello::square), ("double", hello::double)] },
    Module { name: "kmeans", functions: &[("cost", kmeans::cost), ("dir", kmeans::direction)] },
    Module {
        name: "llsq",
        functions: &[("primal", llsq::primal), ("gradient", llsq::gradient_of)],
    },
    Module { name: "lse", functions: &[("primal", lse::primal), ("gradient", lse::gradient_of)] },
];

/// Answers messages until there are no more.
///
/// # Errors
/// Of reading and writing.
pub(crate) fn serve(mut from: impl BufRead, mut to: impl Write) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if from.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        writeln!(to, "{}", answer(&line))?;
        to.flush()?;
    }
}

/// The answer to a message.
fn answer(line: &[u8]) -> Value {
    let message: Value = match serde_json::from_slice(line) {
        Ok(message) => message,
        Err(e) => return json!({"id": null, "success": false, "error": format!("no JSON: {e}")}),
    };
    let mut out = match said(&message) {
        Ok(out) => out,
        Err(error) => json!({"success": false, "error": error}),
    };
    // The first key, since people read these lines.
    let mut all = serde_json::Map::new();
    all.insert("id".into(), message.get("id").cloned().unwrap_or_default());
    if let Some(out) = out.as_object_mut() {
        all.append(out);
    }
    Value::Object(all)
}

/// What a message is answered with beside its number.
fn said(message: &Value) -> Result<Value, String> {
    let fields = Fields::of(message, "the message")?;
    match fields.text("kind")? {
        "start" => {
            let config = message.get("config").map(|c| json!({"tool": "adfuse", "config": c}));
            Ok(config.unwrap_or_else(|| json!({"tool": "adfuse"})))
        }
        "define" => {
            module(fields.text("module")?)?;
            Ok(json!({"success": true, "timings": []}))
        }
        "evaluate" => evaluate(&fields),
        "analysis" => Ok(json!({})),
        kind => Err(format!("no kind of message `{kind}`")),
    }
}

fn module(name: &str) -> Result<&'static Module, String> {
    MODULES.iter().find(|m| m.name == name).ok_or_else(|| format!("no module `{name}`"))
}

fn evaluate(message: &Fields<'_>) -> Result<Value, String> {
    let module = module(message.text("module")?)?;
    let name = message.text("function")?;
    let (_, function) = module
        .functions
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| format!("no function `{name}` in the module `{}`", module.name))?;
    let input = message.any("input")?;
    let done = function(input, &Runs::of(input)?)?;
    let timing =
        |name: &str, nanoseconds: u128| json!({"name": name, "nanoseconds": nanoseconds as u64});
    let mut timings = vec![timing("compile", done.compiled.as_nanos())];
    timings.extend(done.runs.iter().map(|r| timing("evaluate", r.as_nanos())));
    let mut out = json!({"success": true, "output": done.output, "timings": timings});
    if done.cut {
        out["note"] =
            json!(format!("stopped after {} runs, before `min_seconds`", done.runs.len()));
    }
    Ok(out)
}

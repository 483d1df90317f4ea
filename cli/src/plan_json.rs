//! Plans as JSON: the same content as their text.
//!
//! Both directions go through the text, which has the only parser and printer of plans.

use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Words of a plan's text that say one thing.
const SAID: [&str; 3] = ["graph", "device", "fp"];

/// The JSON form of a plan's text.
///
/// # Errors
/// For a line that has no JSON form.
pub(super) fn of_text(text: &str) -> Result<Value, String> {
    let mut plan = Map::new();
    let (mut inline, mut groups, mut stores) = (Vec::new(), Vec::new(), Vec::new());
    let (mut lossy, mut donate) = (Vec::new(), Vec::new());
    let (mut inverses, mut loops, mut blocks) = (Vec::new(), Vec::new(), Vec::new());
    let mut segments: Vec<Value> = Vec::new();
    let names = |list: &str| -> Vec<Value> { list.split(',').map(|n| json!(n.trim())).collect() };
    // The plan of a block that is being read, and how many plans are open in it.
    let (mut block, mut depth) = (String::new(), 0usize);
    for (n, line) in text.lines().map(str::trim).enumerate() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if depth > 0 || n > 0 && word == "plan" {
            depth += usize::from(word == "plan");
            depth -= usize::from(line == "}");
            block.push_str(line);
            block.push('\n');
            if depth == 0 {
                blocks.push(of_text(&std::mem::take(&mut block))?);
            }
            continue;
        }
        match word {
            "loop" => loops.push(json!(rest)),
            "segments" => segments.push(Value::Array(names(rest))),
            "inverse" => inverses.push(json!(rest)),
            "plan" => {
                let name = rest.trim_end_matches('{').trim().trim_start_matches('@');
                plan.insert("plan".into(), json!(name));
            }
            "layout" => {
                plan.insert("layout".into(), json!(rest));
            }
            "inline" => inline.extend(names(rest)),
            "donate" => donate.extend(names(rest)),
            "group" => {
                groups.push(Value::Array(rest.split(';').map(|p| json!(names(p))).collect()))
            }
            "store" | "lossy" => {
                let (value, form) = rest.split_once(" as ").ok_or("a value without a form")?;
                let list = if word == "store" { &mut stores } else { &mut lossy };
                list.push(json!({"value": value, "as": form}));
            }
            _ if SAID.contains(&word) => {
                plan.insert(word.into(), json!(rest));
            }
            "}" | "" => {}
            _ => return Err(format!("`{word}` has no JSON form")),
        }
    }
    if !lossy.is_empty() {
        plan.insert("lossy".into(), Value::Array(lossy));
    }
    if !donate.is_empty() {
        plan.insert("donate".into(), Value::Array(donate));
    }
    if !segments.is_empty() {
        plan.insert("segments".into(), Value::Array(segments));
    }
    if !inverses.is_empty() {
        plan.insert("inverses".into(), Value::Array(inverses));
    }
    if !loops.is_empty() {
        plan.insert("loops".into(), Value::Array(loops));
    }
    if !blocks.is_empty() {
        plan.insert("blocks".into(), Value::Array(blocks));
    }
    plan.insert("inline".into(), Value::Array(inline));
    plan.insert("groups".into(), Value::Array(groups));
    plan.insert("store".into(), Value::Array(stores));
    Ok(Value::Object(plan))
}

/// The text of a plan in JSON; whether it is a plan is for the text's reader to say.
///
/// # Errors
/// If it is no JSON, or not of this form.
pub(super) fn to_text(text: &str) -> Result<String, String> {
    // The reader bounds how deep values are in each other.
    let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    written(&value)
}

fn written(value: &Value) -> Result<String, String> {
    let plan = value.as_object().ok_or("it is no object")?;
    const KEYS: [&str; 14] = [
        "plan", "graph", "device", "fp", "layout", "segments", "inverses", "lossy", "loops",
        "donate", "inline", "groups", "store", "blocks",
    ];
    if let Some(key) = plan.keys().find(|k| !KEYS.contains(&k.as_str())) {
        return Err(format!("the key `{key}` is not known"));
    }
    let said = |key: &str| word(plan.get(key).unwrap_or(&Value::Null), key);
    let mut out = format!("plan @{} {{\n", said("plan")?);
    let mut line = |text: String| {
        // Writing to a string does not fail.
        let _ = writeln!(out, "  {text}");
    };
    for key in SAID {
        line(format!("{key} {}", said(key)?));
    }
    if plan.contains_key("layout") {
        line(format!("layout {}", said("layout")?));
    }
    for ends in list(plan.get("segments"), "segments")? {
        line(format!("segments {}", names(Some(ends), "a level of segments")?));
    }
    for choice in list(plan.get("inverses"), "inverses")? {
        line(format!("inverse {}", word(choice, "inverses")?));
    }
    formed(plan, "lossy")?.into_iter().for_each(&mut line);
    for choice in list(plan.get("loops"), "loops")? {
        line(format!("loop {}", word(choice, "loops")?));
    }
    for key in ["donate", "inline"] {
        let listed = names(plan.get(key), key)?;
        if !listed.is_empty() {
            line(format!("{key} {listed}"));
        }
    }
    for group in list(plan.get("groups"), "groups")? {
        let parts = list(Some(group), "a group")?;
        let parts: Result<Vec<String>, String> =
            parts.iter().map(|p| names(Some(p), "a part of a group")).collect();
        line(format!("group {}", parts?.join("; ")));
    }
    formed(plan, "store")?.into_iter().for_each(&mut line);
    for block in list(plan.get("blocks"), "blocks")? {
        written(block)?.lines().for_each(|text| line(text.into()));
    }
    out.push_str("}\n");
    Ok(out)
}

/// Lines that say of values what they are stored as.
fn formed(plan: &Map<String, Value>, key: &str) -> Result<Vec<String>, String> {
    let line = |value: &Value| {
        let of = |key: &str| word(value.get(key).unwrap_or(&Value::Null), key);
        Ok(format!("{key} {} as {}", of("value")?, of("as")?))
    };
    list(plan.get(key), key)?.iter().map(line).collect()
}

/// A string that fits in a line.
fn word<'v>(value: &'v Value, what: &str) -> Result<&'v str, String> {
    let text = value.as_str().ok_or_else(|| format!("`{what}` must be a string"))?;
    match text.contains(['\n', '\r', ',', ';', '{', '}']) {
        false => Ok(text),
        true => Err(format!("`{what}` has characters that it cannot have")),
    }
}

fn list<'v>(value: Option<&'v Value>, what: &str) -> Result<&'v [Value], String> {
    match value {
        None => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err(format!("`{what}` must be a list")),
    }
}

fn names(value: Option<&Value>, what: &str) -> Result<String, String> {
    let names: Result<Vec<&str>, String> =
        list(value, what)?.iter().map(|v| word(v, what)).collect();
    Ok(names?.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "plan @f {\n  graph 00ff\n  device cpu\n  fp strict\n  inline %1, %2\n  \
                        group %0, %3\n  group %7; %9, %10\n  store %5 as b1\n}\n";
    const LOSSY: &str = "plan @f {\n  graph 00ff\n  device cpu\n  fp strict\n  layout structure-of-arrays\n  segments %a, %b\n  segments %c\n  inverse %e from %y\n  lossy %h as bf16\n  \
                         lossy %5 as f16\n  donate %x, %w\n  group %0\n}\n";

    #[test]
    fn text_to_json_and_back_is_the_same() {
        for text in [TEXT, LOSSY, "plan @f {\n  graph 0\n  device cpu\n  fp fast\n}\n"] {
            let json = of_text(text).unwrap();
            assert_eq!(to_text(&json.to_string()).unwrap(), text, "{json}");
        }
    }

    #[test]
    fn what_is_no_plan_says_so() {
        for (json, said) in [
            ("{", "EOF"),
            ("[]", "no object"),
            ("{\"plan\": \"f\"}", "`graph` must be a string"),
            ("{\"x\": 1}", "the key `x`"),
            ("{\"plan\": \"f\\ngroup %1\"}", "characters"),
            (
                "{\"plan\": \"f\", \"graph\": \"\", \"device\": \"\", \"fp\": \"\", \"groups\": 1}",
                "must be a list",
            ),
        ] {
            let why = to_text(json).unwrap_err();
            assert!(why.contains(said), "{json}: {why}");
        }
    }
}

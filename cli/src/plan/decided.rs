//! The residuals of a plan, as text and as JSON.

use super::differences::{change, difference, micros, signed};
use super::printed;
use super::recovered::{self, ExplainedValue, inverse_json, inverse_line};
use super::table::{bytes, columns, limit};
use crate::failure::Failure;
use crate::planning::PlanRequest;
use crate::streams::Streams;
use adfuse::fusion::{
    Alternative, Constraint, Decider, Decision, InverseChoice, LossyCopy, MemoEngine,
    NoAlternative, Plan, RecoveryAlternative, RecoveryBound, RecoveryPricer, ResidualChoice,
    ValueSource, ValueWords, lossy_copies,
};
use adfuse::ir::text::Names;
use adfuse::ir::{Function, Value};
use serde_json::{Value as Json, json};
use std::cmp::Ordering;

/// What was decided for one value.
pub(super) fn one(
    ready: &PlanRequest,
    plan: &Plan,
    budget: Option<u64>,
    asked: ExplainedValue<'_>,
    as_json: bool,
) -> Result<String, Failure> {
    let inverse = |choice: &InverseChoice| match as_json {
        true => printed::json(&inverse_json(choice)),
        false => format!("{}\n", inverse_line(ready, choice)),
    };
    let (v, recovered) = match asked {
        ExplainedValue { value: Some(v), recovered } => (v, recovered),
        ExplainedValue { value: None, recovered } => {
            return Ok(recovered.map(inverse).unwrap_or_default());
        }
    };
    let counting = ready.counting();
    let engine = MemoEngine::new(counting, &ready.options.device);
    let decider = decider(ready, plan, budget, &engine)?;
    // Of what is kept with losses, later phases read the copy.
    let copy = lossy_copies(&ready.function).into_iter().find(|c| c.of == v);
    let v = copy.map_or(v, |c| c.copy);
    let found = decider.decision(v).map_err(|d| ready.source.wrong(d))?;
    let names = Names::of(&ready.function);
    // A number may be that of the value that is gone, and of another one.
    let is_other = found.is_some() && ready.function.name_of(v).is_none();
    if let Some(choice) = recovered.filter(|_| !is_other) {
        return Ok(inverse(choice));
    }
    let Some(d) = found else {
        return Ok(match as_json {
            true => printed::json(&Json::Null),
            false => {
                format!("no later phase reads %{}: there is nothing to decide\n", names.get(v))
            }
        });
    };
    let pricer = RecoveryPricer::new(&ready.function, &ready.options, &engine);
    let other = recovered::alternative(ready, &pricer, &d)?;
    if as_json {
        return Ok(printed::json(&object(&ready.function, &names, &d, other.as_ref())));
    }
    let mut out = lines(&ready.function, &names, &decider, &d);
    match &other {
        Some(other) => out.extend(recovered::lines(&names, other, budget)),
        None => out.push(settled_by(&names, &d) + &recovered::in_other_modes(ready, &pricer, &d)?),
    }
    out.extend(legend(ready, &d));
    out.extend(recovered.map(|choice| inverse_line(ready, choice)));
    Ok(printed::lines(&out))
}

/// What the value is, and what it is computed again from, where they have no names.
fn legend(ready: &PlanRequest, d: &Decision) -> impl Iterator<Item = String> {
    let words = ValueWords::new(&ready.function, &ready.source.source.text);
    words.name(d.value);
    if let ResidualChoice::Remat { from, .. } = &d.choice {
        from.iter().for_each(|&v| drop(words.name(v)));
    }
    words.legend().into_iter().map(|line| format!("  {line}"))
}

/// The most values whose alternatives are made and priced for a table: those of the most bytes.
const MOST_PRICED: usize = 64;

/// What was decided for every value that crosses phases.
pub(super) fn all(
    ready: &PlanRequest,
    plan: &Plan,
    budget: Option<u64>,
    streams: &mut Streams<'_>,
) -> Result<String, Failure> {
    let as_json = streams.json;
    let counting = ready.counting();
    let engine = MemoEngine::new(counting, &ready.options.device);
    let decider = decider(ready, plan, budget, &engine)?;
    let each: Vec<usize> = (0..decider.values().len()).collect();
    let found = decider.decisions_within(&each, MOST_PRICED).map_err(|d| ready.source.wrong(d))?;
    let unpriced = found.iter().filter(|d| d.bound == Constraint::NotPriced).count();
    if unpriced > 0 {
        streams.note(format!(
            "alternatives are priced for the {MOST_PRICED} values with the most bytes; --explain %V prices one of the other {unpriced}"
        ));
    }
    let (f, names) = (&ready.function, Names::of(&ready.function));
    let pricer = RecoveryPricer::new(f, &ready.options, &engine);
    let others = found.iter().map(|d| recovered::alternative(ready, &pricer, d));
    let others = others.collect::<Result<Vec<_>, Failure>>()?;
    let found = found.iter().zip(&others);
    if as_json {
        let inverses = ready.inverses().iter().map(inverse_json);
        let all = found.map(|(d, other)| object(f, &names, d, other.as_ref())).chain(inverses);
        return Ok(printed::json(&all.collect()));
    }
    let head = [
        "value",
        "type",
        "decision",
        "bytes",
        "saved",
        "at peak",
        "instead",
        "peak",
        "saved",
        "us",
        "settled by",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(found.map(|(d, other)| cells(f, &names, d, other.as_ref())));
    let mut text = columns(&rows);
    for choice in ready.inverses() {
        text += &format!("{}\n", inverse_line(ready, choice));
    }
    let again = recomputed(ready, &names);
    if !again.is_empty() {
        let asked = if plan.rewrites.segments.is_empty() { "regions" } else { "segments" };
        text += &format!("computed again for checkpoint {asked}: {}\n", again.join(", "));
    }
    Ok(text)
}

/// What checkpoint policies have later phases compute again. It crosses no phase.
fn recomputed(ready: &PlanRequest, names: &Names) -> Vec<String> {
    let f = &ready.function;
    let again = f.body_insts().iter().filter(|&&i| f.path(i).is_again());
    let all = again.flat_map(|&i| f.inst_results(i)).map(|&v| format!("%{}", names.get(v)));
    all.filter(|name| ready.inverses().iter().all(|choice| !is_of(choice, name))).collect()
}

/// Whether an instruction is there to recover a value.
fn is_of(choice: &InverseChoice, name: &str) -> bool {
    let of = name.trim_start_matches(['%', '_']).strip_prefix(choice.of.as_str());
    of.is_some_and(|rest| rest.starts_with(".inverse") || rest.starts_with(".part"))
}

fn decider<'a>(
    ready: &'a PlanRequest,
    plan: &'a Plan,
    budget: Option<u64>,
    engine: &'a MemoEngine<'a>,
) -> Result<Decider<'a>, Failure> {
    Decider::of(&ready.function, plan, &ready.options, budget, engine)
        .map_err(|d| ready.source.wrong(d))
}

/// A line of the table.
fn cells(
    f: &Function,
    names: &Names,
    d: &Decision,
    other: Option<&RecoveryAlternative>,
) -> Vec<String> {
    let dash = || "-".to_string();
    let [instead, peak, saved, us] = match &d.other {
        Alternative::None(_) | Alternative::NotPriced => [dash(), dash(), dash(), dash()],
        Alternative::Keep(x) => ["keep".into(), signed(x.peak), signed(x.saved), micros(x.seconds)],
        Alternative::Remat(x) => {
            ["remat".into(), signed(x.peak), signed(x.saved), micros(x.seconds)]
        }
    };
    vec![
        format!("%{}", names.get(d.value)),
        f.ty(d.value).to_string(),
        match d.choice {
            ResidualChoice::Compress { bits: 1 } => format!("{} b1", name(&d.choice)),
            ResidualChoice::Compress { bits } => format!("{} u{bits}", name(&d.choice)),
            _ => name(&d.choice).into(),
        },
        bytes(d.bytes),
        bytes(d.saved),
        if d.at_peak { "yes" } else { "no" }.into(),
        instead,
        peak,
        saved,
        us,
        settled(d, other).into(),
    ]
}

/// What settled a decision, in a word.
fn settled(d: &Decision, other: Option<&RecoveryAlternative>) -> &'static str {
    other.map_or_else(|| constraint(d.bound), |other| recovered::word(other.bound))
}

/// A decision in plain words, but for what settled it.
fn lines(f: &Function, names: &Names, decider: &Decider<'_>, d: &Decision) -> Vec<String> {
    let name_of = |v: Value| format!("%{}", names.get(v));
    let list = |values: &[Value]| {
        let all: Vec<String> = values.iter().map(|&v| name_of(v)).collect();
        if all.is_empty() { "nothing".into() } else { all.join(", ") }
    };
    let size = bytes(d.bytes);
    let what = match &d.choice {
        ResidualChoice::Save => format!("kept as it is, {size}"),
        ResidualChoice::Compress { bits: 1 } => format!("kept as b1, 1 bit an element, {size}"),
        ResidualChoice::Compress { bits } => {
            format!("kept as u{bits}, {bits} bits an element, {size}")
        }
        ResidualChoice::Lossy(copy) => {
            let of = name_of(copy.of);
            format!(
                "{of} kept as {}, {size}, {} less than as it is",
                copy.narrow.name(),
                bytes(freed(f, copy))
            )
        }
        ResidualChoice::Remat { from, .. } => format!("computed again from {}", list(from)),
        ResidualChoice::Shared => "never in memory: forward and backward share the kernel".into(),
        ResidualChoice::Parameter => format!("a parameter, there anyway, {size}"),
        ResidualChoice::Constant => format!("written in the program, {size}"),
        ResidualChoice::Output => format!("a result, there anyway, {size}"),
    };
    let mut out =
        vec![format!("{}: {}, of phase {}: {what}", name_of(d.value), f.ty(d.value), d.phase.0)];
    if let ResidualChoice::Lossy(copy) = &d.choice {
        let bound = copy.narrow.bound();
        out.push(format!(
            "  read back within {:e} of each value, relative to it, or {:e}; finite ones beyond {:e} as that",
            bound.relative, bound.absolute, bound.most
        ));
    }
    for reading in &d.readings {
        let how = match reading.how {
            ValueSource::Memory => "reads it from memory".into(),
            ValueSource::Again { group } => format!("reads what group {group} computes again"),
            ValueSource::Here => "computes it, and needs it for a later phase too".into(),
            ValueSource::HereAgain => "computes it again in its kernel".into(),
            ValueSource::Written => "writes it out where it is used".into(),
            ValueSource::Given => "reads it".into(),
        };
        out.push(format!("  group {} {how}", reading.group));
    }
    let at = decider.peak_group().map_or_else(String::new, |g| format!(", in group {g}"));
    let there = if d.at_peak { "it is" } else { "it is not" };
    let peak = limit(decider.point().peak);
    out.push(format!("  {there} in memory at the peak of {peak}{at}"));
    out.push(match &d.other {
        Alternative::Keep(x) => format!("  kept in memory instead: {}", change(x)),
        Alternative::Remat(x) => format!("  computed again instead: {}", change(x)),
        Alternative::NotPriced => "  what else would cost was not asked".into(),
        Alternative::None(why) => format!(
            "  nothing else can be: {}",
            match why {
                NoAlternative::Parameter => "nothing computes a parameter",
                NoAlternative::Constant => "nothing computes what is written in the program",
                NoAlternative::Output => "a result is in memory whatever is planned",
                NoAlternative::Refused(m) => m,
            }
        ),
    });
    out
}

/// What settled a decision, in plain words.
fn settled_by(names: &Names, d: &Decision) -> String {
    match d.bound {
        Constraint::Legality => "  settled by the rules: there is no alternative".into(),
        Constraint::Checkpoint => "  settled by its checkpoint region, which keeps it".into(),
        Constraint::Exactness { of, .. } => format!(
            "  settled by exactness: %{} is kept as well, and gives this but for rounding",
            names.get(of)
        ),
        Constraint::Budget { over } => {
            format!("  settled by the budget: the alternative is {} over it", bytes(over))
        }
        Constraint::Time => {
            let freed = match &d.other {
                Alternative::Keep(x) | Alternative::Remat(x) => slower_and(x.peak, x.saved),
                Alternative::None(_) | Alternative::NotPriced => "is slower",
            };
            format!("  settled by time: the alternative {freed}")
        }
        Constraint::NotPriced => "  what settled it was not asked".into(),
        Constraint::Slight => {
            "  settled by time: the alternative is faster by less than 1/5,000 of the plan, which is not looked for"
                .into()
        }
        Constraint::Bytes => "  settled by bytes: the alternative is as fast and frees none".into(),
        Constraint::Search => {
            "  settled by nothing: the alternative is faster, or as fast in less memory, and the planner did not take it"
                .into()
        }
    }
}

/// What is said of a slower alternative that adds these bytes to the peak and to what is saved.
fn slower_and(peak: i64, saved: i64) -> &'static str {
    match (peak.cmp(&0), saved < 0) {
        (Ordering::Greater, _) => "takes more memory and more time",
        (Ordering::Less, _) => "is slower, and nothing asks for what it frees",
        (Ordering::Equal, true) => "is slower, and what it frees does not lower the peak",
        (Ordering::Equal, false) => "is slower and frees nothing",
    }
}

/// Bytes that a copy takes less than its value.
fn freed(f: &Function, copy: &LossyCopy) -> u64 {
    let [wide, narrow] = [copy.of, copy.copy].map(|v| f.ty(v));
    let elements = wide.elements().unwrap_or(0);
    elements.saturating_mul(wide.dtype.bytes().saturating_sub(narrow.dtype.bytes()))
}

fn name(choice: &ResidualChoice) -> &'static str {
    match choice {
        ResidualChoice::Save => "save",
        ResidualChoice::Compress { .. } => "compress",
        ResidualChoice::Lossy(_) => "lossy",
        ResidualChoice::Remat { .. } => "remat",
        ResidualChoice::Shared => "shared",
        ResidualChoice::Parameter => "parameter",
        ResidualChoice::Constant => "constant",
        ResidualChoice::Output => "output",
    }
}

fn constraint(bound: Constraint) -> &'static str {
    match bound {
        Constraint::Legality => "legality",
        Constraint::Checkpoint => "checkpoint",
        Constraint::Exactness { .. } => "exactness",
        Constraint::Budget { .. } => "budget",
        Constraint::Time => "time",
        Constraint::Bytes => "bytes",
        Constraint::Search => "search",
        Constraint::NotPriced => "not priced",
        Constraint::Slight => "slight",
    }
}

/// A decision as JSON.
fn object(f: &Function, names: &Names, d: &Decision, other: Option<&RecoveryAlternative>) -> Json {
    let name_of = |v: Value| format!("%{}", names.get(v));
    let mut all = json!({
        "value": name_of(d.value),
        "type": f.ty(d.value).to_string(),
        "phase": d.phase.0,
        "decision": name(&d.choice),
        "bytes": d.bytes,
        "saved_bytes": d.saved,
        "at_peak": d.at_peak,
    });
    match &d.choice {
        ResidualChoice::Compress { bits } => all["bits"] = json!(bits),
        ResidualChoice::Lossy(copy) => {
            let bound = copy.narrow.bound();
            all["lossy"] = json!({
                "of": name_of(copy.of),
                "as": copy.narrow.name(),
                "freed_bytes": freed(f, copy),
                "relative": bound.relative,
                "absolute": bound.absolute,
                "most": bound.most,
            });
        }
        ResidualChoice::Remat { inside, own, from } => {
            all["inside"] = json!(inside);
            all["own"] = json!(own);
            all["from"] = from.iter().map(|&v| name_of(v)).collect();
        }
        _ => {}
    }
    let reading = |r: &adfuse::fusion::Reading| {
        let how = match r.how {
            ValueSource::Memory => "memory",
            ValueSource::Again { .. } => "again",
            ValueSource::Here => "here",
            ValueSource::HereAgain => "here_again",
            ValueSource::Written => "written",
            ValueSource::Given => "given",
        };
        match r.how {
            ValueSource::Again { group } => {
                json!({"group": r.group, "how": how, "computed_by": group})
            }
            _ => json!({"group": r.group, "how": how}),
        }
    };
    all["readings"] = d.readings.iter().map(reading).collect();
    all["instead"] = match &d.other {
        Alternative::Keep(x) => difference("keep", x),
        Alternative::Remat(x) => difference("remat", x),
        Alternative::NotPriced => Json::Null,
        Alternative::None(why) => match why {
            NoAlternative::Parameter => json!({"impossible": "parameter"}),
            NoAlternative::Constant => json!({"impossible": "constant"}),
            NoAlternative::Output => json!({"impossible": "output"}),
            NoAlternative::Refused(m) => json!({"impossible": "refused", "message": m}),
        },
    };
    all["settled_by"] = json!(settled(d, other));
    if let Some(other) = other {
        all["recovered"] = recovered::object(names, other);
    }
    let priced = other.is_some_and(|other| other.bound != RecoveryBound::Range);
    match d.bound {
        Constraint::Exactness { of, .. } if !priced => all["inexact_from"] = json!(name_of(of)),
        Constraint::Budget { over } => all["over_bytes"] = json!(over),
        _ => {}
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_alternative_is_said_to_free_what_it_frees() {
        for (peak, saved, due) in [
            (-8, -8, "nothing asks for what it frees"),
            (-8, 0, "nothing asks for what it frees"),
            (0, -8, "does not lower the peak"),
            (0, 0, "frees nothing"),
            (0, 8, "frees nothing"),
            (8, -8, "takes more memory and more time"),
            (8, 8, "takes more memory and more time"),
        ] {
            assert!(slower_and(peak, saved).contains(due), "{peak} {saved}");
        }
    }
}

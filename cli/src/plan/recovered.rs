//! Values that later phases recover from answers, or could, in words and as JSON.

use super::differences::{change, difference};
use crate::failure::Failure;
use crate::planning::PlanRequest;
use adfuse::fusion::{
    Constraint, Decision, Fp, InverseChoice, RecoveryAlternative, RecoveryBound, RecoveryPricer,
    inverse_accuracy,
};
use adfuse::ir::Value;
use adfuse::ir::op::Accuracy;
use adfuse::ir::text::Names;
use serde_json::{Value as Json, json};

/// What the name of a value stands for in a function that was rewritten before it was planned.
pub(super) struct ExplainedValue<'a> {
    /// The value of the function that is planned.
    pub(super) value: Option<Value>,
    /// What the function before had by this name, where later phases recover it.
    pub(super) recovered: Option<&'a InverseChoice>,
}

impl ExplainedValue<'_> {
    /// What has this name: a value, or one that later phases recover and that may be gone.
    pub(super) fn of<'a>(
        ready: &'a PlanRequest,
        name: &str,
    ) -> Result<ExplainedValue<'a>, Failure> {
        let word = name.trim().trim_start_matches('%');
        let recovered = ready.inverses().iter().find(|choice| choice.of == word);
        let value = match ready.value(name) {
            Err(_) if recovered.is_some() => None,
            value => Some(value?),
        };
        Ok(ExplainedValue { value, recovered })
    }
}

/// A value that later phases recover, in plain words.
pub(super) fn inverse_line(ready: &PlanRequest, choice: &InverseChoice) -> String {
    let how = match inverse_accuracy(&ready.function, choice) {
        Some(Accuracy::Exact) => ", to the bit".into(),
        Some(Accuracy::Approximate(error)) => {
            let tiny = if error.tiny { ", or the least normal number" } else { "" };
            let singular = match error.singular {
                true => "; NaN where what it is divided or multiplied by is 0, infinite or NaN",
                false => "",
            };
            format!(
                ", within {} units in the last place in f32 and {} in f64{tiny}{singular}",
                error.f32, error.f64
            )
        }
        None => String::new(),
    };
    format!("%{}: not kept, later phases recover it from %{}{how}", choice.of, choice.from)
}

pub(super) fn inverse_json(choice: &InverseChoice) -> Json {
    let [of, from] = [&choice.of, &choice.from].map(|name| format!("%{name}"));
    json!({"value": of, "decision": "inverse", "from": from, "saved_bytes": 0})
}

/// Where a value is kept beside an answer that gives it but for rounding, and the mode allows that: what else keeps it.
pub(super) fn alternative(
    ready: &PlanRequest,
    pricer: &RecoveryPricer<'_>,
    d: &Decision,
) -> Result<Option<RecoveryAlternative>, Failure> {
    match d.bound {
        Constraint::Exactness { of, .. } if ready.options.fp != Fp::Strict => {
            let priced = pricer.alternative(d.value, of);
            Ok(Some(priced.map_err(|d| ready.source.wrong(d))?))
        }
        _ => Ok(None),
    }
}

/// What the other modes do about a value that strict mode keeps beside an answer that gives it but for rounding; empty where
/// they keep it too for a reason of which there is nothing more to say.
pub(super) fn in_other_modes(
    ready: &PlanRequest,
    pricer: &RecoveryPricer<'_>,
    d: &Decision,
) -> Result<String, Failure> {
    let Constraint::Exactness { of, allowed: true } = d.bound else { return Ok(String::new()) };
    let other = pricer.alternative(d.value, of).map_err(|d| ready.source.wrong(d))?;
    Ok(other_modes(&Names::of(&ready.function), &other))
}

fn other_modes(names: &Names, other: &RecoveryAlternative) -> String {
    let from = names.get(other.from);
    let may = "; --fp reproducible and fast may take it from there";
    match other.bound {
        RecoveryBound::Range => String::new(),
        RecoveryBound::Order => format!(
            "; --fp reproducible and fast keep it too, since what later phases need reads it before %{from} is there, or to compute it"
        ),
        RecoveryBound::Effort => format!("{may}, but not with effort off"),
        RecoveryBound::Time => format!("{may}, but by itself that is slower"),
        RecoveryBound::Peak => format!("{may}, but by itself that raises the peak"),
        RecoveryBound::Bytes => {
            format!("{may}, but by itself that leaves no fewer bytes to later phases")
        }
        RecoveryBound::Search => may.into(),
    }
}

/// What it would take to recover a value, and what keeps the plan from it.
pub(super) fn lines(
    names: &Names,
    other: &RecoveryAlternative,
    budget: Option<u64>,
) -> impl Iterator<Item = String> {
    let from = names.get(other.from);
    let among = if budget.is_some() { ", of plans without a budget" } else { "" };
    let priced = other.change.as_ref();
    let priced = priced.map(|d| format!("  recovered from %{from} instead: {}{among}", change(d)));
    let why = match other.bound {
        RecoveryBound::Range => format!(
            "exactness: %{from} is kept as well, but nothing bounds the rounding of what it gives here"
        ),
        RecoveryBound::Order => format!(
            "order: %{from} is kept as well, but what later phases need reads the value before %{from} is there, or to compute it"
        ),
        RecoveryBound::Effort => {
            format!("effort: %{from} is kept as well, but effort off recovers nothing")
        }
        RecoveryBound::Time => {
            format!("time: %{from} is kept as well, but to recover the value from it is slower")
        }
        RecoveryBound::Peak => format!(
            "the peak: %{from} is kept as well, but to recover the value from it raises the peak"
        ),
        RecoveryBound::Bytes => format!(
            "bytes: %{from} is kept as well, but to recover the value from it leaves no fewer bytes to later phases"
        ),
        RecoveryBound::Search => format!(
            "nothing: %{from} is kept as well, and to recover the value from it is no slower and leaves fewer bytes, but was not found"
        ),
    };
    priced.into_iter().chain([format!("  settled by {why}")])
}

/// What keeps a plan from recovering a value, in a word.
pub(super) fn word(bound: RecoveryBound) -> &'static str {
    match bound {
        RecoveryBound::Range => "exactness",
        RecoveryBound::Order => "order",
        RecoveryBound::Effort => "effort",
        RecoveryBound::Time => "time",
        RecoveryBound::Peak => "peak",
        RecoveryBound::Bytes => "bytes",
        RecoveryBound::Search => "search",
    }
}

/// The alternative as JSON.
pub(super) fn object(names: &Names, other: &RecoveryAlternative) -> Json {
    let mut all = match &other.change {
        Some(d) => difference("inverse", d),
        None => json!({"decision": "inverse"}),
    };
    all["from"] = json!(format!("%{}", names.get(other.from)));
    all
}

//! What becomes of each value that a later phase needs, with what the other decision would cost.

use super::context::Collected;
use super::steps::homes;
use crate::data::{Counterfactual, PlanStep, RepeatedLayer, ResidualRow};
use adfuse_fusion::{
    Alternative, Constraint, Decider, Decision, Difference, MemoEngine, NoAlternative,
    ResidualChoice, computed_by_steps, steps_of,
};
use adfuse_ir::{Diagnostic, Inst, Value, ValueDef};
use std::collections::BTreeMap;

/// The decisions of the plan, parameters first.
pub(super) fn residuals(
    c: &Collected<'_>,
    steps: &[PlanStep],
    layers: &[RepeatedLayer],
) -> Result<Vec<ResidualRow>, Diagnostic> {
    let source = c.source;
    let engine = MemoEngine::new(source.engine, &source.options.device);
    let decider =
        Decider::of(source.function, source.plan, source.options, source.budget, &engine)?;
    let (homes, lines) = (homes(c), c.lines());
    let found = decider.decisions_of_classes(&classes(c, &decider, (layers, &homes)))?;
    let groups = steps_of(c.laid.plan, &c.laid.program);
    let last = steps.len().saturating_sub(1);
    let row = |d: &Decision| {
        let inst = match source.function.def(d.value) {
            ValueDef::Inst(i, _) => Some(i),
            _ => None,
        };
        let to = d.readings.iter().filter_map(|r| groups.get(r.group));
        let (decision, bits, sources) = choice(c, &d.choice);
        ResidualRow {
            value: c.name(d.value),
            ty: source.function.ty(d.value).to_string(),
            decision,
            bits,
            bytes: d.bytes,
            saved: d.saved,
            at_peak: d.at_peak,
            from: inst.and_then(|i| homes.get(&i).copied()),
            to: to.map(|steps| steps.start.min(last)).collect(),
            sources,
            instead: match &d.other {
                Alternative::Keep(x) => Some(counterfactual(c, d, ("keep", x))),
                Alternative::Remat(x) => Some(counterfactual(c, d, ("remat", x))),
                Alternative::None(_) => None,
            },
            why: why(c, d),
            line: inst.and_then(|i| lines.of_inst(i)),
        }
    };
    let mut all: Vec<ResidualRow> = found.iter().map(row).collect();
    all.extend(source.plan.inverses.iter().map(|choice| ResidualRow {
        value: format!("%{}", choice.of),
        ty: String::new(),
        decision: "inverse",
        bits: None,
        bytes: 0,
        saved: 0,
        at_peak: false,
        from: None,
        to: Vec::new(),
        sources: vec![format!("%{}", choice.from)],
        instead: None,
        why: "later phases recover it from its answer".into(),
        line: None,
    }));
    Ok(all)
}

/// Where a step is among those that repeat.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum StepClass {
    /// By its number.
    Single(usize),
    /// By the layer, and the place within it.
    Repeated(usize, usize),
}

/// A class for each value that crosses phases. Values are of one class where they are the same results of the same
/// instructions of layers that repeat, and where equal steps need them: another decision about one changes as much as about
/// the others, but for what else is live at that time.
fn classes(
    c: &Collected<'_>,
    decider: &Decider<'_>,
    (layers, homes): (&[RepeatedLayer], &BTreeMap<Inst, usize>),
) -> Vec<usize> {
    let f = c.source.function;
    let step = |n: usize| {
        let within = |l: &RepeatedLayer| (l.first..l.first + l.period * l.count).contains(&n);
        match layers.iter().position(within) {
            Some(k) => StepClass::Repeated(k, (n - layers[k].first) % layers[k].period),
            None => StepClass::Single(n),
        }
    };
    let computed = computed_by_steps(c.laid.plan, &c.laid.program);
    let groups = steps_of(c.laid.plan, &c.laid.program);
    let key = |v: Value| {
        let ValueDef::Inst(i, k) = f.def(v) else { return None };
        // What is computed nowhere by itself is written out where it is used: its operands say which it is.
        let home = homes.get(&i).copied()?;
        let at = computed[home].iter().position(|&j| j == i)?;
        let needed: Vec<StepClass> =
            decider.readings(v).iter().map(|r| step(groups[r.group].start)).collect();
        Some((step(home), at, f.op(i), k, f.type_id(v), needed))
    };
    let mut known = BTreeMap::new();
    let mut class = |v: Value| {
        let new = known.len();
        match key(v) {
            Some(key) => *known.entry((Some(key), None)).or_insert(new),
            None => *known.entry((None, Some(v))).or_insert(new),
        }
    };
    decider.values().iter().map(|&v| class(v)).collect()
}

fn counterfactual(
    c: &Collected<'_>,
    of: &Decision,
    (decision, x): (&'static str, &Difference),
) -> Counterfactual {
    let priced_for = of.priced_for.map(|v| c.name(v));
    Counterfactual { decision, peak: x.peak, saved: x.saved, seconds: x.seconds, priced_for }
}

/// The decision, the bits of an element in memory, and what the value is computed again from.
fn choice(c: &Collected<'_>, choice: &ResidualChoice) -> (&'static str, Option<u8>, Vec<String>) {
    match choice {
        ResidualChoice::Save => ("save", None, Vec::new()),
        ResidualChoice::Compress { bits } => ("compress", Some(*bits), Vec::new()),
        ResidualChoice::Lossy(copy) => ("lossy", Some(16), vec![c.name(copy.of)]),
        ResidualChoice::Remat { from, .. } => {
            ("remat", None, from.iter().map(|&v| c.name(v)).collect())
        }
        ResidualChoice::Shared => ("shared", None, Vec::new()),
        ResidualChoice::Parameter => ("parameter", None, Vec::new()),
        ResidualChoice::Constant => ("constant", None, Vec::new()),
        ResidualChoice::Output => ("output", None, Vec::new()),
    }
}

/// What settled a decision, in words.
fn why(c: &Collected<'_>, d: &Decision) -> String {
    match (d.bound, &d.other) {
        (Constraint::Legality, Alternative::None(why)) => match why {
            NoAlternative::Parameter => "a parameter is there anyway".into(),
            NoAlternative::Constant => "it is written in the program".into(),
            NoAlternative::Output => "a result is there anyway".into(),
            NoAlternative::Refused(m) => m.clone(),
        },
        (Constraint::Legality, _) => "the rules: there is no alternative".into(),
        (Constraint::Checkpoint, _) => "its checkpoint region keeps it".into(),
        (Constraint::Exactness { of, .. }, _) => {
            format!("exactness: {} is kept too, and gives it but for rounding", c.name(of))
        }
        (Constraint::Budget { over }, _) => {
            format!("the budget: the alternative is {} over it", super::context::size(over))
        }
        (Constraint::Time, _) => "time: the alternative is slower".into(),
        (Constraint::Bytes, _) => "bytes: the alternative is as fast and frees none".into(),
        (Constraint::Search, _) => "nothing: the planner did not try the alternative".into(),
    }
}

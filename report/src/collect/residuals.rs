//! What becomes of each value that a later phase needs, with what the other decision would cost.

use super::context::Collected;
use super::steps::homes;
use super::value_classes::value_classes;
use crate::data::{Counterfactual, PlanStep, ResidualRow};
use adfuse_fusion::{
    Alternative, Constraint, Decider, Decision, Difference, Fp, MemoEngine, NoAlternative,
    RecoveryBound, RecoveryPricer, ResidualChoice, steps_of,
};
use adfuse_ir::{Diagnostic, ValueDef};

/// The most values for which other plans are made: those of the most bytes. Of a program of 800 steps each takes a quarter of
/// a second.
pub(crate) const MOST_PRICED: usize = 64;

/// The decisions of the plan, parameters first.
pub(super) fn residuals(
    c: &Collected<'_>,
    steps: &[PlanStep],
) -> Result<Vec<ResidualRow>, Diagnostic> {
    let source = c.source;
    let engine = MemoEngine::new(source.engine, &source.options.device);
    let decider =
        Decider::of(source.function, source.plan, source.options, source.budget, &engine)?;
    let (homes, lines) = (homes(c), c.lines());
    let found = decider.decisions_within(&value_classes(c, &decider, steps), MOST_PRICED)?;
    let groups = steps_of(c.laid.plan, &c.laid.program);
    let last = steps.len().saturating_sub(1);
    let pricer = RecoveryPricer::new(source.function, source.options, &engine);
    let row = |d: &Decision| -> Result<ResidualRow, Diagnostic> {
        let inst = match source.function.def(d.value) {
            ValueDef::Inst(i, _) => Some(i),
            _ => None,
        };
        let to = d.readings.iter().filter_map(|r| groups.get(r.group));
        let (decision, bits, sources) = choice(c, &d.choice);
        Ok(ResidualRow {
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
                Alternative::None(_) | Alternative::NotPriced => None,
            },
            priced: d.other != Alternative::NotPriced,
            why: why(c, d, &pricer)?,
            line: inst.and_then(|i| lines.of_inst(i)),
        })
    };
    let mut all: Vec<ResidualRow> = found.iter().map(row).collect::<Result<_, _>>()?;
    all.extend(source.plan.rewrites.inverses.iter().map(|choice| ResidualRow {
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
        priced: true,
        why: "later phases recover it from its answer".into(),
        line: None,
    }));
    Ok(all)
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
fn why(c: &Collected<'_>, d: &Decision, pricer: &RecoveryPricer<'_>) -> Result<String, Diagnostic> {
    Ok(match (d.bound, &d.other) {
        (Constraint::Legality, Alternative::None(why)) => match why {
            NoAlternative::Parameter => "a parameter is there anyway".into(),
            NoAlternative::Constant => "it is written in the program".into(),
            NoAlternative::Output => "a result is there anyway".into(),
            NoAlternative::Refused(m) => m.clone(),
        },
        (Constraint::Legality, _) => "the rules: there is no alternative".into(),
        (Constraint::Checkpoint, _) => "its checkpoint region keeps it".into(),
        (Constraint::Exactness { of, .. }, _) if c.source.options.fp != Fp::Strict => {
            let from = c.name(of);
            match pricer.alternative(d.value, of)?.bound {
                RecoveryBound::Range => {
                    format!("exactness: {from} is kept too, but nothing bounds its rounding here")
                }
                RecoveryBound::Order => {
                    format!("order: {from} is kept too, but comes too late, or is made for this")
                }
                RecoveryBound::Effort => "effort: with effort off nothing is recovered".into(),
                RecoveryBound::Time => format!("time: to recover it from {from} is slower"),
                RecoveryBound::Peak => {
                    format!("the peak: to recover it from {from} raises it")
                }
                RecoveryBound::Bytes => {
                    format!("bytes: to recover it from {from} leaves no fewer to later phases")
                }
                RecoveryBound::Search => {
                    format!("nothing: the planner did not find to recover it from {from}")
                }
            }
        }
        (Constraint::Exactness { of, .. }, _) => {
            format!("exactness: {} is kept too, and gives it but for rounding", c.name(of))
        }
        (Constraint::Budget { over }, _) => {
            format!("the budget: the alternative is {} over it", super::context::size(over))
        }
        (Constraint::Time, _) => "time: the alternative is slower".into(),
        (Constraint::Bytes, _) => "bytes: the alternative is as fast and frees none".into(),
        (Constraint::NotPriced, _) => "not priced".into(),
        (Constraint::Slight, _) => "time: less than 1/5,000 of the plan's is to be had".into(),
        (Constraint::Search, _) => "nothing: the planner did not try the alternative".into(),
    })
}

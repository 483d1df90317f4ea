//! What the script of a page reads. Texts of sizes are made here, so that the script has no form of its own for them.

use super::tables::signed_bytes;
use crate::data::{BudgetRow, ComparedFigure, PlanStep, RepeatedLayer, Report, ResidualRow};
use crate::sizes::{bytes, limit};
use serde::Serialize;

/// The data of the report that the script shows, as JSON; what else there is stands in the page.
#[derive(Serialize)]
pub(super) struct ScriptData<'a> {
    held: u64,
    figures: &'a [ComparedFigure],
    steps: &'a [PlanStep],
    layers: &'a [RepeatedLayer],
    residuals: &'a [ResidualRow],
    budget: &'a [BudgetRow],
    /// For each row of a list its sizes as texts.
    texts: SizeTexts,
}

#[derive(Serialize)]
struct SizeTexts {
    steps: Vec<StepTexts>,
    residuals: Vec<ResidualTexts>,
    budget: Vec<PointTexts>,
}

#[derive(Serialize)]
struct StepTexts {
    read: String,
    written: String,
    local: Option<String>,
}

#[derive(Serialize)]
struct ResidualTexts {
    bytes: String,
    /// What the other decision adds to the peak, with its sign.
    peak: Option<String>,
}

#[derive(Serialize)]
struct PointTexts {
    peak: String,
    saved: String,
}

impl<'a> ScriptData<'a> {
    pub(super) fn of(r: &'a Report) -> ScriptData<'a> {
        let Report { memory, figures, steps, layers, residuals, budget, .. } = r;
        let texts = SizeTexts::of(r);
        ScriptData { held: memory.held, figures, steps, layers, residuals, budget, texts }
    }
}

impl SizeTexts {
    fn of(r: &Report) -> SizeTexts {
        let local = |s: &PlanStep| s.measured.as_ref()?.local_bytes.filter(|&n| n > 0);
        let step = |s: &PlanStep| StepTexts {
            read: bytes(s.read_bytes),
            written: bytes(s.written_bytes),
            local: local(s).map(|n| bytes(n.into())),
        };
        let residual = |x: &ResidualRow| ResidualTexts {
            bytes: bytes(x.bytes),
            peak: x.instead.as_ref().map(|other| signed_bytes(other.peak)),
        };
        let point = |p: &BudgetRow| PointTexts { peak: limit(p.peak), saved: bytes(p.saved) };
        SizeTexts {
            steps: r.steps.iter().map(step).collect(),
            residuals: r.residuals.iter().map(residual).collect(),
            budget: r.budget.iter().map(point).collect(),
        }
    }
}

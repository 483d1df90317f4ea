//! Fusion candidates as rows.

use super::context::Collected;
use crate::data::CandidateRow;
use adfuse_ir::Diagnostic;

/// The most candidates of a report.
const MOST: usize = 250;

/// The best candidates, and how many there are. Of those that the plan does not fuse at least half of the rows are kept,
/// where there are as many: they are what people ask about.
pub(super) fn candidates(c: &Collected<'_>) -> Result<(Vec<CandidateRow>, usize), Diagnostic> {
    let found = adfuse_fusion::candidates(c.source.function, c.source.plan, c.device())?;
    let count = found.len();
    let fused = found.iter().filter(|x| x.fused).count();
    let apart = count - fused;
    let most_fused = MOST - apart.min(MOST / 2);
    let most_apart = MOST - fused.min(most_fused);
    let (mut of_fused, mut of_apart) = (0, 0);
    let mut rows = Vec::new();
    for x in found {
        let (seen, most) = match x.fused {
            true => (&mut of_fused, most_fused),
            false => (&mut of_apart, most_apart),
        };
        *seen += 1;
        if *seen > most {
            continue;
        }
        rows.push(CandidateRow {
            relation: x.relation.name(),
            name: x.name.clone(),
            values: x.values.iter().map(|&v| c.name(v)).collect(),
            score: x.score,
            saved_bytes: x.bytes_apart - x.bytes_together,
            launch_share: x.launch_share,
            registers: x.registers,
            intensity: x.intensity,
            fused: x.fused,
            reason: match &x.refused {
                Some(rule) if !x.fused && !x.reason.contains(rule.as_str()) => {
                    format!("{rule}. {}", x.reason)
                }
                _ => x.reason.clone(),
            },
        });
    }
    Ok((rows, count))
}

//! The loops of a plan, with the schedules of their checkpoints.

use super::context::Collected;
use crate::data::{LoopCheckpoints, LoopResidualRow, LoopSummary, ScheduleAction};
use adfuse_fusion::{LoopResiduals, loop_reports};
use adfuse_ir::kernel::{Reversal, ReversalAction};

/// The most actions of a schedule that a report has.
const MOST_ACTIONS: usize = 1200;

/// The loops in their order. Stacked residuals are told with the first loop that has as many steps and stacks.
pub(super) fn loops(c: &Collected<'_>) -> Vec<LoopSummary> {
    let mut left: Vec<&LoopResiduals> = c.source.stacked.iter().collect();
    let mut rows = Vec::new();
    for of in loop_reports(&c.laid.program) {
        let at = left.iter().position(|r| Some(r.trips) == of.trips && !of.stacks.is_empty());
        let residuals = at.map(|k| left.remove(k)).map_or_else(Vec::new, stacked);
        rows.push(LoopSummary {
            name: of.name.clone(),
            trips: of.trips,
            counted_by: of.counted_by.clone(),
            carried_bytes: of.carried_bytes,
            stacks: of.stacks.clone(),
            checkpoints: of.back.map(|back| LoopCheckpoints {
                count: back.checkpoints,
                bytes: back.bytes,
                forward_steps: back.forward,
                schedule: of.trips.map_or_else(Vec::new, |n| schedule(n, back.checkpoints)),
            }),
            residuals,
        });
    }
    rows
}

fn stacked(of: &LoopResiduals) -> Vec<LoopResidualRow> {
    let row = |r: &adfuse_fusion::LoopResidual| LoopResidualRow {
        name: r.name.as_ref().map_or_else(|| r.source.to_string(), |name| format!("%{name}")),
        ty: r.ty.to_string(),
        class: r.class.to_string(),
        bytes: r.bytes(of.trips),
    };
    of.residuals.iter().map(row).collect()
}

/// What the schedule of checkpoints does; nothing where that is too long to draw.
fn schedule(steps: u64, checkpoints: u64) -> Vec<ScheduleAction> {
    let most = MOST_ACTIONS as u64;
    if steps > most || checkpoints > most {
        return Vec::new();
    }
    let mut slots = vec![0; checkpoints as usize];
    let mut kept = vec![0; checkpoints as usize];
    let (mut at, mut all) = (0, Vec::new());
    for action in Reversal::new(steps, &mut slots) {
        all.push(match action {
            ReversalAction::Keep(slot) => {
                if let Some(k) = kept.get_mut(slot) {
                    *k = at;
                }
                ScheduleAction::Keep(at)
            }
            ReversalAction::Advance(from, to) => {
                at = to;
                ScheduleAction::Advance(from, to)
            }
            ReversalAction::Restore(slot) => {
                at = kept.get(slot).copied().unwrap_or(0);
                ScheduleAction::Restore(at)
            }
            ReversalAction::Turn(step) => ScheduleAction::Turn(step),
        });
        if all.len() > MOST_ACTIONS {
            return Vec::new();
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_turns_every_step_once_from_the_last_to_the_first() {
        let turned: Vec<u64> = (schedule(12, 3).iter())
            .filter_map(|a| if let ScheduleAction::Turn(n) = a { Some(*n) } else { None })
            .collect();
        assert_eq!(turned, (0..12).rev().collect::<Vec<_>>());
    }
}

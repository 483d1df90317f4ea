//! What plans of schedules would take, judged by those that were made.
//!
//! What a plan takes differs from what its schedule says: results have memory of their own, arenas have gaps, and a group is
//! computed in pieces. Plans of similar schedules differ by similar amounts.

use super::plan_gains::{Taken, most_gaining};
use super::schedule::frontier::{Frontier, FrontierPoint};
use super::schedule_choice::ScheduleNumber;

/// Seconds of a unit of a schedule's time.
const PICOSECOND: f64 = 1e-12;

/// Schedules of several frontiers, and what their plans took.
pub(super) struct SchedulePromises<'s> {
    frontiers: Vec<&'s Frontier>,
    made: Vec<Vec<MadeSchedule>>,
}

/// Whether a schedule became a plan.
#[derive(Clone, Copy)]
enum MadeSchedule {
    No,
    /// It has none of its own.
    Without,
    Plan(Taken),
}

/// By how much a plan deviates from its schedule.
struct Deviation {
    /// The peak of the schedule.
    at: f64,
    bytes: f64,
    seconds: f64,
}

impl<'s> SchedulePromises<'s> {
    /// Of frontiers whose fastest points, which compute nothing again, are known plans.
    pub(super) fn of(frontiers: Vec<&'s Frontier>, fastest: &[Taken]) -> SchedulePromises<'s> {
        let mut made = Vec::new();
        for (frontier, fastest) in frontiers.iter().zip(fastest) {
            let mut of = vec![MadeSchedule::No; frontier.points().len()];
            of.last_mut().into_iter().for_each(|last| *last = MadeSchedule::Plan(*fastest));
            made.push(of);
        }
        SchedulePromises { frontiers, made }
    }

    /// Notes what the plan of a schedule took; `None` where it has none.
    pub(super) fn note(&mut self, (frontier, at): ScheduleNumber, taken: Option<Taken>) {
        let made = &mut self.made[frontier][at];
        if !matches!(made, MadeSchedule::Plan(_)) {
            *made = taken.map_or(MadeSchedule::Without, MadeSchedule::Plan);
        }
    }

    /// At most `most` schedules that are no plans yet, those that promise most beside known plans.
    pub(super) fn best(
        &self,
        known: impl Iterator<Item = Taken>,
        most: usize,
    ) -> Vec<ScheduleNumber> {
        let mut numbers = Vec::new();
        let mut promised = Vec::new();
        for (k, made) in self.made.iter().enumerate() {
            for (at, _) in made.iter().enumerate().filter(|(_, m)| matches!(m, MadeSchedule::No)) {
                numbers.push((k, at));
                promised.push(self.promised((k, at)));
            }
        }
        most_gaining(known, &promised, most).into_iter().map(|k| numbers[k]).collect()
    }

    /// What the plan of a schedule takes if it differs from the schedule as those of the nearest ones with plans do: in between,
    /// by its peak.
    fn promised(&self, (frontier, at): ScheduleNumber) -> Taken {
        let made = &self.made[frontier];
        let point = &self.frontiers[frontier].points()[at];
        let of = |k: usize| match made[k] {
            MadeSchedule::Plan(taken) => {
                Some(Deviation::of(&self.frontiers[frontier].points()[k], &taken))
            }
            _ => None,
        };
        let below = (0..at).rev().find_map(of);
        let above = (at + 1..made.len()).find_map(of);
        let (bytes, seconds) = match (below, above) {
            (Some(below), Some(above)) => below.towards(&above, point.peak as f64),
            (Some(only), None) | (None, Some(only)) => (only.bytes, only.seconds),
            (None, None) => (0.0, 0.0),
        };
        let peak = (point.peak as f64 + bytes).max(0.0) as u64;
        Taken { peak, seconds: point.time as f64 * PICOSECOND + seconds }
    }
}

impl Deviation {
    fn of(point: &FrontierPoint, taken: &Taken) -> Deviation {
        let at = point.peak as f64;
        let seconds = taken.seconds - point.time as f64 * PICOSECOND;
        Deviation { at, bytes: taken.peak as f64 - at, seconds }
    }

    /// Bytes and seconds at a peak between this and another.
    fn towards(&self, other: &Deviation, at: f64) -> (f64, f64) {
        let part = (at - self.at) / (other.at - self.at).max(1.0);
        let between = |a: f64, b: f64| a + (b - a) * part;
        (between(self.bytes, other.bytes), between(self.seconds, other.seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::cost_graph::{CostGraph, Operation};
    use super::super::schedule::frontier::{FrontierOptions, frontier};
    use super::*;

    /// The schedules of a chain of steps and its way back.
    fn schedules() -> Frontier {
        let mut g = CostGraph::new();
        let mut push = |op| g.push(op).expect("obeys the rules");
        let mut forward = vec![push(Operation::source("x", 1))];
        for k in 0..24 {
            forward.push(push(Operation::new("", 100, 1000).reads(&[forward[k]])));
        }
        let mut back = forward[24];
        for k in (0..24).rev() {
            back = push(Operation::new("", 100, 1).reads(&[back, forward[k]]).phase(1));
        }
        frontier(&g, &FrontierOptions::default())
    }

    #[test]
    fn schedules_are_judged_by_what_the_plans_of_their_neighbours_took() {
        let frontier = schedules();
        let last = frontier.points().len() - 1;
        assert!(last > 8, "{last}");
        let took = |at: usize, more: u64| {
            let point = &frontier.points()[at];
            Taken { peak: point.peak + more, seconds: point.time as f64 * PICOSECOND }
        };
        let known = [took(0, 500), took(last, 0)];
        let mut promises = SchedulePromises::of(vec![&frontier], &[known[1]]);
        promises.note((0, 0), Some(known[0]));
        let mut before = 500;
        for at in 1..last {
            let more = promises.promised((0, at)).peak - frontier.points()[at].peak;
            assert!(more <= before, "{at}: {more} after {before}");
            before = more;
        }
        assert!(before < 250, "{before}");
        let best = |promises: &SchedulePromises<'_>| promises.best(known.into_iter(), 4);
        let first = best(&promises);
        assert_eq!(first.len(), 4);
        assert!(first.iter().all(|&(_, at)| (1..last).contains(&at)), "{first:?}");
        // What took much more than it promised makes its neighbours promise less.
        let (_, at) = first[0];
        promises.note((0, at), Some(took(at, 1_000_000)));
        let more = |at: usize| promises.promised((0, at)).peak - frontier.points()[at].peak;
        assert!(more(at - 1) > 1000 || at == 1);
        assert!(more(at + 1) > 1000 || at + 1 == last);
        // What has no plan is not asked for again.
        first.iter().for_each(|number| promises.note(*number, None));
        assert!(best(&promises).iter().all(|number| !first.contains(number)));
    }
}

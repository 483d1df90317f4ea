//! How much a frontier of plans gains by one more, over all budgets.

use crate::search::point::PlanPoint;

/// What a plan takes, or would take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Taken {
    pub(super) peak: u64,
    pub(super) seconds: f64,
}

/// A plan that takes less memory than all others gains as if they took this many times as long, as a logarithm.
const BELOW: f64 = 1.0;

/// Gains below this are rounding: a plan that is a millionth faster for all budgets of a tenth.
const LEAST_GAIN: f64 = 1e-7;

/// The numbers of at most `most` plans, those that gain most beside the known ones, each beside those before it, too.
pub(super) fn most_gaining(
    known: impl Iterator<Item = Taken>,
    plans: &[Taken],
    most: usize,
) -> Vec<usize> {
    let mut found = Vec::new();
    add_gaining(Staircase::of(known), plans, most, &mut found);
    found
}

/// The same of plans that may come to take less yet, by each of these parts of their peaks and of their seconds in turn: those
/// that a small part takes below the known ones are first. The last are those that gain most by themselves.
pub(super) fn nearest(known: &[Taken], plans: &[Taken], most: usize, parts: &[f64]) -> Vec<usize> {
    let beside = Staircase::of(known.iter().copied());
    let mut found = Vec::new();
    for &part in parts {
        let hoped: Vec<Taken> = plans.iter().map(|taken| taken.less(part)).collect();
        add_gaining(beside.clone(), &hoped, most, &mut found);
    }
    let left: Vec<usize> = (0..plans.len()).filter(|k| !found.contains(k)).collect();
    let room = most.saturating_sub(found.len());
    let part = parts.last().copied().unwrap_or(0.0);
    found.extend(best_alone(&beside, plans, left, part).take(room));
    found
}

/// Some plans by what each gains by itself if it takes a part less.
fn best_alone(
    known: &Staircase,
    plans: &[Taken],
    numbers: Vec<usize>,
    part: f64,
) -> impl Iterator<Item = usize> {
    let mut gains: Vec<(usize, f64)> =
        numbers.into_iter().map(|k| (k, known.gain(&plans[k].less(part)))).collect();
    gains.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    gains.into_iter().map(|(k, _)| k)
}

/// Which of some plans to keep beside known ones, about `most` of them. Of those that no other beats in both memory and time those
/// go first without which the times of budgets rise least. Where there are fewer, those are kept that would gain most if they
/// took this part less.
pub(super) fn kept(known: &[Taken], plans: &[Taken], most: usize, part: f64) -> Vec<bool> {
    let mut steps = Vec::new();
    let numbered = plans.iter().enumerate().map(|(k, taken)| (Some(k), taken));
    let mut all: Vec<(Option<usize>, &Taken)> =
        known.iter().map(|taken| (None, taken)).chain(numbered).collect();
    all.sort_by(|(_, a), (_, b)| a.peak.cmp(&b.peak).then(a.seconds.total_cmp(&b.seconds)));
    for (k, taken) in all {
        if steps.last().is_none_or(|(_, seconds)| taken.seconds < *seconds) {
            steps.push((k, taken.seconds));
        }
    }
    let own = |steps: &[(Option<usize>, f64)]| steps.iter().filter(|(k, _)| k.is_some()).count();
    while own(&steps) > most {
        // The lowest one stays: without it there is nothing for its budget.
        let rise = |&at: &usize| steps[at - 1].1 / steps[at].1;
        let mine = (1..steps.len()).filter(|&at| steps[at].0.is_some());
        let Some(least) = mine.min_by(|a, b| rise(a).total_cmp(&rise(b))) else { break };
        steps.remove(least);
    }
    let mut kept = vec![false; plans.len()];
    steps.iter().filter_map(|(k, _)| *k).for_each(|k| kept[k] = true);
    let beside = Staircase::of(known.iter().chain(plans).copied());
    let left = (0..plans.len()).filter(|&k| !kept[k]).collect();
    let room = most.saturating_sub(own(&steps));
    best_alone(&beside, plans, left, part).take(room).for_each(|k| kept[k] = true);
    kept
}

/// Adds plans that gain to some that were found, until there are `most`.
fn add_gaining(mut known: Staircase, plans: &[Taken], most: usize, found: &mut Vec<usize>) {
    let mut left: Vec<usize> = (0..plans.len()).filter(|k| !found.contains(k)).collect();
    while found.len() < most {
        let gains: Vec<f64> = left.iter().map(|&k| known.gain(&plans[k])).collect();
        // Of equal ones the first.
        let best = (0..left.len()).rev().max_by(|&a, &b| gains[a].total_cmp(&gains[b]));
        let Some(best) = best.filter(|&best| gains[best] >= LEAST_GAIN) else { break };
        let k = left.remove(best);
        known.add(&plans[k]);
        found.push(k);
    }
}

/// Plans of which none is beaten by another in both memory and time.
#[derive(Clone)]
struct Staircase {
    /// Logarithms of peaks and of seconds: the former rise, the latter fall.
    steps: Vec<(f64, f64)>,
}

impl Staircase {
    fn of(plans: impl Iterator<Item = Taken>) -> Staircase {
        let mut found = Staircase { steps: Vec::new() };
        plans.for_each(|taken| found.add(&taken));
        found
    }

    fn add(&mut self, taken: &Taken) {
        let (peak, seconds) = logarithms(taken);
        let fits = self.steps.partition_point(|step| step.0 <= peak);
        if fits > 0 && self.steps[fits - 1].1 <= seconds {
            return;
        }
        let from = self.steps.partition_point(|step| step.0 < peak);
        let beaten = self.steps[from..].iter().take_while(|step| step.1 >= seconds).count();
        self.steps.splice(from..from + beaten, [(peak, seconds)]);
    }

    /// The area between the times without a plan and with it, over the peaks, both as logarithms.
    fn gain(&self, taken: &Taken) -> f64 {
        let (peak, seconds) = logarithms(taken);
        let next = self.steps.partition_point(|step| step.0 <= peak);
        let mut slower = match next.checked_sub(1) {
            Some(before) => self.steps[before].1,
            None => self.steps.first().map_or(seconds, |step| step.1.max(seconds)) + BELOW,
        };
        let (mut gain, mut from) = (0.0, peak);
        for &(to, faster) in &self.steps[next..] {
            if slower <= seconds {
                break;
            }
            gain += (to - from) * (slower - seconds);
            (from, slower) = (to, faster);
        }
        gain
    }
}

impl Taken {
    pub(super) fn of(point: &PlanPoint) -> Taken {
        Taken { peak: point.peak, seconds: point.seconds }
    }

    /// Less of both by a part.
    fn less(&self, part: f64) -> Taken {
        let peak = (self.peak as f64 * (1.0 - part)) as u64;
        Taken { peak, seconds: self.seconds * (1.0 - part) }
    }
}

fn logarithms(taken: &Taken) -> (f64, f64) {
    ((taken.peak.max(1) as f64).ln(), taken.seconds.max(f64::MIN_POSITIVE).ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Taken; 3] = [
        Taken { peak: 100, seconds: 8.0 },
        Taken { peak: 200, seconds: 4.0 },
        Taken { peak: 800, seconds: 2.0 },
    ];

    fn gain(peak: u64, seconds: f64) -> f64 {
        Staircase::of(KNOWN.into_iter()).gain(&Taken { peak, seconds })
    }

    #[test]
    fn gains_are_areas_below_the_known_plans() {
        let octave = std::f64::consts::LN_2;
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        // What is beaten, and what is known, gains nothing.
        for (peak, seconds) in [(100, 8.0), (150, 9.0), (400, 4.0), (800, 2.0), (900, 1.0)] {
            close(gain(peak, seconds), 0.0);
        }
        // One octave of budgets is twice as fast; then two are, at one and a half of the peak.
        close(gain(400, 2.0), octave * octave);
        close(gain(200, 2.0), 2.0 * octave * octave);
        // A step is passed on the way.
        close(gain(100, 4.0), octave * octave);
        close(gain(100, 2.0), octave * 2.0 * octave + 2.0 * octave * octave);
        // Where nothing was, a plan gains for all budgets up to the least one.
        close(gain(50, 8.0), octave * BELOW);
        close(gain(50, 16.0), octave * BELOW);
    }

    #[test]
    fn a_plan_beside_a_better_one_gains_nothing_more() {
        let plans = [
            Taken { peak: 401, seconds: 2.0 },
            Taken { peak: 400, seconds: 2.0 },
            Taken { peak: 150, seconds: 7.0 },
            Taken { peak: 150, seconds: 9.0 },
        ];
        assert_eq!(most_gaining(KNOWN.into_iter(), &plans, 4), [1, 2]);
        assert_eq!(most_gaining(KNOWN.into_iter(), &plans, 1), [1]);
        assert!(most_gaining(plans.into_iter(), &plans, 4).is_empty());
    }

    #[test]
    fn plans_go_first_without_which_budgets_lose_least() {
        let plan = |peak, seconds| Taken { peak, seconds };
        let known = [plan(1000, 1.0)];
        // By steps: much faster, a little faster, beaten by a little, beaten by much, faster.
        let plans = [
            plan(100, 8.0),
            plan(200, 4.0),
            plan(300, 3.99),
            plan(301, 4.0),
            plan(800, 7.0),
            plan(400, 2.0),
        ];
        let kept = |most| kept(&known, &plans, most, 1.0 / 32.0);
        assert_eq!(kept(6), [true; 6]);
        assert_eq!(kept(5), [true, true, true, true, false, true]);
        assert_eq!(kept(4), [true, true, true, false, false, true]);
        assert_eq!(kept(3), [true, true, false, false, false, true]);
        assert_eq!(kept(1), [true, false, false, false, false, false]);
    }

    #[test]
    fn plans_near_the_known_ones_are_first() {
        let plan = |peak, seconds| Taken { peak, seconds };
        let plans = [plan(450, 5.0), plan(300, 4.01), plan(400, 4.1), plan(303, 4.02)];
        let near = |most| nearest(&KNOWN, &plans, most, &[1.0 / 64.0, 1.0 / 16.0]);
        // The second covers the last, which is as near.
        assert_eq!(near(1), [1]);
        assert_eq!(near(4), [1, 3, 2, 0]);
    }
}

//! The frontier: schedules of which none is beaten by another in both memory and time.

use super::cost_graph::{CostGraph, OpId, OpRole};
use super::equal_segments;
use super::liveness::LivenessMeter;
use super::local_search::{
    FrontierEntry, MeasuredSchedule, ParetoArchive, each_worth, filled, side_by_side,
};
use super::residuals::{Hull, residuals};
use super::segments;
use super::steps::{OpSchedule, evaluate};
use super::sweep::{EvictionRule, RULES, recomputing, within};
use crate::memory::size::in_bytes;
use std::borrow::Borrow;
use std::cmp::Reverse;
use thiserror::Error;

/// The effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontierOptions {
    /// Steps of schedules that are measured while they are improved. The result depends on this and
    /// the graph alone.
    pub effort: u64,
    /// The most points, evenly spread by peak; all of them without this.
    pub points: Option<usize>,
}

impl Default for FrontierOptions {
    fn default() -> FrontierOptions {
        FrontierOptions { effort: 2_000_000, points: None }
    }
}

/// A schedule, and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontierPoint {
    /// The most bytes resident at once.
    pub peak: u64,
    /// The time of all steps.
    pub time: u64,
    /// Bytes that phase 0 leaves to later ones.
    pub saved: u64,
    /// The schedule.
    pub schedule: OpSchedule,
}

/// The frontier of schedules, for all budgets.
#[derive(Clone, Debug)]
pub struct Frontier {
    /// Peaks rise and times fall, both strictly. There is at least one.
    points: Vec<FrontierPoint>,
    hull: Hull,
    /// What saves nothing for a later phase and is resident when the first step of one runs: inputs
    /// that stay, and the step's own value.
    beside: u64,
    /// The time of running everything once.
    once: u64,
    binding: String,
}

/// No schedule of the frontier is within a budget.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "no schedule within {} was found: the least takes {least}, and the largest value at its peak is `{binding}`",
    in_bytes(*budget)
)]
pub struct Infeasible {
    /// The budget.
    pub budget: u64,
    /// The least budget for which there is a schedule.
    pub least: u64,
    /// The largest value at the peak moment of that schedule.
    pub binding: String,
}

/// Finds schedules for all budgets at once.
///
/// Saving everything is the fastest. From there on: what the cuts of [`residuals`] compute again,
/// segments of all lengths between the graph's narrow places, segments of equal length, and passes that
/// keep within targets, are improved by small moves until nothing better is found or the effort is spent.
pub fn frontier(g: &CostGraph, options: &FrontierOptions) -> Frontier {
    let n = g.ops().len();
    let Segmented { mut archive, hull, top } = segmented(g, cuts(n));
    let least = least_possible(g);
    let (count, rules) = passes(n);
    sweep_to(g, &mut archive, rules, &targets(least, top, count));
    archive.fill_between();
    // On a large graph each schedule is long: few ways from many rather than many from few.
    let most = options.effort / (64 * n as u64 + 1);
    let most = usize::try_from(most).unwrap_or(MOST_WAYS).clamp(LEAST_WAYS, MOST_WAYS);
    archive.improve(options.effort, most);
    // Last, since what is there is improved from the fastest down, and the effort is for all.
    if n > SMALL {
        sweep_to(g, &mut archive, rules, &near_top(top));
    }
    Frontier::of(g, archive.entries, hull, options.points)
}

/// Schedules in segments alone, which take little time to find on a graph of any size.
pub(crate) fn segment_frontier(g: &CostGraph) -> Frontier {
    let Segmented { archive, hull, .. } = segmented(g, FEW_CUTS);
    Frontier::of(g, archive.entries, hull, None)
}

/// What every search begins with.
struct Segmented<'g> {
    archive: ParetoArchive<'g>,
    hull: Hull,
    /// The peak where everything is saved.
    top: u64,
}

/// The schedule that saves everything, what cuts of [`residuals`] compute again, segments between the graph's narrow places,
/// and those of equal length.
fn segmented(g: &CostGraph, cuts: usize) -> Segmented<'_> {
    let mut archive = ParetoArchive::new(g);
    let save_all: Vec<OpId> = g.runs().collect();
    let top = archive.offer(save_all).map_or(0, |t| t.peak);
    let hull = residuals(g, cuts);
    for corner in &hull.points {
        archive.offer(recomputing(g, &corner.recomputed));
    }
    segments::offer(g, &mut archive);
    equal_segments::offer(g, &hull, &mut archive);
    Segmented { archive, hull, top }
}

/// Cuts of the frontiers that have segments alone.
const FEW_CUTS: usize = 8;

/// Bounds of the moves that are tried from one schedule.
const LEAST_WAYS: usize = 8;
const MOST_WAYS: usize = 256;

/// Minimum cuts that are worth their time.
fn cuts(n: usize) -> usize {
    (200_000 / n.max(1)).clamp(24, 64)
}

/// Targets for passes over the graph, which take longer than other ways on large ones, and how what
/// goes is chosen.
fn passes(n: usize) -> (usize, &'static [EvictionRule]) {
    let rules = if n <= LARGE { &RULES[..] } else { &RULES[..1] };
    // On small graphs moves find what lies between targets.
    let most = if n <= SMALL { 40 } else { 100 };
    ((200_000 / n.max(1)).clamp(12, most), rules)
}

/// Operations up to which fewer targets will do.
const SMALL: usize = 1000;

/// Operations from which on one rule will do.
const LARGE: usize = 5000;

/// What the most demanding operation needs by itself.
fn least_possible(g: &CostGraph) -> u64 {
    let sources = stay(g);
    let own = |op: OpId| {
        let reads = g.ops()[op].inputs.iter().filter(|&&p| !g.is_source(p));
        reads.map(|&p| g.ops()[p].bytes).sum::<u64>() + g.ops()[op].bytes
    };
    sources + g.runs().map(own).max().unwrap_or(0)
}

/// Bytes of inputs that are there all the time. Sums of bytes are at most 2^62.
fn stay(g: &CostGraph) -> u64 {
    g.ops().values().filter(|o| o.role == OpRole::Source).map(|o| o.bytes).sum()
}

/// Passes that keep within targets, by all of some rules.
fn sweep_to(
    g: &CostGraph,
    archive: &mut ParetoArchive<'_>,
    rules: &[EvictionRule],
    targets: &[u64],
) {
    // Threads make schedules ahead, of all rules side by side. What is offered, and in which order, does not depend on how many.
    let ahead = side_by_side(g);
    let down: Vec<u64> = targets.iter().rev().copied().collect();
    let mut sweeps: Vec<RuleSweep> = rules.iter().map(|_| RuleSweep::default()).collect();
    for some in down.chunks(ahead) {
        let open = sweeps.iter().enumerate().filter(|(_, sweep)| !sweep.is_over);
        let asked: Vec<(usize, u64)> =
            open.flat_map(|(k, _)| some.iter().map(move |&target| (k, target))).collect();
        let made = each_worth(g, &asked, |&(k, target)| {
            Some(filled(g, within(g, target, rules[k])?, target))
        });
        for (&(k, _), made) in asked.iter().zip(made) {
            let sweep = &mut sweeps[k];
            // From the largest down: where a target is too small for a rule, smaller ones are too.
            match made {
                Some(made) if !sweep.is_over => sweep.made.extend(made),
                _ => sweep.is_over = true,
            }
        }
    }
    let all = sweeps.into_iter().flat_map(|sweep| sweep.made);
    all.for_each(|schedule| archive.offer_measured(schedule));
}

/// What a rule makes of targets.
#[derive(Default)]
struct RuleSweep {
    made: Vec<MeasuredSchedule>,
    /// Whether it made nothing of one.
    is_over: bool,
}

/// Targets within a twentieth below a peak.
fn near_top(top: u64) -> Vec<u64> {
    (1..=10).rev().map(|k| top - top / 200 * k).collect()
}

/// Numbers from one to the other, each by the same factor above the last.
fn targets(low: u64, high: u64, count: usize) -> Vec<u64> {
    let (low, high) = (low.max(1), high.max(1));
    let step = (high as f64 / low as f64).max(1.0).powf(1.0 / count.max(1) as f64);
    let mut all: Vec<u64> = (0..count)
        .map(|k| (low as f64 * step.powi(k as i32)) as u64)
        .filter(|&t| t < high)
        .collect();
    all.dedup();
    all
}

/// At most this many points: the ends, and between them the fastest within evenly spread peaks.
fn spread(points: &[FrontierPoint], most: usize) -> Vec<&FrontierPoint> {
    if points.len() <= most || most < 2 {
        return points.iter().rev().take(most.max(1)).rev().collect();
    }
    let mut chosen: Vec<usize> = evenly_spread(points, most).collect();
    chosen.dedup();
    chosen.into_iter().map(|k| &points[k]).collect()
}

/// The numbers of the fastest points within this many evenly spread peaks, from the lowest to the highest; two at least. Some may be
/// the same.
pub(crate) fn evenly_spread<P: Borrow<FrontierPoint>>(
    points: &[P],
    most: usize,
) -> impl Iterator<Item = usize> {
    let peak = |p: Option<&P>| p.map_or(0, |p| p.borrow().peak);
    let (low, high) = (peak(points.first()), peak(points.last()));
    let (wide, parts) = (u128::from(high - low), most.max(2) as u128 - 1);
    let budget = move |k: u128| low + (wide * k / parts) as u64;
    let within = move |budget: u64| points.partition_point(|p| p.borrow().peak <= budget);
    (0..=parts).map(move |k| within(budget(k)).saturating_sub(1))
}

/// The largest value that is resident at the peak moment.
fn binding(g: &CostGraph, schedule: &OpSchedule) -> String {
    let steps = schedule.steps.as_values_slice();
    let mut liveness = LivenessMeter::default();
    let Some(totals) = liveness.measure(g, steps) else { return String::new() };
    let here = |s: &usize| liveness.is_own(*s) && liveness.last(*s) as usize >= totals.at;
    let values = (0..=totals.at).take(steps.len()).filter(here).map(|s| steps[s]);
    let inputs = g.ops().keys().filter(|&o| g.ops()[o].role == OpRole::Source);
    let most = inputs.chain(values).max_by_key(|&o| (g.ops()[o].bytes, Reverse(o)));
    most.map_or(String::new(), |o| g.ops()[o].name.clone())
}

impl Frontier {
    fn of(g: &CostGraph, entries: Vec<FrontierEntry>, hull: Hull, most: Option<usize>) -> Frontier {
        let mut points: Vec<FrontierPoint> = Vec::new();
        for entry in entries {
            let schedule: OpSchedule = entry.steps.into_iter().collect();
            // What cannot be evaluated is no schedule; there is one that can, which saves all.
            if let Ok(e) = evaluate(g, &schedule) {
                points.push(FrontierPoint { peak: e.peak, time: e.time, saved: e.saved, schedule });
            }
        }
        if let Some(most) = most {
            points = spread(&points, most).into_iter().cloned().collect();
        }
        let later = g.runs().find(|&o| g.ops()[o].phase.0 > 0);
        let beside = stay(g) + later.map_or(0, |o| g.ops()[o].bytes);
        let binding = points.first().map_or(String::new(), |p| binding(g, &p.schedule));
        Frontier { points, hull, beside, once: g.time(), binding }
    }

    /// The points: peaks rise and times fall.
    pub fn points(&self) -> &[FrontierPoint] {
        &self.points
    }

    /// At most this many points: the ends, and between them the fastest within evenly spread peaks.
    pub fn spread(&self, most: usize) -> Vec<&FrontierPoint> {
        spread(&self.points, most)
    }

    /// The fastest point, which computes nothing again.
    pub fn fastest(&self) -> &FrontierPoint {
        self.points.last().expect("a frontier has the point that saves all")
    }

    /// The point with the least peak.
    pub fn least(&self) -> &FrontierPoint {
        self.points.first().expect("a frontier has the point that saves all")
    }

    /// The fastest point within a budget.
    ///
    /// # Errors
    /// If there is none; it says what the least is, and what is in the way.
    pub fn at(&self, budget: u64) -> Result<&FrontierPoint, Infeasible> {
        let fit = self.points.partition_point(|p| p.peak <= budget);
        fit.checked_sub(1).map(|k| &self.points[k]).ok_or_else(|| Infeasible {
            budget,
            least: self.least().peak,
            binding: self.binding.clone(),
        })
    }

    /// What any schedule within a budget takes at least, found or not: what the cuts of
    /// [`residuals`] prove of the moment at which the first later phase begins.
    pub fn least_time(&self, budget: u64) -> u64 {
        self.once.saturating_add(self.hull.least_time(budget.saturating_sub(self.beside)))
    }
}

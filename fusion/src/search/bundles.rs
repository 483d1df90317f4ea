//! Horizontal fusion of kernels that share nothing: groups of one short elementwise kernel become parts of one group.
//!
//! This is the last thing that is done to a plan. Groups are visited in the order in which they run. A short one joins a
//! group before it: it runs earlier, where all that it reads is there by then, or the others run later, where nothing has
//! read what they compute. The bytes that are live at each group are followed, and nothing joins where that
//! would lift them above the most that there were. Whatever is predicted, a plan that takes more time than the given one is not
//! returned, nor one that takes more memory, beyond what arrays that begin elsewhere leave between them or a larger part of the time saves.

use super::bundle_steps::{BundleSteps, PlanningFor, TimedPlan};
use super::fastest::are_alike;
use super::parallel::beside;
use crate::analysis::facts::Facts;
use crate::analysis::leaves::order;
use crate::lower::linked::LinkBase;
use crate::memory::engine::EngineModel;
use crate::memory::size::bytes;
use crate::plan::options::{Effort, PlanOptions};
use crate::plan::{Group, Plan};
use crate::search::point::PlanPoint;
use adfuse_ir::kernel::{Buffer, Role};
use adfuse_ir::op::Body;
use adfuse_ir::{Function, Inst, Op, Value, ValueDef};
use cranelift_entity::{EntitySet, SecondaryMap};
use std::ops::Range;

/// The most kernels of a launch: each has code and pointers of its own in it.
const MOST: usize = 64;

/// Groups before a group that it may join, the last ones first.
const TRIED: usize = 8;

/// How many groups further a kernel moves at most.
const FAR: usize = 512;

/// Of the bytes that are live at most, which part may be in use where kernels move, in turn until nothing takes more
/// memory than before. The last is for plans whose peak is everywhere.
const FILLED: [f64; 3] = [1.0, 0.75, 0.0];

/// The plan with kernels that share nothing in one launch, where that is faster and takes as much memory, planned quickly, or little more.
pub(crate) fn bundled<'f>(
    base: Option<&LinkBase<'f>>,
    (f, plan): (&Function, Plan),
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Plan {
    if options.effort == Effort::Off || !may_gain(f, &plan) {
        return plan;
    }
    let with = (options, engine);
    let Some(given) = TimedPlan::of(base, (f, &plan), with) else { return plan };
    // The bytes that the given plan takes where its memory is planned quickly, once that is known.
    let mut most: Option<Option<u64>> = None;
    let fits = |made: TimedPlan<'_, 'f>| {
        let peak = match most {
            Some(_) => made.quick_peak(with)?,
            // A bound seldom tells which takes more.
            None => {
                let (known, peak) = beside(f, || given.quick_peak(with), || made.quick_peak(with));
                most = known;
                peak?
            }
        };
        let pays = |most: u64| peak as f64 * made.seconds() <= most as f64 * given.seconds();
        let fits = takes_no_more(peak, given.least_peak(), NOTHING) || {
            let most = (*most.get_or_insert_with(|| given.quick_peak(with)))?;
            takes_no_more(peak, most, NOTHING) || takes_no_more(peak, most, LITTLE) && pays(most)
        };
        fits.then(|| made.plan().groups.clone())
    };
    match better(base, (f, &plan, &given), with, fits) {
        Some(groups) => Plan { groups, ..plan },
        None => plan,
    }
}

/// Whether a peak is no higher than another but for a part of it: steps that share a launch have other scratch memory, and what lies
/// beside it moves.
fn takes_no_more(peak: u64, most: u64, part: u64) -> bool {
    peak <= most.saturating_add(most / part)
}

/// A part of the peak that is no array: by no plan are such peaks told apart.
const NOTHING: u64 = 1 << 12;

/// A part of the peak that a plan may take more for as large a part of the time: packing is by chance more or less close.
const LITTLE: u64 = 1 << 6;

/// How much slower than the fastest plan that of effort quick may be for its launches to be shared on several cores.
const WITH_CORES: f64 = 1.25;

/// Of some plans of a function, the one that is fastest once its kernels share launches; of equally fast ones it is the one of the
/// lower peak where memory is planned quickly. The others are bundled only where they would be the fastest with all launches saved
/// that may be. The plan of effort quick, which is marked, is bundled where it may keep more cores busy, too.
pub(crate) fn fastest_bundled<'f>(
    base: Option<&LinkBase<'f>>,
    (f, fastest): (&Function, Plan),
    others: &[(bool, &Plan)],
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Plan {
    let with = (options, engine);
    let mut others: Vec<(bool, &Plan)> = others.to_vec();
    others.retain(|(_, other)| *other != &fastest);
    let mut best = bundled(base, (f, fastest), options, engine);
    if others.is_empty() {
        return best;
    }
    let Some(mut ours) = TimedPlan::of(base, (f, &best), with) else { return best };
    for (is_quick, other) in others {
        let Some(given) = TimedPlan::of(base, (f, other), with) else { continue };
        let least = given.seconds() - given.launches_saved(options.device.launch_s);
        // A search goes by times alone, so that a plan of another effort may be as fast and take less.
        let may_be_leaner = options.effort == Effort::Search && are_alike(least, ours.seconds());
        // What shares a launch may keep more cores busy.
        let reach = if is_quick && options.device.parallel > 1 { WITH_CORES } else { 1.0 };
        if least > ours.seconds() * reach && !may_be_leaner {
            continue;
        }
        // Even if what shares launches took no time.
        let bound = given.seconds() - given.short_seconds(options.device.launch_s);
        if bound > ours.seconds() && !are_alike(bound, ours.seconds()) {
            continue;
        }
        let made = bundled(base, (f, other.clone()), options, engine);
        let Some(theirs) = TimedPlan::of(base, (f, &made), with) else { continue };
        let is_better = match are_alike(ours.seconds(), theirs.seconds()) {
            true => {
                let peaks = (theirs.quick_peak(with), ours.quick_peak(with));
                matches!(peaks, (Some(theirs), Some(ours)) if theirs < ours)
            }
            false => theirs.seconds() < ours.seconds(),
        };
        if is_better {
            (best, ours) = (made, theirs);
        }
    }
    best
}

/// The points that bundling makes of one of a function, where that may gain this part of its time: all are faster, and where
/// one has no higher peak that is the last.
pub(crate) fn bundled_points<'f>(
    base: Option<&LinkBase<'f>>,
    (f, point): (&Function, &PlanPoint),
    least: f64,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Vec<PlanPoint> {
    let (mut found, with) = (Vec::new(), (options, engine));
    if options.effort == Effort::Off || !may_gain(f, &point.plan) {
        return found;
    }
    let Some(given) = TimedPlan::of(base, (f, &point.plan), with) else { return found };
    if given.launches_saved(options.device.launch_s) >= least * point.seconds {
        let fits = |made: TimedPlan<'_, 'f>| {
            let made = made.measured(f, with).ok()?;
            let fits = made.peak <= point.peak;
            found.push(made);
            fits.then_some(())
        };
        better(base, (f, &point.plan, &given), with, fits);
    }
    found
}

/// Seconds that shared launches take off a plan at the most.
pub(crate) fn launches_saved(
    base: Option<&LinkBase<'_>>,
    (f, plan): (&Function, &Plan),
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> f64 {
    if options.effort == Effort::Off || !may_gain(f, plan) {
        return 0.0;
    }
    let given = TimedPlan::of(base, (f, plan), (options, engine));
    given.map_or(0.0, |given| given.launches_saved(options.device.launch_s))
}

/// What a plan takes at the least, however its kernels share launches.
#[derive(Clone, Copy)]
pub(crate) struct BundlingBound {
    /// Seconds, however many cores are kept busy then.
    pub(crate) seconds: f64,
    /// Bytes at the peak: moving a kernel changes when arrays that it touches are in memory, and no others.
    pub(crate) peak: u64,
}

/// The bound of a plan; `None` where nothing of it shares a launch.
pub(crate) fn bundling_bound(
    base: Option<&LinkBase<'_>>,
    (f, point): (&Function, &PlanPoint),
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Option<BundlingBound> {
    if options.effort == Effort::Off || !may_gain(f, &point.plan) {
        return None;
    }
    let given = TimedPlan::of(base, (f, &point.plan), (options, engine))?;
    let steps = given.bundle_steps(&point.plan, options.device.launch_s);
    let mut moved = EntitySet::new();
    let short = steps.groups.iter().zip(&steps.short).filter(|(_, short)| **short);
    for uses in short.flat_map(|(uses, _)| uses) {
        moved.extend(uses.reads.iter().chain(&uses.writes).copied());
    }
    let is_temp = |b: &Buffer| steps.buffers[*b].role == Role::Temp;
    let bytes = moved.iter().filter(is_temp).map(|b| bytes(&steps.buffers[b]).unwrap_or(u64::MAX));
    let bytes = bytes.fold(0, u64::saturating_add);
    let seconds = point.seconds - given.short_seconds(options.device.launch_s);
    Some(BundlingBound { seconds, peak: given.least_peak().saturating_sub(bytes) })
}

/// Whether two groups may share a launch: most plans are done here, before anything is linked or lowered.
fn may_gain(f: &Function, plan: &Plan) -> bool {
    plan.groups.iter().filter(|group| may_share(f, group)).count() >= 2
}

/// What `fits` makes of the first plan that is faster than the given one, of those with more and then with less room to
/// move kernels in, and that it takes.
fn better<'b, 'f, R>(
    base: Option<&'b LinkBase<'f>>,
    (f, plan, given): (&Function, &Plan, &TimedPlan<'b, 'f>),
    with: PlanningFor<'_>,
    mut fits: impl FnMut(TimedPlan<'b, 'f>) -> Option<R>,
) -> Option<R> {
    let mut steps = given.bundle_steps(plan, with.0.device.launch_s);
    let groups = plan.groups.iter().map(|group| may_share(f, group));
    steps.short.iter_mut().zip(groups).for_each(|(short, may)| *short &= may);
    if steps.short.iter().filter(|&&short| short).count() < 2 {
        return None;
    }
    let needs = waits(f, plan)?;
    let mut tried: Vec<Vec<Group>> = Vec::new();
    for part in FILLED {
        let mut bundler = Bundler::new(&steps, &needs);
        bundler.limit = (bundler.limit as f64 * part) as i128;
        (0..plan.groups.len()).for_each(|g| bundler.visit(g));
        let groups = bundler.groups(plan)?;
        // With less room the same may be left.
        if tried.contains(&groups) {
            continue;
        }
        tried.push(groups.clone());
        let made = Plan { groups, ..plan.clone() };
        let made = TimedPlan::of(base, (f, &made), with);
        let faster = made.filter(|made| made.seconds() < given.seconds());
        if let Some(found) = faster.and_then(&mut fits) {
            return Some(found);
        }
    }
    None
}

/// Whether a group may be one elementwise kernel.
fn may_share(f: &Function, group: &Group) -> bool {
    let point = |&i: &Inst| {
        matches!(
            f.op(i).def().body,
            Body::Map(_) | Body::View(_) | Body::Source(_) | Body::Indirect(_)
        )
    };
    let sums = |&i: &Inst| f.args(i).iter().any(|&v| is_sent(f, v));
    let members = || group.parts.iter().flatten();
    group.parts.len() == 1 && members().all(point) && !members().any(sums)
}

/// Whether a value is what other ranks sent a part of, as it is or viewed. What adds it up waits for that exchange alone, and
/// should wait for no other.
fn is_sent(f: &Function, v: Value) -> bool {
    match f.def(v) {
        ValueDef::Inst(i, _) if f.op(i) == Op::AllToAll => true,
        ValueDef::Inst(i, _) if matches!(f.op(i).def().body, Body::View(_)) => {
            f.args(i).iter().any(|&a| is_sent(f, a))
        }
        _ => false,
    }
}

/// For each group the groups that it waits for without reading what they compute: those of checkpoint regions. `None`
/// where instructions recur and regions are there too: which instance is meant is not looked for.
fn waits(f: &Function, plan: &Plan) -> Option<Vec<Vec<usize>>> {
    // Nothing else waits.
    if !f.body_insts().iter().any(|&i| f.path(i).is_again()) {
        return Some(vec![Vec::new(); plan.groups.len()]);
    }
    let mut facts = Facts::of(f, true).ok()?;
    plan.inline.iter().for_each(|&i| facts.set_free(i));
    let mut home: SecondaryMap<Value, Option<usize>> = SecondaryMap::new();
    let mut recurs = false;
    let members = |g: &Group| g.parts.iter().flatten().copied().collect::<Vec<_>>();
    for (n, group) in plan.groups.iter().enumerate() {
        for &v in members(group).iter().flat_map(|&i| f.inst_results(i)) {
            recurs |= home[v].replace(n).is_some();
        }
    }
    let of = |group: &Group| {
        let values = members(group).into_iter().flat_map(|i| order(&facts, i));
        values.filter_map(|v| home[v]).collect::<Vec<_>>()
    };
    let found: Vec<Vec<usize>> = plan.groups.iter().map(of).collect();
    (!recurs || found.iter().all(Vec::is_empty)).then_some(found)
}

/// Adds that what may be written over an input waits for all that read the input: where a caller donates the input, the
/// result is in its memory. It may be the result of the last group that reads the input, of the same extents.
fn updated_after_reads(steps: &BundleSteps<'_>, before: &mut [Vec<usize>]) {
    let has_role = |b: &&Buffer, role: Role| steps.buffers[**b].role == role;
    let mut readers: SecondaryMap<Buffer, Vec<usize>> = SecondaryMap::new();
    let mut written: Vec<Vec<Buffer>> = vec![Vec::new(); steps.groups.len()];
    for (g, uses) in steps.groups.iter().enumerate() {
        for uses in uses {
            let inputs = uses.reads.iter().filter(|b| has_role(b, Role::Input));
            inputs.for_each(|&b| readers[b].push(g));
            written[g].extend(uses.writes.iter().filter(|b| has_role(b, Role::Output)));
        }
    }
    for (b, readers) in readers.iter() {
        let Some((&last, others)) = readers.split_last() else { continue };
        let alike = |&w: &Buffer| {
            let (w, b) = (&steps.buffers[w], &steps.buffers[b]);
            w.dims == b.dims && w.dtype == b.dtype
        };
        if written[last].iter().any(alike) {
            before[last].extend(others);
        }
    }
}

/// A temporary: its bytes, and the groups that touch it.
struct Temp {
    bytes: i128,
    writer: usize,
    readers: Vec<usize>,
}

/// Joins groups, one after the other.
struct Bundler<'a> {
    short: &'a [bool],
    temps: Vec<Temp>,
    /// For each group, the temporaries that it reads and those that it writes, by number.
    reads: Vec<Vec<usize>>,
    writes: Vec<Vec<usize>>,
    /// For each group, the groups that it reads from or waits for, and those that read from it or wait for it.
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
    /// The group in whose place each group runs.
    position: Vec<usize>,
    /// Which groups are being moved.
    moving: Vec<bool>,
    /// Live bytes at each position, and the most that there may be where something is added.
    live: Vec<i128>,
    limit: i128,
    /// Kernels of one launch so far, of each launch.
    open: Vec<Vec<usize>>,
}

impl<'a> Bundler<'a> {
    fn new(steps: &'a BundleSteps<'_>, waits: &[Vec<usize>]) -> Bundler<'a> {
        let n = steps.groups.len();
        let (mut reads, mut writes) = (vec![Vec::new(); n], vec![Vec::new(); n]);
        let mut before = waits.to_vec();
        let mut temps: Vec<Temp> = Vec::new();
        let mut number: SecondaryMap<Buffer, Option<usize>> = SecondaryMap::new();
        for (g, uses) in steps.groups.iter().enumerate() {
            for uses in uses {
                for &b in &uses.reads {
                    let Some(t) = number[b] else { continue };
                    before[g].push(temps[t].writer);
                    if !reads[g].contains(&t) {
                        reads[g].push(t);
                        temps[t].readers.push(g);
                    }
                }
                for &b in &uses.writes {
                    let data = &steps.buffers[b];
                    // Outputs take their memory all the time; they are followed for those who read them.
                    let counts = data.role == Role::Temp;
                    let bytes = if counts { bytes(data).unwrap_or(0).into() } else { 0 };
                    number[b] = Some(temps.len());
                    writes[g].push(temps.len());
                    temps.push(Temp { bytes, writer: g, readers: Vec::new() });
                }
            }
        }
        updated_after_reads(steps, &mut before);
        for (g, all) in before.iter_mut().enumerate() {
            all.retain(|&other| other != g);
            all.sort_unstable();
            all.dedup();
        }
        let mut after = vec![Vec::new(); n];
        for (g, all) in before.iter().enumerate() {
            all.iter().for_each(|&other| after[other].push(g));
        }
        let mut changes = vec![0; n + 1];
        for temp in &temps {
            let last = temp.readers.iter().copied().max().unwrap_or(temp.writer);
            changes[temp.writer] += temp.bytes;
            changes[last + 1] -= temp.bytes;
        }
        let live = changes[..n].iter().scan(0, |now, change| {
            *now += change;
            Some(*now)
        });
        let live: Vec<i128> = live.collect();
        let limit = live.iter().copied().max().unwrap_or(0);
        let (position, moving) = ((0..n).collect(), vec![false; n]);
        let (short, open) = (steps.short.as_slice(), Vec::new());
        Bundler { short, temps, reads, writes, before, after, position, moving, live, limit, open }
    }

    /// Joins a group to others before it, or leaves it as one that later groups may join.
    fn visit(&mut self, g: usize) {
        if !self.short[g] {
            return;
        }
        let first = self.open.len().saturating_sub(TRIED);
        let near = |members: &[usize], at: usize| members.len() < MOST && g - at <= FAR;
        // To run earlier delays nobody: kernels that wait for others of the same launch go together into a later one.
        for k in first..self.open.len() {
            let at = self.position[self.open[k][0]];
            if near(&self.open[k], at) && self.is_ready(g, at) && self.moves(&[g], g, at) {
                self.position[g] = at;
                self.open[k].push(g);
                return;
            }
        }
        for k in first..self.open.len() {
            let at = self.position[self.open[k][0]];
            if !near(&self.open[k], at) || !self.is_unread(&self.open[k], g) {
                continue;
            }
            let members = self.open[k].clone();
            if self.moves(&members, at, g) {
                members.iter().for_each(|&m| self.position[m] = g);
                self.open[k].push(g);
                return;
            }
        }
        self.open.push(vec![g]);
    }

    /// Whether all that a group needs is there before a position.
    fn is_ready(&self, g: usize, at: usize) -> bool {
        self.before[g].iter().all(|&other| self.position[other] < at)
    }

    /// Whether no group up to a position needs what these compute.
    fn is_unread(&self, members: &[usize], to: usize) -> bool {
        let mut readers = members.iter().flat_map(|&m| &self.after[m]);
        readers.all(|&r| r != to && self.position[r] > to)
    }

    /// Moves groups from one position to another, if the bytes that are live stay below the limit.
    fn moves(&mut self, groups: &[usize], from: usize, to: usize) -> bool {
        let (low, high) = (from.min(to), from.max(to));
        let touched = groups.iter().flat_map(|&g| self.reads[g].iter().chain(&self.writes[g]));
        // What takes nothing changes nothing.
        let mut touched: Vec<usize> =
            touched.copied().filter(|&t| self.temps[t].bytes != 0).collect();
        touched.sort_unstable();
        touched.dedup();
        groups.iter().for_each(|&g| self.moving[g] = true);
        // How the move changes the bytes that are live, from each position on.
        let mut changes: Vec<(usize, i128)> = Vec::new();
        for temp in touched.into_iter().map(|t| &self.temps[t]) {
            let moved = |g: usize| if self.moving[g] { to } else { self.position[g] };
            let (begin, begins) = (self.position[temp.writer], moved(temp.writer));
            let (mut end, mut ends) = (None, None);
            for &r in &temp.readers {
                end = end.max(Some(self.position[r]));
                ends = ends.max(Some(moved(r)));
            }
            let before = (begin, end.unwrap_or(begin), -temp.bytes);
            let after = (begins, ends.unwrap_or(begins), temp.bytes);
            for (begin, end, bytes) in [before, after] {
                let (begin, end) = (begin.max(low), end.min(high));
                if begin <= end {
                    changes.extend([(begin, bytes), (end + 1, -bytes)]);
                }
            }
        }
        groups.iter().for_each(|&g| self.moving[g] = false);
        changes.sort_unstable_by_key(|&(at, _)| at);
        changes.push((high + 1, 0));
        let mut pieces: Vec<(Range<usize>, i128)> = Vec::new();
        let (mut now, mut since) = (0, low);
        for (at, change) in changes {
            let at = at.min(high + 1);
            if at > since && now != 0 {
                if now > 0 && self.live[since..at].iter().any(|live| live + now > self.limit) {
                    return false;
                }
                pieces.push((since..at, now));
            }
            (now, since) = (now + change, at);
        }
        for (piece, more) in pieces {
            self.live[piece].iter_mut().for_each(|live| *live += more);
        }
        true
    }

    /// The groups of the plan in their order, those that joined as one; `None` where none did.
    fn groups(&self, plan: &Plan) -> Option<Vec<Group>> {
        let mut all: Vec<usize> = (0..plan.groups.len()).collect();
        all.sort_by_key(|&g| (self.position[g], g));
        let mut groups: Vec<(usize, Group)> = Vec::new();
        for g in all {
            let group = &plan.groups[g];
            match groups.last_mut() {
                Some((at, last)) if *at == self.position[g] => {
                    last.parts.extend(group.parts.iter().cloned());
                }
                _ => groups.push((self.position[g], group.clone())),
            }
        }
        (groups.len() < plan.groups.len()).then(|| groups.into_iter().map(|(_, g)| g).collect())
    }
}

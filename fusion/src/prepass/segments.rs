//! Checkpoint segments: the first phase is divided as if each part were a [checkpoint region](super::checkpoint) of the
//! user's own.
//!
//! Later phases compute again what they read of the inside of a segment; what crosses the end of one may be kept. What follows
//! the last end is no region. Segments of a further level divide those of the level before: a
//! segment that is computed again is divided in the same way then, so that less of it is in memory at a time.
//!
//! Segments of equal length are due to Chen et al., *Training deep nets with sublinear memory cost*, 2016.

use super::checkpoint::{has_policies, recomputed_in_scopes};
use crate::plan::segments::CheckpointEnds;
use crate::plan::text::plan_lines;
use adfuse_ir::control::reads;
use adfuse_ir::text::Names;
use adfuse_ir::{
    At, CheckpointPath, CheckpointScope, Diagnostic, Function, Inst, Kind, Phase, ScopeKind, Value,
    ValueDef,
};
use cranelift_entity::{EntitySet, SecondaryMap};

/// A function that is divided into segments.
#[derive(Clone, Debug)]
pub struct SegmentedFunction {
    /// The function. Plans are plans of this one.
    pub function: Function,
    /// The ends of its segments, a list for each level.
    pub choices: Vec<CheckpointEnds>,
}

impl SegmentedFunction {
    /// A function that is one segment.
    pub fn undivided(function: Function) -> SegmentedFunction {
        SegmentedFunction { function, choices: Vec::new() }
    }
}

/// The instructions of the first phase.
fn forward(f: &Function) -> impl DoubleEndedIterator<Item = Inst> + '_ {
    f.body_insts().iter().copied().filter(|&i| f.inst(i).phase == Phase::PRIMAL)
}

/// The instructions of the first phase that its results need, or that have an effect, in their order: segments end with these. Others
/// compute partial derivatives for later phases.
pub(crate) struct Spine<'f> {
    f: &'f Function,
    insts: Vec<Inst>,
    names: Names,
}

impl<'f> Spine<'f> {
    pub(crate) fn of(f: &'f Function) -> Spine<'f> {
        let mut wanted: EntitySet<Value> = EntitySet::new();
        wanted.extend(f.results().iter().copied());
        let mut insts = Vec::new();
        for i in forward(f).rev() {
            if f.is_ordered(i) || f.inst_results(i).iter().any(|&v| wanted.contains(v)) {
                insts.push(i);
                wanted.extend(reads(f, i));
            }
        }
        insts.reverse();
        Spine { f, insts, names: Names::of(f) }
    }

    /// The instruction at which a segment of this name ends, among some.
    fn named<'i>(&self, name: &str, among: &mut impl Iterator<Item = &'i Inst>) -> Option<Inst> {
        let is_named = |&&i: &&Inst| self.name(i).is_some_and(|own| own == name);
        among.find(is_named).copied()
    }

    fn name(&self, i: Inst) -> Option<String> {
        self.f.inst_results(i).first().map(|&v| self.names.get(v))
    }
}

/// The function in which later phases compute again what they read of the inside of segments, which end with these
/// instructions: lists of them for each level, the outermost first.
///
/// # Errors
/// None for verified functions.
pub(crate) fn segmented(
    spine: &Spine<'_>,
    levels: &[Vec<Inst>],
) -> Result<SegmentedFunction, Diagnostic> {
    let f = spine.f;
    let regions = regions(spine, levels);
    let mut scope: SecondaryMap<Value, CheckpointPath> = SecondaryMap::new();
    for i in forward(f) {
        f.inst_results(i).iter().for_each(|&v| scope[v] = regions[i].clone());
        for a in reads(f, i) {
            if let ValueDef::Inst(..) = f.def(a) {
                scope[a] = scope[a].common(&regions[i]);
            }
        }
    }
    f.results().iter().for_each(|&v| scope[v] = CheckpointPath::default());
    let named = |ends: &Vec<Inst>| CheckpointEnds {
        names: ends.iter().filter_map(|&i| spine.name(i)).collect(),
    };
    let function = recomputed_in_scopes(f, scope)?;
    Ok(SegmentedFunction { function, choices: levels.iter().map(named).collect() })
}

/// The regions that instructions of the first phase are in. What computes a partial derivative is in those of the last value that it
/// reads.
fn regions(spine: &Spine<'_>, levels: &[Vec<Inst>]) -> SecondaryMap<Inst, CheckpointPath> {
    let f = spine.f;
    let mut on_spine: EntitySet<Inst> = EntitySet::new();
    on_spine.extend(spine.insts.iter().copied());
    let mut scopes: SecondaryMap<Inst, Vec<CheckpointScope>> = SecondaryMap::new();
    let mut outer: EntitySet<Inst> = EntitySet::new();
    let mut number = 0;
    for ends in levels {
        let mut own: EntitySet<Inst> = EntitySet::new();
        own.extend(ends.iter().copied());
        // What follows the last end within a segment of the level before is no region of this level.
        let mut part: Vec<Inst> = Vec::new();
        for &i in &spine.insts {
            part.push(i);
            if own.contains(i) {
                let scope = CheckpointScope { kind: ScopeKind::Remat, number };
                part.drain(..).for_each(|i| scopes[i].push(scope));
                number += 1;
            } else if outer.contains(i) {
                part.clear();
            }
        }
        outer.extend(ends.iter().copied());
    }
    let mut regions: SecondaryMap<Inst, CheckpointPath> = SecondaryMap::new();
    let mut place: SecondaryMap<Inst, usize> = SecondaryMap::new();
    let first = spine.insts.first();
    for (at, i) in forward(f).enumerate() {
        place[i] = at;
        if on_spine.contains(i) {
            regions[i] = CheckpointPath::of(&scopes[i]);
            continue;
        }
        let makers = reads(f, i).into_iter().filter_map(|v| match f.def(v) {
            ValueDef::Inst(made, _) => Some(made),
            _ => None,
        });
        // Where a partial derivative reads another one, this has the place of what it reads.
        if let Some(last) = makers.max_by_key(|&made| place[made]) {
            (regions[i], place[i]) = (regions[last].clone(), place[last]);
        } else if let Some(&first) = first {
            (regions[i], place[i]) = (CheckpointPath::of(&scopes[first]), 0);
        }
    }
    regions
}

/// How good it is to end a segment at a place: the bytes that cross it, and whether the value before it has no name. Less is better.
type EndWidth = (i128, bool);

/// The places between the instructions of a spine.
pub(crate) struct SegmentPlaces<'s, 'f> {
    spine: &'s Spine<'f>,
    widths: Vec<EndWidth>,
}

impl<'s, 'f> SegmentPlaces<'s, 'f> {
    pub(crate) fn of(spine: &'s Spine<'f>) -> SegmentPlaces<'s, 'f> {
        let Spine { f, insts, .. } = spine;
        let mut last: SecondaryMap<Value, usize> = SecondaryMap::new();
        for (at, &i) in insts.iter().enumerate() {
            reads(f, i).into_iter().for_each(|a| last[a] = at);
        }
        let mut change = vec![0i128; insts.len() + 1];
        for (at, &i) in insts.iter().enumerate() {
            for &v in f.inst_results(i).iter().filter(|&&v| last[v] > at) {
                let size = f.ty(v).bytes().map_or(0, i128::from);
                change[at + 1] += size;
                change[last[v] + 1] -= size;
            }
        }
        let mut bytes = 0;
        let of = |(at, change): (usize, i128)| {
            bytes += change;
            let before = at.checked_sub(1).and_then(|at| f.inst_results(insts[at]).first());
            (bytes, before.is_none_or(|&v| f.name_of(v).is_none()))
        };
        SegmentPlaces { spine, widths: change.into_iter().enumerate().map(of).collect() }
    }

    /// The ends of segments of as many instructions each, at the narrowest places around, those of values with names before others: as many
    /// as each level has for every segment of the level before. `None` where the first phase is too short for that.
    pub(crate) fn equal_ends(&self, counts: &[usize]) -> Option<Vec<Vec<Inst>>> {
        let insts = &self.spine.insts;
        let mut levels = Vec::new();
        let mut outer = vec![0, insts.len()];
        for &count in counts {
            let mut own = Vec::new();
            for part in outer.windows(2) {
                let (from, to) = (part[0], part[1]);
                let places: Vec<usize> =
                    (1..count).map(|k| from + k * (to - from) / count).collect();
                own.extend(narrowest(&self.widths, (from, to), &places)?);
            }
            outer.extend(&own);
            outer.sort_unstable();
            levels.push(own.into_iter().map(|end| insts[end - 1]).collect());
        }
        Some(levels)
    }

    /// The same ends, and one at the end of the first phase: the last segment is a region like the others.
    pub(crate) fn with_last_segment(&self, mut levels: Vec<Vec<Inst>>) -> Vec<Vec<Inst>> {
        levels.first_mut().into_iter().for_each(|ends| ends.extend(self.spine.insts.last()));
        levels
    }
}

/// The narrowest places, each nearer to one of some places between two than to another of these.
fn narrowest(
    widths: &[EndWidth],
    (from, to): (usize, usize),
    near: &[usize],
) -> Option<Vec<usize>> {
    let mut found: Vec<usize> = Vec::new();
    for (k, &at) in near.iter().enumerate() {
        let before = if k > 0 { near[k - 1] } else { from };
        let after = near.get(k + 1).copied().unwrap_or(to);
        let least = found.last().copied().unwrap_or(from) + 1;
        let places = least.max(at - (at - before) / 2)..(at + (after - at) / 2 + 1).min(to);
        found.push(places.min_by_key(|&p| (widths[p], p.abs_diff(at)))?);
    }
    Some(found)
}

/// The function with the segments that the text of a plan lists.
///
/// # Errors
/// For a line that lists what ends no segment, or where the function has checkpoint regions: the error has the place in the text.
pub fn segmented_as(f: &Function, text: &str) -> Result<SegmentedFunction, Diagnostic> {
    let said: Vec<_> = plan_lines(text).filter(|(_, word, _)| *word == "segments").collect();
    if said.is_empty() {
        return Ok(SegmentedFunction::undivided(f.clone()));
    }
    let spine = Spine::of(f);
    let mut levels: Vec<Vec<Inst>> = Vec::new();
    for (place, _, rest) in said {
        let fail = |kind, m: String| Err(Diagnostic::new(At::span(place), kind, m));
        let Some(ends) = CheckpointEnds::parse(rest) else {
            return fail(Kind::Syntax, "expected `segments %value, %value`".into());
        };
        if has_policies(f) {
            let m = "the function has checkpoint regions of its own, so it is not divided".into();
            return fail(Kind::Usage, m);
        }
        let mut ahead = spine.insts.iter();
        let mut level = Vec::new();
        for name in &ends.names {
            let Some(i) = spine.named(name, &mut ahead) else {
                let m = format!(
                    "%{name} is no end of a segment: ends are values that results of the first phase need, each once and in their order"
                );
                return fail(Kind::UnknownName, m);
            };
            level.push(i);
        }
        levels.push(level);
    }
    segmented(&spine, &levels)
}

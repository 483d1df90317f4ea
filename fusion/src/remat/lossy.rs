//! Chooses the values that get a lossy copy, and reports why others get none.

use crate::analysis::facts::Facts;
use crate::memory::engine::{EngineModel, MemoEngine};
use crate::memory::residuals::stored;
use crate::plan::Plan;
use crate::plan::lossy::{Lossy, Narrow, lossy_copies};
use crate::plan::names::value_named;
use crate::plan::options::{Effort, PlanOptions};
use crate::plan::rewrites::Rewrites;
use crate::prepass::lossy::{keeping, unfit};
use crate::remat::inverse::recover_operands;
use crate::search::planner::greedy_point;
use crate::search::point::PlanPoint;
use adfuse_ir::text::Names;
use adfuse_ir::{Diagnostic, Function, Value};
use cranelift_entity::EntitySet;
use hashbrown::HashSet;
use std::cmp::Reverse;
use std::fmt;

/// A function in which values are kept with losses.
#[derive(Clone, Debug)]
pub struct Narrowed {
    /// The function. Plans are plans of this one.
    pub function: Function,
    /// Values that might have a copy and have none: those that were named, in the order given, then
    /// others that the plan keeps for a later phase, in the order in which they were looked at.
    pub left: Vec<UncompressedValue>,
    /// What else was decided before it is planned.
    pub rewrites: Rewrites,
}

/// A value that is kept as it is, or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UncompressedValue {
    /// Its name.
    pub name: String,
    /// Whether it was named, and not only allowed with all others.
    pub named: bool,
    /// Why.
    pub why: NoCopy,
}

/// Why a value has no copy in a narrower type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoCopy {
    /// It is no float of a wider type.
    NotWider,
    /// It has fewer elements than are worth a copy, this many.
    Short {
        /// Its elements.
        elements: i64,
    },
    /// The plan with its copy does not keep that: readers have it without, or the value is there anyway.
    NoCopy,
    /// Plans with the copy leave no fewer bytes to later phases.
    SavesNothing,
    /// Plans with the copy take more at their peak.
    Peak {
        /// By this many bytes.
        more: u64,
    },
    /// It was not tried by itself: others with more elements were.
    Untried,
}

impl fmt::Display for NoCopy {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoCopy::NotWider => to.write_str("it is no wider float"),
            NoCopy::Short { elements } => {
                write!(to, "it has {elements} elements, fewer than {WORTH}")
            }
            NoCopy::NoCopy => to.write_str("no plan would keep the copy"),
            NoCopy::SavesNothing => to.write_str("the copy would save no bytes"),
            NoCopy::Peak { more } => write!(to, "the copy would raise the peak by {more} bytes"),
            NoCopy::Untried => write!(to, "it is not among the {MOST_TRIED} largest"),
        }
    }
}

/// The most values that are tried one by one.
const MOST_TRIED: usize = 16;

/// Elements from which on a value is worth a copy, where nobody names it.
const WORTH: i64 = 64;

/// Has a [prepared](crate::prepare()) function keep values in narrower types for later phases, of those
/// that may be: where the plan of the function keeps a value, and that with copies keeps the copy. Of values
/// that are not named, plans with copies leave fewer bytes to later phases and take no more at their
/// peak. The function is as it was where nothing may be, or nothing pays.
///
/// # Errors
/// As [`plan`](crate::plan()) and those of the engine;
/// [`Kind::UnknownName`](adfuse_ir::Kind::UnknownName) and [`Kind::Usage`](adfuse_ir::Kind::Usage) for
/// named values that do not exist, or that have no copy of that type.
pub fn keep_lossy(
    f: &Function,
    lossy: &Lossy,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<Narrowed, Diagnostic> {
    let named = lossy.named.iter().map(|(name, narrow)| {
        let v = value_named(f, name)?;
        // Refused before anything is planned.
        keeping(f, &[(v, *narrow)]).map(|_| (v, *narrow))
    });
    let named: Vec<(Value, Narrow)> = named.collect::<Result<_, _>>()?;
    if lossy.is_nothing() {
        return Ok(Narrowed {
            function: f.clone(),
            left: Vec::new(),
            rewrites: Rewrites::default(),
        });
    }
    let names = Names::of(f);
    // Plans with and without a copy have most groups in common.
    let engine: &dyn EngineModel = &MemoEngine::new(engine, &options.device);
    // Search changes what is fused, and little of what crosses.
    let effort = options.effort.min(Effort::Default);
    let planner = Planner { options: PlanOptions { effort, ..options.clone() }, engine };
    let before = planner.point(f)?;
    let facts = Facts::of(f, true)?;
    let kept: Vec<Value> = planner.kept(f, &before.plan)?;
    let own = |v: Value| named.iter().rev().find(|(n, _)| *n == v).map(|(_, narrow)| *narrow);
    let mine: Vec<(Value, Narrow)> = kept.iter().filter_map(|&v| Some((v, own(v)?))).collect();
    let (mut others, mut without) = (Vec::new(), Vec::new());
    for &v in kept.iter().filter(|&&v| own(v).is_none()) {
        let Some(narrow) = lossy.every else { break };
        let elements = facts.elements[v];
        match unfit(f, v, narrow) {
            Some(_) => without.push((v, NoCopy::NotWider)),
            None if elements < WORTH => without.push((v, NoCopy::Short { elements })),
            None => others.push((v, narrow)),
        }
    }
    others.sort_by_key(|&(v, _)| (Reverse(facts.elements[v]), v));
    let ChosenCopies { taken, left } = planner.worthwhile(f, before, mine, others)?;
    // Named values that the plan does not keep at all are in neither list.
    let mine = named.iter().filter(|(v, _)| taken.iter().all(|(t, _)| t != v));
    let mine = mine.map(|&(v, _)| (v, true, reason(&left, v)));
    let rest = left.iter().filter(|(v, _)| own(*v).is_none()).chain(&without);
    let all = mine.chain(rest.map(|&(v, why)| (v, false, why)));
    let left =
        all.map(|(v, named, why)| UncompressedValue { name: names.get(v), named, why }).collect();
    Ok(Narrowed { function: keeping(f, &taken)?, left, rewrites: Rewrites::default() })
}

/// A [prepared](crate::prepare()) function whose later phases recover what they may from answers, and that keeps what it
/// may with losses.
///
/// # Errors
/// As [`recover_operands`] and [`keep_lossy`].
pub fn narrow_storage(
    f: &Function,
    lossy: &Lossy,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<Narrowed, Diagnostic> {
    let recovered = recover_operands(f, options, engine)?;
    let kept = keep_lossy(&recovered.function, lossy, options, engine)?;
    let rewrites = Rewrites { inverses: recovered.choices, ..Rewrites::default() };
    Ok(Narrowed { rewrites, ..kept })
}

fn reason(left: &[(Value, NoCopy)], v: Value) -> NoCopy {
    left.iter().find(|(l, _)| *l == v).map_or(NoCopy::NoCopy, |(_, why)| *why)
}

/// The values that have copies, and those that have none.
struct ChosenCopies {
    taken: Vec<(Value, Narrow)>,
    left: Vec<(Value, NoCopy)>,
}

/// Values of which a plan keeps copies, and what that plan takes, if there are any.
type StoredCopies = (Vec<(Value, Narrow)>, Option<PlanPoint>);

/// What plans are made by, to see what pays.
struct Planner<'a> {
    options: PlanOptions,
    engine: &'a dyn EngineModel,
}

impl Planner<'_> {
    fn point(&self, f: &Function) -> Result<PlanPoint, Diagnostic> {
        greedy_point(f, &self.options, self.engine)
    }

    /// What a plan keeps for later phases, results apart.
    fn kept(&self, f: &Function, plan: &Plan) -> Result<Vec<Value>, Diagnostic> {
        let mut facts = Facts::of(f, true)?;
        plan.inline.iter().for_each(|&i| facts.set_free(i));
        let all = stored(&facts, plan).into_iter().filter(|s| s.later);
        Ok(all.map(|s| s.value).collect())
    }

    /// The values of which copies pay: named ones where plans keep the copy, others where the peak is no
    /// higher for it, all together or those that are found one after the other.
    fn worthwhile(
        &self,
        f: &Function,
        before: PlanPoint,
        named: Vec<(Value, Narrow)>,
        others: Vec<(Value, Narrow)>,
    ) -> Result<ChosenCopies, Diagnostic> {
        let (named, with_named) = self.stored(f, named)?;
        let before = with_named.filter(|_| !named.is_empty()).unwrap_or(before);
        let against = |new: &PlanPoint, old: &PlanPoint| match new.peak.checked_sub(old.peak) {
            _ if new.saved >= old.saved => Some(NoCopy::SavesNothing),
            None | Some(0) => None,
            Some(more) => Some(NoCopy::Peak { more }),
        };
        let (all, together) = self.stored(f, named.iter().chain(&others).copied().collect())?;
        let copied = |one: &(Value, Narrow)| all.contains(one);
        let lost = others.iter().filter(|one| !copied(one)).map(|&(v, _)| (v, NoCopy::NoCopy));
        let mut left: Vec<(Value, NoCopy)> = lost.collect();
        if together.is_some_and(|point| against(&point, &before).is_none()) {
            return Ok(ChosenCopies { taken: all, left });
        }
        let (mut taken, mut best) = (named, before);
        for (k, &one) in others.iter().filter(|one| copied(one)).enumerate() {
            if k >= MOST_TRIED {
                left.push((one.0, NoCopy::Untried));
                continue;
            }
            taken.push(one);
            let point = self.point(&keeping(f, &taken)?)?;
            match against(&point, &best) {
                None => best = point,
                Some(why) => {
                    taken.pop();
                    left.push((one.0, why));
                }
            }
        }
        Ok(ChosenCopies { taken, left })
    }

    /// Those of the values whose copies the plan with copies of them all keeps for later phases, and that
    /// plan. What it keeps no copy of is left out, and without it others may be kept no more.
    fn stored(
        &self,
        f: &Function,
        mut wanted: Vec<(Value, Narrow)>,
    ) -> Result<StoredCopies, Diagnostic> {
        let names = Names::of(f);
        while !wanted.is_empty() {
            let g = keeping(f, &wanted)?;
            let point = self.point(&g)?;
            let mut there = EntitySet::<Value>::new();
            there.extend(self.kept(&g, &point.plan)?);
            let names_of_g = Names::of(&g);
            let copies = lossy_copies(&g).into_iter().filter(|c| there.contains(c.copy));
            let kept: HashSet<String> = copies.map(|c| names_of_g.get(c.of)).collect();
            let count = wanted.len();
            wanted.retain(|&(v, _)| kept.contains(&names.get(v)));
            if wanted.len() == count {
                return Ok((wanted, Some(point)));
            }
        }
        Ok((wanted, None))
    }
}

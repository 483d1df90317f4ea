//! The way back over each loop: whether residuals are stacked, or carries kept at checkpoints and steps computed again.
//!
//! It is a rewrite of the prepared function, before planning: what stacks are is then a matter of values like any other,
//! and the number of checkpoints is an attribute. Bits do not depend on it. Without a budget the fastest is taken; for
//! budgets, plans of all candidates are made ([`super::budget_frontier`]).

use super::unbudgeted::plan_for;
use crate::loops::{known_trips, merge_loops, stack_residuals};
use crate::memory::engine::{EngineModel, MemoEngine};
use crate::memory::size::MOST_BYTES;
use crate::plan::blocks::blocks;
use crate::plan::loop_choice::{LoopChoice, plenty_of_checkpoints};
use crate::plan::options::PlanOptions;
use crate::plan::text::plan_lines;
use crate::prepass::inverse::inverted_as;
use crate::prepass::lossy::copied_as;
use crate::prepass::passed;
use crate::prepass::segments::segmented_as;
use crate::search::point::plan_seconds;
use adfuse_ir::attrs::Attr;
use adfuse_ir::control::LoopRoles;
use adfuse_ir::diag::Span;
use adfuse_ir::kernel::SLOT;
use adfuse_ir::{At, Diagnostic, Function, Inst, Kind, Module};

/// A function whose loops have been decided.
#[derive(Clone, Debug)]
pub struct DecidedLoops {
    /// The function.
    pub function: Function,
    /// What was decided for each way back of the function that was given: those of its body in their order, each after
    /// the ones inside of it.
    pub choices: Vec<LoopChoice>,
}

/// The ways back of a function.
pub(super) struct WaysBack {
    all: Vec<WayBack>,
}

pub(super) struct WayBack {
    inst: Inst,
    /// Bytes of its carries, in whole lines.
    state: u64,
    /// How many steps there are, where that is known.
    trips: Option<u64>,
}

/// Decides how the ways back over the loops of a [prepared](crate::prepare()) function get what they need of each step,
/// where memory does not matter: the fastest by the cost model.
///
/// A number of checkpoints that the program gives (the attribute `checkpoints`) stays.
///
/// # Errors
/// As [`plan_for`](crate::plan_for()).
pub fn decide_loops(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<DecidedLoops, Diagnostic> {
    let ways = WaysBack::of(f);
    if ways.all.is_empty() {
        return decided_as(f, &ways, Vec::new());
    }
    ways.fastest(f, options, &MemoEngine::new(engine, &options.device))
}

/// The function that the text of a plan is one of: that with the segments that the text says, whose later phases recover what it says, with copies of the values that the text says are kept with
/// losses, and with its decisions about loops.
///
/// # Errors
/// For lines that say so of what there is not.
pub fn planned_function(f: &Function, text: &str) -> Result<Function, Diagnostic> {
    let segmented = segmented_as(f, text)?.function;
    Ok(decided_in(&copied_as(&inverted_as(&segmented, text)?.0, text)?, text)?.function)
}

/// A function with the decisions about its loops that the text of a plan says.
///
/// # Errors
/// As [`planned_function`].
pub(super) fn decided_in(f: &Function, text: &str) -> Result<DecidedLoops, Diagnostic> {
    decided_as(f, &WaysBack::of(f), loop_choices(f, text)?)
}

/// The decisions about a function's ways back over loops that the text of a plan says, one for each.
///
/// # Errors
/// For a line that says no decision, and for more or fewer lines than there are ways back: the error has the place in the text.
pub fn loop_choices(f: &Function, text: &str) -> Result<Vec<LoopChoice>, Diagnostic> {
    let fail = |place, kind, m: String| Err(Diagnostic::new(At::span(place), kind, m));
    let said: Vec<(Span, &str)> = plan_lines(text)
        .filter(|(_, word, _)| *word == "loop")
        .map(|(place, _, rest)| (place, rest))
        .collect();
    let mut choices = Vec::new();
    for &(place, rest) in &said {
        match LoopChoice::parse(rest) {
            Some(choice) => choices.push(choice),
            None => {
                let m = format!("`{rest}` is no decision about a loop");
                return fail(place, Kind::Syntax, m);
            }
        }
    }
    let (lines, ways) = (said.len(), WaysBack::of(f).all.len());
    if lines == ways {
        return Ok(choices);
    }
    // The first line that is too much, or the plan that has too few.
    let first = text.trim_start();
    let start = text.len() - first.len();
    let first = first.lines().next().unwrap_or("").trim_end();
    let place = said.get(ways).map_or(Span::new(start, start + first.len()), |(place, _)| *place);
    let number = |n: usize, one: &str, more: &str| match n {
        0 => format!("no {one}"),
        1 => format!("1 {one}"),
        n => format!("{n} {more}"),
    };
    let m = format!(
        "the plan has {}, and @{} has {}",
        number(lines, "line `loop`", "lines `loop`"),
        f.name,
        number(ways, "way back over a loop", "ways back over loops")
    );
    fail(place, Kind::Usage, m)
}

/// A function with a choice for each of its ways back.
///
/// # Errors
/// [`Kind::Limit`] where a stack is larger than a tensor may be.
pub(super) fn decided_as(
    f: &Function,
    ways: &WaysBack,
    choices: Vec<LoopChoice>,
) -> Result<DecidedLoops, Diagnostic> {
    let function = match ways.is_empty() {
        true => merged(f)?,
        false => ways.apply(f, &choices)?,
    };
    Ok(DecidedLoops { function, choices })
}

/// The function with its loops merged, where it has any.
fn merged(f: &Function) -> Result<Function, Diagnostic> {
    if blocks(f).next().is_some() { merge_loops(f) } else { Ok(f.clone()) }
}

/// The ways back over the loops of a function, in the order of [`DecidedLoops::choices`].
pub fn ways_back(f: &Function) -> Vec<Inst> {
    WaysBack::of(f).all.iter().map(|way| way.inst).collect()
}

impl WaysBack {
    pub(super) fn of(f: &Function) -> WaysBack {
        let mut found = WaysBack { all: Vec::new() };
        f.body_insts().iter().for_each(|&i| found.visit(f, i));
        found
    }

    fn visit(&mut self, f: &Function, i: Inst) {
        for &r in &f.inst(i).regions {
            f.region(r).insts.iter().for_each(|&j| self.visit(f, j));
        }
        let Some(roles) =
            LoopRoles::of(f.op(i), f.attrs(i), f.args(i).len(), f.inst_results(i).len())
        else {
            return;
        };
        if !roles.returns() {
            return;
        }
        let line = |k: usize| {
            let ty = f.ty(f.args(i)[k]);
            let bytes = ty.elements().and_then(|n| n.checked_mul(ty.dtype.bytes()));
            bytes.map_or(MOST_BYTES, |n| n.next_multiple_of(SLOT))
        };
        let state = roles.carry_args().map(line).fold(0, u64::saturating_add);
        self.all.push(WayBack { inst: i, state, trips: known_trips(f, i) });
    }

    fn apply(&self, f: &Function, choices: &[LoopChoice]) -> Result<Function, Diagnostic> {
        let mut f = f.clone();
        for (way, choice) in self.all.iter().zip(choices) {
            if let LoopChoice::Checkpoints(n) = choice {
                let n = i64::try_from(*n).map_or(MOST_CHECKPOINTS, |n| n.min(MOST_CHECKPOINTS));
                f.set_attr(way.inst, "checkpoints", Attr::Int(n));
            }
        }
        let stacked = |i: Inst| {
            let chosen = self.all.iter().zip(choices).find(|(way, _)| way.inst == i);
            chosen.and_then(|(_, choice)| choice.goal())
        };
        let merged = merge_loops(&stack_residuals(&f, &stacked)?)?;
        let f = passed(&Module::default(), merged)?;
        // A stack of all steps may be more than a tensor may have.
        let excess = |i: &Inst| f.inst_results(*i).iter().find_map(|&v| f.ty(v).excess());
        match f.body_insts().iter().find_map(excess) {
            None => Ok(f),
            Some(m) => {
                let at = At { func: Some(f.name.clone()), ..At::default() };
                Err(Diagnostic::new(at, Kind::Limit, m))
            }
        }
    }

    /// What a way back has where memory does not matter: what the program says, or `other`.
    fn choice(&self, f: &Function, way: &WayBack, other: LoopChoice) -> LoopChoice {
        match f.attrs(way.inst).int("checkpoints") {
            0 => match (other, way.trips) {
                (LoopChoice::Stack | LoopChoice::StackLeast, None) => {
                    LoopChoice::Checkpoints(way.plenty())
                }
                (LoopChoice::Checkpoints(n), Some(trips)) => {
                    LoopChoice::Checkpoints(n.clamp(1, trips.max(1)))
                }
                (other, _) => other,
            },
            n => LoopChoice::Checkpoints(n.unsigned_abs()),
        }
    }

    fn all_of(&self, f: &Function, of: impl Fn(&WayBack) -> LoopChoice) -> Vec<LoopChoice> {
        self.all.iter().map(|way| self.choice(f, way, of(way))).collect()
    }

    /// Without a budget: the faster of stacks and of a state for each step, by the cost model.
    fn fastest(
        &self,
        f: &Function,
        options: &PlanOptions,
        engine: &dyn EngineModel,
    ) -> Result<DecidedLoops, Diagnostic> {
        let stacks = self.all_of(f, |_| LoopChoice::Stack);
        let states = self.all_of(f, |way| LoopChoice::Checkpoints(way.plenty()));
        let least = self.all_of(f, |_| LoopChoice::StackLeast);
        let mut candidates = vec![stacks, least, states];
        candidates.dedup();
        let planned = that_fit(candidates, |choices| {
            let decided = decided_as(f, self, choices)?;
            let plan = plan_for(&decided.function, options, engine)?;
            let seconds = plan_seconds(&decided.function, &plan, &options.device, engine)?;
            Ok((seconds, decided))
        })?;
        let best = planned.into_iter().min_by(|(a, _), (b, _)| a.total_cmp(b));
        Ok(best.map_or_else(|| undecided(f), |(_, decided)| decided))
    }

    /// All stacked, all stacked in the fewest bytes, none stacked, and those in between: one way back after the other
    /// has a checkpoint, that of the largest carries first. Last, plenty of checkpoints for all.
    pub(super) fn candidates(&self, f: &Function) -> Vec<Vec<LoopChoice>> {
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.sort_by_key(|&k| {
            std::cmp::Reverse(self.all[k].state.saturating_mul(self.all[k].plenty()))
        });
        let steps = order.len().min(MOST_CANDIDATES);
        let mut found: Vec<Vec<LoopChoice>> = vec![
            self.all_of(f, |way| way.or_one(LoopChoice::Stack)),
            self.all_of(f, |way| way.or_one(LoopChoice::StackLeast)),
        ];
        for n in 1..=steps {
            let count = if n == steps { order.len() } else { n };
            let of = |(k, way): (usize, &WayBack)| {
                let stacked = !order[..count].contains(&k);
                let wanted = if stacked { LoopChoice::Stack } else { LoopChoice::Checkpoints(1) };
                self.choice(f, way, way.or_one(wanted))
            };
            found.push(self.all.iter().enumerate().map(of).collect());
        }
        found.push(self.all_of(f, |way| LoopChoice::Checkpoints(way.plenty())));
        let mut known: Vec<Vec<LoopChoice>> = Vec::new();
        found.retain(|choices| {
            let new = !known.contains(choices);
            known.extend(new.then(|| choices.clone()));
            new
        });
        found
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Choices with as many more checkpoints as fit these bytes, where the program does not say how many. Ways back run one after
    /// the other, so each may use all of them.
    pub(super) fn with_more(
        &self,
        f: &Function,
        choices: &[LoopChoice],
        room: u64,
    ) -> Vec<LoopChoice> {
        let more = |(way, choice): (&WayBack, &LoopChoice)| match *choice {
            LoopChoice::Checkpoints(n) if way.is_open(f) => {
                let fit = n.saturating_add(room / way.checkpoint());
                LoopChoice::Checkpoints(fit.min(way.trips.unwrap_or(UNKNOWN_TRIPS).max(1)))
            }
            choice => choice,
        };
        self.all.iter().zip(choices).map(more).collect()
    }

    /// Choices with other numbers of checkpoints, where the program does not say how many: for half as many bytes more each
    /// time, up to plenty. Ways back run one after the other, so each may have as many as there is room for.
    pub(super) fn levels(&self, f: &Function, choices: &[LoopChoice]) -> Vec<Vec<LoopChoice>> {
        let open = |(way, choice): &(&WayBack, &LoopChoice)| {
            way.is_open(f) && matches!(choice, LoopChoice::Checkpoints(_))
        };
        let with_checkpoints = || self.all.iter().zip(choices).filter(open).map(|(way, _)| way);
        let Some(least) = with_checkpoints().map(WayBack::checkpoint).min() else {
            return Vec::new();
        };
        let all = |way: &WayBack| way.checkpoint().saturating_mul(way.plenty());
        let plenty = with_checkpoints().map(all).max();
        let mut levels: Vec<Vec<LoopChoice>> = Vec::new();
        let mut bytes = least;
        while bytes < plenty.unwrap_or(least) && levels.len() < MOST_LEVELS {
            bytes = bytes.saturating_add(bytes.div_ceil(2));
            let of = |(way, choice): (&WayBack, &LoopChoice)| match open(&(way, choice)) {
                true => LoopChoice::Checkpoints((bytes / way.checkpoint()).clamp(1, way.plenty())),
                false => *choice,
            };
            let choices: Vec<LoopChoice> = self.all.iter().zip(choices).map(of).collect();
            if levels.last() != Some(&choices) {
                levels.push(choices);
            }
        }
        levels
    }
}

/// What `plan` makes of each candidate that is not too large.
///
/// # Errors
/// Where all candidates are too large; with anything else that is wrong with one.
pub(super) fn that_fit<T>(
    candidates: Vec<Vec<LoopChoice>>,
    mut plan: impl FnMut(Vec<LoopChoice>) -> Result<T, Diagnostic>,
) -> Result<Vec<T>, Diagnostic> {
    let (mut fit, mut refused) = (Vec::new(), None);
    for choices in candidates {
        match plan(choices) {
            Ok(made) => fit.push(made),
            Err(d) if d.kind == Kind::Limit => {
                refused.get_or_insert(d);
            }
            Err(d) => return Err(d),
        }
    }
    match refused.filter(|_| fit.is_empty()) {
        Some(d) => Err(d),
        None => Ok(fit),
    }
}

fn undecided(f: &Function) -> DecidedLoops {
    DecidedLoops { function: f.clone(), choices: Vec::new() }
}

/// The most checkpoints that an instruction can say.
const MOST_CHECKPOINTS: i64 = i32::MAX as i64;

/// Bytes that a checkpoint has beside its carries: which step it belongs to.
const NUMBER: u64 = 8;

/// The most checkpoints of a loop of unknown length.
const UNKNOWN_TRIPS: u64 = 1 << 20;

/// The most numbers of checkpoints that are tried with the choices of a candidate.
const MOST_LEVELS: usize = 40;

/// The most candidates between all stacks and none.
const MOST_CANDIDATES: usize = 4;

impl WayBack {
    /// A choice, and one checkpoint where nothing can be stacked: there are as many then as there is room for.
    fn or_one(&self, choice: LoopChoice) -> LoopChoice {
        if self.trips.is_some() { choice } else { LoopChoice::Checkpoints(1) }
    }

    /// Whether the program leaves open how many checkpoints there are.
    fn is_open(&self, f: &Function) -> bool {
        f.attrs(self.inst).int("checkpoints") == 0
    }

    /// Bytes of a checkpoint.
    fn checkpoint(&self) -> u64 {
        self.state.saturating_add(NUMBER)
    }

    /// Checkpoints where there is no budget.
    fn plenty(&self) -> u64 {
        plenty_of_checkpoints(self.state, self.trips)
    }
}

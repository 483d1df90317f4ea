//! Large-neighborhood search: consecutive groups of a large function, searched as a function of their own.
//!
//! The values that a neighborhood reads become parameters of that function, and the values that others read become its
//! results. An improved plan replaces the neighborhood if the whole plan becomes faster.

use super::policy::Policy;
use super::space::PlanSpace;
use super::state::PlanState;
use super::walk::{SearchOptions, SearchResult, walk};
use crate::plan::Plan;
use adfuse_ir::control::reads;
use adfuse_ir::rewrite::Copier;
use adfuse_ir::{Builder, Function, Inst, Value};
use cranelift_entity::{EntitySet, SecondaryMap};
use std::ops::Range;

/// About the number of instructions of a neighborhood: members, not inlined ones.
const SIZE: usize = 40;

/// The fewest moves that are worth trying in a window.
const FEWEST: u32 = 40;

/// Searches through windows, each half of which is in the next one too.
pub(super) fn through_windows(
    space: &PlanSpace<'_>,
    found: &mut SearchResult,
    wanted: &SearchOptions,
    policy: &mut dyn Policy,
) {
    let mut state = space.state(&found.plan);
    let count = 2 * space.facts.f.body_insts().len() / SIZE + 1;
    let steps = (wanted.steps / count as u32).max(FEWEST);
    let mut from = 0;
    let mut seed = wanted.seed;
    while from < state.groups.len() && found.steps < wanted.steps {
        let range = reach(&state, from);
        let groups = state.groups.len();
        if let Some(window) = Neighborhood::of(space, &state, range.clone()) {
            seed = seed.wrapping_add(1);
            let steps = steps.min(wanted.steps - found.steps);
            let within = SearchOptions { seed, steps, budget: None };
            let (tried, next) = window.searched(space, &state, &within, policy);
            found.steps += tried;
            if let Some(next) = next
                && space.is_new_best(found, &next, wanted.budget)
            {
                state = next;
            }
        }
        // The window may have other groups than before.
        let end = range.end + state.groups.len() - groups;
        from += ((end - from) / 2).max(1);
    }
}

/// Groups from one on, with about as many instructions as a window has.
fn reach(state: &PlanState, from: usize) -> Range<usize> {
    let mut end = from;
    let mut members = 0;
    while end < state.groups.len() && (end < from + 2 || members < SIZE) {
        members += state.groups[end].parts.iter().map(Vec::len).sum::<usize>();
        end += 1;
    }
    from..end
}

struct Neighborhood<'f> {
    of: &'f Function,
    f: Function,
    plan: Plan,
    range: Range<usize>,
    /// The instructions of the whole that those of the window are.
    whole: SecondaryMap<Inst, Option<Inst>>,
}

impl<'f> Neighborhood<'f> {
    /// The groups of a range as a function; `None` where one of their instructions recurs.
    fn of(
        space: &PlanSpace<'f>,
        state: &PlanState,
        range: Range<usize>,
    ) -> Option<Neighborhood<'f>> {
        let f = space.facts.f;
        let groups = &state.groups[range.clone()];
        let mut members = EntitySet::<Inst>::new();
        for &i in groups.iter().flat_map(|g| &g.parts).flatten() {
            if !members.insert(i) {
                return None;
            }
        }
        // Instructions that are inlined in them, and the constants that they read.
        let (mut copied, mut stack) = (members.clone(), Vec::new());
        let mut outside = EntitySet::<Value>::new();
        stack.extend(groups.iter().flat_map(|g| &g.parts).flatten().copied());
        while let Some(i) = stack.pop() {
            for a in reads(f, i) {
                match space.maker(a) {
                    Some(j) if members.contains(j) => {}
                    Some(j) if state.inlined[j] || space.is_constant(a) => {
                        if copied.insert(j) {
                            stack.push(j);
                        }
                    }
                    None if f.literal(a).is_some() => {}
                    _ => {
                        outside.insert(a);
                    }
                }
            }
        }
        let (mut b, mut copier) = (Builder::new(f.name.clone()), Copier::new(f));
        let values = f.params().iter().copied();
        let computed = f.body_insts().iter().flat_map(|&i| f.inst_results(i)).copied();
        for v in values.chain(computed).filter(|&v| outside.contains(v)) {
            let new = b.param(f.ty(v).clone(), f.name_of(v));
            copier.set(v, new);
        }
        let mut whole = SecondaryMap::new();
        let mut new: SecondaryMap<Inst, Option<Inst>> = SecondaryMap::new();
        for &i in f.body_insts().iter().filter(|&&i| copied.contains(i)) {
            let copy = copier.inst(&mut b, i);
            (whole[copy], new[i]) = (Some(i), Some(copy));
        }
        let mut needed = space.results.clone();
        let others = state.groups[..range.start].iter().chain(&state.groups[range.end..]);
        for &i in others.flat_map(|g| &g.parts).flatten() {
            needed.extend(space.reads(state, i));
        }
        let left = f.body_insts().iter().filter(|&&i| members.contains(i));
        let left = left.flat_map(|&i| f.inst_results(i)).copied().filter(|&v| needed.contains(v));
        let results: Vec<Value> = left.filter_map(|v| copier.find(v)).collect();
        b.set_results(&results);
        let made = b.finish().ok()?;
        let mut groups = groups.to_vec();
        for i in groups.iter_mut().flat_map(|g| &mut g.parts).flatten() {
            *i = new[*i]?;
        }
        let inline = f.body_insts().iter().filter(|&&i| state.inlined[i]);
        let forms = f.body_insts().iter().flat_map(|&i| f.inst_results(i)).copied();
        let forms = forms.filter_map(|v| Some((copier.find(v)?, state.forms[v])));
        let plan = Plan {
            inline: inline.filter_map(|&i| new[i]).collect(),
            groups,
            storage: forms.collect(),
            ..space.head.clone()
        };
        Some(Neighborhood { of: f, f: made, plan, range, whole })
    }

    /// The whole with a better plan of the window, if one is found, and how many moves that took.
    fn searched(
        &self,
        space: &PlanSpace<'_>,
        state: &PlanState,
        wanted: &SearchOptions,
        policy: &mut dyn Policy,
    ) -> (u32, Option<PlanState>) {
        let inner = PlanSpace::new(&self.f, space.options, space.engine, space.measure);
        let Ok(inner) = inner else { return (0, None) };
        let inner = inner.laid_out(space.head.layout);
        // Less is known of what is read from outside, so not every form is one here.
        let mut plan = self.plan.clone();
        plan.storage.retain(|&(v, form)| inner.ranges.keeps(&inner.facts, v, form));
        let before = inner.state(&plan);
        let plan = inner.plan(&before);
        let began = inner.price_at(&plan, space.options.effort);
        let Some(began) = began else { return (0, None) };
        let mut found = SearchResult { plan, price: began, began, steps: 0 };
        walk(&inner, &mut found, wanted, policy);
        let better = found.price != began;
        (found.steps, better.then(|| self.back(state, &before, &inner.state(&found.plan))))
    }

    /// The state of the whole with another of the window, which had one `before`.
    fn back(&self, whole: &PlanState, before: &PlanState, window: &PlanState) -> PlanState {
        let mut next = whole.clone();
        let mut groups = window.groups.clone();
        for part in groups.iter_mut().flat_map(|g| &mut g.parts) {
            *part = part.iter().filter_map(|&i| self.whole[i]).collect();
        }
        next.groups.splice(self.range.clone(), groups);
        for &i in self.f.body_insts() {
            let Some(old) = self.whole[i] else { continue };
            next.inlined[old] = window.inlined[i];
            // How results are stored is no question of the window.
            let v = self.f.inst_results(i)[0];
            if !self.f.results().contains(&v) && window.forms[v] != before.forms[v] {
                next.forms[self.of.inst_results(old)[0]] = window.forms[v];
            }
        }
        next
    }
}

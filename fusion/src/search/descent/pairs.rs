//! Pairs: a change that gains nothing by itself, and a change of its group that gains by it.
//!
//! What a group computes at fewer points than its others keeps it from other groups, though it would take next to nothing
//! to compute it at each point. And a value that is spread over short rows keeps loops short wherever it is read, unless
//! another group stores it spread, so that its readers go through all their arrays as one line.

use super::Descent;
use super::allowance::PricedFor;
use super::pricer::Added;
use super::table::{GroupId, SingleChange};
use crate::analysis::class::InstClass;
use crate::plan::Group;
use adfuse_ir::op::Body;
use adfuse_ir::{Inst, Value, ValueDef};
use smallvec::{SmallVec, smallvec};
use std::rc::Rc;

/// The most values of a group that are inlined so that it may join another, and the most spread values that are kept so that
/// it may be divided.
const MOST_FIRST: usize = 4;

/// Innermost extents below this are short: a line costs as much as some dozens of elements.
const SHORT: i64 = 64;

impl Descent<'_, '_> {
    /// Joins a group with another, where what it computes at fewer points than the others of its members, of values from outside
    /// alone, is inlined; whether that gains.
    pub(super) fn joined_without_preamble(&mut self, g: GroupId) -> bool {
        if self.kind(g).is_none() || self.is_settled(g) {
            return false;
        }
        let preamble = self.preamble(g);
        if preamble.is_empty() || preamble.len() > MOST_FIRST {
            return false;
        }
        let first = |descent: &Self, i: Inst| descent.inlined(i).into_iter().next();
        self.best_after(PricedFor::Change, &preamble, first, |descent| {
            let table = &descent.table;
            let made = table.rows[g].group.parts.iter().flatten();
            let made = made.flat_map(|&i| table.facts.f.inst_results(i));
            let mut after: SmallVec<[GroupId; 8]> =
                made.flat_map(|&v| table.readers[v].iter().copied()).collect();
            after.sort_unstable();
            after.dedup();
            let before = descent.near(g).into_iter().flat_map(|other| descent.joined(other, g));
            before.chain(after.into_iter().flat_map(|other| descent.joined(g, other))).collect()
        })
    }

    /// Members at fewer points than others, which read nothing that the group computes but each other.
    fn preamble(&self, g: GroupId) -> SmallVec<[Inst; 8]> {
        let table = &self.table;
        let facts = &table.facts;
        let [members] = table.rows[g].group.parts.as_slice() else { return SmallVec::new() };
        let size = |i: Inst| facts.elements[facts.f.inst_results(i)[0]];
        let most = members.iter().map(|&i| size(i)).max().unwrap_or(0);
        let mut found: SmallVec<[Inst; 8]> = SmallVec::new();
        for &i in members.iter().filter(|&&i| size(i) < most && facts.class[i] == InstClass::Point)
        {
            let v = facts.f.inst_results(i)[0];
            let outside = |&a: &Value| match facts.f.def(a) {
                ValueDef::Inst(j, _) => table.home[a] != Some(g) || found.contains(&j),
                _ => true,
            };
            if table.buffer(v).is_none() && table.reads(i).iter().all(outside) {
                found.push(i);
            }
        }
        found
    }

    /// Divides a group where a value that is spread over short rows is stored spread by the first piece; whether that gains.
    pub(super) fn divided_behind_spread(&mut self, g: GroupId) -> bool {
        if !self.may_divide(g) {
            return false;
        }
        self.spread_within(g).into_iter().any(|i| {
            let keep = |descent: &Self, i: Inst| descent.kept_in(i, g);
            let divide = |descent: &Self| descent.split_behind(g, i).into_iter().collect();
            self.best_after(PricedFor::Division, &[i], keep, divide)
        })
    }

    /// Inlined values that spread what the group computes over short rows of others of its members.
    fn spread_within(&self, g: GroupId) -> SmallVec<[Inst; 4]> {
        let table = &self.table;
        let mut found: SmallVec<[Inst; 4]> = SmallVec::new();
        for &m in table.rows[g].group.parts.iter().flatten() {
            for &v in table.facts.f.inst_results(m) {
                let users = table.facts.users[v].iter().copied();
                found.extend(users.filter(|&u| {
                    table.facts.class[u] == InstClass::Free && self.is_short_spread(u)
                }));
            }
        }
        found.sort_unstable();
        found.dedup();
        found.truncate(MOST_FIRST);
        found
    }

    /// Whether a view repeats a value of more than one element along short rows.
    pub(super) fn is_short_spread(&self, i: Inst) -> bool {
        let facts = &self.table.facts;
        let v = facts.f.inst_results(i)[0];
        let short = matches!(facts.dims[v].as_slice(), [.., _, last] if (2..SHORT).contains(last));
        short
            && matches!(facts.f.op(i).def().body, Body::View(_))
            && facts.is_aligned(i)
            && facts.f.args(i).iter().all(|&a| (2..facts.elements[v]).contains(&facts.elements[a]))
    }

    /// An inlined instruction computed by a group.
    fn kept_in(&self, i: Inst, g: GroupId) -> Option<SingleChange> {
        let row = &self.table.rows[g];
        let [members] = row.group.parts.as_slice() else { return None };
        let members = members.iter().copied().chain([i]).collect();
        let group = Group { parts: vec![self.in_order(members)] };
        let replaced = SmallVec::from_iter([(g, Rc::new(group), row.place)]);
        Some(SingleChange { replaced, new: SmallVec::new(), inlined: smallvec![(i, false)] })
    }

    /// The last group before another one that goes over the extents of an instruction.
    pub(super) fn before_over_same_axes(&self, i: Inst, first: GroupId) -> Option<GroupId> {
        let table = &self.table;
        let dims = &table.facts.dims[table.facts.f.inst_results(i)[0]];
        let place = table.rows[first].place;
        let same = |&j: &Inst| table.facts.dims[table.facts.f.inst_results(j)[0]] == *dims;
        let earlier = table.rows.iter().filter(|(g, row)| {
            row.place < place && self.kind(*g).is_some() && row.group.parts[0].iter().any(same)
        });
        earlier.max_by_key(|(_, row)| row.place).map(|(g, _)| g)
    }

    /// Makes a change of each of some instructions and then the best of others, where all together gain; whether they do.
    fn best_after(
        &mut self,
        priced_for: PricedFor,
        insts: &[Inst],
        first: impl Fn(&Self, Inst) -> Option<SingleChange>,
        next: impl Fn(&Self) -> Vec<SingleChange>,
    ) -> bool {
        if !self.allowance.is_left(priced_for) {
            return false;
        }
        let from = self.pricer.members();
        let mut sum = Added::default();
        let mut made = Vec::new();
        for &i in insts {
            let change = first(self, i);
            let added = change.as_ref().and_then(|change| self.tried(change));
            let Some((change, added)) = change.zip(added) else { break };
            sum = sum.and(&added);
            // What costs more than a launch by itself is no preparation.
            if sum.seconds >= self.pricer.device().launch_s {
                break;
            }
            let Some(step) = self.step(change) else { break };
            made.push(step);
        }
        self.allowance.spend(priced_for, self.pricer.members() - from);
        let is_found = made.len() == insts.len() && {
            let changes = next(self);
            self.best_beside(priced_for, &sum, changes)
        };
        for step in made.into_iter().rev() {
            match is_found {
                true => self.settle(&step),
                false => self.take_back(step),
            }
        }
        is_found
    }
}

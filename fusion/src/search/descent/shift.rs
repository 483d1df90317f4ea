//! Shifts: a fold that leaves its group for another one that reads what it folds.
//!
//! A fold decides in which order its group goes through memory. Greedy grouping computes it where its operand is computed,
//! though another group reads the operand anyway, in the order that the fold wants.

use super::allowance::PricedFor;
use super::table::{GroupId, SingleChange};
use super::{Descent, NEAR};
use crate::analysis::class::InstClass;
use crate::plan::Group;
use adfuse_ir::Inst;
use smallvec::SmallVec;
use std::rc::Rc;

impl Descent<'_, '_> {
    /// Moves the folds of a group to other groups, each to the best, where that is better than nothing; whether one was
    /// moved.
    pub(super) fn shifted(&mut self, g: GroupId) -> bool {
        let [members] = self.table.rows[g].group.parts.as_slice() else { return false };
        let facts = &self.table.facts;
        let folds = |i: &&Inst| matches!(facts.class[**i], InstClass::Reduce(_));
        let folds: SmallVec<[Inst; 4]> = members.iter().filter(folds).copied().collect();
        let mut changed = false;
        for i in folds {
            let changes = self.shifts(g, i);
            changed |= self.best(PricedFor::Change, changes);
        }
        changed
    }

    /// Ways to compute a fold in another group than its own, where nothing else of that group reads it.
    fn shifts(&self, g: GroupId, i: Inst) -> Vec<SingleChange> {
        let table = &self.table;
        let row = &table.rows[g];
        let [members] = row.group.parts.as_slice() else { return Vec::new() };
        let made = table.facts.f.inst_results(i);
        let reads = |m: &Inst| table.reads(*m).iter().any(|v| made.contains(v));
        if self.kind(g).is_none() || members.len() < 2 || members.iter().any(reads) {
            return Vec::new();
        }
        let mut others: SmallVec<[GroupId; 8]> = SmallVec::new();
        for &v in table.reads(i).iter().filter(|&&v| table.facts.elements[v] > 1) {
            others.extend(table.readers[v].iter().copied().chain(table.home[v]));
        }
        let settled = self.is_settled(g);
        others.retain(|r| *r != g && self.kind(*r).is_some() && !(settled && self.is_settled(*r)));
        others.sort_unstable_by_key(|r| (table.rows[*r].place.abs_diff(row.place), *r));
        others.dedup();
        let rest: Vec<Inst> = members.iter().copied().filter(|&m| m != i).collect();
        let change = |r: GroupId| {
            let other = &table.rows[r];
            let mut more: Vec<Inst> = other.group.parts.iter().flatten().copied().collect();
            more.push(i);
            let of = |members: Vec<Inst>| Rc::new(Group { parts: vec![members] });
            let replaced =
                [(g, of(rest.clone()), row.place), (r, of(self.in_order(more)), other.place)];
            SingleChange { replaced: replaced.into(), ..SingleChange::default() }
        };
        others.into_iter().take(NEAR).map(change).collect()
    }
}

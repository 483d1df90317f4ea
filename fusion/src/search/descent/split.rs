//! Splits: one group as two, the inverse of joining two groups.
//!
//! What is greedy about a group is often one member too many: a fold whose way through memory all others then take, a
//! value that each point computes again. So a group is divided at each of its members: into what the member needs and
//! the rest, and into what needs the member and the rest. Both halves run where the group ran, one after the other.

use super::Descent;
use super::table::{GroupId, SingleChange};
use crate::analysis::class::{InstClass, PartKind};
use crate::plan::Group;
use adfuse_ir::Inst;
use smallvec::SmallVec;

/// The most members of a group that is divided.
const MOST_MEMBERS: usize = 64;

/// The most ways to divide a group that are priced.
const MOST_SPLITS: usize = 24;

/// Members of a group, a bit for each.
type MemberSet = u64;

impl Descent<'_, '_> {
    /// Divides a group into two in the best of ways, if that is better than none; whether it is.
    pub(super) fn divided(&mut self, g: GroupId) -> bool {
        if self.is_settled(g) || self.is_half_spent() {
            return false;
        }
        let changes = self.splits(g);
        self.best(changes)
    }

    /// A group as two.
    fn splits(&self, g: GroupId) -> Vec<SingleChange> {
        let table = &self.table;
        let row = &table.rows[g];
        let (Some(kind), [members]) = (self.kind(g), row.group.parts.as_slice()) else {
            return Vec::new();
        };
        let count = members.len();
        let later = table.rows.values().filter(|other| !other.group.parts.is_empty());
        let next = later.map(|other| other.place).filter(|&place| place > row.place).min();
        let place = match next {
            Some(next) => row.place + (next - row.place) / 2,
            None => row.place + super::table::STEP,
        };
        if !(2..=MOST_MEMBERS).contains(&count) || place == row.place {
            return Vec::new();
        }
        let whole = MemberSet::MAX >> (MOST_MEMBERS - count);
        let change = |late: MemberSet| {
            let side = |late_side: bool| {
                let there = |k: &usize| (late >> k & 1 == 1) == late_side;
                let side: Vec<Inst> = (0..count).filter(there).map(|k| members[k]).collect();
                Group { parts: vec![side] }
            };
            // A contraction begins its part, which stays one.
            let contracts = matches!(kind, PartKind::Contract(_)) && late & 1 == 1;
            (!contracts).then(|| SingleChange {
                replaced: SmallVec::from_iter([(g, side(false), row.place)]),
                new: Some((side(true), place)),
                inlined: None,
            })
        };
        let sets =
            self.later_halves(members).into_iter().filter(|&late| late != 0 && late != whole);
        sets.take(MOST_SPLITS).filter_map(change).collect()
    }

    /// The halves of a group that may run after the rest of it, those at folds and scans first.
    fn later_halves(&self, members: &[Inst]) -> Vec<MemberSet> {
        let facts = &self.table.facts;
        let results = |i: Inst| facts.f.inst_results(i);
        let count = members.len();
        // What each member needs, itself included; members are in an order in which they can run.
        let mut needs: Vec<MemberSet> = Vec::with_capacity(count);
        for (k, &i) in members.iter().enumerate() {
            let read = |&(j, _): &(usize, &MemberSet)| {
                let made = results(members[j]);
                self.table.reads(i).iter().any(|v| made.contains(v))
            };
            let under = needs.iter().enumerate().filter(read).map(|(_, &set)| set);
            let all = under.fold(1 << k, |all, set| all | set);
            needs.push(all);
        }
        let whole = MemberSet::MAX >> (MOST_MEMBERS - count);
        let folds =
            |k: usize| matches!(facts.class[members[k]], InstClass::Reduce(_) | InstClass::Scan(_));
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|&k| !folds(k));
        let mut found: Vec<MemberSet> = Vec::new();
        for k in order {
            let depends = |j: &usize| needs[*j] >> k & 1 == 1;
            let after = (0..count).filter(depends).fold(0, |all, j| all | 1 << j);
            for late in [whole & !needs[k], after] {
                if !found.contains(&late) {
                    found.push(late);
                }
            }
        }
        found
    }
}

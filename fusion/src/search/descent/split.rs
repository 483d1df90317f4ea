//! Splits: one group as several, the inverse of joining two groups.
//!
//! Greedy grouping often puts one member too many into a group: a fold whose order through memory all other members must
//! then follow, or a value that each point computes again. So a group is divided where a fold's result is spread again,
//! into all pieces at once and into two; and at each of its members, into what the member needs and the rest, or what
//! needs the member and the rest. The pieces run where the group ran, one after the other.

use super::Descent;
use super::allowance::PricedFor;
use super::table::{GroupId, STEP, SingleChange};
use crate::analysis::class::{InstClass, PartKind};
use crate::analysis::facts::space;
use crate::plan::Group;
use adfuse_ir::{Inst, Value};
use smallvec::SmallVec;
use std::rc::Rc;

/// The most members of a group that is divided.
const MOST_MEMBERS: usize = 64;

/// The most ways to divide a group that are priced for where they divide it, and of the others those that leave the
/// fewest bytes from one piece to the other.
const MOST_SPLITS: usize = 16;
const MOST_CHEAP: usize = 4;

/// Members of a group, a bit for each.
type MemberSet = u64;

/// All of some members.
fn whole(members: &[Inst]) -> MemberSet {
    MemberSet::MAX >> (MOST_MEMBERS - members.len())
}

impl Descent<'_, '_> {
    /// Divides a group in the best of ways, if that is better than none; whether it is.
    pub(super) fn divided(&mut self, g: GroupId) -> bool {
        let splits = if self.may_divide(g) { self.splits(g) } else { Vec::new() };
        self.best(PricedFor::Division, splits)
    }

    /// Whether dividing a group may be worth it, and there is still time for it.
    pub(super) fn may_divide(&self, g: GroupId) -> bool {
        let row = &self.table.rows[g];
        self.allowance.is_left(PricedFor::Division)
            && !self.is_settled(g)
            && self.worth.may_divide(row)
    }

    /// Ways to divide a group.
    fn splits(&self, g: GroupId) -> Vec<SingleChange> {
        let Some(members) = self.divisible(g) else { return Vec::new() };
        let mut all = self.divisions(members);
        let others = all.split_off(MOST_SPLITS.min(all.len()));
        let cheapest = others.iter().map(|pieces| (self.left_anew(members, pieces), pieces));
        let mut cheapest: Vec<_> = cheapest.collect();
        cheapest.sort_by_key(|(bytes, _)| *bytes);
        all.extend(cheapest.into_iter().take(MOST_CHEAP).map(|(_, pieces)| pieces.clone()));
        all.into_iter().filter_map(|pieces| self.in_pieces(g, &pieces)).collect()
    }

    /// A group divided into what a member needs, the member itself included, and the rest.
    pub(super) fn split_behind(&self, g: GroupId, member: Inst) -> Option<SingleChange> {
        let members = self.divisible(g)?;
        let at = members.iter().position(|&m| m == member)?;
        let early = self.needs(members)[at].0;
        self.in_pieces(g, &[early, whole(members) & !early])
    }

    /// The members of a group that may be divided.
    fn divisible(&self, g: GroupId) -> Option<&[Inst]> {
        let [members] = self.table.rows[g].group.parts.as_slice() else { return None };
        let is_divisible = self.kind(g).is_some() && (2..=MOST_MEMBERS).contains(&members.len());
        is_divisible.then_some(members)
    }

    /// A group in these pieces, which run one after the other; `None` where there is no room for them.
    fn in_pieces(&self, g: GroupId, pieces: &[MemberSet]) -> Option<SingleChange> {
        let table = &self.table;
        let (row, members) = (&table.rows[g], self.divisible(g)?);
        let others = table.rows.values().filter(|other| !other.group.parts.is_empty());
        let next = others.map(|other| other.place).filter(|&place| place > row.place).min();
        let room = next.map_or(STEP, |next| next - row.place);
        let count = pieces.len() as u64;
        // A contraction begins its part, which stays one.
        let contracts = matches!(self.kind(g)?, PartKind::Contract(_)) && pieces[0] & 1 == 0;
        if count < 2 || room < count || contracts || pieces.contains(&0) {
            return None;
        }
        let group = |piece: MemberSet| {
            let there = |k: &usize| piece >> k & 1 == 1;
            let part = (0..members.len()).filter(there).map(|k| members[k]).collect();
            Rc::new(Group { parts: vec![part] })
        };
        let new = pieces.iter().zip(0..).skip(1);
        Some(SingleChange {
            replaced: SmallVec::from_iter([(g, group(pieces[0]), row.place)]),
            new: new.map(|(&p, n)| (group(p), row.place + room / count * n)).collect(),
            inlined: SmallVec::new(),
        })
    }

    /// Bytes that the first piece of two leaves to the second and that are in no buffer yet.
    fn left_anew(&self, members: &[Inst], pieces: &[MemberSet]) -> u64 {
        let table = &self.table;
        let [_, late] = pieces else { return u64::MAX };
        let of = |late: bool, set: MemberSet| {
            members.iter().enumerate().filter(move |(k, _)| (set >> k & 1 == 1) == late)
        };
        let mut read: SmallVec<[Value; 16]> = SmallVec::new();
        read.extend(of(true, *late).flat_map(|(_, &i)| table.reads(i)).copied());
        let made = of(false, *late).flat_map(|(_, &i)| table.facts.f.inst_results(i)).copied();
        let anew = made.filter(|v| read.contains(v) && table.buffer(*v).is_none());
        anew.map(|v| table.size(v)).fold(0, u64::saturating_add)
    }

    /// For each member what it needs of the others, itself included, and how often on the way to it the result of a fold is
    /// spread over more elements. Members are in an order in which they can run.
    fn needs(&self, members: &[Inst]) -> Vec<(MemberSet, usize)> {
        let facts = &self.table.facts;
        let mut found: Vec<(MemberSet, usize)> = Vec::with_capacity(members.len());
        for (k, &i) in members.iter().enumerate() {
            let (mut need, mut level) = (1 << k, 0);
            for (j, &before) in members[..k].iter().enumerate() {
                let made = facts.f.inst_results(before);
                if self.table.reads(i).iter().any(|v| made.contains(v)) {
                    let spread = facts.elements[space(facts, i)] > facts.elements[made[0]];
                    need |= found[j].0;
                    level = level.max(found[j].1 + usize::from(spread));
                }
            }
            found.push((need, level));
        }
        found
    }

    /// Ways to divide members into pieces that can run one after the other, what is most likely to gain first.
    fn divisions(&self, members: &[Inst]) -> Vec<Vec<MemberSet>> {
        let facts = &self.table.facts;
        let (count, whole) = (members.len(), whole(members));
        let (needs, levels): (Vec<MemberSet>, Vec<usize>) = self.needs(members).into_iter().unzip();
        let set = |is: &dyn Fn(usize) -> bool| {
            (0..count).filter(|&k| is(k)).fold(0, |all: MemberSet, k| all | 1 << k)
        };
        let most = levels.iter().copied().max().unwrap_or(0);
        let mut found = vec![(0..=most).map(|l| set(&|k| levels[k] == l)).collect::<Vec<_>>()];
        let mut in_two = |late: MemberSet| {
            let pieces = vec![whole & !late, late];
            if late != 0 && late != whole && !found.contains(&pieces) {
                found.push(pieces);
            }
        };
        (1..=most).for_each(|l| in_two(set(&|k| levels[k] >= l)));
        let folds =
            |k: usize| matches!(facts.class[members[k]], InstClass::Reduce(_) | InstClass::Scan(_));
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|&k| !folds(k));
        for k in order {
            in_two(whole & !needs[k]);
            in_two(set(&|j| needs[j] >> k & 1 == 1));
        }
        found
    }
}

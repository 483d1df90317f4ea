//! Descent: the greedy plan, improved by single changes as long as one is faster.
//!
//! Grouping is greedy: an instruction joins the part of its last operand, and what is inlined is decided by bytes and
//! operations alone. Here each such decision is tried the other way, and priced: an inlined value is computed by a group,
//! a computed one is inlined, or all of those that a group leaves to others, two groups that have something to do with each other become one, a fold moves to another
//! group, one group becomes several. Some changes gain with another one alone: [`pairs`] are tried too. A change is priced
//! by the groups that it touches, which are lowered by themselves, each form once; so the time does not grow with the size
//! of the plan, and equal layers are priced once. A change that is faster is made at once, and
//! so is one that is as fast and leaves fewer bytes to other groups. A change that leaves more bytes to other groups or to
//! later phases must save more time than moving those bytes once takes. It is not made where the engine gives no facts:
//! the model cannot tell such gains.

mod allowance;
mod boundary;
mod inlined_shifts;
mod operands;
mod pairs;
mod pricer;
mod shift;
mod split;
mod table;
mod worth;

use crate::analysis::class::{InstClass, PartKind};
use crate::analysis::facts::Facts;
use crate::lower::group_memo::LoweringMemo;
use crate::lower::grown::decided;
use crate::lower::instances::recurs;
use crate::memory::engine::EngineModel;
use crate::plan::options::PlanOptions;
use crate::plan::{Group, Plan};
use adfuse_ir::Op;
use adfuse_ir::op::Body;
use adfuse_ir::{Diagnostic, Inst, Value, ValueDef};
use allowance::{Allowance, PricedFor};
use cranelift_entity::{EntitySet, SecondaryMap};
use inlined_shifts::InlinedShifts;
use pricer::{Added, GroupPricer, TouchedPrices};
use smallvec::{SmallVec, smallvec};
use std::rc::Rc;
use table::{AppliedChange, GroupId, GroupTable, KeptInsts, SingleChange};
use worth::Worth;

/// The most rounds over a function.
const ROUNDS: u32 = 4;

/// The most readers of a value that are paired with the group that reads it before them.
const NEAR: usize = 2;

/// The most bytes of one number. What computing a number once saves is operations, which the model tells by itself.
const NUMBER: i128 = 8;

/// A plan that no single change makes faster, found from another; `None` where nothing is changed. The function has these
/// facts.
///
/// # Errors
/// For what has no lowering.
pub(crate) fn descended(
    known: &Facts<'_>,
    plan: &Plan,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<Option<Plan>, Diagnostic> {
    let f = known.f;
    // Which instance of a value is meant is a question of the whole plan.
    if recurs(plan) {
        return Ok(None);
    }
    let own;
    let memo = match engine.memo() {
        Some(memo) => memo,
        None => {
            own = LoweringMemo::new(&options.device);
            &own
        }
    };
    let facts = decided(known.undecided(true), plan)?;
    let Ok(shifts) = InlinedShifts::of(&facts) else { return Ok(None) };
    let mut table = GroupTable::of(facts, plan);
    let mut pricer = GroupPricer::new(engine, &options.device, (plan.fp, plan.layout), memo);
    for g in table.rows.keys().collect::<Vec<GroupId>>() {
        table.rows[g].price = pricer.price(&table, g);
    }
    let device = &options.device;
    let mut descent = Descent {
        fixed: waiting(&table.facts),
        worth: Worth::of(&table, device),
        epilogues: device.contract_epilogue,
        window_prologues: engine.window_prologues(plan.fp),
        table,
        shifts,
        pricer,
        round: 0,
        allowance: Allowance::new(f.body_insts().len()),
        changed: SecondaryMap::new(),
    };
    let mut changed = false;
    while descent.round < ROUNDS && descent.round() {
        changed = true;
    }
    // Last, so that the changes above lead where they lead without it.
    let mut cut = false;
    for g in descent.table.rows.keys().collect::<Vec<GroupId>>() {
        cut |= descent.cut_at_boundary(g);
    }
    // Readers that compute more may be worth dividing.
    for g in descent.table.rows.keys().filter(|_| cut).collect::<Vec<GroupId>>() {
        descent.divided(g);
    }
    changed |= cut;
    Ok(changed.then(|| descent.table.plan(plan)))
}

/// What is computed again for checkpoint regions, and what that waits for, with all that is inlined in it: the order of
/// these is not seen from what they read.
fn waiting(facts: &Facts<'_>) -> EntitySet<Inst> {
    let f = facts.f;
    let mut fixed = EntitySet::new();
    for &i in f.body_insts().iter().filter(|&&i| f.path(i).is_again()) {
        fixed.insert(i);
        let mut stack: Vec<Value> = facts.after[i].into_iter().collect();
        while let Some(v) = stack.pop() {
            if let ValueDef::Inst(j, _) = f.def(v)
                && fixed.insert(j)
                && facts.class[j] == InstClass::Free
            {
                stack.extend(f.args(j));
            }
        }
    }
    fixed
}

struct Descent<'a, 'f> {
    table: GroupTable<'f>,
    shifts: InlinedShifts,
    pricer: GroupPricer<'a>,
    /// Instructions that stay where they are.
    fixed: EntitySet<Inst>,
    /// Whether contractions have epilogues.
    epilogues: bool,
    /// Whether products of windows read arrays with zeros around them where they are, and compute functions of them.
    window_prologues: bool,
    worth: Worth<'a>,
    /// Rounds that have begun.
    round: u32,
    allowance: Allowance,
    /// The last round in which a change touched a group.
    changed: SecondaryMap<GroupId, u32>,
}

/// A change that was made, and the prices before it of the groups that it touches.
struct MadeChange {
    applied: AppliedChange,
    before: TouchedPrices,
}

impl Descent<'_, '_> {
    /// Tries the changes of every instruction and every group, from the second round on of those that something has
    /// changed about; whether one was made.
    fn round(&mut self) -> bool {
        self.round += 1;
        let mut changed = false;
        let groups: Vec<GroupId> = self.table.rows.keys().collect();
        for g in groups {
            // Each time one has joined, there may be others.
            while self.joined_by_another(g) || self.joined_without_preamble(g) {
                changed = true;
            }
        }
        // The largest values first, where there is most to be had.
        let facts = &self.table.facts;
        let mut insts = facts.f.body_insts().to_vec();
        insts.sort_by_key(|&i| {
            let elements = facts.elements[facts.f.inst_results(i)[0]];
            (std::cmp::Reverse(elements), self.is_within_chain(i))
        });
        for i in insts {
            changed |= self.best(PricedFor::Change, self.other_way(i));
        }
        let groups: Vec<GroupId> = self.table.rows.keys().collect();
        for g in groups {
            changed |= self.shifted(g);
        }
        // Last: what is divided was not worth joining to anything, and halves may join others in the next round.
        let groups: Vec<GroupId> = self.table.rows.keys().collect();
        for g in groups {
            changed |= self.divided(g) || self.divided_behind_spread(g);
        }
        changed
    }

    /// Whether a number is read by nothing but another inlined number. Those are tried after the ends of such chains: once an
    /// end is computed by one group, what comes before it has one reader in place of all of the end's.
    fn is_within_chain(&self, i: Inst) -> bool {
        let facts = &self.table.facts;
        let result = |j: Inst| facts.f.inst_results(j)[0];
        let is_inlined_number =
            |j: Inst| facts.class[j] == InstClass::Free && facts.elements[result(j)] == 1;
        is_inlined_number(i)
            && matches!(facts.users[result(i)].as_slice(), [j] if is_inlined_number(*j))
    }

    /// Ways to compute an inlined instruction, and to inline a computed one.
    fn other_way(&self, i: Inst) -> Vec<SingleChange> {
        match self.table.facts.class[i] {
            InstClass::Free => self.kept(i),
            InstClass::Point => self.inlined(i).into_vec(),
            _ => Vec::new(),
        }
    }

    /// Whether nothing is new about a group.
    fn is_settled(&self, g: GroupId) -> bool {
        self.changed[g] + 1 < self.round
    }

    /// Makes the best of some changes, if it is better than none; whether it is.
    fn best(&mut self, priced_for: PricedFor, changes: Vec<SingleChange>) -> bool {
        self.best_beside(priced_for, &Added::default(), changes)
    }

    /// Makes the best of some changes, if it gains together with what has been added already. Prices none after the allowance is
    /// spent. Returns whether a change was made.
    fn best_beside(
        &mut self,
        priced_for: PricedFor,
        before: &Added,
        changes: Vec<SingleChange>,
    ) -> bool {
        if !self.allowance.is_left(priced_for) {
            return false;
        }
        let from = self.pricer.members();
        let mut best: Option<(Added, SingleChange)> = None;
        for change in changes {
            let added = self.tried(&change).map(|added| before.and(&added));
            let Some(added) = added.filter(|added| self.pays(added)) else { continue };
            let before = |known: &Added| {
                added.seconds.total_cmp(&known.seconds).then(added.bytes.cmp(&known.bytes)).is_lt()
            };
            if best.as_ref().is_none_or(|(known, _)| before(known)) {
                best = Some((added, change));
            }
        }
        let gained = best.and_then(|(added, change)| self.make(change).then_some(-added.seconds));
        self.allowance.spend(priced_for, self.pricer.members() - from);
        if let Some(gained) = gained {
            self.allowance.go_on(priced_for, gained / self.worth.whole());
        }
        gained.is_some()
    }

    /// Whether a change is worth what it adds.
    fn pays(&self, added: &Added) -> bool {
        let bytes = added.bytes.max(added.saved);
        if bytes > 0 {
            let rent = bytes as f64 / self.worth.bandwidth;
            return (self.pricer.knows() || bytes <= NUMBER) && added.seconds + rent < 0.0;
        }
        added.seconds < 0.0 || added.seconds == 0.0 && added.bytes < 0
    }

    /// Whether a change concerns an instruction that stays where it is.
    fn is_fixed(&self, change: &SingleChange) -> bool {
        let replaced = change.replaced.iter().flat_map(|(g, ..)| &self.table.rows[*g].group.parts);
        let flipped = change.inlined.iter().map(|(i, _)| i);
        !self.fixed.is_empty() && replaced.flatten().chain(flipped).any(|i| self.fixed.contains(*i))
    }

    /// What a change adds, no seconds where they differ by rounding alone. `None` where it makes no plan.
    fn tried(&mut self, change: &SingleChange) -> Option<Added> {
        if self.is_fixed(change) {
            return None;
        }
        self.pricer.tried(&mut self.table, &self.worth, change)
    }

    /// Makes a change that was tried; whether a plan may have it.
    fn make(&mut self, change: SingleChange) -> bool {
        let made = self.step(change);
        made.is_some_and(|made| {
            self.settle(&made);
            true
        })
    }

    /// Makes a change that may be taken back; `None` where no plan may have it.
    fn step(&mut self, change: SingleChange) -> Option<MadeChange> {
        let flipped = change.inlined.clone();
        let applied = self.table.apply(&change);
        let prices = self.pricer.added(&self.table, &applied);
        let Some((_, now)) = prices.filter(|_| self.shifts.follow_all(&self.table, &flipped))
        else {
            self.table.undo(applied);
            self.shifts.follow_all(&self.table, &flipped);
            return None;
        };
        let mut before = TouchedPrices::new();
        for (g, price) in now {
            let was = std::mem::replace(&mut self.table.rows[g].price, price);
            before.push((g, was));
        }
        Some(MadeChange { applied, before })
    }

    /// Notes that a change stays.
    fn settle(&mut self, made: &MadeChange) {
        made.before.iter().for_each(|(g, _)| self.changed[*g] = self.round);
    }

    /// Takes back the change that was made last.
    fn take_back(&mut self, made: MadeChange) {
        for (g, was) in made.before {
            self.table.rows[g].price = was;
        }
        let flipped = made.applied.inlined.clone();
        self.table.undo(made.applied);
        let known = self.shifts.follow_all(&self.table, &flipped);
        debug_assert!(known, "shifts were not too deep before");
    }

    /// Ways to compute an inlined instruction: in the group of the last operand, in that of the first user, in a group
    /// of its own before that.
    fn kept(&self, i: Inst) -> Vec<SingleChange> {
        let table = &self.table;
        let users = table.users(i);
        let Some(&first) = users.first() else { return Vec::new() };
        let operands = table.operands(i);
        let homes = operands.iter().filter_map(|&v| table.home[v]);
        let last = homes.max_by_key(|&g| table.rows[g].place);
        if users.iter().chain(&last).all(|&g| self.is_settled(g)) || !self.may_be_kept(i, &users) {
            return Vec::new();
        }
        let mut changes = Vec::new();
        let mut joined = |g: GroupId| {
            let row = &table.rows[g];
            if let [members] = row.group.parts.as_slice() {
                let mut members = members.clone();
                members.push(i);
                let group = Group { parts: vec![self.in_order(members)] };
                changes.push(SingleChange {
                    replaced: SmallVec::from_iter([(g, Rc::new(group), row.place)]),
                    new: SmallVec::new(),
                    inlined: smallvec![(i, false)],
                });
            }
        };
        last.into_iter().for_each(&mut joined);
        // The only user computes it for itself either way.
        if Some(first) != last && users.len() > 1 {
            joined(first);
        }
        if self.is_short_spread(i) {
            self.before_over_same_axes(i, first).into_iter().for_each(&mut joined);
        }
        let (from, to) = (last.map_or(0, |g| table.rows[g].place), table.rows[first].place);
        if to > from + 1 {
            // As late as may be, so that it is in memory for a short time.
            let place = to - ((to - from) / 8).max(1);
            let group = Rc::new(Group { parts: vec![vec![i]] });
            let (new, inlined) = (SmallVec::from_iter([(group, place)]), smallvec![(i, false)]);
            changes.push(SingleChange { replaced: SmallVec::new(), new, inlined });
        }
        changes
    }

    /// Whether an inlined instruction may be worth a buffer. Kernels read what is repeated where it is once, and slices
    /// where they lie; an interchange of axes, what contractions read and what is computed may be. So may paddings and
    /// concatenations, which readers go through piece by piece, where the engine says what that takes.
    fn may_be_kept(&self, i: Inst, users: &[GroupId]) -> bool {
        let facts = &self.table.facts;
        let bits = |v: Value| facts.f.ty(v).dtype.bits();
        // Widening takes no time beside the read, and the narrow value is the smaller one to store.
        if let [x] = facts.f.args(i)
            && facts.f.op(i) == Op::ConvertElementType
            && bits(*x) < bits(facts.f.inst_results(i)[0])
        {
            return false;
        }
        let size = |v: Value| facts.elements[v];
        let own = size(facts.f.inst_results(i)[0]);
        let view = matches!(facts.f.op(i).def().body, Body::View(_));
        let repeats = facts.f.args(i).iter().all(|&a| size(a) < own);
        let kernel = |g: &GroupId| matches!(self.kind(*g), Some(PartKind::Kernel));
        let pieces = self.pricer.knows() && !facts.is_strided(i);
        self.is_short_spread(i)
            || !view
            || facts.is_aligned(i) && !repeats
            || pieces
            || !users.iter().all(kernel)
    }

    /// Whether an instruction is an elementwise one or a view, and need not be in memory.
    fn need_not_be_stored(&self, i: Inst) -> bool {
        let facts = &self.table.facts;
        let body = facts.f.op(i).def().body;
        matches!(body, Body::Map(_) | Body::View(_) | Body::Source(_))
            && !facts.forced[facts.f.inst_results(i)[0]]
    }

    /// An instruction inlined wherever it is used, if it need not be stored.
    fn inlined(&self, i: Inst) -> SmallVec<[SingleChange; 2]> {
        let facts = &self.table.facts;
        let v = facts.f.inst_results(i)[0];
        let Some(g) = self.table.home[v].filter(|_| self.need_not_be_stored(i)) else {
            return SmallVec::new();
        };
        let row = &self.table.rows[g];
        // Where nobody else reads it, its kernel has it either way; but one that is computed at fewer points than the
        // others has a say in what the points are.
        let readers = &self.table.readers[v];
        let size = |i: &Inst| facts.elements[facts.f.inst_results(*i)[0]];
        let fewer =
            |v: Value| row.group.parts.iter().flatten().any(|j| size(j) > facts.elements[v]);
        if readers.is_empty() && !fewer(v)
            || readers.iter().chain([&g]).all(|&g| self.is_settled(g))
        {
            return SmallVec::new();
        }
        let change = |kept: &KeptInsts| {
            let mut group = Group::clone(&row.group);
            for members in group.parts.iter_mut().filter(|members| members.contains(&i)) {
                let others = members.iter().copied().filter(|&j| j != i);
                *members = self.in_order(others.chain(kept.iter().copied()).collect());
            }
            group.parts.retain(|members| !members.is_empty());
            SingleChange {
                replaced: SmallVec::from_iter([(g, Rc::new(group), row.place)]),
                new: SmallVec::new(),
                inlined: kept.iter().map(|&j| (j, false)).chain([(i, true)]).collect(),
            }
        };
        self.kept_for_contractions(i).iter().map(change).collect()
    }

    /// Joins a group with the best of those that it reads from, or that read what it reads.
    fn joined_by_another(&mut self, g: GroupId) -> bool {
        if self.kind(g).is_none() {
            return false;
        }
        let changes = self.near(g).into_iter().flat_map(|other| self.joined(other, g)).collect();
        self.best(PricedFor::Change, changes)
    }

    /// The groups before a group that it may join: those that it reads from, and those that read what it reads.
    fn near(&self, g: GroupId) -> SmallVec<[GroupId; 8]> {
        let table = &self.table;
        let place = |r: &GroupId| table.rows[*r].place;
        let is_number = |v: &&Value| table.facts.elements[**v] == 1;
        // A step of training may read hundreds of numbers, such as the sums of a norm: the last ones are the nearest.
        let mut others: SmallVec<[GroupId; 8]> =
            table.rows[g].reads.iter().filter(is_number).filter_map(|&v| table.home[v]).collect();
        others.sort_unstable_by_key(|r| std::cmp::Reverse(place(r)));
        others.dedup();
        others.truncate(NEAR);
        for &v in &table.rows[g].reads {
            // One number that all read is no reason to share a kernel.
            if table.facts.elements[v] > 1 {
                others.extend(table.home[v]);
                let mut before: SmallVec<[GroupId; 8]> = table.readers[v].iter().copied().collect();
                before.retain(|r| place(r) < place(&g));
                before.sort_unstable_by_key(|r| std::cmp::Reverse(place(r)));
                others.extend(before.into_iter().take(NEAR));
            }
        }
        others.sort_unstable();
        others.dedup();
        others.retain(|other| !self.is_settled(*other) || !self.is_settled(g));
        others
    }

    /// The kind of a group of one part that others may join.
    fn kind(&self, g: GroupId) -> Option<PartKind> {
        let row = &self.table.rows[g];
        let ([members], Some(_)) = (row.group.parts.as_slice(), row.price) else { return None };
        let first = *members.first()?;
        Some(PartKind::of(self.table.facts.class[first], first)).filter(|kind| !kind.is_alone())
    }

    /// Two groups as one, where the later one is or where the earlier one is.
    fn joined(&self, early: GroupId, late: GroupId) -> SmallVec<[SingleChange; 2]> {
        let contracts = |kind: Option<PartKind>| matches!(kind, Some(PartKind::Contract(_)));
        let (a, b) = (self.kind(early), self.kind(late));
        let several = contracts(a) && contracts(b);
        if a.is_none() || several || !self.epilogues && (contracts(a) || contracts(b)) {
            return SmallVec::new();
        }
        let rows = [early, late].map(|g| &self.table.rows[g]);
        let members = rows.iter().flat_map(|row| row.group.parts.iter().flatten()).copied();
        let group = Rc::new(Group { parts: vec![self.in_order(members.collect())] });
        let at = |place: u64| SingleChange {
            replaced: SmallVec::from_iter([
                (early, Rc::clone(&self.table.none), rows[0].place),
                (late, Rc::clone(&group), place),
            ]),
            new: SmallVec::new(),
            inlined: SmallVec::new(),
        };
        SmallVec::from_iter([at(rows[1].place), at(rows[0].place)])
    }

    /// Members in the order of the function; a contraction begins its part.
    fn in_order(&self, mut members: Vec<Inst>) -> Vec<Inst> {
        let class = |i: &Inst| self.table.facts.class[*i] != InstClass::Contract;
        members.sort_by_key(|i| (class(i), self.table.order[*i]));
        members
    }
}

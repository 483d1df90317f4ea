//! The groups of a plan as a table that single changes edit: who computes a value, who reads it, and in which order
//! groups run. A change costs what the groups that it touches are, whatever the size of the plan.

use crate::analysis::class::InstClass;
use crate::analysis::facts::Facts;
use crate::analysis::leaves::leaves;
use crate::analysis::value_range::ValueRanges;
use crate::fuse::greedy::narrow;
use crate::lower::group_key::BufferForm;
use crate::plan::layout::Layout;
use crate::plan::{Group, Plan};
use adfuse_ir::kernel::{Role, Storage};
use adfuse_ir::{Inst, Phase, Value, ValueDef};
use cranelift_entity::{EntitySet, PrimaryMap, SecondaryMap, entity_impl};
use smallvec::SmallVec;
use std::rc::Rc;

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct GroupId(u32);
entity_impl!(GroupId, "group");

/// Room for what most groups read, and for values that most changes concern.
const READS: usize = 16;
const NEAR: usize = 32;

/// Steps between the places of neighbours, so that groups fit between them.
pub(super) const STEP: u64 = 1 << 24;

/// A group, and what follows from it.
#[derive(Clone, Debug)]
pub(super) struct TableRow {
    /// Without parts where the group is no more.
    pub(super) group: Rc<Group>,
    /// Groups run in the order of this number.
    pub(super) place: u64,
    /// The values that it reads from buffers.
    pub(super) reads: Vec<Value>,
    /// The latest phase of its members.
    latest: Phase,
    /// `None` for what is not priced by itself.
    pub(super) price: Option<GroupSeconds>,
}

/// A form of groups: all of one take the same time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct GroupForm(u32);
entity_impl!(GroupForm, "form");

/// What a group takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupSeconds {
    /// Predicted seconds.
    pub(super) seconds: f64,
    /// Seconds that it would take were its loops ideal.
    pub(super) ideal: f64,
    /// Its form.
    pub(super) form: GroupForm,
}

impl GroupSeconds {
    /// Seconds that other loops might save.
    pub(super) fn excess(&self) -> f64 {
        self.seconds - self.ideal
    }
}

/// The groups of a plan that changes.
pub(super) struct GroupTable<'f> {
    pub(super) facts: Facts<'f>,
    pub(super) rows: PrimaryMap<GroupId, TableRow>,
    /// The group that computes a value.
    pub(super) home: SecondaryMap<Value, Option<GroupId>>,
    /// The groups that read a value from its buffer.
    pub(super) readers: SecondaryMap<Value, SmallVec<[GroupId; 4]>>,
    /// How many of those run in a later phase than the value's own.
    later: SecondaryMap<Value, u32>,
    /// What values are stored in where they are temporaries.
    storage: SecondaryMap<Value, Storage>,
    layout: Layout,
    results: EntitySet<Value>,
    /// The place of an instruction in the function.
    pub(super) order: SecondaryMap<Inst, u32>,
    /// What each member reads, with what is inlined in it.
    operands: SecondaryMap<Inst, Operands>,
    /// Rows of groups that were taken back.
    spare: Vec<GroupId>,
    /// A group that is no more.
    pub(super) none: Rc<Group>,
}

type Operands = SmallVec<[Value; 8]>;

/// What holds a value between groups.
enum BufferKind {
    None,
    Constant,
    Input,
    Output,
    Temporary,
}

/// Instructions that a group computes in place of one that is inlined.
pub(super) type KeptInsts = SmallVec<[Inst; 2]>;

/// Instructions that are inlined from now on, or no longer.
pub(super) type FlippedInsts = SmallVec<[(Inst, bool); 1]>;

/// A change: groups that replace others, groups that are new, and instructions that are inlined or no longer are.
#[derive(Clone, Debug, Default)]
pub(super) struct SingleChange {
    /// Groups with what they become; without parts, they are no more.
    pub(super) replaced: SmallVec<[(GroupId, Rc<Group>, u64); 2]>,
    pub(super) new: SmallVec<[(Rc<Group>, u64); 1]>,
    /// Instructions, and whether each is inlined after the change.
    pub(super) inlined: FlippedInsts,
}

/// What a change does to a plan, and what takes it back.
pub(super) struct AppliedChange {
    /// Rows as they were.
    pub(super) before: Vec<(GroupId, TableRow)>,
    pub(super) new: SmallVec<[GroupId; 1]>,
    pub(super) inlined: FlippedInsts,
    /// What members read before.
    operands: Vec<(Inst, Operands)>,
    /// The groups that may cost something else now.
    pub(super) touched: SmallVec<[GroupId; 8]>,
    /// Bytes that there are more of that one group leaves to others, results among them: whoever reads them moves them again.
    pub(super) bytes: i128,
    /// Bytes that there are more of between a phase and later ones.
    pub(super) saved: i128,
}

impl<'f> GroupTable<'f> {
    /// Of a plan in which no instruction occurs twice; the facts are those of that plan.
    pub(super) fn of(facts: Facts<'f>, plan: &Plan) -> GroupTable<'f> {
        let f = facts.f;
        let ranges = ValueRanges::of(&facts);
        let mut storage = SecondaryMap::new();
        let mut order = SecondaryMap::new();
        for (&i, n) in f.body_insts().iter().zip(0..) {
            order[i] = n;
            for &v in f.inst_results(i) {
                storage[v] = narrow(&facts, &ranges, v).unwrap_or_default();
            }
        }
        let mut results = EntitySet::new();
        results.extend(f.results().iter().copied());
        let mut table = GroupTable {
            facts,
            rows: PrimaryMap::new(),
            home: SecondaryMap::new(),
            readers: SecondaryMap::new(),
            later: SecondaryMap::new(),
            storage,
            layout: plan.layout,
            results,
            order,
            operands: SecondaryMap::new(),
            spare: Vec::new(),
            none: Rc::new(Group { parts: Vec::new() }),
        };
        for &i in plan.groups.iter().flat_map(|group| &group.parts).flatten() {
            table.operands[i] = leaves(&table.facts, i);
        }
        for (group, n) in plan.groups.iter().zip(1..) {
            table.push(Rc::new(group.clone()), n * STEP);
        }
        for g in table.rows.keys().collect::<Vec<_>>() {
            table.enter(g);
        }
        // What the plan stores has the form that it says.
        let stored: Vec<Value> = table.temporaries().collect();
        stored.into_iter().for_each(|v| table.storage[v] = Storage::Plain);
        plan.storage.iter().for_each(|&(v, form)| table.storage[v] = form);
        table
    }

    /// The plan that the table is, with what another says of itself.
    pub(super) fn plan(&self, head: &Plan) -> Plan {
        let f = self.facts.f;
        let mut live: Vec<&TableRow> =
            self.rows.values().filter(|row| !row.group.parts.is_empty()).collect();
        live.sort_by_key(|row| row.place);
        let inlined = |i: &Inst| self.facts.class[*i] == InstClass::Free;
        let narrow = self.temporaries().filter(|&v| self.storage[v] != Storage::Plain);
        Plan {
            inline: f.body_insts().iter().copied().filter(inlined).collect(),
            groups: live.into_iter().map(|row| Group::clone(&row.group)).collect(),
            storage: narrow.map(|v| (v, self.storage[v])).collect(),
            ..head.clone()
        }
    }

    /// The values that groups leave to others, results apart, in the order of the function.
    fn temporaries(&self) -> impl Iterator<Item = Value> + '_ {
        let f = self.facts.f;
        let values = f.body_insts().iter().flat_map(move |&i| f.inst_results(i)).copied();
        values.filter(|&v| self.is_temporary(v))
    }

    /// Bytes of all that is in memory at some time: what is given, what groups leave to others, results.
    pub(super) fn bytes(&self) -> u128 {
        let given = self.facts.f.params().iter().copied();
        let results = self.results.iter();
        given.chain(results).chain(self.temporaries()).map(|v| u128::from(self.size(v))).sum()
    }

    /// What the buffer of a value is to steps; `None` for what keys do not have.
    pub(super) fn form(&self, v: Value) -> Option<BufferForm> {
        BufferForm::in_layout(self.buffer(v), self.facts.f.ty(v), self.layout)
    }

    /// The buffer of a value, if it has one.
    pub(super) fn buffer(&self, v: Value) -> Option<(Role, Storage)> {
        match self.kind(v) {
            BufferKind::None => None,
            BufferKind::Constant => Some((Role::Constant(Vec::new()), Storage::Plain)),
            BufferKind::Input => Some((Role::Input, Storage::Plain)),
            BufferKind::Output => Some((Role::Output, Storage::Plain)),
            BufferKind::Temporary => Some((Role::Temp, self.storage[v])),
        }
    }

    fn kind(&self, v: Value) -> BufferKind {
        match self.facts.f.def(v) {
            ValueDef::Literal(_) => BufferKind::None,
            ValueDef::Inst(i, _) => match self.facts.class[i] {
                InstClass::Constant => BufferKind::Constant,
                InstClass::Free => BufferKind::None,
                _ if self.results.contains(v) => BufferKind::Output,
                _ if self.readers[v].is_empty() => BufferKind::None,
                _ => BufferKind::Temporary,
            },
            _ => BufferKind::Input,
        }
    }

    /// The members that read an instruction's result, or have it inlined.
    fn using(&self, i: Inst) -> SmallVec<[Inst; 8]> {
        let facts = &self.facts;
        let mut found: SmallVec<[Inst; 8]> = SmallVec::new();
        let mut seen: SmallVec<[Inst; 8]> = SmallVec::from_iter([i]);
        let mut next = 0;
        while let Some(&i) = seen.get(next) {
            next += 1;
            for &u in facts.f.inst_results(i).iter().flat_map(|&v| &facts.users[v]) {
                match self.home[facts.f.inst_results(u)[0]] {
                    Some(_) if !found.contains(&u) => found.push(u),
                    None if facts.class[u] == InstClass::Free && !seen.contains(&u) => seen.push(u),
                    _ => {}
                }
            }
        }
        found
    }

    /// The groups that read an instruction's result or have it inlined, in the order in which they run.
    pub(super) fn users(&self, i: Inst) -> SmallVec<[GroupId; 8]> {
        let mut found: SmallVec<[GroupId; 8]> = self.homes(&self.using(i)).collect();
        found.sort_unstable_by_key(|&g| (self.rows[g].place, g));
        found.dedup();
        found
    }

    /// The groups of members.
    fn homes<'a>(&'a self, members: &'a [Inst]) -> impl Iterator<Item = GroupId> + 'a {
        members.iter().filter_map(|&u| self.home[self.facts.f.inst_results(u)[0]])
    }

    /// What an instruction reads, with what is inlined in it.
    pub(super) fn operands(&self, i: Inst) -> Operands {
        leaves(&self.facts, i)
    }

    /// What a member reads, with what is inlined in it.
    pub(super) fn reads(&self, member: Inst) -> &[Value] {
        &self.operands[member]
    }

    fn push(&mut self, group: Rc<Group>, place: u64) -> GroupId {
        let latest = Phase::default();
        let row = TableRow { group, place, reads: Vec::new(), latest, price: None };
        match self.spare.pop() {
            Some(g) => {
                self.rows[g] = row;
                g
            }
            None => self.rows.push(row),
        }
    }

    /// Notes what a group computes and reads.
    fn enter(&mut self, g: GroupId) {
        let group = Rc::clone(&self.rows[g].group);
        let f = self.facts.f;
        let mut latest = Phase::default();
        for &i in group.parts.iter().flatten() {
            f.inst_results(i).iter().for_each(|&v| self.home[v] = Some(g));
            latest = latest.max(f.inst(i).phase);
        }
        let mut reads = Vec::with_capacity(READS);
        for &i in group.parts.iter().flatten() {
            for &v in &self.operands[i] {
                // A group that is not entered yet is no reader, and one that is being entered is the last.
                if self.home[v] != Some(g) && self.readers[v].last() != Some(&g) {
                    self.readers[v].push(g);
                    reads.push(v);
                }
            }
        }
        self.rows[g].latest = latest;
        for &v in &reads {
            self.later[v] += u32::from(self.is_later(v, latest));
        }
        self.rows[g].reads = reads;
    }

    /// Whether a phase is later than that of a value.
    fn is_later(&self, v: Value, phase: Phase) -> bool {
        match self.facts.f.def(v) {
            ValueDef::Inst(i, _) => phase > self.facts.f.inst(i).phase,
            _ => false,
        }
    }

    /// Forgets what a group computes and reads.
    fn leave(&mut self, g: GroupId) {
        let (latest, reads) = (self.rows[g].latest, std::mem::take(&mut self.rows[g].reads));
        for &v in &reads {
            // Values that a whole step reads, such as a rate, have hundreds of readers; those that change are the last.
            if let Some(at) = self.readers[v].iter().rposition(|r| *r == g) {
                self.readers[v].remove(at);
            }
            self.later[v] -= u32::from(self.is_later(v, latest));
        }
        self.rows[g].reads = reads;
        let f = self.facts.f;
        for &i in self.rows[g].group.parts.iter().flatten() {
            f.inst_results(i).iter().for_each(|&v| self.home[v] = None);
        }
    }

    /// Whether one group computes a value and others read it.
    fn is_left(&self, v: Value) -> bool {
        self.home[v].is_some() && !self.readers[v].is_empty()
    }

    /// Whether the function returns a value.
    pub(super) fn is_result(&self, v: Value) -> bool {
        self.results.contains(v)
    }

    fn is_temporary(&self, v: Value) -> bool {
        self.is_left(v) && !self.results.contains(v)
    }

    /// Whether a temporary is read in a later phase than its own.
    fn crosses(&self, v: Value) -> bool {
        self.later[v] > 0 && self.is_temporary(v)
    }

    /// Applies a change. What it makes need not be a plan: [`GroupTable::is_ordered`] and prices say.
    pub(super) fn apply(&mut self, change: &SingleChange) -> AppliedChange {
        let mut edited: SmallVec<[GroupId; 8]> = change.replaced.iter().map(|(g, ..)| *g).collect();
        let mut using: Vec<Inst> =
            change.inlined.iter().flat_map(|(i, _)| self.using(*i)).collect();
        using.extend(change.inlined.iter().map(|(i, _)| *i));
        using.sort_unstable();
        using.dedup();
        edited.extend(self.homes(&using));
        edited.sort_unstable();
        edited.dedup();
        // Values that others may read now, or no longer do.
        let mut near: Vec<Value> = Vec::with_capacity(NEAR);
        near.extend(edited.iter().flat_map(|&g| &self.rows[g].reads));
        if !change.new.is_empty() {
            // One half of a group may read what the other computes.
            let members = edited.iter().flat_map(|&g| self.rows[g].group.parts.iter().flatten());
            near.extend(members.flat_map(|&i| self.facts.f.inst_results(i)));
        }
        let mut operands = Vec::new();
        for &(i, inlined) in &change.inlined {
            self.facts.class[i] = if inlined { InstClass::Free } else { InstClass::Point };
        }
        for m in using {
            let now = leaves(&self.facts, m);
            operands.push((m, std::mem::replace(&mut self.operands[m], now)));
        }
        for &(i, _) in &change.inlined {
            near.extend(self.operands[i].iter().chain(self.facts.f.inst_results(i)));
        }
        near.sort_unstable();
        near.dedup();
        let state = |table: &GroupTable<'_>, v: Value| (table.is_left(v), table.crosses(v));
        let near: Vec<(Value, (bool, bool))> =
            near.into_iter().map(|v| (v, state(self, v))).collect();
        // Those that entered last leave first: they are the last readers of what hundreds read.
        edited.iter().rev().for_each(|&g| self.leave(g));
        let mut before: Vec<(GroupId, TableRow)> = Vec::with_capacity(edited.len());
        for &g in &edited {
            let row = &mut self.rows[g];
            let TableRow { place, latest, price, .. } = *row;
            let (group, reads) = (Rc::clone(&row.group), std::mem::take(&mut row.reads));
            before.push((g, TableRow { group, place, reads, latest, price }));
        }
        for (g, group, place) in &change.replaced {
            (self.rows[*g].group, self.rows[*g].place) = (Rc::clone(group), *place);
        }
        let new: SmallVec<[GroupId; 1]> =
            change.new.iter().map(|(group, place)| self.push(Rc::clone(group), *place)).collect();
        edited.extend(new.iter().copied());
        edited.iter().for_each(|&g| self.enter(g));
        let mut touched = edited;
        let (mut bytes, mut saved) = (0, 0);
        let more = |was: bool, is: bool| i128::from(is) - i128::from(was);
        for (v, was) in near {
            let is = state(self, v);
            if was == is {
                continue;
            }
            if was.0 != is.0 {
                touched.extend(self.home[v]);
            }
            let size = i128::from(self.size(v));
            bytes += more(was.0, is.0) * size;
            saved += more(was.1, is.1) * size;
        }
        touched.sort_unstable();
        touched.dedup();
        let inlined = change.inlined.clone();
        AppliedChange { before, new, inlined, operands, touched, bytes, saved }
    }

    /// Takes back the change that was applied last.
    pub(super) fn undo(&mut self, applied: AppliedChange) {
        let edited: Vec<GroupId> =
            applied.before.iter().map(|(g, _)| *g).chain(applied.new.iter().copied()).collect();
        edited.iter().rev().for_each(|&g| self.leave(g));
        for &(i, inlined) in &applied.inlined {
            self.facts.class[i] = if inlined { InstClass::Point } else { InstClass::Free };
        }
        for (m, before) in applied.operands {
            self.operands[m] = before;
        }
        for (g, row) in applied.before {
            let f = self.facts.f;
            for &v in row.group.parts.iter().flatten().flat_map(|&i| f.inst_results(i)) {
                self.home[v] = Some(g);
            }
            for &v in &row.reads {
                self.readers[v].push(g);
                self.later[v] += u32::from(self.is_later(v, row.latest));
            }
            self.rows[g] = row;
        }
        for g in applied.new {
            self.rows[g].group = Rc::clone(&self.none);
            self.spare.push(g);
        }
    }

    /// The groups that a change touches as they were before it.
    pub(super) fn rows_before<'a>(
        &'a self,
        applied: &'a AppliedChange,
    ) -> impl Iterator<Item = &'a TableRow> + 'a {
        let edited = |g: &GroupId| applied.before.iter().any(|(h, _)| h == g);
        let others = applied.touched.iter().filter(move |g| !edited(g) && !applied.new.contains(g));
        let before = applied.before.iter().map(|(_, row)| row);
        before.chain(others.map(|&g| &self.rows[g]))
    }

    /// Whether a change makes a member read more values than a number, and more than before.
    pub(super) fn reads_more_than(&self, applied: &AppliedChange, most: usize) -> bool {
        applied.operands.iter().any(|(m, before)| {
            let now = self.operands[*m].len();
            now > most && now > before.len()
        })
    }

    /// Whether all that the changed groups read is computed before them, and all that they compute is read after. A
    /// contraction, which comes first in its group, reads nothing of it.
    pub(super) fn is_ordered(&self, applied: &AppliedChange) -> bool {
        let edited = applied.before.iter().map(|(g, _)| *g).chain(applied.new.iter().copied());
        edited.into_iter().all(|g| {
            let row = &self.rows[g];
            let ready = |v: &Value| self.home[*v].is_none_or(|h| self.rows[h].place < row.place);
            let computed = row.group.parts.iter().flatten();
            let computed = computed.flat_map(|&i| self.facts.f.inst_results(i));
            let mut readers = computed.flat_map(|&v| &self.readers[v]);
            let begins = |members: &Vec<Inst>| {
                let contracts = |i: &&Inst| self.facts.class[**i] == InstClass::Contract;
                members
                    .first()
                    .filter(contracts)
                    .is_none_or(|&i| self.operands[i].iter().all(|v| self.home[*v] != Some(g)))
            };
            row.reads.iter().all(ready)
                && readers.all(|&r| self.rows[r].place > row.place)
                && row.group.parts.iter().all(begins)
        })
    }

    /// Bytes of a value as it is stored.
    pub(super) fn size(&self, v: Value) -> u64 {
        crate::memory::residuals::bytes(&self.facts, &self.storage, v).unwrap_or(u64::MAX >> 1)
    }
}

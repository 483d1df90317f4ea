//! Boundaries: the values that a group leaves to others, chosen by a minimum cut.
//!
//! Other changes inline one instruction at a time. Where a group leaves many values that are computed from a few, such as
//! the shares of a gradient that overlapping windows of a pool give to their elements, inlining one of them adds the few to
//! what is in memory and takes one away. Only all of them together gain. The cheapest set of values from which the
//! readers can compute what they read is a minimum cut: storing a value costs the bytes that are moved, computing one
//! costs the operations, once for each value that needs it.

use super::Descent;
use super::allowance::PricedFor;
use super::operands::readers_of;
use super::pricer::Added;
use super::table::{GroupId, SingleChange};
use crate::analysis::class::InstClass;
use crate::analysis::min_cut::{Network, UNBOUNDED};
use crate::plan::Group;
use adfuse_ir::{DType, Inst, Value, ValueDef};
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::{SmallVec, smallvec};
use std::rc::Rc;

/// Other changes inline a value by itself.
const SEVERAL: usize = 2;

/// The parts of a plan's time, and of the bytes of all its values, that groups alike must gain together.
const FASTER: f64 = 5e-3;
const FEWER: f64 = 0.05;

/// The most values that a group leaves for which it is asked what computes them: a bit for each.
const MOST: usize = 64;

/// What the readers of a group need: on the side of the source is what there is where the group ends.
struct BoundaryNetwork {
    network: Network,
    source: u32,
    sink: u32,
    /// The two vertices of a value. A cut between them stores it.
    vertices: SecondaryMap<Value, Option<[u32; 2]>>,
    /// The values that have vertices.
    values: Vec<Value>,
}

impl BoundaryNetwork {
    fn new() -> BoundaryNetwork {
        let mut network = Network::default();
        let (source, sink) = (network.vertex(), network.vertex());
        BoundaryNetwork { network, source, sink, vertices: SecondaryMap::new(), values: Vec::new() }
    }

    fn of(&mut self, v: Value) -> [u32; 2] {
        *self.vertices[v].get_or_insert_with(|| {
            self.values.push(v);
            [self.network.vertex(), self.network.vertex()]
        })
    }

    /// Readers want a value.
    fn wants(&mut self, v: Value) {
        let [_, there] = self.of(v);
        self.network.arc(there, self.sink, UNBOUNDED);
    }

    /// A value may be in memory where readers are, at a price.
    fn stores(&mut self, v: Value, price: u128) {
        let [computed, there] = self.of(v);
        self.network.arc(computed, there, price);
    }

    /// A value is computed from another.
    fn needs(&mut self, v: Value, operand: Value) {
        let [_, there] = self.of(operand);
        let [computed, _] = self.of(v);
        self.network.arc(there, computed, UNBOUNDED);
    }

    /// Readers may compute a value, at a price.
    fn computes(&mut self, v: Value, price: u128) {
        let [computed, _] = self.of(v);
        self.network.arc(self.source, computed, price);
    }

    /// The values that readers compute where the cheapest ones are stored.
    fn computed_by_readers(&self) -> EntitySet<Value> {
        let before = self.network.cut(self.source, self.sink);
        let again = |v: &Value| self.vertices[*v].is_some_and(|[at, _]| !before[at as usize]);
        let mut found = EntitySet::new();
        found.extend(self.values.iter().copied().filter(again));
        found
    }
}

impl Descent<'_, '_> {
    /// Leaves other values to the readers of a group, which compute from them what they read now, if that is better;
    /// whether it is.
    pub(super) fn cut_at_boundary(&mut self, g: GroupId) -> bool {
        // Reading packed truth values out of their order may take longer than computing them, and what readers compute may take no
        // longer than what they move meanwhile.
        let mut ways: Vec<SingleChange> = Vec::new();
        for (masks, is_free) in [(true, false), (false, false), (true, true)] {
            let way = self.boundary_cut(g, masks, is_free);
            ways.extend(way.filter(|way| ways.iter().all(|known| known.inlined != way.inlined)));
        }
        // Most groups have none, and the bytes are a sum over the whole function.
        if ways.is_empty() {
            return false;
        }
        let alike = self.worth.count(&self.table.rows[g]);
        let (faster, fewer) = (FASTER * self.worth.whole(), FEWER * self.table.bytes() as f64);
        let mut best: Option<(Added, SingleChange)> = None;
        for change in ways {
            let Some(added) = self.tried(&change).filter(|added| self.pays(added)) else {
                continue;
            };
            let is_faster = -added.seconds * alike >= faster;
            let is_leaner = added.saved <= 0 && -added.bytes as f64 * alike >= fewer;
            let before = |(known, _): &(Added, SingleChange)| added.seconds < known.seconds;
            if (is_faster || is_leaner) && best.as_ref().is_none_or(before) {
                best = Some((added, change));
            }
        }
        best.is_some_and(|(added, change)| {
            self.allowance.go_on(PricedFor::Division, -added.seconds / self.worth.whole());
            self.make(change)
        })
    }

    /// The change that leaves the cheapest values; without truth values among them unless `masks`, and whatever it takes to compute
    /// others if that is free. `None` where that is what the group leaves already.
    fn boundary_cut(&self, g: GroupId, masks: bool, is_free: bool) -> Option<SingleChange> {
        let table = &self.table;
        let row = &table.rows[g];
        let [members] = row.group.parts.as_slice() else { return None };
        let facts = &table.facts;
        let f = facts.f;
        let result = |i: Inst| f.inst_results(i)[0];
        let wanted: Vec<Value> = members
            .iter()
            .filter(|&&i| self.may_be_left_to_readers(i))
            .map(|&i| result(i))
            .filter(|&v| !table.readers[v].is_empty())
            .collect();
        if !(SEVERAL..=MOST).contains(&wanted.len()) {
            return None;
        }
        let mut readers: SmallVec<[GroupId; 8]> =
            wanted.iter().flat_map(|&v| &table.readers[v]).copied().collect();
        readers.sort_unstable();
        readers.dedup();
        let movable = |v: Value| match f.def(v) {
            ValueDef::Inst(i, _) if table.home[v] == Some(g) => {
                Some(i).filter(|&i| self.may_be_left_to_readers(i))
            }
            _ => None,
        };
        // For whom a member is computed: a bit for each of what is wanted. Each is asked for at places of its own.
        let mut needed: SecondaryMap<Value, u64> = SecondaryMap::new();
        wanted.iter().enumerate().for_each(|(k, &v)| needed[v] = 1 << k);
        for &i in members.iter().rev().filter(|&&i| movable(result(i)).is_some()) {
            let by = needed[result(i)];
            table.reads(i).iter().for_each(|&a| needed[a] |= by);
        }
        let device = self.pricer.device();
        let bytes_an_operation = self.worth.bandwidth / device.ops_per_s;
        let mut network = BoundaryNetwork::new();
        wanted.iter().for_each(|&v| network.wants(v));
        let mut next = 0;
        while let Some(&v) = network.values.get(next) {
            next += 1;
            let size = u128::from(table.size(v));
            let reads = |r: &&GroupId| !table.rows[**r].reads.contains(&v);
            let Some(i) = movable(v) else {
                // It is in memory either way, and readers cannot compute it.
                network.computes(v, UNBOUNDED);
                network.stores(v, size * readers.iter().filter(reads).count() as u128);
                continue;
            };
            // It is written once, and read by each of the groups.
            let read = if wanted.contains(&v) { table.readers[v].len() } else { readers.len() };
            let is_mask = f.ty(v).dtype == DType::Bool;
            network
                .stores(v, if is_mask && !masks { UNBOUNDED } else { size * (1 + read as u128) });
            let weight = facts.program(i).map_or(0, |(_, weight)| weight);
            let weight = if is_free { weight.min(1) } else { weight };
            let times = f64::from(needed[v].count_ones()) * f64::from(weight);
            let operations = times * facts.elements[v] as f64;
            network.computes(v, (operations * bytes_an_operation) as u128);
            table.reads(i).iter().for_each(|&a| network.needs(v, a));
        }
        let again = network.computed_by_readers();
        let (inlined, kept): (Vec<Inst>, Vec<Inst>) =
            members.iter().partition(|&&i| again.contains(result(i)));
        if inlined.len() < SEVERAL {
            return None;
        }
        let parts = if kept.is_empty() { Vec::new() } else { vec![kept] };
        Some(SingleChange {
            replaced: smallvec![(g, Rc::new(Group { parts }), row.place)],
            new: SmallVec::new(),
            inlined: inlined.into_iter().map(|i| (i, true)).collect(),
        })
    }

    /// Whether readers may compute a member in place of its group.
    fn may_be_left_to_readers(&self, i: Inst) -> bool {
        let table = &self.table;
        let v = table.facts.f.inst_results(i)[0];
        table.facts.class[i] == InstClass::Point
            && self.need_not_be_stored(i)
            && !table.is_result(v)
            && readers_of(table, v).next().is_none()
    }
}

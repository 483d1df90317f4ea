//! The parts of a function while groups are formed.

use super::part::{Part, PartContext, PartId};
use crate::analysis::axes::TensorAxes;
use crate::analysis::class::{InstClass, PartKind};
use crate::analysis::facts::Facts;
use crate::analysis::leaves::{leaves, order};
use crate::plan::machine_model::MachineModel;
use crate::plan::refusal::Refusal;
use adfuse_ir::{Inst, Value};
use cranelift_entity::{PrimaryMap, SecondaryMap};
use smallvec::SmallVec;
use std::cmp::Reverse;

/// The parts of a function, in an order in which they can run.
pub(crate) struct Groups {
    pub(crate) parts: PrimaryMap<PartId, Part>,
    /// The part that computes a value.
    pub(crate) home: SecondaryMap<Value, Option<PartId>>,
    pub(crate) place: SecondaryMap<Value, Option<TensorAxes>>,
    /// Parts that read a value from its buffer.
    readers: SecondaryMap<Value, SmallVec<[PartId; 4]>>,
    /// Parts that run no sooner than the part that computes a value, which they may not read.
    pub(crate) waiting: SecondaryMap<Value, SmallVec<[PartId; 1]>>,
    /// How far the function has been taken, and how far when a part got its last member.
    now: u32,
    pub(crate) last: SecondaryMap<PartId, u32>,
    /// From which place on a part's members are wanted.
    pub(crate) since: SecondaryMap<PartId, u32>,
}

/// The most parts that are tried for an instruction that reads nothing they compute.
const MOST_TRIED: usize = 4;

impl Groups {
    /// The parts that read a value from its buffer.
    pub(crate) fn readers(&self, v: Value) -> &[PartId] {
        &self.readers[v]
    }

    pub(crate) fn grow(
        facts: &Facts<'_>,
        device: &MachineModel,
        apart: bool,
        since: &SecondaryMap<Inst, u32>,
    ) -> Groups {
        let n = facts.f.value_count();
        let mut groups = Groups {
            parts: PrimaryMap::new(),
            home: SecondaryMap::with_capacity(n),
            place: SecondaryMap::with_capacity(n),
            readers: SecondaryMap::with_capacity(n),
            waiting: SecondaryMap::new(),
            now: 0,
            last: SecondaryMap::new(),
            since: SecondaryMap::new(),
        };
        for (&i, now) in facts.f.body_insts().iter().zip(0..) {
            groups.now = now;
            if !matches!(facts.class[i], InstClass::Free | InstClass::Constant) {
                groups.put(facts, device, i, apart, since[i]);
            }
        }
        groups
    }

    fn put(&mut self, facts: &Facts<'_>, device: &MachineModel, i: Inst, apart: bool, since: u32) {
        let read = leaves(facts, i);
        if !apart {
            for p in self.candidates(facts, i, &read) {
                if self.last[p] >= since
                    && let Ok(place) = self.joined(facts, device, i, p)
                {
                    return self.settle(facts, i, p, (place, &read));
                }
            }
        }
        let cx = PartContext { facts, device, place: &self.place, joins_unrelated: false };
        let (part, place) = Part::begin(&cx, i);
        let p = self.parts.push(part);
        self.since[p] = since;
        self.settle(facts, i, p, (place, &read));
    }

    /// Adds an instruction to a part, if that is legal, and tells where its value lies there.
    fn joined(
        &mut self,
        facts: &Facts<'_>,
        device: &MachineModel,
        i: Inst,
        p: PartId,
    ) -> Result<TensorAxes, Refusal> {
        let home = &self.home;
        if let Some(v) = order(facts, i).into_iter().find(|&v| home[v].is_some_and(|h| h > p)) {
            return Err(Refusal::Order(v));
        }
        let inside = |v: Value| match home[v] {
            Some(h) if h > p => Err(Refusal::Order(v)),
            h => Ok(h == Some(p)),
        };
        let cx = PartContext { facts, device, place: &self.place, joins_unrelated: false };
        self.parts[p].join(&cx, i, &inside)
    }

    /// Notes where an instruction is that reads these values.
    fn settle(
        &mut self,
        facts: &Facts<'_>,
        i: Inst,
        p: PartId,
        (place, read): (TensorAxes, &[Value]),
    ) {
        let results = facts.f.inst_results(i);
        results.iter().for_each(|&v| self.home[v] = Some(p));
        self.place[results[0]] = Some(place);
        self.last[p] = self.now;
        for v in order(facts, i) {
            self.waiting[v].push(p);
        }
        for &leaf in read {
            if self.home[leaf] != Some(p) && self.readers[leaf].last() != Some(&p) {
                self.readers[leaf].push(p);
            }
        }
    }

    /// Whether the first result of a part has as many elements as that of an instruction.
    fn is_as_large(&self, facts: &Facts<'_>, p: PartId, i: Inst) -> bool {
        let elements = |i: Inst| facts.elements[facts.f.inst_results(i)[0]];
        self.parts[p].members.first().is_none_or(|&first| elements(first) == elements(i))
    }

    /// The parts an instruction might join, best first: the last that computes what it reads, then
    /// later ones that read what it reads.
    fn candidates(&self, facts: &Facts<'_>, i: Inst, leaves: &[Value]) -> SmallVec<[PartId; 4]> {
        let waits = order(facts, i);
        let last = leaves.iter().chain(&waits).filter_map(|&v| self.home[v]).max();
        let mut found: SmallVec<[PartId; 4]> = SmallVec::new();
        for &v in leaves {
            let later = self.readers[v].iter().rev().take(MOST_TRIED);
            // A number that all read is no reason to run along other axes.
            let alike = |p: &PartId| facts.elements[v] > 1 || self.is_as_large(facts, *p, i);
            found.extend(later.copied().filter(|&p| Some(p) > last).filter(alike));
        }
        // Kernels before contractions, later ones first.
        let kernel = |p: &PartId| matches!(self.parts[*p].shape, PartKind::Kernel);
        found.sort_unstable_by_key(|p| (Reverse(kernel(p)), Reverse(*p)));
        found.dedup();
        found.truncate(MOST_TRIED);
        last.into_iter().chain(found).collect()
    }
}

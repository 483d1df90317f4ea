//! Groups: which instructions share a kernel.
//!
//! Instructions are taken in order. Each joins the part that computes what it reads last, or a part
//! that reads what it reads, when [`Part::join`] allows it, and begins a part otherwise. Parts are in
//! an order from the start and an instruction joins none before the last part it needs, so no cycle
//! between parts can arise. Then what is cheaper to compute again than to keep is looked for, written
//! out where it is used, and the grouping done anew.

use crate::axes::Place;
use crate::device::Device;
use crate::facts::{Class, Facts};
use crate::part::{Around, Part, PartId, Shape};
use crate::plan::Options;
use crate::refusal::Refusal;
use crate::remat;
use adfuse_ir::{Diagnostic, Function, Inst, Value, ValueDef};
use cranelift_entity::{PrimaryMap, SecondaryMap};
use smallvec::SmallVec;
use std::cmp::Reverse;

/// How hard to look for a good plan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Effort {
    /// A kernel an instruction: what every plan is measured against.
    Off,
    /// One pass over the instructions, and one more where recomputing pays.
    Quick,
    /// As long as recomputing pays.
    #[default]
    Default,
    /// As default, and from there on a search over small changes.
    Search,
}

/// The parts of a function, in an order in which they can run.
pub(crate) struct Groups {
    pub(crate) parts: PrimaryMap<PartId, Part>,
    /// The part that computes a value.
    pub(crate) home: SecondaryMap<Value, Option<PartId>>,
    pub(crate) place: SecondaryMap<Value, Option<Place>>,
    /// Parts that read a value from its buffer.
    readers: SecondaryMap<Value, SmallVec<[PartId; 4]>>,
    /// How far the function has been taken, and how far when a part got its last member.
    now: u32,
    pub(crate) last: SecondaryMap<PartId, u32>,
    /// From which place on a part's members are wanted.
    pub(crate) since: SecondaryMap<PartId, u32>,
}

/// Groups the instructions of a prepared function.
///
/// # Errors
/// For what has no lowering: symbolic extents, tokens, effects and regions.
pub(crate) fn group<'f>(
    f: &'f Function,
    options: &Options,
    price: f64,
) -> Result<(Facts<'f>, Groups), Diagnostic> {
    group_again(f, options, price, &SecondaryMap::new())
}

/// As [`group`], with instructions that compute again what was computed before: `since` is the place in
/// the function from which on they are wanted, as a number of instructions. They share no kernel that is
/// done by then.
pub(crate) fn group_again<'f>(
    f: &'f Function,
    options: &Options,
    price: f64,
    since: &SecondaryMap<Inst, u32>,
) -> Result<(Facts<'f>, Groups), Diagnostic> {
    let (device, effort) = (&options.device, options.effort);
    let apart = effort == Effort::Off;
    let mut facts = Facts::of(f, apart)?;
    let mut groups = Groups::grow(&facts, device, apart, since);
    let rounds = match effort {
        Effort::Off => 0,
        Effort::Quick => 1,
        Effort::Default | Effort::Search => 4,
    };
    for _ in 0..rounds {
        let again = remat::worthwhile(&facts, &groups, device, price);
        if again.is_empty() {
            break;
        }
        for i in again {
            facts.set_free(i);
        }
        groups = Groups::grow(&facts, device, false, since);
    }
    Ok((facts, groups))
}

/// The most parts that are tried for an instruction that reads nothing they compute.
const MOST_TRIED: usize = 4;

impl Groups {
    /// The parts that read a value from its buffer.
    pub(crate) fn readers(&self, v: Value) -> &[PartId] {
        &self.readers[v]
    }

    fn grow(
        facts: &Facts<'_>,
        device: &Device,
        apart: bool,
        since: &SecondaryMap<Inst, u32>,
    ) -> Groups {
        let n = facts.f.value_count();
        let mut groups = Groups {
            parts: PrimaryMap::new(),
            home: SecondaryMap::with_capacity(n),
            place: SecondaryMap::with_capacity(n),
            readers: SecondaryMap::with_capacity(n),
            now: 0,
            last: SecondaryMap::new(),
            since: SecondaryMap::new(),
        };
        for (&i, now) in facts.f.body_insts().iter().zip(0..) {
            groups.now = now;
            if !matches!(facts.class[i], Class::Free | Class::Constant) {
                groups.put(facts, device, i, apart, since[i]);
            }
        }
        groups
    }

    fn put(&mut self, facts: &Facts<'_>, device: &Device, i: Inst, apart: bool, since: u32) {
        if !apart {
            for p in self.candidates(facts, i) {
                if self.last[p] >= since && self.try_join(facts, device, i, p).is_ok() {
                    return;
                }
            }
        }
        let around = Around { facts, device, place: &self.place };
        let (part, place) = Part::begin(&around, i);
        let p = self.parts.push(part);
        self.since[p] = since;
        self.settle(facts, i, p, place);
    }

    /// Adds an instruction to a part, if that is legal.
    pub(crate) fn try_join(
        &mut self,
        facts: &Facts<'_>,
        device: &Device,
        i: Inst,
        p: PartId,
    ) -> Result<(), Refusal> {
        let home = &self.home;
        let inside = |v: Value| match home[v] {
            Some(h) if h > p => Err(Refusal::Order(v)),
            h => Ok(h == Some(p)),
        };
        let around = Around { facts, device, place: &self.place };
        let place = self.parts[p].join(&around, i, &inside)?;
        self.settle(facts, i, p, place);
        Ok(())
    }

    fn settle(&mut self, facts: &Facts<'_>, i: Inst, p: PartId, place: Place) {
        let v = facts.f.inst_results(i)[0];
        self.home[v] = Some(p);
        self.place[v] = Some(place);
        self.last[p] = self.now;
        for leaf in leaves(facts, i) {
            if self.home[leaf] != Some(p) && self.readers[leaf].last() != Some(&p) {
                self.readers[leaf].push(p);
            }
        }
    }

    /// The parts an instruction might join, best first: the last that computes what it reads, then
    /// later ones that read what it reads.
    fn candidates(&self, facts: &Facts<'_>, i: Inst) -> SmallVec<[PartId; 4]> {
        let leaves = leaves(facts, i);
        let last = leaves.iter().filter_map(|&v| self.home[v]).max();
        let mut found: SmallVec<[PartId; 4]> = SmallVec::new();
        for &v in &leaves {
            let later = self.readers[v].iter().rev().take(MOST_TRIED);
            found.extend(later.copied().filter(|&p| Some(p) > last));
        }
        // Kernels before contractions, later ones first.
        let kernel = |p: &PartId| matches!(self.parts[*p].shape, Shape::Kernel);
        found.sort_unstable_by_key(|p| (Reverse(kernel(p)), Reverse(*p)));
        found.dedup();
        found.truncate(MOST_TRIED);
        last.into_iter().chain(found).collect()
    }
}

/// What an instruction reads once free ones are written out, constants apart.
pub(crate) fn leaves(facts: &Facts<'_>, i: Inst) -> SmallVec<[Value; 8]> {
    leaves_under(facts.f, i, |j| facts.class[j] == Class::Free)
}

/// As [`leaves`], where `free` says what is written out.
pub(crate) fn leaves_under(
    f: &Function,
    i: Inst,
    free: impl Fn(Inst) -> bool,
) -> SmallVec<[Value; 8]> {
    let (mut found, mut seen) = (SmallVec::new(), SmallVec::<[Inst; 8]>::new());
    let mut stack: SmallVec<[Inst; 8]> = SmallVec::from_iter([i]);
    while let Some(i) = stack.pop() {
        for &a in f.args(i) {
            match f.def(a) {
                ValueDef::Literal(_) => {}
                ValueDef::Inst(j, _) if free(j) => {
                    if !seen.contains(&j) {
                        seen.push(j);
                        stack.push(j);
                    }
                }
                _ if found.contains(&a) => {}
                _ => found.push(a),
            }
        }
    }
    found
}

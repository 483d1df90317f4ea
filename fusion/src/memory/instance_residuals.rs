//! The residuals of a plan in which groups recur, without the function in which instances are instructions.
//!
//! The plans of a frontier are many, and all that is asked of most of them is which values one phase leaves to a later one. So
//! instances are listed as [`instances`](crate::lower::instances) makes them, by number: each reads the latest one before it.

use crate::analysis::facts::Facts;
use crate::plan::Plan;
use adfuse_ir::{Function, Inst, Phase, Value, ValueDef};
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// An instance of an instruction. Its results are numbered from `first` on.
struct InstInstance {
    inst: Inst,
    phase: Phase,
    /// The group that computes it; `None` for what is written out.
    group: Option<u32>,
    first: u32,
    /// The numbers of the values that it reads, but for parameters and literals.
    reads: SmallVec<[u32; 4]>,
}

/// The instances of a plan, in the order in which they are made.
struct NumberedInstances<'f> {
    f: &'f Function,
    inline: EntitySet<Inst>,
    all: Vec<InstInstance>,
    /// For each number the instance whose result it is, and the value.
    made_by: Vec<(u32, Value)>,
    /// The numbers of the first and of the last instance of a value, and 1.
    first: SecondaryMap<Value, u32>,
    last: SecondaryMap<Value, u32>,
    latest: Phase,
    /// The member, counted from 1, for which an instruction was written out last. What is read twice is gone through once: ways
    /// through it are exponentially many.
    written_for: SecondaryMap<Inst, u32>,
}

impl<'f> NumberedInstances<'f> {
    fn of(f: &'f Function, plan: &Plan) -> NumberedInstances<'f> {
        let mut inline = EntitySet::new();
        inline.extend(plan.inline.iter().copied());
        let mut instances = NumberedInstances {
            f,
            inline,
            all: Vec::new(),
            made_by: Vec::new(),
            first: SecondaryMap::new(),
            last: SecondaryMap::new(),
            latest: Phase::default(),
            written_for: SecondaryMap::new(),
        };
        let mut member = 0;
        for (group, g) in plan.groups.iter().zip(0..) {
            for &i in group.parts.iter().flatten() {
                member += 1;
                f.args(i).iter().for_each(|&a| instances.write_out(a, member));
                instances.push(i, Some(g));
            }
        }
        instances
    }

    /// The latest instances of what an instruction reads.
    fn reads(&self, i: Inst) -> SmallVec<[u32; 4]> {
        self.f.args(i).iter().filter_map(|&a| self.last[a].checked_sub(1)).collect()
    }

    fn push(&mut self, inst: Inst, group: Option<u32>) {
        let (f, reads) = (self.f, self.reads(inst));
        let own = f.inst(inst).phase;
        // What is computed again belongs to the pass that asks for it.
        self.latest = self.latest.max(own);
        let again = f.inst_results(inst).iter().any(|&v| self.last[v] > 0);
        let phase = if again { self.latest } else { own };
        let (at, first) = (self.all.len() as u32, self.made_by.len() as u32);
        for &v in f.inst_results(inst) {
            self.made_by.push((at, v));
            self.last[v] = self.made_by.len() as u32;
            if self.first[v] == 0 {
                self.first[v] = self.last[v];
            }
        }
        self.all.push(InstInstance { inst, phase, group, first, reads });
    }

    /// Sees to it that what is written out for a member has an instance that reads the latest ones.
    fn write_out(&mut self, v: Value, member: u32) {
        let ValueDef::Inst(i, _) = self.f.def(v) else { return };
        if !self.inline.contains(i) || self.written_for[i] == member {
            return;
        }
        self.written_for[i] = member;
        self.f.args(i).iter().for_each(|&a| self.write_out(a, member));
        let known = self.last[v].checked_sub(1).map(|n| self.made_by[n as usize].0 as usize);
        if known.is_none_or(|known| self.all[known].reads != self.reads(i)) {
            self.push(i, None);
        }
    }

    /// For each instance the first phase that it is needed for, as [`served`](crate::analysis::phases::served).
    fn served(&self) -> Vec<Phase> {
        let mut needed: Vec<Option<Phase>> = vec![None; self.made_by.len()];
        for n in self.f.results().iter().filter_map(|&v| self.first[v].checked_sub(1)) {
            needed[n as usize] = Some(self.all[self.made_by[n as usize].0 as usize].phase);
        }
        let mut serves = vec![Phase::default(); self.all.len()];
        for (instance, serves) in self.all.iter().zip(&mut serves).rev() {
            let from = instance.first as usize;
            let results = from..from + self.f.inst_results(instance.inst).len();
            let first = needed[results].iter().flatten().min().copied();
            *serves = instance.phase.max(first.unwrap_or(instance.phase));
            for &n in &instance.reads {
                let needed = &mut needed[n as usize];
                *needed = Some(needed.map_or(*serves, |p| p.min(*serves)));
            }
        }
        serves
    }

    /// What an instance reads once all is written out that is. `seen_for` says for each instance that is written out for which one
    /// it has been gone through last.
    fn leaves(&self, reader: usize, seen_for: &mut [Option<usize>], found: &mut Vec<u32>) {
        let mut open: SmallVec<[usize; 8]> = SmallVec::from_iter([reader]);
        while let Some(at) = open.pop() {
            for &n in &self.all[at].reads {
                let by = self.made_by[n as usize].0 as usize;
                match self.all[by].group {
                    None if seen_for[by].replace(reader) == Some(reader) => {}
                    None => open.push(by),
                    Some(_) if found.contains(&n) => {}
                    Some(_) => found.push(n),
                }
            }
        }
    }
}

/// The temporaries of a plan that an instruction reads which serves a later phase alone: a value for each instance of it.
/// The plan is one that is linked.
pub(super) fn left_to_later(known: &Facts<'_>, plan: &Plan) -> Vec<Value> {
    let f = known.f;
    let instances = NumberedInstances::of(f, plan);
    let serves = instances.served();
    let mut is_result = vec![false; instances.made_by.len()];
    for n in f.results().iter().filter_map(|&v| instances.first[v].checked_sub(1)) {
        is_result[n as usize] = true;
    }
    let (mut left, mut read) = (Vec::new(), Vec::new());
    let mut seen_for = vec![None; instances.all.len()];
    for (at, instance) in instances.all.iter().enumerate() {
        let Some(group) = instance.group else { continue };
        read.clear();
        instances.leaves(at, &mut seen_for, &mut read);
        for &n in &read {
            let by = &instances.all[instances.made_by[n as usize].0 as usize];
            let is_left = by.group != Some(group) && !is_result[n as usize];
            if is_left && serves[at] > by.phase {
                left.push(n);
            }
        }
    }
    left.sort_unstable();
    left.dedup();
    left.into_iter().map(|n| instances.made_by[n as usize].1).collect()
}

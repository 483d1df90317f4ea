//! Fusion candidates: pairs of kernels of an unfused program, what fusing them would save, and whether a plan fuses
//! them.
//!
//! The list is for people. Plans are made by [`group`](crate::fuse::group), which does not read it.

mod candidate;
pub(crate) mod weigh;

use super::patterns::{PatternMatch, patterns};
use super::words::SentenceWriter;
use super::{Explainer, Occurrences};
use crate::analysis::axes::TensorAxes;
use crate::analysis::class::InstClass;
use crate::analysis::facts::Facts;
use crate::fuse::part::{Part, PartContext};
use crate::plan::Plan;
use crate::plan::machine_model::MachineModel;
use crate::plan::refusal::Refusal;
use adfuse_ir::op::Body;
use adfuse_ir::{Diagnostic, Function, Inst, Value, ValueDef};
pub use candidate::{Candidate, Relation};
use candidate::{CandidateUnit, Search};
use cranelift_entity::SecondaryMap;
use hashbrown::HashSet;

/// The most readers of a value that are paired with the next.
const MOST_SIBLINGS: usize = 8;

/// The fusion opportunities of a prepared function, the best first.
///
/// # Errors
/// Those of [`lower`](crate::lower()) for a plan that does not fit the function.
pub fn candidates(
    f: &Function,
    plan: &Plan,
    device: &MachineModel,
) -> Result<Vec<Candidate>, Diagnostic> {
    let facts = Facts::of(f, false)?;
    let planned = Occurrences::of(f, plan)?;
    let explainer = Explainer::new(&planned, device)?;
    let words = SentenceWriter::new(f, plan, device, "");
    let mut position = SecondaryMap::with_capacity(f.inst_count());
    for (n, &i) in f.body_insts().iter().enumerate() {
        position[i] = n as u32;
    }
    let mut search = Search {
        position,
        place: SecondaryMap::with_capacity(f.value_count()),
        facts: &facts,
        device,
        explainer,
        words,
        units: Vec::new(),
        unit_of: SecondaryMap::new(),
        found: Vec::new(),
        seen: HashSet::new(),
    };
    search.units(patterns(f));
    search.pairs();
    search.siblings();
    let mut found = search.found;
    // Stable, so that equal scores keep the order of the function.
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    Ok(found)
}

impl Search<'_> {
    fn result(&self, i: Inst) -> Value {
        self.facts.f.inst_results(i)[0]
    }

    fn is_given(&self, i: Inst) -> bool {
        self.facts.class[i] == InstClass::Constant
    }

    fn is_view(&self, i: Inst) -> bool {
        matches!(self.facts.f.op(i).def().body, Body::View(_) | Body::Source(_))
    }

    /// Divides the function into units: patterns, the largest first, and what is left.
    fn units(&mut self, found: Vec<PatternMatch>) {
        let mut order: Vec<usize> = (0..found.len()).collect();
        order.sort_by_key(|&k| std::cmp::Reverse(found[k].insts.len()));
        for k in order {
            let pattern = &found[k];
            let taken = pattern.insts.iter().any(|&i| self.unit_of[i].is_some());
            // Attention is more than neighbours ask for: what it is made of are the units.
            if !taken && !matches!(pattern.name, "attention" | "q/k/v") {
                self.unit(Some(pattern.name), pattern.insts.clone());
            }
        }
        for &i in self.facts.f.body_insts() {
            if self.unit_of[i].is_none() && !self.is_given(i) && !self.is_view(i) {
                self.unit(None, vec![i]);
            }
        }
        for pattern in found {
            let relation = match pattern.name {
                "q/k/v" => Relation::Siblings,
                _ => Relation::Pattern,
            };
            self.add(relation, pattern.name.into(), vec![pattern.name], pattern.insts);
        }
    }

    fn unit(&mut self, name: Option<&'static str>, insts: Vec<Inst>) {
        let id = self.units.len() as u32;
        for &i in &insts {
            self.unit_of[i] = Some(id);
        }
        self.units.push(CandidateUnit { name, insts });
    }

    /// The unit that makes a value, under views that are in none; those are added to `views`.
    fn maker(&self, v: Value, views: &mut Vec<Inst>) -> Option<u32> {
        let mut v = v;
        loop {
            let ValueDef::Inst(i, _) = self.facts.f.def(v) else { return None };
            match self.unit_of[i] {
                Some(u) => return Some(u),
                None if self.is_view(i) => {
                    views.push(i);
                    v = *self.facts.f.args(i).first()?;
                }
                None => return None,
            }
        }
    }

    fn name(&self, u: u32) -> &'static str {
        let unit = &self.units[u as usize];
        unit.name.unwrap_or_else(|| unit.insts.last().map_or("", |&i| self.facts.f.op(i).name()))
    }

    fn joint(&mut self, relation: Relation, a: u32, b: u32, views: Vec<Inst>) {
        let mut insts = views;
        for u in [a, b] {
            insts.extend(&self.units[u as usize].insts);
        }
        let sign = if relation == Relation::Siblings { "," } else { " +" };
        let name = format!("{}{sign} {}", self.name(a), self.name(b));
        let patterns = [a, b].iter().filter_map(|&u| self.units[u as usize].name).collect();
        insts.sort_unstable_by_key(|&i| self.position[i]);
        insts.dedup();
        self.add(relation, name, patterns, insts);
    }

    /// Units of which one reads the other.
    fn pairs(&mut self) {
        for b in 0..self.units.len() as u32 {
            let insts = self.units[b as usize].insts.clone();
            let mut done: Vec<u32> = Vec::new();
            for v in insts.iter().flat_map(|&i| self.facts.f.args(i)) {
                let mut views = Vec::new();
                let Some(a) = self.maker(*v, &mut views) else { continue };
                if a == b || done.contains(&a) {
                    continue;
                }
                done.push(a);
                let contracts = |u: u32| {
                    let insts = &self.units[u as usize].insts;
                    insts.iter().any(|&i| self.facts.class[i] == InstClass::Contract)
                };
                let relation = if contracts(a) { Relation::Epilogue } else { Relation::Producer };
                self.joint(relation, a, b, views);
            }
        }
    }

    /// Units that read one tensor, each with the next.
    fn siblings(&mut self) {
        let f = self.facts.f;
        let values: Vec<Value> = f
            .params()
            .iter()
            .copied()
            .chain(f.body_insts().iter().map(|&i| f.inst_results(i)[0]))
            .collect();
        for v in values {
            if self.facts.elements[v] < 2 {
                continue;
            }
            let mut readers: Vec<u32> = Vec::new();
            for &i in &self.facts.users[v] {
                if let Some(u) = self.unit_of[i]
                    && !readers.contains(&u)
                {
                    readers.push(u);
                }
            }
            readers.truncate(MOST_SIBLINGS);
            for pair in readers.windows(2) {
                self.joint(Relation::Siblings, pair[0], pair[1], Vec::new());
            }
        }
    }

    /// Weighs a set, unless it was weighed before.
    fn add(
        &mut self,
        relation: Relation,
        name: String,
        patterns: Vec<&'static str>,
        insts: Vec<Inst>,
    ) {
        let kernels = insts.iter().filter(|&&i| !self.is_given(i)).count();
        if kernels < 2 || self.seen.contains(&insts) {
            return;
        }
        let bytes_apart: f64 = insts.iter().map(|&i| self.bytes(&[i])).sum();
        let bytes_together = self.bytes(&insts);
        let device = self.device;
        let seconds = |i: Inst| {
            let memory = self.bytes(&[i]) / device.memory_bytes_per_s;
            device.launch_s + memory.max(self.seconds(i))
        };
        let apart: f64 = insts.iter().map(|&i| seconds(i)).sum();
        let launches = (kernels - 1) as f64 * device.launch_s;
        let operations: f64 = insts.iter().map(|&i| self.operations(i)).sum();
        let folds = insts
            .iter()
            .filter(|&&i| !matches!(self.facts.class[i], InstClass::Point | InstClass::Free));
        let mut candidate = Candidate {
            relation,
            name,
            patterns,
            values: insts.iter().map(|&i| self.result(i)).collect(),
            bytes_apart,
            bytes_together,
            launch_share: if apart > 0.0 { launches / apart } else { 0.0 },
            registers: self.registers(&insts),
            primitives: insts.iter().fold(0, |n: u32, &i| n.saturating_add(self.facts.weight[i])),
            folds: folds.count() as u32,
            intensity: operations / bytes_together.max(1.0),
            balance: device.ops_per_s / device.memory_bytes_per_s,
            score: 0.0,
            refused: None,
            fused: false,
            reason: String::new(),
        };
        candidate.refused = self.refused(relation, &insts);
        candidate.score = weigh::score(&candidate, device);
        (candidate.fused, candidate.reason) = self.taken(&insts);
        self.seen.insert(insts);
        self.found.push(candidate);
    }

    /// Why one kernel cannot compute these instructions.
    fn refused(&mut self, relation: Relation, insts: &[Inst]) -> Option<String> {
        let contraction = |i: &Inst| self.facts.class[*i] == InstClass::Contract;
        if relation == Relation::Siblings && insts.iter().all(contraction) {
            // Contractions that share an operand are members of one step.
            return None;
        }
        let mut place = std::mem::take(&mut self.place);
        let why = self.tried(insts, &mut place);
        for &i in insts {
            place[self.result(i)] = None;
        }
        self.place = place;
        let first = insts.iter().any(contraction);
        why.err().map(|(i, why)| self.words.refusal(self.result(i), first, why))
    }

    /// Puts instructions into one part; the first that does not join, and why.
    fn tried(
        &self,
        insts: &[Inst],
        place: &mut SecondaryMap<Value, Option<TensorAxes>>,
    ) -> Result<(), (Inst, Refusal)> {
        let mut part: Option<Part> = None;
        let mut home: HashSet<Value> = HashSet::new();
        for &i in insts {
            if matches!(self.facts.class[i], InstClass::Free | InstClass::Constant) {
                continue;
            }
            let cx = PartContext {
                facts: self.facts,
                device: self.device,
                place,
                joins_unrelated: false,
            };
            let at = match &mut part {
                None => {
                    let (begun, at) = Part::begin(&cx, i);
                    part = Some(begun);
                    at
                }
                Some(part) => {
                    let inside = |v: Value| Ok::<bool, Refusal>(home.contains(&v));
                    part.join(&cx, i, &inside).map_err(|why| (i, why))?
                }
            };
            let v = self.result(i);
            place[v] = Some(at);
            home.insert(v);
        }
        Ok(())
    }

    /// Whether the plan has these instructions in one group; which, or why not.
    fn taken(&self, insts: &[Inst]) -> (bool, String) {
        let values: Vec<Value> =
            insts.iter().filter(|&&i| !self.is_given(i)).map(|&i| self.result(i)).collect();
        let stored: Vec<Value> =
            values.iter().filter(|v| !self.explainer.is_written(**v)).copied().collect();
        let Some(&first) = stored.first() else {
            return (true, "all of it is written out where it is used".into());
        };
        let mut groups = self.explainer.groups(first);
        for &v in &stored[1..] {
            let own = self.explainer.groups(v);
            groups.retain(|g| own.contains(g));
            if groups.is_empty() {
                let why = self.explainer.not_shared(v, first, true);
                return (false, why.map(|a| self.words.not_shared(&a)).unwrap_or_default());
            }
        }
        (true, groups.first().map_or_else(String::new, |g| format!("group {g}")))
    }
}

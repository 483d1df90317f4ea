//! A simulator of dynamic tensor rematerialization (Kirisame et al., ICLR 2021) with its heuristic `h_DTR` over evicted
//! neighbourhoods `e*`, kept exactly.
//!
//! Operations run in the order of the graph, and nothing is known of those to come. Where memory is short, the value
//! goes whose time, with that of the evicted values that it depends on and that depend on it, is least for its bytes
//! and the time since it was used. A value that the program has read for the last time goes at once; one that is
//! computed again later stays until it is evicted.

use adfuse::fusion::remat::schedule::{CostGraph, OpId, OpRole, Operation};
use std::collections::BTreeSet;

/// From how many times the time of one run on a budget counts as too small.
const MOST: u64 = 8;

struct DtrSimulator<'g> {
    g: &'g CostGraph,
    budget: u64,
    bytes: u64,
    clock: u64,
    there: Vec<bool>,
    ran: Vec<bool>,
    locks: Vec<u32>,
    used: Vec<u64>,
    /// Readers in the program that have not run.
    readers: Vec<usize>,
    root: Vec<usize>,
    views: Vec<Vec<usize>>,
    resident: BTreeSet<usize>,
}

/// The time of a graph within a budget; nothing if it does not fit, or takes far too long.
pub(crate) fn simulate(g: &CostGraph, budget: u64) -> Option<u64> {
    let ids: Vec<OpId> = g.ops().keys().collect();
    let n = ids.len();
    let mut root: Vec<usize> = (0..n).collect();
    let mut views = vec![Vec::new(); n];
    for (k, op) in g.ops().values().enumerate() {
        if let Some(of) = op.alias {
            root[k] = root[of.as_u32() as usize];
        }
        views[root[k]].push(k);
    }
    let readers = ids.iter().map(|&o| g.users(o).len() + usize::from(g.ops()[o].output)).collect();
    let mut s = DtrSimulator {
        g,
        budget,
        bytes: 0,
        clock: 0,
        there: vec![false; n],
        ran: vec![false; n],
        locks: vec![0; n],
        used: vec![0; n],
        readers,
        root,
        views,
        resident: BTreeSet::new(),
    };
    ids.iter().filter(|&&o| g.is_source(o)).for_each(|o| s.arrive(o.as_u32() as usize));
    for op in g.runs() {
        s.program_runs(op.as_u32() as usize)?;
    }
    for (k, _) in g.ops().values().enumerate().filter(|(_, o)| o.output) {
        if !s.there[k] {
            s.run(k)?;
        }
        s.locks[k] += 1;
    }
    Some(s.clock)
}

impl DtrSimulator<'_> {
    fn op(&self, k: usize) -> &Operation {
        &self.g.ops()[OpId::from_u32(k as u32)]
    }

    fn inputs(&self, k: usize) -> Vec<usize> {
        self.op(k).inputs.iter().map(|p| p.as_u32() as usize).collect()
    }

    fn program_runs(&mut self, k: usize) -> Option<()> {
        let further = self.op(k).result_of.is_some() && self.there[k];
        if !further {
            self.run(k)?;
        }
        for p in self.inputs(k) {
            self.readers[p] -= 1;
            self.release(p);
        }
        self.release(k);
        Some(())
    }

    /// Evicts what the program will not read again.
    fn release(&mut self, k: usize) {
        let root = self.root[k];
        let stays = |&v: &usize| {
            self.there[v]
                && (self.readers[v] > 0 || self.locks[v] > 0 || self.op(v).role != OpRole::Computed)
        };
        if self.there[root] && !self.views[root].iter().any(stays) {
            self.evict(root);
        }
    }

    /// Runs an operation, and before it what it reads and is not there.
    fn run(&mut self, k: usize) -> Option<()> {
        let mut waiting = vec![(k, 0)];
        while let Some((v, next)) = waiting.pop() {
            // The operation of a further result runs again with what it reads.
            let runs = self.op(v).result_of.map_or(v, |of| of.as_u32() as usize);
            let inputs = self.inputs(runs);
            if let Some(&p) = inputs.get(next) {
                if self.there[p] {
                    self.locks[p] += 1;
                    waiting.push((v, next + 1));
                } else {
                    waiting.extend([(v, next), (p, 0)]);
                }
                continue;
            }
            self.compute(runs, v)?;
            for p in inputs {
                self.locks[p] -= 1;
                self.used[p] = self.clock;
            }
        }
        Some(())
    }

    /// Runs an operation whose inputs are there; of several results it keeps those that are wanted.
    fn compute(&mut self, runs: usize, wanted: usize) -> Option<()> {
        let id = OpId::from_u32(runs as u32);
        let own = if self.there[runs] { 0 } else { self.op(runs).bytes };
        self.make_room(own + self.g.further_bytes(id))?;
        self.clock += self.op(runs).time;
        if self.clock > MOST * self.g.time().max(1) {
            return None;
        }
        let first_time = !self.ran[runs];
        let further = self.g.users(id).iter().filter(|&&u| self.g.ops()[u].result_of == Some(id));
        let further: Vec<usize> = further.map(|u| u.as_u32() as usize).collect();
        for v in [runs].into_iter().chain(further) {
            if !self.there[v] && (v == wanted || v == runs || first_time) {
                self.arrive(v);
            }
        }
        Some(())
    }

    fn arrive(&mut self, k: usize) {
        (self.there[k], self.ran[k], self.used[k]) = (true, true, self.clock);
        if self.root[k] == k {
            self.bytes += self.op(k).bytes;
            self.resident.insert(k);
        }
    }

    fn evict(&mut self, root: usize) {
        self.views[root].iter().for_each(|&v| self.there[v] = false);
        self.bytes -= self.op(root).bytes;
        self.resident.remove(&root);
    }

    fn make_room(&mut self, bytes: u64) -> Option<()> {
        while self.bytes + bytes > self.budget {
            let ranked = self.resident.iter().filter_map(|&r| Some((self.rank(r)?, r)));
            let (_, worst) = ranked.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))?;
            self.evict(worst);
        }
        Some(())
    }

    /// `h_DTR`; nothing for what must stay.
    fn rank(&self, root: usize) -> Option<f64> {
        let bytes = self.op(root).bytes;
        let views: Vec<usize> =
            self.views[root].iter().copied().filter(|&v| self.there[v]).collect();
        let stays = |v: &usize| self.locks[*v] > 0 || self.op(*v).role != OpRole::Computed;
        if bytes == 0 || views.iter().any(stays) {
            return None;
        }
        let mut met: BTreeSet<usize> = views.iter().copied().collect();
        let mut cost: u64 = views.iter().map(|&v| self.op(v).time).sum();
        let used = views.iter().map(|&v| self.used[v]).max().unwrap_or(0);
        let is_gone = |v: &usize| self.ran[*v] && !self.there[*v];
        for ancestors in [true, false] {
            let mut open = views.clone();
            while let Some(v) = open.pop() {
                let next = if ancestors {
                    self.inputs(v)
                } else {
                    self.g
                        .users(OpId::from_u32(v as u32))
                        .iter()
                        .map(|u| u.as_u32() as usize)
                        .collect()
                };
                for u in next.into_iter().filter(is_gone) {
                    if met.insert(u) {
                        cost += self.op(u).time;
                        open.push(u);
                    }
                }
            }
        }
        let stale = (self.clock - used).max(1);
        Some(cost as f64 / bytes as f64 / stale as f64)
    }
}

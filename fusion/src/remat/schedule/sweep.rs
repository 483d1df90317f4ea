//! Schedules made in one pass: those that recompute a given set, and those within a target peak.
//!
//! The pass visits the graph in order. If an operand is not in memory, it is recomputed first. If the live values and
//! the new one exceed the target, the value is evicted that has the lowest recomputation cost for its bytes and the
//! time until its next use. This is the eviction order of dynamic tensor rematerialization (Kirisame et al., 2021),
//! with the future known.

use super::cost_graph::{CostGraph, OpId, OpRole};
use cranelift_entity::{EntityRef, EntitySet};

/// Saves what later phases need but for a set, which is computed again once, where it is read first.
pub(crate) fn recomputing(g: &CostGraph, again: &EntitySet<OpId>) -> Vec<OpId> {
    let mut steps = Vec::new();
    let mut there = EntitySet::<OpId>::new();
    for op in g.runs() {
        if g.ops()[op].phase.0 > 0 {
            let mut waiting = vec![op];
            while let Some(&v) = waiting.last() {
                let lacks = |p: &&OpId| again.contains(**p) && !there.contains(**p);
                if let Some(&p) = g.ops()[v].inputs.iter().find(lacks) {
                    waiting.push(p);
                } else {
                    waiting.pop();
                    there.insert(v);
                    steps.push(v);
                }
            }
        } else {
            steps.push(op);
        }
    }
    steps
}

/// How the next value to go is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionRule {
    /// By the time to compute it again, for a byte.
    Cost,
    /// The same, the later it is read the better.
    Stale,
}

/// A schedule that tries to stay within a target; nothing if it computes far too much.
pub(crate) fn within(g: &CostGraph, target: u64, choice: EvictionRule) -> Option<Vec<OpId>> {
    let mut sweep = EvictionSweep::new(g, target, choice);
    for op in g.runs() {
        sweep.now = op.index();
        sweep.run(op)?;
    }
    sweep.now = g.ops().len();
    for (op, _) in g.ops().iter().filter(|(_, o)| o.output) {
        if !sweep.there[op.index()] {
            sweep.run(op)?;
        }
    }
    Some(sweep.steps)
}

struct EvictionSweep<'g> {
    g: &'g CostGraph,
    target: u64,
    choice: EvictionRule,
    steps: Vec<OpId>,
    /// The operation whose turn it is.
    now: usize,
    /// For each value whether it is there.
    there: Vec<bool>,
    /// For each value how many of its readers have had their turn.
    read: Vec<usize>,
    /// For each value by how many waiting operations it must not be taken away.
    held: Vec<u32>,
    /// For each value the one whose memory it is in.
    root: Vec<OpId>,
    /// For each value the values in its memory, itself first; for roots alone.
    members: Vec<Vec<OpId>>,
    /// What it took to compute a value that has gone, with what had gone before it.
    cost: Vec<f64>,
    /// The values that are there and have memory of their own.
    resident: Vec<OpId>,
    bytes: u64,
}

/// How often all operations may run, all together.
const MOST_RUNS: usize = 8;
/// From how many resident values on several go at once.
const MANY: usize = 64;

impl<'g> EvictionSweep<'g> {
    fn new(g: &'g CostGraph, target: u64, choice: EvictionRule) -> EvictionSweep<'g> {
        let n = g.ops().len();
        let mut root: Vec<OpId> = g.ops().keys().collect();
        let mut members: Vec<Vec<OpId>> = vec![Vec::new(); n];
        for (id, op) in g.ops().iter() {
            if let Some(of) = op.alias {
                root[id.index()] = root[of.index()];
            }
            members[root[id.index()].index()].push(id);
        }
        let mut sweep = EvictionSweep {
            g,
            target,
            choice,
            steps: Vec::new(),
            now: 0,
            there: vec![false; n],
            read: vec![0; n],
            held: vec![0; n],
            root,
            members,
            cost: vec![0.0; n],
            resident: Vec::new(),
            bytes: 0,
        };
        for id in g.ops().keys().filter(|&o| g.is_source(o)) {
            sweep.arrive(id);
        }
        sweep
    }

    /// Runs an operation, and before that what it reads and is not there.
    fn run(&mut self, op: OpId) -> Option<()> {
        let mut waiting = vec![(op, 0)];
        while let Some((v, next)) = waiting.pop() {
            let inputs = &self.g.ops()[v].inputs;
            if let Some(&p) = inputs.get(next) {
                if self.there[p.index()] {
                    self.held[p.index()] += 1;
                    waiting.push((v, next + 1));
                } else {
                    waiting.push((v, next));
                    waiting.push((p, 0));
                }
                continue;
            }
            if self.steps.len() > MOST_RUNS * self.g.ops().len() {
                return None;
            }
            self.make_room(self.g.ops()[v].bytes);
            self.steps.push(v);
            self.arrive(v);
            for &p in inputs {
                self.held[p.index()] -= 1;
                self.leave_if_read(p);
            }
            if waiting.is_empty() {
                self.leave_if_read(v);
            }
        }
        Some(())
    }

    fn arrive(&mut self, v: OpId) {
        self.there[v.index()] = true;
        if self.root[v.index()] == v {
            self.resident.push(v);
            self.bytes = self.bytes.saturating_add(self.g.ops()[v].bytes);
        }
    }

    /// The turn at which a value is read next.
    fn next_read(&mut self, v: OpId) -> Option<usize> {
        let users = self.g.users(v);
        let read = &mut self.read[v.index()];
        // Its own turn is over when this is asked.
        while users.get(*read).is_some_and(|u| u.index() <= self.now) {
            *read += 1;
        }
        let end = self.g.ops()[v].output.then_some(self.g.ops().len());
        users.get(*read).map(|u| u.index()).or(end)
    }

    /// Frees memory in which nothing is needed any more.
    fn leave_if_read(&mut self, v: OpId) {
        let root = self.root[v.index()];
        for k in 0..self.members[root.index()].len() {
            let m = self.members[root.index()][k];
            if !self.there[m.index()] {
                continue;
            }
            // What cannot be computed again may be what something else is computed again from.
            let once = self.g.ops()[m].role != OpRole::Computed;
            if once || self.held[m.index()] > 0 || self.next_read(m).is_some() {
                return;
            }
        }
        self.leave(root);
    }

    /// Takes away a value and its views.
    fn leave(&mut self, root: OpId) {
        for k in 0..self.members[root.index()].len() {
            let m = self.members[root.index()][k];
            if std::mem::replace(&mut self.there[m.index()], false) {
                self.cost[m.index()] = self.cost_of(m);
            }
        }
        self.bytes = self.bytes.saturating_sub(self.g.ops()[root].bytes);
        self.resident.retain(|&v| v != root);
    }

    /// What it would take to compute a value again.
    fn cost_of(&self, v: OpId) -> f64 {
        let op = &self.g.ops()[v];
        let gone = op.inputs.iter().filter(|p| !self.there[p.index()]);
        op.time as f64 + gone.map(|p| self.cost[p.index()]).sum::<f64>()
    }

    /// Takes values away until there is room, or nothing is left to take away.
    fn make_room(&mut self, bytes: u64) {
        let excess = self.bytes.saturating_add(bytes).saturating_sub(self.target);
        if excess == 0 {
            return;
        }
        let mut candidates: Vec<(f64, OpId)> = Vec::new();
        for k in 0..self.resident.len() {
            let v = self.resident[k];
            if let Some(rank) = self.rank(v) {
                candidates.push((rank, v));
            }
        }
        let slack = if candidates.len() > MANY { self.target >> 6 } else { 0 };
        candidates.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut freed = 0u64;
        for (_, v) in candidates {
            if freed >= excess.saturating_add(slack) {
                return;
            }
            // What goes raises the price of what it was made of and has not gone yet; that is seen at
            // the next time.
            freed = freed.saturating_add(self.g.ops()[v].bytes);
            self.leave(v);
        }
    }

    /// The lower, the sooner a value goes; nothing if it must stay.
    fn rank(&mut self, root: OpId) -> Option<f64> {
        let bytes = self.g.ops()[root].bytes;
        if bytes == 0 || self.g.is_source(root) {
            return None;
        }
        let (mut cost, mut next) = (0.0, usize::MAX);
        for k in 0..self.members[root.index()].len() {
            let m = self.members[root.index()][k];
            if !self.there[m.index()] {
                continue;
            }
            if self.held[m.index()] > 0 || self.g.ops()[m].role == OpRole::Once {
                return None;
            }
            cost += self.cost_of(m);
            next = next.min(self.next_read(m).unwrap_or(usize::MAX));
        }
        let distance = match self.choice {
            EvictionRule::Cost => 1,
            EvictionRule::Stale => next.saturating_sub(self.now).max(1),
        };
        Some(cost / bytes as f64 / distance as f64)
    }
}

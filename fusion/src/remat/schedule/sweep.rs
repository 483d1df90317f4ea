//! Schedules made in one pass: those that recompute a given set, and those within a target peak.
//!
//! The pass visits the graph in order. If an operand is not in memory, it is recomputed first. If the live values and
//! the new one exceed the target, values are evicted, those with the lowest [rank](EvictionRule) first. With
//! [`RecomputationCost::Neighbourhood`] and [`Staleness::SinceRead`] this is dynamic tensor rematerialization (Kirisame
//! et al., 2021); the other rules know when a value is read next. A value that was recomputed stays until no value that
//! is not in memory and will be read depends on it, so that several readers share one run.

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

/// What counts as the cost of evicting a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecomputationCost {
    /// The time of its operation and of those it depends on that are not in memory either.
    Ancestors,
    /// The same, and the time of what depends on it, was computed and is not in memory.
    Neighbourhood,
}

/// How long a value has not been read, or will not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Staleness {
    /// Not considered.
    Ignored,
    /// Operations of the graph until it is read, or until something is that depends on it and is not in memory.
    UntilNeed,
    /// The time of the operations of the graph until it is read.
    UntilRead,
    /// The time of the steps since it was read.
    SinceRead,
}

/// The rank of a value: its cost, divided by its bytes and by its staleness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvictionRule {
    cost: RecomputationCost,
    staleness: Staleness,
}

/// The rules, those first that did best on recorded networks. No one of them is best for all graphs and targets.
pub(crate) const RULES: [EvictionRule; 4] = [
    EvictionRule { cost: RecomputationCost::Ancestors, staleness: Staleness::UntilRead },
    EvictionRule { cost: RecomputationCost::Neighbourhood, staleness: Staleness::SinceRead },
    EvictionRule { cost: RecomputationCost::Ancestors, staleness: Staleness::UntilNeed },
    EvictionRule { cost: RecomputationCost::Ancestors, staleness: Staleness::Ignored },
];

/// A schedule that tries to stay within a target; nothing if it computes far too much.
pub(crate) fn within(g: &CostGraph, target: u64, rule: EvictionRule) -> Option<Vec<OpId>> {
    let mut sweep = EvictionSweep::new(g, target, rule);
    for op in g.runs() {
        sweep.now = op.index();
        sweep.run(op)?;
    }
    sweep.now = g.ops().len();
    for (op, _) in g.ops().iter().filter(|(_, o)| o.output) {
        if !sweep.there[op.index()] {
            sweep.run(op)?;
        }
        sweep.held[op.index()] += 1;
    }
    Some(sweep.steps)
}

struct EvictionSweep<'g> {
    g: &'g CostGraph,
    target: u64,
    rule: EvictionRule,
    steps: Vec<OpId>,
    /// The operation whose turn it is.
    now: usize,
    /// The time of all steps so far.
    clock: u64,
    /// For each operation the time of those before it.
    before: Vec<u64>,
    /// For each value whether it is there.
    there: Vec<bool>,
    /// For each value when it was made or read last.
    touched: Vec<u64>,
    /// For each value how many of its readers have had their turn.
    read: Vec<usize>,
    /// For each value by how many waiting operations it must not be taken away.
    held: Vec<u32>,
    /// For each value the one whose memory it is in.
    root: Vec<OpId>,
    /// For each value the values in its memory, itself first; for roots alone.
    members: Vec<Vec<OpId>>,
    /// The values that are there and have memory of their own; and where each is among them.
    resident: Vec<OpId>,
    slot: Vec<u32>,
    bytes: u64,
    /// For each value the walk that met it last.
    met: Vec<u32>,
    walk: u32,
    stack: Vec<OpId>,
}

/// How often all operations may run, all together.
const MOST_RUNS: usize = 6;
/// From how many candidates on several go at once.
const MANY: usize = 64;
/// The most values that a walk from one value meets.
const FAR: usize = 96;
/// Values of less than this part of the target (1 over the number) go only if there are no others.
const SMALL: u64 = 4096;

impl<'g> EvictionSweep<'g> {
    fn new(g: &'g CostGraph, target: u64, rule: EvictionRule) -> EvictionSweep<'g> {
        let n = g.ops().len();
        let mut root: Vec<OpId> = g.ops().keys().collect();
        let mut members: Vec<Vec<OpId>> = vec![Vec::new(); n];
        let mut before = vec![0u64; n + 1];
        for (id, op) in g.ops().iter() {
            if let Some(of) = op.alias {
                root[id.index()] = root[of.index()];
            }
            members[root[id.index()].index()].push(id);
            before[id.index() + 1] = before[id.index()] + op.time;
        }
        let mut sweep = EvictionSweep {
            g,
            target,
            rule,
            steps: Vec::new(),
            now: 0,
            clock: 0,
            before,
            there: vec![false; n],
            touched: vec![0; n],
            read: vec![0; n],
            held: vec![0; n],
            root,
            members,
            resident: Vec::new(),
            slot: vec![0; n],
            bytes: 0,
            met: vec![0; n],
            walk: 0,
            stack: Vec::new(),
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
            self.make_room(self.g.ops()[v].bytes + self.g.further_bytes(v));
            self.steps.push(v);
            self.clock = self.clock.saturating_add(self.g.ops()[v].time);
            self.arrive(v);
            for &p in inputs {
                self.held[p.index()] -= 1;
                self.touched[p.index()] = self.clock;
            }
            for &p in inputs {
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
        self.touched[v.index()] = self.clock;
        if self.root[v.index()] == v {
            self.slot[v.index()] = self.resident.len() as u32;
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
        if !self.there[root.index()] {
            return;
        }
        self.begin_walk();
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
            self.meet(m);
        }
        let mut met = 0;
        while let Some(v) = self.stack.pop() {
            for k in 0..self.g.users(v).len() {
                let u = self.g.users(v)[k];
                if self.is_gone(u) && self.meet(u) {
                    met += 1;
                    if met > FAR || self.next_read(u).is_some() {
                        return;
                    }
                }
            }
        }
        self.leave(root);
    }

    /// Whether a value was computed and is not in memory.
    fn is_gone(&self, v: OpId) -> bool {
        v.index() < self.now && !self.there[v.index()]
    }

    fn begin_walk(&mut self) {
        self.walk += 1;
        self.stack.clear();
    }

    /// Whether the walk meets a value for the first time.
    fn meet(&mut self, v: OpId) -> bool {
        let first = std::mem::replace(&mut self.met[v.index()], self.walk) != self.walk;
        if first {
            self.stack.push(v);
        }
        first
    }

    /// Takes away a value and its views.
    fn leave(&mut self, root: OpId) {
        for k in 0..self.members[root.index()].len() {
            self.there[self.members[root.index()][k].index()] = false;
        }
        self.bytes = self.bytes.saturating_sub(self.g.ops()[root].bytes);
        let slot = self.slot[root.index()] as usize;
        self.resident.swap_remove(slot);
        if let Some(&moved) = self.resident.get(slot) {
            self.slot[moved.index()] = slot as u32;
        }
    }

    /// Takes values away until there is room, or nothing is left to take away.
    fn make_room(&mut self, bytes: u64) {
        let small = self.target / SMALL;
        self.make_room_of(bytes, small);
        self.make_room_of(bytes, 0);
    }

    /// The same with values that have more bytes than `small`.
    fn make_room_of(&mut self, bytes: u64, small: u64) {
        let excess = self.bytes.saturating_add(bytes).saturating_sub(self.target);
        if excess == 0 {
            return;
        }
        let mut candidates: Vec<(f64, OpId)> = Vec::new();
        for k in 0..self.resident.len() {
            let v = self.resident[k];
            if self.g.ops()[v].bytes > small
                && let Some(rank) = self.rank(v)
            {
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
        let g = self.g;
        let bytes = g.ops()[root].bytes;
        if g.is_source(root) {
            return None;
        }
        self.begin_walk();
        let (mut cost, mut next, mut touched) = (0u64, usize::MAX, 0);
        for k in 0..self.members[root.index()].len() {
            let m = self.members[root.index()][k];
            if !self.there[m.index()] {
                continue;
            }
            if self.held[m.index()] > 0 || g.ops()[m].role == OpRole::Once {
                return None;
            }
            cost = cost.saturating_add(g.ops()[m].time);
            next = next.min(self.next_read(m).unwrap_or(usize::MAX));
            touched = touched.max(self.touched[m.index()]);
            self.meet(m);
            // A further result is computed by its operation, wherever the first result is.
            if let Some(of) = g.ops()[m].result_of
                && self.meet(of)
            {
                cost = cost.saturating_add(g.ops()[of].time);
            }
        }
        let members = self.stack.clone();
        cost = cost.saturating_add(self.gone_ancestors());
        if self.rule.cost == RecomputationCost::Neighbourhood
            || self.rule.staleness == Staleness::UntilNeed
        {
            self.stack = members;
            let (time, need) = self.gone_descendants();
            next = next.min(need);
            if self.rule.cost == RecomputationCost::Neighbourhood {
                cost = cost.saturating_add(time);
            }
        }
        let next = next.min(g.ops().len());
        let distance = match self.rule.staleness {
            Staleness::Ignored => 1,
            Staleness::UntilNeed => (next - self.now.min(next)) as u64,
            Staleness::UntilRead => self.before[next].saturating_sub(self.before[self.now]),
            Staleness::SinceRead => self.clock.saturating_sub(touched),
        };
        Some((cost as f64 + 1.0) / bytes as f64 / distance.max(1) as f64)
    }

    /// The time of what the values of the walk depend on and is not in memory.
    fn gone_ancestors(&mut self) -> u64 {
        let (mut time, mut met) = (0u64, 0);
        while let Some(v) = self.stack.pop() {
            for &p in &self.g.ops()[v].inputs {
                if !self.there[p.index()] && self.meet(p) {
                    time = time.saturating_add(self.g.ops()[p].time);
                    met += 1;
                }
            }
            if met > FAR {
                break;
            }
        }
        time
    }

    /// The time of what depends on the values of the walk, was computed and is not in memory; and the first turn at
    /// which some of it is read.
    fn gone_descendants(&mut self) -> (u64, usize) {
        let (mut time, mut next, mut met) = (0u64, usize::MAX, 0);
        while let Some(v) = self.stack.pop() {
            for k in 0..self.g.users(v).len() {
                let u = self.g.users(v)[k];
                if self.is_gone(u) && self.meet(u) {
                    next = next.min(self.next_read(u).unwrap_or(usize::MAX));
                    time = time.saturating_add(self.g.ops()[u].time);
                    met += 1;
                }
            }
            if met > FAR {
                break;
            }
        }
        (time, next)
    }
}

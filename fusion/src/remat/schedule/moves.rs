//! Moves of the local search: a value is evicted for a while, or is no longer recomputed.
//!
//! The sequence of operations determines everything, since a value stays in memory until its operation runs again. So a
//! value is evicted over the peak by a run of its operation before its next reader, and kept by dropping such a run.

use super::cost_graph::{CostGraph, OpId, OpRole};
use super::liveness::LivenessMeter;
use cranelift_entity::EntityRef;

/// What to do about an input that is not there where a value is computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingInput {
    /// Computes it again too, and what that lacks, this many levels deep; keeps what lies deeper.
    Deep(u32),
    /// Keeps it where it has at most this part of the bytes that go: 1 over the number.
    Keep(u64),
}

/// A value that could leave memory over a moment.
#[derive(Clone, Debug)]
pub(crate) struct Eviction {
    /// The bytes that are free then.
    pub(crate) bytes: u64,
    /// The operations that must run again for it: each with the step before which it is read.
    again: Vec<(u32, OpId)>,
    /// The step whose memory it is.
    memory: usize,
}

/// What is known of a sequence that moves start from.
#[derive(Debug)]
pub(crate) struct MoveContext<'a> {
    g: &'a CostGraph,
    liveness: &'a LivenessMeter,
    steps: &'a [OpId],
    /// The steps of each operation, in rows.
    runs: Vec<u32>,
    row: Vec<u32>,
}

/// Runs to put in: each before a step of the sequence as it was.
pub(crate) type Insertions = Vec<(u32, OpId)>;

impl<'a> MoveContext<'a> {
    /// A sequence that was measured last by `liveness`.
    pub(crate) fn of(
        g: &'a CostGraph,
        liveness: &'a LivenessMeter,
        steps: &'a [OpId],
    ) -> MoveContext<'a> {
        let mut row = vec![0u32; g.ops().len() + 1];
        for op in steps {
            row[op.index() + 1] += 1;
        }
        for k in 1..row.len() {
            row[k] += row[k - 1];
        }
        let mut free = row.clone();
        let mut runs = vec![0; steps.len()];
        for (step, op) in steps.iter().enumerate() {
            runs[free[op.index()] as usize] = step as u32;
            free[op.index()] += 1;
        }
        MoveContext { g, liveness, steps, runs, row }
    }

    fn runs(&self, op: OpId) -> &[u32] {
        &self.runs[self.row[op.index()] as usize..self.row[op.index() + 1] as usize]
    }

    /// The last run of an operation before a step.
    fn run_before(&self, op: OpId, step: u32) -> Option<usize> {
        let runs = self.runs(op);
        let k = runs.partition_point(|&r| r < step);
        Some(runs[k.checked_sub(1)?] as usize)
    }

    /// Whether this step computes again what was computed before.
    pub(crate) fn is_recomputation(&self, step: usize) -> bool {
        self.runs(self.steps[step]).first() != Some(&(step as u32))
    }

    /// What could leave memory over a step: what is there before and after, and not read then.
    pub(crate) fn evictions(&self, at: usize) -> Vec<Eviction> {
        let mut of_memory: Vec<Option<u32>> = vec![None; self.steps.len()];
        let mut found: Vec<Eviction> = Vec::new();
        for s in (0..at).filter(|&s| self.liveness.is_own(s)) {
            let op = &self.g.ops()[self.steps[s]];
            let last = self.liveness.last(s);
            if op.bytes > 0 && op.role == OpRole::Computed && last as usize > at {
                of_memory[s] = Some(found.len() as u32);
                found.push(Eviction { bytes: op.bytes, again: Vec::new(), memory: s });
            }
        }
        // The first reader of each value in such memory; what is read at the step itself stays.
        let mut latest: Vec<u32> = vec![u32::MAX; self.g.ops().len()];
        let mut met: Vec<bool> = vec![false; self.steps.len()];
        for (step, op) in self.steps[..at].iter().enumerate() {
            latest[op.index()] = step as u32;
        }
        let mut read = |value: u32, by: u32, found: &mut Vec<Eviction>| {
            let Some(met) = met.get_mut(value as usize) else { return };
            let memory = self.liveness.memory(value as usize);
            let Some(&Some(e)) = of_memory.get(memory) else { return };
            if !std::mem::replace(met, true) {
                found[e as usize].again.push((by, self.steps[value as usize]));
            }
        };
        for (step, &op) in self.steps.iter().enumerate().skip(at) {
            for &input in &self.g.ops()[op].inputs {
                read(latest[input.index()], step as u32, &mut found);
            }
            latest[op.index()] = step as u32;
        }
        for (op, _) in self.g.ops().iter().filter(|(_, o)| o.output) {
            read(latest[op.index()], self.steps.len() as u32, &mut found);
        }
        let stays = |&(by, op): &(u32, OpId)| {
            by as usize == at || self.g.ops()[op].role != OpRole::Computed
        };
        found.retain(|e| !e.again.iter().any(stays));
        for e in &mut found {
            e.again.sort_unstable();
            self.with_root(e);
        }
        found
    }

    /// Views are made of what they view: that runs again first, even if nobody reads it.
    fn with_root(&self, e: &mut Eviction) {
        let Some(&(first, _)) = e.again.first() else { return };
        let mut lacking: Vec<(u32, OpId)> = Vec::new();
        for &(_, op) in &e.again {
            let mut op = op;
            while let Some(of) = self.g.ops()[op].alias {
                lacking.push((first, of));
                op = of;
            }
        }
        lacking.retain(|&(_, of)| !e.again.iter().any(|&(by, op)| op == of && by == first));
        e.again.extend(lacking);
        e.again.sort_unstable();
        e.again.dedup();
    }

    /// The runs that an eviction takes; nothing if they are more than `most`.
    pub(crate) fn runs_for(
        &self,
        e: &Eviction,
        missing: MissingInput,
        most: usize,
    ) -> Option<Insertions> {
        let mut runs: Insertions = Vec::new();
        let mut open: Vec<(u32, OpId, u32)> = e.again.iter().map(|&(q, o)| (q, o, 0)).collect();
        while let Some((before, op, depth)) = open.pop() {
            if runs.contains(&(before, op)) {
                continue;
            }
            if runs.len() == most {
                return None;
            }
            runs.push((before, op));
            for &input in &self.g.ops()[op].inputs {
                let operation = &self.g.ops()[input];
                if operation.role != OpRole::Computed {
                    continue;
                }
                let Some(run) = self.run_before(input, before) else { continue };
                let memory = self.liveness.memory(run);
                let there = memory != e.memory
                    && (memory >= self.steps.len() || self.liveness.last(run) >= before);
                let again = match missing {
                    MissingInput::Deep(most) => depth < most,
                    MissingInput::Keep(part) => operation.bytes > e.bytes / part,
                };
                let made_together = self.g.ops()[op].result_of.is_some();
                if memory == e.memory || made_together || (!there && again) {
                    open.push((before, input, depth + 1));
                }
            }
        }
        runs.sort_unstable();
        Some(runs)
    }

    /// The time of runs.
    pub(crate) fn time(&self, runs: &Insertions) -> u64 {
        runs.iter().fold(0, |sum, &(_, op)| sum.saturating_add(self.g.ops()[op].time))
    }

    /// The sequence with these runs.
    pub(crate) fn with(&self, runs: &Insertions) -> Vec<OpId> {
        let mut out = Vec::with_capacity(self.steps.len() + runs.len());
        let mut runs = runs.iter().peekable();
        for step in 0..=self.steps.len() {
            while let Some(&(_, op)) = runs.next_if(|r| r.0 as usize == step) {
                out.push(op);
            }
            out.extend(self.steps.get(step));
        }
        out
    }

    /// The sequence without a step.
    pub(crate) fn without(&self, step: usize) -> Vec<OpId> {
        let mut out = Vec::with_capacity(self.steps.len());
        out.extend_from_slice(&self.steps[..step]);
        out.extend_from_slice(&self.steps[step + 1..]);
        out
    }
}

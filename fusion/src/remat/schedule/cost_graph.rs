//! Cost graphs: operations with times and bytes, in the order of their first runs.
//!
//! An entry of a graph is a value and the step that leaves it. An operation with several results is its first result,
//! which has the operation's time and inputs, and an entry for each [further result](Operation::result).

use adfuse_ir::Phase;
use cranelift_entity::{PrimaryMap, SecondaryMap, entity_impl};
use std::fmt;
use thiserror::Error;

/// An operation of a [`CostGraph`], and the value that it makes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(u32);
entity_impl!(OpId, "op");

/// What may be done with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpRole {
    /// It may run again.
    Computed,
    /// It runs once: an effect, or what cannot be computed again to the same value.
    Once,
    /// An input: it never runs, and its value is there from the start to the end.
    Source,
    /// An input that may be overwritten: its value is there until it is read last, and at the first
    /// step at least.
    Donated,
}

/// An operation and the value that it makes, or a further result of the operation before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What it is called.
    pub name: String,
    /// What a run takes, in a unit of the caller's.
    pub time: u64,
    /// The size of its value.
    pub bytes: u64,
    /// The values that it reads.
    pub inputs: Vec<OpId>,
    /// The value whose memory its own value is in: a view, which reads that alone. It keeps that memory,
    /// and takes none.
    pub alias: Option<OpId>,
    /// The operation whose further result this is. A run of that operation computes all of its results, each in
    /// memory of its own; a step of a further result, which directly follows that run, keeps it. So what a run computes
    /// again and nobody reads is free after the run.
    pub result_of: Option<OpId>,
    /// The pass it belongs to.
    pub phase: Phase,
    /// Whether its value must be there at the end.
    pub output: bool,
    /// What may be done with it.
    pub role: OpRole,
}

impl Operation {
    /// An operation that reads nothing, of phase 0, which may run again.
    pub fn new(name: impl Into<String>, time: u64, bytes: u64) -> Operation {
        Operation {
            name: name.into(),
            time,
            bytes,
            inputs: Vec::new(),
            alias: None,
            result_of: None,
            phase: Phase::default(),
            output: false,
            role: OpRole::Computed,
        }
    }

    /// An input of the whole.
    pub fn source(name: impl Into<String>, bytes: u64) -> Operation {
        Operation { role: OpRole::Source, ..Operation::new(name, 0, bytes) }
    }

    /// The same, reading these.
    pub fn reads(self, inputs: &[OpId]) -> Operation {
        Operation { inputs: inputs.to_vec(), ..self }
    }

    /// The same as a view of `of`, which is all that it reads.
    pub fn view(self, of: OpId) -> Operation {
        Operation { inputs: vec![of], alias: Some(of), bytes: 0, ..self }
    }

    /// A further result of an operation that is next before it, with its other further results: of this many bytes.
    /// It has the phase and the role of that operation.
    pub fn result(name: impl Into<String>, bytes: u64, of: OpId) -> Operation {
        Operation { inputs: vec![of], result_of: Some(of), ..Operation::new(name, 0, bytes) }
    }

    /// The same in another phase.
    pub fn phase(self, phase: u8) -> Operation {
        Operation { phase: Phase(phase), ..self }
    }

    /// The same as an output.
    pub fn output(self) -> Operation {
        Operation { output: true, ..self }
    }

    /// The same, never to run twice.
    pub fn once(self) -> Operation {
        Operation { role: OpRole::Once, ..self }
    }
}

/// Operations in the order in which they run first. Phases never fall along it.
#[derive(Clone, Debug, Default)]
pub struct CostGraph {
    ops: PrimaryMap<OpId, Operation>,
    /// The operations that read a value, in order.
    users: SecondaryMap<OpId, Vec<OpId>>,
    /// The bytes of an operation's further results.
    further: SecondaryMap<OpId, u64>,
    has_further: bool,
    has_views: bool,
    /// The inputs, and the operations whose values are outputs: each measurement of a schedule goes through them.
    sources: Vec<OpId>,
    outputs: Vec<OpId>,
    /// That of the last operation which is no input.
    phase: Phase,
    time: u64,
    bytes: u64,
}

/// The most that all times together, and all bytes together, may be: their products fit 128 bits.
pub(crate) const MOST: u64 = 1 << 62;

impl CostGraph {
    /// A graph without operations.
    pub fn new() -> CostGraph {
        CostGraph::default()
    }

    /// Adds an operation after the others. What it reads more than once counts once.
    ///
    /// # Errors
    /// For one that breaks a rule of the graph.
    pub fn push(&mut self, mut op: Operation) -> Result<OpId, GraphError> {
        let id = self.ops.next_key();
        let wrong = |kind| GraphError { operation: op.name.clone(), kind };
        op.inputs.sort_unstable();
        op.inputs.dedup();
        if op.inputs.last().is_some_and(|&last| last >= id) {
            return Err(wrong(GraphErrorKind::NotYet));
        }
        let given = matches!(op.role, OpRole::Source | OpRole::Donated);
        if given && (!op.inputs.is_empty() || op.time != 0) {
            return Err(wrong(GraphErrorKind::Source));
        }
        if op.alias.is_some_and(|of| op.inputs != [of]) {
            return Err(wrong(GraphErrorKind::View));
        }
        if op.alias.is_some() && op.bytes != 0 {
            return Err(wrong(GraphErrorKind::ViewBytes));
        }
        if let Some(of) = op.result_of {
            let last = self.ops.last().map(|(last, o)| o.result_of.unwrap_or(last));
            let first = self.ops.get(of).filter(|o| {
                (o.phase, o.role, o.alias) == (op.phase, op.role, None) && last == Some(of)
            });
            if first.is_none() || op.alias.is_some() || op.time != 0 || op.inputs != [of] || given {
                return Err(wrong(GraphErrorKind::Result));
            }
        }
        if !given && self.phase > op.phase {
            return Err(wrong(GraphErrorKind::Phase));
        }
        let sum = |a: u64, b: u64| a.checked_add(b).filter(|&n| n <= MOST);
        let (time, bytes) = (sum(self.time, op.time), sum(self.bytes, op.bytes));
        let (Some(time), Some(bytes)) = (time, bytes) else {
            return Err(wrong(GraphErrorKind::TooMuch));
        };
        (self.time, self.bytes) = (time, bytes);
        if !given {
            self.phase = op.phase;
        }
        for &input in &op.inputs {
            self.users[input].push(id);
        }
        if let Some(of) = op.result_of {
            // All bytes together are within bounds.
            self.further[of] += op.bytes;
            self.has_further = true;
        }
        self.has_views |= op.alias.is_some();
        if given {
            self.sources.push(id);
        }
        if op.output {
            self.outputs.push(id);
        }
        Ok(self.ops.push(op))
    }

    /// The operations.
    pub fn ops(&self) -> &PrimaryMap<OpId, Operation> {
        &self.ops
    }

    /// The operations that read a value, in order.
    pub fn users(&self, op: OpId) -> &[OpId] {
        &self.users[op]
    }

    /// The bytes of an operation's further results, which are computed with its first one.
    pub fn further_bytes(&self, op: OpId) -> u64 {
        self.further[op]
    }

    /// Whether some operation has further results.
    pub(crate) fn has_further(&self) -> bool {
        self.has_further
    }

    /// Whether some operation is a view.
    pub(crate) fn has_views(&self) -> bool {
        self.has_views
    }

    /// Whether this is an input, which never runs.
    pub fn is_source(&self, op: OpId) -> bool {
        matches!(self.ops[op].role, OpRole::Source | OpRole::Donated)
    }

    /// The inputs, in order.
    pub(crate) fn sources(&self) -> &[OpId] {
        &self.sources
    }

    /// The operations whose values are outputs, in order.
    pub(crate) fn outputs(&self) -> &[OpId] {
        &self.outputs
    }

    /// What runs, in order: everything but inputs.
    pub fn runs(&self) -> impl Iterator<Item = OpId> + '_ {
        self.ops.keys().filter(|&o| !self.is_source(o))
    }

    /// The time of one run of everything.
    pub fn time(&self) -> u64 {
        self.time
    }
}

/// An operation that a graph cannot have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{operation}` {kind}")]
pub struct GraphError {
    /// Its name.
    pub operation: String,
    /// What is wrong with it.
    pub kind: GraphErrorKind,
}

/// What is wrong with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphErrorKind {
    /// It reads itself or what comes later.
    NotYet,
    /// An input reads something or takes time.
    Source,
    /// It is a view and reads other than what it views.
    View,
    /// It is a view and has bytes of its own.
    ViewBytes,
    /// It is a further result that takes time, is a view, reads something else, does not follow its operation, or differs
    /// from it in phase or role.
    Result,
    /// It is of an earlier phase than the one before.
    Phase,
    /// With it, all times or all bytes are more than 2^62.
    TooMuch,
}

impl fmt::Display for GraphErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GraphErrorKind::NotYet => "reads what is not computed before it",
            GraphErrorKind::Source => "is an input, which reads nothing and takes no time",
            GraphErrorKind::View => "is a view, which reads what it views alone",
            GraphErrorKind::ViewBytes => "is a view, which has no bytes of its own",
            GraphErrorKind::Result => {
                "is a further result, which follows its operation, reads it alone, takes no time and has its \
                 phase and role"
            }
            GraphErrorKind::Phase => "is of an earlier phase than the operation before it",
            GraphErrorKind::TooMuch => "makes all times or all bytes more than 2^62",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_checked() {
        let mut g = CostGraph::new();
        let x = g.push(Operation::source("x", 1)).expect("an input");
        let a = g.push(Operation::new("a", 1, 1).reads(&[x, x]).phase(1)).expect("reads x");
        assert_eq!(g.ops()[a].inputs, [x]);
        let later = OpId::from_u32(2);
        for (op, kind) in [
            (Operation::new("b", 1, 1).reads(&[later]).phase(1), GraphErrorKind::NotYet),
            (Operation::source("b", 1).reads(&[x]), GraphErrorKind::Source),
            (Operation::new("b", 1, 0).view(a).reads(&[x, a]).phase(1), GraphErrorKind::View),
            (
                Operation { bytes: 1, ..Operation::new("b", 1, 0).view(a).phase(1) },
                GraphErrorKind::ViewBytes,
            ),
            (Operation::result("b", 1, x).phase(1), GraphErrorKind::Result),
            (Operation::result("b", 1, a), GraphErrorKind::Result),
            (Operation::result("b", 1, a).phase(1).once(), GraphErrorKind::Result),
            (
                Operation { time: 1, ..Operation::result("b", 1, a).phase(1) },
                GraphErrorKind::Result,
            ),
            (Operation::new("b", 1, 1), GraphErrorKind::Phase),
            (Operation::new("b", MOST, 1).phase(1), GraphErrorKind::TooMuch),
            (Operation::new("b", 1, u64::MAX).phase(1), GraphErrorKind::TooMuch),
        ] {
            assert_eq!(g.push(op).expect_err("breaks a rule").kind, kind);
        }
        // What was refused left nothing behind.
        assert_eq!((g.ops().len(), g.time(), g.users(a)), (2, 1, &[][..]));
    }
}

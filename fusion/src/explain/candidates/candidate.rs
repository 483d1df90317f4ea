//! Pairs of values that might share a kernel, and the search for them.

use super::super::Explainer;

use super::super::words::SentenceWriter;
use crate::analysis::axes::TensorAxes;
use crate::analysis::facts::Facts;
use crate::plan::machine_model::MachineModel;
use adfuse_ir::{Inst, Value};
use cranelift_entity::SecondaryMap;
use hashbrown::HashSet;

/// What makes instructions neighbours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Relation {
    /// Together they are a pattern with a name.
    Pattern,
    /// One reads what the other computes.
    Producer,
    /// One reads the result of a contraction.
    Epilogue,
    /// They read one tensor.
    Siblings,
}

impl Relation {
    /// The name in text.
    pub fn name(self) -> &'static str {
        match self {
            Relation::Pattern => "pattern",
            Relation::Producer => "producer",
            Relation::Epilogue => "epilogue",
            Relation::Siblings => "siblings",
        }
    }
}

/// Instructions that might share a kernel, with a score.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// What makes them neighbours.
    pub relation: Relation,
    /// What they are, for people: patterns and ops.
    pub name: String,
    /// The names of the patterns among them.
    pub patterns: Vec<&'static str>,
    /// Their results, in the order of the function.
    pub values: Vec<Value>,
    /// Bytes that kernels of one instruction each read and write.
    pub bytes_apart: f64,
    /// Bytes that one kernel for all reads and writes.
    pub bytes_together: f64,
    /// The share of the time of kernels of one instruction that goes into starting all but one.
    pub launch_share: f64,
    /// An estimate of the 32-bit registers that an element takes in one kernel.
    pub registers: u32,
    /// Primitive operations of an element.
    pub primitives: u32,
    /// Folds and contractions, after each of which a kernel has another stage.
    pub folds: u32,
    /// Operations for each byte that one kernel reads or writes.
    pub intensity: f64,
    /// Operations for each byte at which the machine's memory and arithmetic take the same time.
    pub balance: f64,
    /// The score of fusing them, from 0 to 1; a quarter of it if a rule forbids that.
    pub score: f64,
    /// The rule in the way, and the value that it keeps out, in plain words.
    pub refused: Option<String>,
    /// Whether the plan computes them in one group.
    pub fused: bool,
    /// The group that does, or why none does, in plain words.
    pub reason: String,
}

impl Candidate {
    /// The share of their bytes that one kernel saves.
    pub fn saved_share(&self) -> f64 {
        if self.bytes_apart > 0.0 { 1.0 - self.bytes_together / self.bytes_apart } else { 0.0 }
    }

    /// Whether arithmetic and not memory decides the time of one kernel.
    pub fn compute_bound(&self) -> bool {
        self.intensity > self.balance
    }
}

/// A pattern, or a single instruction.
pub(super) struct CandidateUnit {
    pub(super) name: Option<&'static str>,
    pub(super) insts: Vec<Inst>,
}

pub(super) struct Search<'a> {
    pub(super) facts: &'a Facts<'a>,
    pub(super) device: &'a MachineModel,
    pub(super) explainer: Explainer<'a>,
    pub(super) words: SentenceWriter<'a>,
    pub(super) units: Vec<CandidateUnit>,
    pub(super) unit_of: SecondaryMap<Inst, Option<u32>>,
    pub(super) found: Vec<Candidate>,
    /// Where instructions are in the function.
    pub(super) position: SecondaryMap<Inst, u32>,
    /// Where values lie in the part that is tried; empty between trials.
    pub(super) place: SecondaryMap<Value, Option<TensorAxes>>,
    /// The sets that were looked at.
    pub(super) seen: HashSet<Vec<Inst>>,
}

//! A report as data: everything that the page shows, and the JSON that `adfuse report --json` prints.
//!
//! Bytes are integers and times are seconds. Figures of the cost model are predicted, those of a [`Measurement`] are
//! measured; no figure is a mixture of both. Steps and groups are numbered from 0 in the order in which they run.

use serde::Serialize;

/// A report about one plan.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The function, without `@`.
    pub function: String,
    /// The file that the program came from, or what it was traced of.
    pub origin: String,
    /// The machine that is planned for.
    pub device: String,
    /// The floating-point mode.
    pub fp: String,
    /// How hard the plan was looked for.
    pub effort: String,
    /// How temporaries lie in memory, as the text of the plan says it.
    pub layout: String,
    /// The effort of the plan that it is compared with; `off` has one kernel for each operation.
    pub compared_effort: String,
    /// The plan's hash, and that of its function.
    pub plan: String,
    /// The hash of the function that was planned.
    pub graph: String,
    /// The plan beside the unfused one, in one sentence.
    pub sentence: String,
    /// The plan beside the unfused one, figure by figure.
    pub figures: Vec<ComparedFigure>,
    /// Memory over time.
    pub memory: MemoryTimeline,
    /// The steps, in the order in which they run.
    pub steps: Vec<PlanStep>,
    /// Sequences of equal steps that follow each other.
    pub layers: Vec<RepeatedLayer>,
    /// What becomes of each value that a later phase needs.
    pub residuals: Vec<ResidualRow>,
    /// What is computed more than once.
    pub recomputed: Vec<RecomputedValue>,
    /// The limits of the machine.
    pub roofs: Vec<Roof>,
    /// Plans for every budget, the least memory first; empty where none were asked for.
    pub budget: Vec<BudgetRow>,
    /// Neighbours that might share a kernel, the best first.
    pub candidates: Vec<CandidateRow>,
    /// How many candidates there are; the best of them are listed.
    pub candidate_count: usize,
    /// The loops.
    pub loops: Vec<LoopSummary>,
    /// What was measured of this plan.
    pub measured: Option<Measurement>,
    /// Why there is nothing measured, or no hardware counters.
    pub unmeasured: Vec<String>,
    /// Answers to what people ask of a plan.
    pub answers: Vec<Answer>,
}

/// One figure of the plan and of the unfused plan.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ComparedFigure {
    /// A short name, the same in every report.
    pub key: &'static str,
    /// What it is, for people.
    pub name: &'static str,
    /// Its unit.
    pub unit: FigureUnit,
    /// Of the plan.
    pub fused: f64,
    /// Of the unfused plan.
    pub unfused: Option<f64>,
    /// Where it comes from.
    pub basis: Basis,
}

/// What a figure counts, which says how pages write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FigureUnit {
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Bytes that are a limit, which is rounded up.
    #[serde(rename = "bytes")]
    Limit,
    /// Seconds.
    Seconds,
    /// A part of 1.
    Share,
}

/// Where a figure comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The cost model, from the structure of the program alone.
    Predicted,
    /// A run.
    Measured,
}

/// What a value in memory is to the step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueKind {
    /// Given, and differentiated or trained.
    Parameter,
    /// Given, and kept by the optimizer.
    State,
    /// Given by the caller: a batch, a seed.
    Input,
    /// Written in the program.
    Constant,
    /// A result of the program.
    Result,
    /// A derivative that the caller is handed.
    Gradient,
    /// Left by one phase for a later one.
    Residual,
    /// Used up within its phase.
    Temporary,
}

/// Bytes that are live while each step runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MemoryTimeline {
    /// The budget, where there is one.
    pub budget: Option<u64>,
    /// Bytes that the plan holds: inputs, results, constants and the arena, with what the engine needs.
    pub held: u64,
    /// The step at which the most bytes are live, and how many those are.
    pub peak_step: usize,
    /// Live bytes at that step.
    pub peak_live: u64,
    /// Bytes that each step needs while it runs.
    pub scratch: Vec<u64>,
    /// The values that take memory.
    pub values: Vec<LiveValue>,
}

/// A value and the steps through which it is live.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LiveValue {
    /// Its name, with `%`.
    pub name: String,
    /// What it is made of, where the program gives it no name.
    pub what: Option<String>,
    /// Element type and extents.
    #[serde(rename = "type")]
    pub ty: String,
    /// What it is.
    pub kind: ValueKind,
    /// Bytes in memory.
    pub bytes: u64,
    /// The first step at which it is live.
    pub from: usize,
    /// The last step at which it is live.
    pub to: usize,
    /// Why it is there.
    pub why: String,
    /// The line of the source that computes it, with its file.
    pub line: Option<String>,
}

/// A step of the program.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PlanStep {
    /// Its group in the plan.
    pub group: Option<usize>,
    /// The name of its kernel.
    pub name: String,
    /// What people call it: a pattern, or its main operation.
    pub label: String,
    /// The value that it is about: the last that it stores.
    pub result: String,
    /// The kind of step: kernel, contraction, loop ..
    pub kind: String,
    /// The phase that it serves: 0 is forward, 1 is backward.
    pub phase: u16,
    /// Whether it computes for the forward and the backward pass.
    pub shared: bool,
    /// The extents that it iterates over.
    pub domain: String,
    /// Buffers that it reads.
    pub reads: Vec<String>,
    /// Buffers that it writes.
    pub writes: Vec<String>,
    /// What it computes, stored or not: `%h = relu`.
    pub computes: Vec<String>,
    /// Lines of the source that it computes: `mlp.ir:4`, `src/net.rs:12:9`.
    pub lines: Vec<String>,
    /// Bytes that it reads.
    pub read_bytes: u64,
    /// Bytes that it writes.
    pub written_bytes: u64,
    /// Operations; a multiply-add is two.
    pub ops: u64,
    /// Kernels launched.
    pub launches: u32,
    /// When it begins, in predicted seconds of the run.
    pub start: f64,
    /// Predicted seconds.
    pub seconds: f64,
    /// The least seconds that its bytes and operations take at the machine's limits.
    pub limit: f64,
    /// What takes most of the time: `memory`, `compute` or `launch`.
    pub bound: &'static str,
    /// Registers of a lane, as predicted.
    pub registers: u32,
    /// The part of a core's threads for which there is room, as predicted.
    pub occupancy: f64,
    /// Why it does not share a kernel with the step before.
    pub why: Vec<String>,
    /// What was measured of it.
    pub measured: Option<MeasuredKernel>,
}

/// A sequence of steps that occurs several times in a row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RepeatedLayer {
    /// What is common to the names of what it reads, with `*` where they differ.
    pub name: String,
    /// Its first step.
    pub first: usize,
    /// Steps of one occurrence.
    pub period: usize,
    /// Occurrences.
    pub count: usize,
    /// The phase of its first step.
    pub phase: u16,
}

/// What was decided for a value that a later phase needs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ResidualRow {
    /// The value, with `%`.
    pub value: String,
    /// Element type and extents.
    #[serde(rename = "type")]
    pub ty: String,
    /// The decision: save, compress, lossy, remat, shared, parameter, constant, output or inverse.
    pub decision: &'static str,
    /// Bits of an element in memory, where it is compressed.
    pub bits: Option<u8>,
    /// Bytes that it takes, or would take.
    pub bytes: u64,
    /// Bytes that it adds to what is saved for later phases.
    pub saved: u64,
    /// Whether it is live at the peak.
    pub at_peak: bool,
    /// The step that computes it first.
    pub from: Option<usize>,
    /// The steps of later phases that need it.
    pub to: Vec<usize>,
    /// What it is computed again from.
    pub sources: Vec<String>,
    /// The other decision, with what it would change.
    pub instead: Option<Counterfactual>,
    /// Whether it was asked what the other decision would change.
    pub priced: bool,
    /// What settled it, in words.
    pub why: String,
    /// The line of the source that computes it, with its file.
    pub line: Option<String>,
}

/// What another decision about one value would change.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Counterfactual {
    /// The other decision: keep or remat.
    pub decision: &'static str,
    /// Bytes more at the peak.
    pub peak: i64,
    /// Bytes more that are saved.
    pub saved: i64,
    /// Seconds more, predicted.
    pub seconds: f64,
    /// The value of an equal layer for which the other decision was made and priced instead.
    pub priced_for: Option<String>,
}

/// A value that is computed more than once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RecomputedValue {
    /// The value, with `%`.
    pub value: String,
    /// How often beyond the first time.
    pub times: u32,
}

/// A limit of the machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Roof {
    /// What is limited.
    pub name: &'static str,
    /// Bytes a second for memories, operations a second otherwise.
    pub per_second: f64,
    /// Whether it limits bytes.
    pub is_memory: bool,
}

/// A plan of the frontier of memory and time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BudgetRow {
    /// The least budget that it keeps.
    pub peak: u64,
    /// Predicted seconds.
    pub seconds: f64,
    /// Bytes saved for later phases.
    pub saved: u64,
    /// What it computes again.
    pub recomputed: Vec<RecomputedValue>,
    /// Its checkpoint segments, and what it decides about loops.
    pub rewrites: Vec<String>,
    /// Whether it is the plan of this report.
    pub chosen: bool,
}

/// Instructions that might share a kernel.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CandidateRow {
    /// What makes them neighbours.
    pub relation: &'static str,
    /// What they are.
    pub name: String,
    /// Their results, with `%`.
    pub values: Vec<String>,
    /// The score of fusing them, from 0 to 1.
    pub score: f64,
    /// Bytes that one kernel for all would save, of those that single ones move.
    pub saved_bytes: f64,
    /// The share of the time of single kernels that their launches take.
    pub launch_share: f64,
    /// Registers that an element takes in one kernel.
    pub registers: u32,
    /// Operations for each byte of one kernel.
    pub intensity: f64,
    /// Whether the plan computes them in one kernel.
    pub fused: bool,
    /// The kernel that does, or why none does.
    pub reason: String,
}

/// What a loop of the function keeps for its way back, and in which form.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoopSummary {
    /// Its name.
    pub name: String,
    /// How many steps it takes, where that is known.
    pub trips: Option<u64>,
    /// What says how many, where that is not known.
    pub counted_by: Option<String>,
    /// Bytes that a step hands to the next.
    pub carried_bytes: u64,
    /// Stacks with an element for each step: names and bytes.
    pub stacks: Vec<(String, u64)>,
    /// Checkpoints, their bytes, and the steps forward that the way back takes, where steps are computed again.
    pub checkpoints: Option<LoopCheckpoints>,
    /// What the way back reads, by class.
    pub residuals: Vec<LoopResidualRow>,
}

/// At which steps a loop keeps its carries, from which the way back computes the steps between again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LoopCheckpoints {
    /// How many there are.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Steps forward, the first way included.
    pub forward_steps: Option<u64>,
    /// What the schedule does, in order; empty where there is too much to draw.
    pub schedule: Vec<ScheduleAction>,
}

/// An action of a schedule of checkpoints, with numbers of steps of the loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleAction {
    /// The state before this step is kept.
    Keep(u64),
    /// Steps are computed from the first number to before the second.
    Advance(u64, u64),
    /// The state before this step is taken from a checkpoint.
    Restore(u64),
    /// This step is gone back over.
    Turn(u64),
}

/// A value that the way back over a loop reads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LoopResidualRow {
    /// Its name, or what computes it.
    pub name: String,
    /// Element type and extents, of one step.
    #[serde(rename = "type")]
    pub ty: String,
    /// Its class: stacked, invariant ..
    pub class: String,
    /// Bytes of all steps.
    pub bytes: u64,
}

/// What a bench file says of the plan.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measurement {
    /// The engine.
    pub engine: String,
    /// The machine, in words.
    pub machine: String,
    /// Median seconds of a step, and those that a tenth of the samples are below and above.
    pub seconds: [f64; 3],
    /// Bytes at the peak.
    pub peak: Option<u64>,
    /// Launches.
    pub launches: Option<u64>,
    /// Bytes a second of a copy that was measured at the same time.
    pub copy_bytes_per_s: Option<f64>,
    /// Samples.
    pub samples: u64,
    /// The unfused plan, measured in turns with it: seconds and bytes at the peak.
    pub unfused: Option<(f64, Option<u64>)>,
    /// Hardware counters of one run, of all threads of the process.
    pub counters: Vec<(String, u64)>,
}

/// A measured step.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MeasuredKernel {
    /// Median seconds.
    pub seconds: f64,
    /// Registers of a thread, as the driver says.
    pub registers: Option<u32>,
    /// Bytes of a thread's memory outside of registers.
    pub local_bytes: Option<u32>,
    /// What made its code.
    pub generator: String,
}

/// A question, its answer, and where the page shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Answer {
    /// A short name, the same in every report.
    pub key: &'static str,
    /// The question.
    pub question: &'static str,
    /// The answer.
    pub answer: String,
    /// The panel that shows it.
    pub panel: &'static str,
}

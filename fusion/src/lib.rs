//! The planner: it decides which instructions of a function share a kernel, and lowers the function to a program of
//! kernels.
#![doc = ""]
#![doc = include_str!("../README.md")]
//!
//! ## Where to begin
//!
//! - [`prepare`](prepare()) rewrites the function into the form that is planned, [`plan`](plan()) decides, and
//!   [`lower`](lower()) applies the plan. The function contains every phase of a step, so forward and backward are
//!   grouped together;
//! - [`fn@cost`] counts what a program takes on a [`MachineModel`], [`memory()`] what it holds;
//! - [`remat`] plans within budgets; [`search`] looks for faster plans;
//! - [`explain()`] says why two values share a kernel or do not.

mod analysis;
mod cost;
mod explain;
mod fuse;
mod loops;
mod lower;
mod memory;
mod plan;
mod prepass;
pub mod remat;
pub mod search;

pub use adfuse_ir::kernel::InPlace;
pub use adfuse_ir::kernel::facts::{ArrayPass, KernelFacts, LaunchFacts, PassKind, SweepFacts};
pub use cost::compile_cost::{CompileCost, compile_cost};
pub use cost::exchange::exchange_seconds;
pub use cost::operations::Ops;
pub use cost::step_cost::{Bottleneck, Cost, StepCost};
pub use cost::{FactsOf, cost, cost_with, step_cost};
pub use explain::candidates::{Candidate, Relation, candidates};
pub use explain::loops::{LoopReport, WayBackReport, loop_reports};
pub use explain::patterns::{PatternMatch, patterns};
pub use explain::recovery::{RecoveryAlternative, RecoveryBound, RecoveryPricer};
pub use explain::value_words::ValueWords;
pub use explain::{
    Explainer, Explanation, GroupRole, NotShared, Obstacle, Occurrences, SharedGroup, explain,
};
pub use loops::{
    LoopResidual, LoopResiduals, ResidualClass, loop_residuals, merge_loops, stack_residuals,
};
pub use lower::group_memo::{DividedSteps, LoweringMemo};
pub use lower::held::lower_with_values;
pub use lower::instances::recomputed_values;
pub use lower::steps::{computed_by_steps, steps_of};
pub use lower::{lower, lower_with_memo};
pub use memory::engine::{AnyEngine, EngineModel, MemoEngine, SizedProgram, StepSizes};
pub use memory::residuals::saved_bytes;
#[doc(hidden)]
pub use memory::residuals::stored_bytes;
pub use memory::{
    ALIGN, KnownPackings, Memory, block_memory, memory, memory_apart, memory_beside, memory_spaced,
};
pub use plan::blocks::block_function;
pub use plan::inverse::InverseChoice;
pub use plan::layout::Layout;
pub use plan::loop_choice::{LoopChoice, StackGoal};
pub use plan::lossy::{ErrorBound as LossyBound, Lossy, LossyCopy, Narrow, lossy_copies};
pub use plan::machine_model::MachineModel;
pub use plan::names::value_named;
pub use plan::options::{Effort, PlanOptions};
pub use plan::refusal::Refusal;
pub use plan::rewrites::Rewrites;
pub use plan::segments::CheckpointEnds;
pub use plan::{Group, Members, Plan, graph_hash};
pub use prepass::inverse::inverse_accuracy;
pub use prepass::segments::{SegmentedFunction, segmented_as};
pub use prepass::{PREPASSES, Prepass, RULE_TABLES, prepare};
pub use remat::budget_frontier::{
    BudgetPoint, RewrittenFunction, budget_frontier, plans_within, rewritten_as,
};
pub use remat::compile_budget::PlanBudget;
pub use remat::crossing::{Reading, ValueSource};
pub use remat::decisions::{Decider, decisions};
pub use remat::inverse::{Recovered, recover_operands};
pub use remat::loop_choice::{
    DecidedLoops, decide_loops, loop_choices, planned_function, ways_back,
};
pub use remat::lossy::{Narrowed, NoCopy, UncompressedValue, keep_lossy, narrow_storage};
pub use remat::residual_decision::{
    Alternative, Constraint, Decision, Difference, NoAlternative, ResidualChoice,
};
pub use remat::unbudgeted::{plan, plan_among, plan_for};
pub use remat::{PlanFrontier, plan_frontier};
pub use search::planned_groups::PlannedGroups;
pub use search::planner::{PlanWithAttempts, plan_attempts};
pub use search::point::{PlanPoint, plan_point};

pub use adfuse_ir::Fp;
use adfuse_ir::kernel::Program;
use adfuse_ir::{Diagnostic, Function, Module};

/// Says which planner this is: a hash of its sources. Plans that are kept from one run for the next are
/// those of one planner.
pub const PLANNER: &str = env!("ADFUSE_PLANNER");

/// A function with its plan and its program.
#[derive(Clone, Debug)]
pub struct LoweredFunction {
    /// The prepared function, whose values the plan names.
    pub function: Function,
    /// The plan.
    pub plan: Plan,
    /// The program.
    pub program: Program,
}

/// Prepares, plans and lowers a function of a verified module.
///
/// # Errors
/// For what has no lowering: symbolic extents and calls. The error names the symbol
/// or the instruction.
pub fn compile(
    module: &Module,
    f: &Function,
    options: &PlanOptions,
) -> Result<LoweredFunction, Diagnostic> {
    let function = prepare(module, f)?;
    let plan = plan(&function, options)?;
    let program = lower(&function, &plan, &options.device)?;
    Ok(LoweredFunction { function, plan, program })
}

//! The planner: which instructions of a function share a kernel, and the program of kernels that
//! follows.
//!
//! [`prepare`](prepare()) gives the function as it is planned, [`plan`] decides, [`lower`](lower())
//! applies what was decided. The function holds every phase of a step, so forward and backward are
//! grouped together. What programs cost on a machine is counted from their structure
//! ([`fn@cost`]).

mod analysis;
mod cost;
mod explain;
mod fuse;
mod lower;
mod memory;
mod plan;
mod prepass;
pub mod remat;
pub mod search;

pub use adfuse_ir::kernel::InPlace;
pub use cost::operations::Ops;
pub use cost::{Bound, Cost, StepCost, cost, step_cost};
pub use explain::candidates::{Candidate, Relation, candidates};
pub use explain::patterns::{Pattern, patterns};
pub use explain::{Apart, Explainer, Explanation, Obstacle, Occurrences, Role, Together, explain};
pub use lower::instances::computed_again;
pub use lower::lower;
pub use lower::steps::steps_of;
pub use memory::engine::{AnyEngine, Engine};
pub use memory::residuals::saved_bytes;
#[doc(hidden)]
pub use memory::residuals::stored_bytes;
pub use memory::{ALIGN, Memory, memory, memory_apart, memory_beside};
pub use plan::lossy::{Bound as LossyBound, Lossy, LossyCopy, Narrow, lossy_copies};
pub use plan::machine_model::MachineModel;
pub use plan::names::value_named;
pub use plan::options::{Effort, Options};
pub use plan::refusal::Refusal;
pub use plan::{Group, Members, Plan, graph_hash};
pub use prepass::lossy::planned_function;
pub use prepass::{PREPASSES, Prepass, RULE_TABLES, prepare};
pub use remat::crossing::{How, Reading};
pub use remat::decisions::{
    Alternative, Choice, Constraint, Decider, Decision, Difference, Why, decisions,
};
pub use remat::lossy::{AsItIs, Left, Narrowed, keep_lossy};
pub use remat::{PlanFrontier, plan_frontier};
pub use search::fastest::plan_attempts;
pub use search::planner::plan;
pub use search::point::{PlanPoint, plan_point};

pub use adfuse_ir::Fp;
use adfuse_ir::kernel::Program;
use adfuse_ir::{Diagnostic, Function, Module};

/// Says which planner this is: a hash of its sources. Plans that are kept from one run for the next are
/// those of one planner.
pub const PLANNER: &str = env!("ADFUSE_PLANNER");

/// A function on its way to an engine: as it was planned, the plan, and the program.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The prepared function, whose values the plan names.
    pub function: Function,
    /// What was decided.
    pub plan: Plan,
    /// What follows.
    pub program: Program,
}

/// Prepares, plans and lowers a function of a verified module.
///
/// # Errors
/// For what has no lowering: symbolic extents, tokens, effects and `cond`. The error names the symbol
/// or the instruction.
pub fn compile(module: &Module, f: &Function, options: &Options) -> Result<Compiled, Diagnostic> {
    let function = prepare(module, f)?;
    let plan = plan(&function, options)?;
    let program = lower(&function, &plan, &options.device)?;
    Ok(Compiled { function, plan, program })
}

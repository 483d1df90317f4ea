//! The planner: which instructions of a function share a kernel, and the program of kernels that
//! follows.
//!
//! [`prepare`](prepare()) gives the function as it is planned, [`plan`] decides, [`lower`](lower())
//! applies what was decided. The function holds every phase of a step, so forward and backward are
//! grouped together. What programs cost on a machine is counted from their structure
//! ([`fn@cost`]).

mod axes;
mod candidates;
mod class;
mod concatenate;
mod coordinates;
mod cost;
mod device;
mod donated;
mod emit;
mod explain;
mod facts;
mod fastest;
mod few;
mod free;
mod group;
mod indirect;
mod instances;
mod joint;
mod kernel;
mod loops;
mod lossy;
mod lower;
mod memory;
mod merge;
mod part;
mod patterns;
mod pick;
mod plan;
mod plan_text;
mod prepare;
mod range;
mod refusal;
mod remat;
pub mod retain;
mod saved;
pub mod search;
mod sides;
mod stages;
mod weight;

pub use adfuse_ir::kernel::InPlace;
pub use candidates::{Candidate, Relation, candidates};
pub use cost::{Bound, Cost, Ops, StepCost, cost, step_cost};
pub use device::Device;
pub use explain::{
    Apart, Explainer, Explanation, Obstacle, Occurrences, Role, Together, explain, value_named,
};
pub use fastest::plan_attempts;
pub use group::Effort;
pub use joint::{
    Alternative, AnyEngine, Choice, Constraint, Decider, Decision, Difference, Engine, How,
    PlanFrontier, PlanPoint, Reading, Why, computed_again, decisions, plan_frontier, plan_point,
    steps_of,
};
pub use lossy::{
    AsItIs, Bound as LossyBound, Left, Lossy, LossyCopy, Narrow, Narrowed, keep_lossy,
    lossy_copies, planned_function,
};
pub use lower::lower;
pub use memory::{ALIGN, Memory, memory, memory_apart, memory_beside};
pub use patterns::{Pattern, patterns};
pub use plan::{Group, Members, Options, Plan, graph_hash, plan};
pub use prepare::prepare;
pub use refusal::Refusal;
pub use saved::saved_bytes;

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

//! Scalar programs: the one definition of what an elementwise op means.
//!
//! A program is typed SSA over single elements, made of a closed set of primitives ([`Prim`]) and
//! of mathematical functions ([`Func`]). Op rows *record* theirs once from a closure over [`S`];
//! [`expand`](fn@expand) then replaces every function by primitives, so that evaluator,
//! code generators and cost model see nothing but primitives and agree to the bit.

mod check;
mod contract;
mod eval;
mod expand;
pub mod math;
mod prim;
mod program;
mod record;
mod remainder;
mod table;

pub use contract::contracted;
pub use eval::{LANES, Lanes, eval_lanes, eval_one};
pub use expand::{expand, expand_but};
pub use prim::{Prim, PrimDef, Typing};
pub use program::{Func, SInst, SOp, SVal, ScalarProgram};
pub use record::{Recorder, S};
pub use remainder::expand_remainders;
pub use table::Table;

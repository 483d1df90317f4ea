//! Search: small changes of a plan, as long as they make it better.
//!
//! A [`PlanSpace`] is a function with what its plans are made for. A [`PlanState`] is a plan of it as data, a
//! [`Move`] a small change that can be taken back, and [`Features`] are the numbers by which one might
//! choose among moves. [`search`] walks from a plan by moves that a [`Policy`] chooses and keeps the best
//! plan on its way: it is never worse than the one it began with, and equal seeds give equal plans.
//!
//! What a move leads to is lowered and priced as any plan is. So nothing here decides what is legal: a
//! state is a plan if it lowers to a program that the verifier accepts.

pub(crate) mod apply;
pub(crate) mod fastest;
pub(crate) mod features;
pub(crate) mod large_neighborhood;
pub(crate) mod measure;
pub(crate) mod moves;
pub(crate) mod planner;
pub(crate) mod point;
pub(crate) mod policy;
pub(crate) mod price;
pub(crate) mod space;
pub(crate) mod state;
pub(crate) mod walk;

pub use apply::Undo;
pub use features::{EdgeFeatures, Features, GroupFeatures};
pub use measure::{Measure, Predicted};
pub use moves::Move;
pub use planner::{plan, search};
pub use policy::{Policy, Uniform};
pub use price::PlanPrice;
pub use space::PlanSpace;
pub use state::{GroupSlot, PartSlot, PlanState};
pub use walk::{SearchOptions, SearchResult};

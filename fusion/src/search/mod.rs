//! Search: improves a plan by small changes.
//!
//! A [`PlanSpace`] is a function with planning options and a cost. A [`PlanState`] is a plan as mutable data, a
//! [`Move`] is a small change that can be undone, and [`Features`] describe a state for policies. [`search`] walks from
//! a plan by moves that a [`Policy`] chooses, and keeps the best plan: it is never worse than the first one, and equal
//! seeds give equal plans.
//!
//! Every state is lowered and priced like any plan. So nothing here decides what is legal: a state is legal if it
//! lowers to a program that the verifier accepts.

pub(crate) mod apply;
pub(crate) mod blocks;
mod bundle_steps;
pub(crate) mod bundles;
pub(crate) mod descent;
pub(crate) mod fastest;
pub(crate) mod features;
pub(crate) mod large_neighborhood;
pub(crate) mod layouts;
pub(crate) mod measure;
pub(crate) mod moves;
pub(crate) mod parallel;
pub(crate) mod planned_groups;
pub(crate) mod planner;
pub(crate) mod point;
pub(crate) mod policy;
pub(crate) mod price;
pub(crate) mod space;
pub(crate) mod state;
mod unfused;
pub(crate) mod walk;

pub use apply::Undo;
pub use features::{EdgeFeatures, Features, GroupFeatures};
pub use measure::{Measure, Predicted};
pub use moves::Move;
pub use planner::search;
pub use policy::{Policy, Uniform};
pub use price::PlanPrice;
pub use space::PlanSpace;
pub use state::{GroupSlot, PartSlot, PlanState};
pub use walk::{SearchOptions, SearchResult};

//! Plans: which instructions share a kernel, what is kept for later phases, memory and its budgets, what it
//! all costs, and that no plan changes a bit.

mod budget;
mod bundles;
mod checkpoint;
#[path = "../common/mod.rs"]
mod common;
mod compile_budget;
mod contractions;
mod cost;
mod decisions;
mod divided;
mod donation;
mod donors;
mod effects;
mod equal_layers;
mod explain;
mod gradients;
mod groups;
mod inverse;
mod loops;
mod lossy;
mod memory;
mod models;
mod one_budget;
mod optimal;
mod plan_cache;
mod plan_invariance;
mod remat_schedules;
mod replay;
mod search;
mod segments;
mod single_changes;
mod spaced;
mod windows;

//! Training: compiled steps, their state, and loops over data.

mod definition;
mod eval;
mod objective;
mod state;

pub use eval::{EvalStep, eval_step};
pub use objective::{AuxArrays, Objective};
pub use state::{TrainState, TrainStep, train_step};

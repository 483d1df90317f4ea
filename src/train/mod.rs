//! Training: compiled steps, their state, and loops over data.

#[cfg(feature = "data")]
mod checkpoint;
mod definition;
mod eval;
#[cfg(feature = "train")]
mod interrupt;
#[cfg(feature = "train")]
mod log;
mod metrics;
mod objective;
mod parallel;
mod state;
#[cfg(feature = "train")]
mod trainer;

pub use eval::{EvalStep, eval_step};
pub use metrics::Metrics;
pub use objective::{AuxArrays, Objective};
pub use state::{TrainState, TrainStep, data_parallel, train_step};
#[cfg(feature = "train")]
pub use trainer::{TrainOutcome, Trainer};

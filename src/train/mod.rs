//! Training: compiled steps, their state, and loops over data.

#[cfg(feature = "data")]
mod checkpoint;
mod definition;
mod eval;
mod gradients;
#[cfg(feature = "train")]
mod interrupt;
#[cfg(feature = "train")]
mod log;
mod metrics;
mod objective;
mod parallel;
mod precision;
mod queued;
mod rank_agreement;
mod rank_step;
mod sharding;
mod state;
#[cfg(feature = "train")]
mod trainer;

pub use eval::{EvalStep, eval_step};
pub use metrics::Metrics;
pub use objective::{AuxArrays, Objective};
pub use precision::MixedPrecision;
pub use queued::QueuedStep;
pub use sharding::{OptimizerSharding, ShardingReport};
pub use state::{TrainState, TrainStep, data_parallel, train_step};
#[cfg(feature = "train")]
pub use trainer::{TrainOutcome, Trainer};

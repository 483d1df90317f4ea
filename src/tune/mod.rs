//! Calibration of the cost model: programs whose time is predicted and measured, how far the two are apart, and the fit of
//! a machine's numbers to measured times.

pub mod compare;
pub mod fit;
#[cfg(feature = "gpu")]
pub mod products;
pub mod programs;
pub mod timing;

pub use compare::{ComparedProgram, Comparison, compare, spearman};
pub use fit::{MeasuredProgram, fit, fitted_keys};
#[cfg(feature = "gpu")]
pub use products::{product_ladder, time_product};
pub use programs::{ProgramSize, TunedProgram, programs};
#[cfg(feature = "gpu")]
pub use timing::GpuTimer;
pub use timing::{CpuTimer, PlannedProgram, ProgramTimer};

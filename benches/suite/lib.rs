//! Programs and measurements that benches share: nets of any size, whole training steps, the marks of the fusion
//! literature, the survey of ops, timing in turns.

mod arguments;
pub mod collection;
mod contest;
mod draw;
pub mod marks;
pub mod nets;
pub mod numbers;
pub mod ops;
mod program;
mod spread;
pub mod steps;
pub mod table;

pub use arguments::MeasureArgs;
pub use contest::{Contender, Contest, Host, ratio};
pub use program::BenchProgram;
pub use spread::TimeSpread;

//! Sharding: tensors that a step keeps from run to run are divided among the ranks that run it (ZeRO-1).
//!
//! A training step leaves each tensor of the optimizer with the elements of a gradient that the ranks have summed. Where what
//! becomes of a tensor is computed element by element, a rank needs its own elements alone: it keeps a part of the tensor, is
//! sent its part of the gradient, and sends its part of the new parameter to the others. [`StateSharding`] is the decision,
//! which [`sharded`] carries out. No bit changes: elements are computed as before, and sums over all elements keep their order.

mod analysis;
mod decision;
mod parts;
mod sums;
mod write;

pub use decision::{ShardedSums, ShardedTensor, StatePair, StateSharding};
pub use write::sharded;

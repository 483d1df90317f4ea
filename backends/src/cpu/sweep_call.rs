//! Calls of the functions of sweeps, by what runs several of them one after the other.

use super::machine_code::SweepId;
use super::workers::OwnArray;
use smallvec::SmallVec;

/// A call of a sweep's function, for all of its places or some of them.
pub(super) struct SweepCall {
    pub(super) sweep: SweepId,
    pub(super) begin: i64,
    pub(super) end: i64,
    /// Arrays of the worker that it reads or writes, and the point whose element they begin with.
    pub(super) arrays: SmallVec<[(OwnArray, i64); 2]>,
}

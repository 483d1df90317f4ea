//! The state of a run, and the enumeration of points.

use crate::reference::EvalTensor;
use crate::runtime::array::out_of_memory;
use crate::runtime::library_functions::LibraryFunctions;
use crate::runtime::limits::RunLimits;
use crate::runtime::ranks::RankGroup;
use adfuse_ir::kernel::{Buffer, Extents, Program, Row, Tile};
use adfuse_ir::{At, DType, Diagnostic, Kind, TensorType};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

pub(crate) struct ProgramRun<'p> {
    pub(crate) program: &'p Program,
    pub(crate) tensors: SecondaryMap<Buffer, Option<EvalTensor>>,
    /// Bytes of the buffers in the engine's memory.
    pub(crate) live: u64,
    /// The most there were.
    pub(crate) peak: u64,
    /// The peak of the programs that the present step runs, in bytes. Buffers that they share with the step do not count.
    pub(crate) within: u64,
}

/// What a run is given beside its arguments.
pub(crate) struct RunEnvironment<'f> {
    /// What library steps call.
    pub(crate) functions: &'f mut dyn LibraryFunctions,
    pub(crate) limits: RunLimits,
    /// The ranks that run the program.
    pub(crate) ranks: RankGroup,
}

/// What a kernel keeps, for all points of its domain.
#[derive(Default)]
pub(crate) struct KernelState {
    pub(crate) rows: SecondaryMap<Row, Vec<u64>>,
    pub(crate) tiles: SecondaryMap<Tile, Vec<u64>>,
    /// The sums that a stage follows.
    pub(crate) sums: Vec<u64>,
}

pub(crate) const OUTSIDE: &str = "an access of a verified program is outside of its buffer";

pub(crate) fn internal(message: &str) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::Internal, message)
}

pub(crate) fn joined(domain: &[i64], axes: &[i64]) -> Extents {
    domain.iter().chain(axes).copied().collect()
}

pub(crate) fn volume(extents: &[i64]) -> Result<u64, Diagnostic> {
    let dims: SmallVec<[u64; 4]> = extents.iter().map(|&n| n.max(0) as u64).collect();
    TensorType::of(DType::U8, &dims).elements().ok_or_else(|| out_of_memory(u64::MAX))
}

/// The coordinates of a row-major place.
pub(crate) fn coordinates(extents: &[i64], place: u64) -> Extents {
    let mut at: Extents = extents.iter().map(|_| 0).collect();
    let mut rest = place as i64;
    for (x, &n) in at.iter_mut().zip(extents).rev() {
        *x = rest % n;
        rest /= n;
    }
    at
}

/// The row-major place of coordinates.
pub(crate) fn offset(
    index: impl ExactSizeIterator<Item = i64>,
    dims: &[i64],
) -> Result<usize, Diagnostic> {
    let mut place = 0;
    for (i, &n) in index.zip(dims) {
        if !(0..n).contains(&i) {
            return Err(internal(OUTSIDE));
        }
        place = place * n + i;
    }
    Ok(place as usize)
}

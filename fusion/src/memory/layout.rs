//! What is planned of a program's memory: where temporaries are, and the totals.

use adfuse_ir::kernel::{Buffer, DonorSlice, InPlace, SLICE_ALIGN, SpacedSteps};
use cranelift_entity::SecondaryMap;

/// The alignment of every offset in the arena, in bytes: a cache line, and more than the
/// widest load of any engine needs.
pub const ALIGN: u64 = SLICE_ALIGN;

/// For each buffer where it is in the memory of a donor, if it is in one's.
pub(super) type DonorOf = SecondaryMap<Buffer, Option<DonorSlice>>;

/// Where temporaries are, and what a program takes. Everything is in bytes, of the engine's memory:
/// buffers in the memory of the caller do not count and have no offset.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Memory {
    /// Of the arena.
    pub arena: u64,
    /// Of inputs, constants, outputs and the arena together: no moment of a run takes more.
    pub peak: u64,
    /// Of the inputs.
    pub inputs: u64,
    /// Of the results: the caller is handed an array for each, also where two are the same or one is an
    /// input. Those in the memory of a donated input do not count.
    pub outputs: u64,
    /// Of the constants.
    pub constants: u64,
    /// Where each temporary starts in the arena, a multiple of [`ALIGN`]; `None` for other buffers.
    pub offsets: SecondaryMap<Buffer, Option<u64>>,
    /// The offset in the arena of each step's scratch memory, a multiple of [`ALIGN`], and how
    /// many bytes; `None` for steps that need nothing.
    pub scratch: Vec<Option<(u64, u64)>>,
    /// For results in donated inputs, and for temporaries in these or in results that are not written yet: where they
    /// are. These temporaries have no offset in the arena.
    pub in_donor: SecondaryMap<Buffer, Option<DonorSlice>>,
    /// What is written where a temporary is that dies at the same step, or an input that is given up, in the order of
    /// the steps.
    pub in_place: Vec<InPlace>,
    /// Steps whose memory is used for nothing else for some steps more.
    pub apart: Vec<SpacedSteps>,
}

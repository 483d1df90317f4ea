//! Donors: arrays of the caller that hold other values while they do not hold their own.
//!
//! A donated input is free once it has been read last, and the array of a result until the result is written first. A
//! layout may put temporaries there, and a result into a donated input of its size.

use super::buffer::{Buffer, BufferData, Role, Space, Storage};
use super::program::Program;

/// Where in the memory of a donor a value is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DonorSlice {
    /// The input or the output that the caller's array belongs to.
    pub donor: Buffer,
    /// Bytes from the beginning of the array.
    pub at: u64,
}

impl DonorSlice {
    /// The slice at the beginning of an array.
    pub fn start(donor: Buffer) -> DonorSlice {
        DonorSlice { donor, at: 0 }
    }
}

/// Whether other values may be in the array of a buffer: a donated input that is no result, or a result, where the
/// array holds just the buffer's own bytes. Of a result that is handed over several times it is the first array.
pub fn is_donor(program: &Program, b: Buffer) -> bool {
    let is_result = || program.outputs.contains(&b);
    program.buffers.get(b).is_some_and(|data| {
        is_dense(data)
            && match data.role {
                Role::Input => data.donated && !is_result(),
                Role::Output => is_result(),
                Role::Constant(_) | Role::Temp => false,
            }
    })
}

/// Why a value may not be in a slice of a donor, if it may not: whatever is there at other times.
pub fn misplaced(program: &Program, b: Buffer, slice: DonorSlice) -> Option<&'static str> {
    if !is_donor(program, slice.donor) {
        return Some("is in the memory of what is neither an input that is given up nor a result");
    }
    let (data, donor) = (&program.buffers[b], &program.buffers[slice.donor]);
    let end = slice.at.checked_add(data.bytes());
    match data.role {
        Role::Temp if data.space != Space::Device => Some("is in the host's memory"),
        Role::Temp if !slice.at.is_multiple_of(SLICE_ALIGN) => Some("is not aligned"),
        Role::Temp if end.is_none_or(|end| end > donor.bytes()) => {
            Some("does not fit into the array that it is in")
        }
        Role::Temp => None,
        // What is handed over twice is in two places.
        Role::Output => {
            let times = program.outputs.iter().filter(|&&o| o == b).count();
            let whole = slice.at == 0 && data.bytes() == donor.bytes() && is_dense(data);
            (times != 1 || !whole || donor.role != Role::Input)
                .then_some("does not fit into the input that is given up for it")
        }
        Role::Input | Role::Constant(_) => Some("is no result and no temporary"),
    }
}

/// What temporaries begin at a multiple of, from the beginning of a donor.
pub const SLICE_ALIGN: u64 = 64;

fn is_dense(data: &BufferData) -> bool {
    data.storage == Storage::Plain && data.strides.is_none() && data.space == Space::Device
}

//! Bytes of the memories that a run uses.

use super::place::Place;

/// A memory: the executable's block, an array of the caller, or the host's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RangeMemory {
    Block,
    Input(usize),
    Output(usize),
    Host,
}

/// Bytes from a place to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryRange {
    memory: RangeMemory,
    from: u64,
    to: u64,
}

impl MemoryRange {
    pub(crate) fn new(place: Place, bytes: u64) -> MemoryRange {
        let (memory, from) = match place {
            Place::DeviceBlock(at) => (RangeMemory::Block, at),
            Place::Input(k, at) => (RangeMemory::Input(k), at),
            Place::Output(k, at) => (RangeMemory::Output(k), at),
            Place::Host(at) => (RangeMemory::Host, at),
        };
        MemoryRange { memory, from, to: from.saturating_add(bytes) }
    }

    /// Whether it has no byte.
    pub(crate) fn is_empty(&self) -> bool {
        self.from >= self.to
    }

    pub(crate) fn meets(&self, other: &MemoryRange) -> bool {
        self.memory == other.memory && self.from < other.to && other.from < self.to
    }
}

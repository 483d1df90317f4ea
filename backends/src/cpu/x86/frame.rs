//! The stack frame of a function.

/// Offsets from the stack pointer, which is at a multiple of 64 bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct StackFrame {
    bytes: u32,
}

/// Bytes of a frame at most: stacks of threads are small.
pub(crate) const MOST: u32 = 1 << 16;

impl StackFrame {
    /// Room for this many bytes, at a multiple of their number or of 64.
    pub(crate) fn room(&mut self, bytes: u32) -> u32 {
        let at = self.bytes.next_multiple_of(bytes.next_power_of_two().min(64));
        self.bytes = at.saturating_add(bytes);
        at
    }

    /// Room for a vector.
    pub(crate) fn vector(&mut self) -> u32 {
        self.room(64)
    }

    /// Room for a number or a pointer.
    pub(crate) fn long(&mut self) -> u32 {
        self.room(8)
    }

    /// All of it.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes.next_multiple_of(64)
    }
}

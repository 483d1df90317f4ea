//! Errors: why a problem has no plan.

use thiserror::Error;

use crate::problem::{BufferId, Offset};

/// A problem that is malformed, or that does not fit its capacity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A live range ends before it starts.
    #[error("{buffer} dies at {upper}, before its birth at {lower}")]
    ReversedLife {
        /// The buffer.
        buffer: BufferId,
        /// The start of its live range.
        lower: u64,
        /// The end of its live range.
        upper: u64,
    },
    /// An alignment is not a power of two.
    #[error("{buffer} has alignment {align}, which is not a power of two")]
    Alignment {
        /// The buffer.
        buffer: BufferId,
        /// Its alignment in bytes.
        align: u64,
    },
    /// A gap reaches beyond its buffer's live range or size, is reversed, or overlaps another one.
    #[error("gap {gap} of {buffer} is not a stretch of its life and size apart from other gaps")]
    Gap {
        /// The buffer.
        buffer: BufferId,
        /// The position of the gap in [`BufferSpec::gaps`](crate::BufferSpec::gaps).
        gap: usize,
    },
    /// A share names a buffer that the problem does not have.
    #[error("a share names {buffer}, which the problem does not have")]
    UnknownBuffer {
        /// The name.
        buffer: BufferId,
    },
    /// The buffers of an in-place pair do not meet: the parent must be born before the child, and be
    /// dead one time unit after the child's birth.
    #[error("{child} cannot take the place of {parent}, which does not die at its birth")]
    ShareTimes {
        /// The buffer meant to be born in place.
        child: BufferId,
        /// The buffer it was meant to replace.
        parent: BufferId,
    },
    /// A buffer with a windowed gap shares storage; the two cannot be combined.
    #[error("{buffer} shares storage and has a gap with a window")]
    ShareWindow {
        /// The buffer.
        buffer: BufferId,
    },
    /// A fixed offset is not a multiple of the alignment of its buffer, or of one it shares with.
    #[error("{buffer} is fixed at offset {offset}, which is not a multiple of {align}")]
    FixedMisaligned {
        /// The buffer.
        buffer: BufferId,
        /// Its fixed offset.
        offset: Offset,
        /// The alignment in bytes.
        align: u64,
    },
    /// Two buffers that must share storage are fixed at different offsets.
    #[error("{a} and {b} must share storage and are fixed at different offsets")]
    FixedApart {
        /// One buffer.
        a: BufferId,
        /// The other.
        b: BufferId,
    },
    /// Two buffers are fixed where they overlap while both live.
    #[error("{a} and {b} are fixed where they overlap while both live")]
    FixedOverlap {
        /// One buffer.
        a: BufferId,
        /// The other.
        b: BufferId,
    },
    /// All sizes, alignments and fixed offsets together exceed what is planned for, 2^62 bytes.
    #[error("the buffers up to {buffer} need more than 2^62 bytes together")]
    TooLarge {
        /// The first buffer at which the sum is too great.
        buffer: BufferId,
    },
    /// No packing within the capacity was found. None exists if the lower bound is above it.
    #[error(
        "the buffers do not fit {capacity} bytes: the least peak found is {least_peak}, and no \
         packing is below {lower_bound}"
    )]
    DoesNotFit {
        /// Bytes available.
        capacity: u64,
        /// The least peak found, in bytes.
        least_peak: u64,
        /// No packing has a peak below this many bytes.
        lower_bound: u64,
    },
}

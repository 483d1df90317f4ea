//! Errors: why a problem has no plan.

use std::error::Error;
use std::fmt;

use crate::problem::{BufferId, Offset};
use crate::words::plural;

/// A problem that is malformed, or that does not fit its capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// A live range ends before it starts.
    ReversedLife {
        /// The buffer.
        buffer: BufferId,
        /// The start of its live range.
        lower: u64,
        /// The end of its live range.
        upper: u64,
    },
    /// An alignment is not a power of two.
    Alignment {
        /// The buffer.
        buffer: BufferId,
        /// Its alignment in bytes.
        align: u64,
    },
    /// A gap reaches beyond its buffer's live range or size, is reversed, or overlaps another one. Messages count from 1.
    Gap {
        /// The buffer.
        buffer: BufferId,
        /// The position of the gap in [`BufferSpec::gaps`](crate::BufferSpec::gaps).
        gap: usize,
    },
    /// A share names a buffer that the problem does not have.
    UnknownBuffer {
        /// The name.
        buffer: BufferId,
    },
    /// The buffers of an in-place pair do not meet: the parent must be born before the child, and be
    /// dead one time unit after the child's birth.
    ShareTimes {
        /// The buffer meant to be born in place.
        child: BufferId,
        /// The buffer it was meant to replace.
        parent: BufferId,
    },
    /// A buffer with a windowed gap shares storage; the two cannot be combined.
    ShareWindow {
        /// The buffer.
        buffer: BufferId,
    },
    /// A fixed offset is not a multiple of the alignment of its buffer, or of one it shares with.
    FixedMisaligned {
        /// The buffer.
        buffer: BufferId,
        /// Its fixed offset.
        offset: Offset,
        /// The alignment in bytes.
        align: u64,
    },
    /// Two buffers that must share storage are fixed at different offsets.
    FixedApart {
        /// One buffer.
        a: BufferId,
        /// The other.
        b: BufferId,
    },
    /// Two buffers are fixed where they overlap while both live.
    FixedOverlap {
        /// One buffer.
        a: BufferId,
        /// The other.
        b: BufferId,
    },
    /// All sizes, alignments and fixed offsets together exceed what is planned for, 2^62 bytes.
    TooLarge {
        /// The first buffer at which the sum is too great.
        buffer: BufferId,
    },
    /// No packing within the capacity was found. None exists if the lower bound is above it.
    DoesNotFit {
        /// Bytes available.
        capacity: u64,
        /// The least peak found, in bytes.
        least_peak: u64,
        /// No packing has a peak below this many bytes.
        lower_bound: u64,
    },
}

impl Error for PlanError {}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_names(|id| id.to_string()))
    }
}

impl PlanError {
    /// What is wrong, with the buffers called as `name` says: callers whose buffers have names need not show numbers.
    pub fn with_names(&self, name: impl Fn(BufferId) -> String) -> String {
        match *self {
            PlanError::ReversedLife { buffer, lower, upper } => {
                format!("{} dies at {upper}, before its birth at {lower}", name(buffer))
            }
            PlanError::Alignment { buffer, align } => {
                format!("{} has alignment {align}, which is not a power of two", name(buffer))
            }
            PlanError::Gap { buffer, gap } => format!(
                "gap {} of {} is not a stretch of its life and size apart from other gaps",
                gap + 1,
                name(buffer)
            ),
            PlanError::UnknownBuffer { buffer } => {
                format!("a share names {}, which the problem does not have", name(buffer))
            }
            PlanError::ShareTimes { child, parent } => format!(
                "{} cannot take the place of {}, which does not die at its birth",
                name(child),
                name(parent)
            ),
            PlanError::ShareWindow { buffer } => {
                format!("{} shares storage and has a gap with a window", name(buffer))
            }
            PlanError::FixedMisaligned { buffer, offset, align } => format!(
                "{} is fixed at offset {offset}, which is not a multiple of {align}",
                name(buffer)
            ),
            PlanError::FixedApart { a, b } => format!(
                "{} and {} must share storage and are fixed at different offsets",
                name(a),
                name(b)
            ),
            PlanError::FixedOverlap { a, b } => {
                format!("{} and {} are fixed where they overlap while both live", name(a), name(b))
            }
            PlanError::TooLarge { buffer } => {
                format!("the buffers up to {} need more than 2^62 bytes together", name(buffer))
            }
            PlanError::DoesNotFit { capacity, least_peak, lower_bound } => format!(
                "the buffers do not fit {capacity} byte{}: the least peak found is {least_peak}, and \
                 no packing is below {lower_bound}",
                plural(capacity)
            ),
        }
    }
}

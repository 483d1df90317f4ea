//! Problems: buffers, which of them may or must share storage, and the capacity.

use std::fmt;
use std::ops::Range;

use cranelift_entity::{EntityRef, PrimaryMap, entity_impl};

/// Buffers to be placed in one arena, and the relations among them.
///
/// Nothing is validated here; [`plan`](crate::plan) reports every malformed part of a problem as a
/// [`PlanError`](crate::PlanError).
///
/// Inputs that a caller donates need no word of their own: such a buffer is live from the start to
/// its last use, and [`Problem::must_share`] or [`Problem::may_share`] ties it to the output that
/// takes over its storage. An input that is not donated is live to the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// The buffers. A [`Packing`](crate::Packing) has one offset for each.
    pub buffers: PrimaryMap<BufferId, BufferSpec>,
    /// Pairs of buffers that share storage, in the order they were declared.
    pub shares: Vec<Share>,
    /// Bytes available. With a capacity any packing within it is good enough, and none is an error;
    /// without, the planner looks for the least peak.
    pub capacity: Option<u64>,
}

impl Problem {
    /// A problem without buffers and without a capacity.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a buffer.
    pub fn push(&mut self, buffer: BufferSpec) -> BufferId {
        self.buffers.push(buffer)
    }

    /// Declares two buffers to be one storage: they get the same offset, and may both be live over
    /// any stretch of time. The relation is transitive.
    pub fn must_share(&mut self, a: BufferId, b: BufferId) {
        self.shares.push(Share::Must(a, b));
    }

    /// Allows `child` to be computed in place of `parent`: where both have the same offset, they may
    /// both be live during the one time unit in which `child` is born and `parent` dies.
    ///
    /// `parent` must be born before `child`, and be dead one time unit after `child`'s birth
    /// (`parent.live.end <= child.live.start + 1`). The two need not have the same size. The
    /// relation is not transitive.
    pub fn may_share(&mut self, child: BufferId, parent: BufferId) {
        self.shares.push(Share::May { child, parent });
    }
}

/// Names a buffer of one [`Problem`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(u32);
entity_impl!(BufferId, "buffer");

/// An address within the arena, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

impl Offset {
    /// The distance from the start of the arena, in bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A stretch of memory that is needed for a stretch of time.
///
/// A buffer of size 0, or with an empty live range, is legal: it overlaps nothing, does not count
/// towards the peak, and still gets an offset that is aligned, fixed and shared as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferSpec {
    /// When the buffer holds a value. The start is inclusive, the end exclusive; the unit of time is
    /// the caller's.
    pub live: Range<u64>,
    /// Bytes.
    pub size: u64,
    /// The offset is a multiple of this many bytes; a power of two.
    pub align: u64,
    /// The only offset allowed, where one is given.
    pub fixed: Option<Offset>,
    /// Stretches within `live` during which other buffers may use the storage, in any order,
    /// disjoint. What the buffer held is lost or kept by the caller's own means.
    pub gaps: Vec<Gap>,
}

impl BufferSpec {
    /// A buffer of `size` bytes with alignment 1, free to go anywhere.
    pub fn new(live: Range<u64>, size: u64) -> Self {
        Self { live, size, align: 1, fixed: None, gaps: Vec::new() }
    }

    /// The same buffer, aligned to `align` bytes.
    pub fn with_align(self, align: u64) -> Self {
        Self { align, ..self }
    }

    /// The same buffer, allowed at `offset` only.
    pub fn with_fixed(self, offset: Offset) -> Self {
        Self { fixed: Some(offset), ..self }
    }

    /// The same buffer with one more gap.
    pub fn with_gap(mut self, gap: Gap) -> Self {
        self.gaps.push(gap);
        self
    }
}

/// A time within a buffer's live range during which all, or all but a window, of its bytes are free
/// for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// When; the end is exclusive.
    pub live: Range<u64>,
    /// The bytes that stay occupied, counted from the start of the buffer; `None` for none.
    pub window: Option<Range<u64>>,
}

/// A declaration that two buffers share storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// The two have the same offset. See [`Problem::must_share`].
    Must(BufferId, BufferId),
    /// The two may have the same offset. See [`Problem::may_share`].
    May {
        /// The buffer born in place of another one.
        child: BufferId,
        /// The buffer that dies at that moment.
        parent: BufferId,
    },
}

impl Share {
    /// Both buffers named.
    pub fn buffers(self) -> [BufferId; 2] {
        match self {
            Share::Must(a, b) => [a, b],
            Share::May { child, parent } => [child, parent],
        }
    }
}

/// Whether `id` names a buffer of `problem`.
pub(crate) fn names_a_buffer(problem: &Problem, id: BufferId) -> bool {
    id.index() < problem.buffers.len()
}

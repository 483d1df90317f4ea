//! Proves that a packing is sound, by a sweep over time that shares no code with the planner.

use std::collections::BTreeMap;
use std::ops::Range;

use cranelift_entity::{EntityRef, PrimaryMap};
use thiserror::Error;

use crate::packing::Packing;
use crate::problem::{BufferId, BufferSpec, Offset, Problem, Share};
use crate::words::plural;

/// Whether `packing` answers `problem`: every offset aligned, fixed and shared as asked, no two
/// buffers on the same byte at the same time, and the peak and bound as stated.
///
/// # Errors
///
/// The first violation found; of several overlaps the earliest.
pub fn check(problem: &Problem, packing: &Packing) -> Result<(), Violation> {
    let peak = check_offsets(problem, &packing.offsets)?;
    if peak != packing.peak {
        return Err(Violation::Peak { stated: packing.peak, actual: peak });
    }
    if packing.lower_bound > peak {
        return Err(Violation::Bound { lower_bound: packing.lower_bound, peak });
    }
    Ok(())
}

/// Like [`check`], for offsets that come without a stated peak. Returns the peak in bytes.
///
/// # Errors
///
/// The first violation found; of several overlaps the earliest.
pub fn check_offsets(
    problem: &Problem,
    offsets: &PrimaryMap<BufferId, Offset>,
) -> Result<u64, Violation> {
    if offsets.len() != problem.buffers.len() {
        let (expected, found) = (problem.buffers.len(), offsets.len());
        return Err(Violation::Count { expected, found });
    }
    let mut peak = 0;
    for (id, buffer) in problem.buffers.iter() {
        peak = peak.max(check_placement(id, buffer, offsets[id])?);
    }
    let shares = SharedStorage::of(problem, offsets)?;
    check_disjoint(problem, offsets, &shares)?;
    match problem.capacity {
        Some(capacity) if peak > capacity => Err(Violation::Capacity { capacity, peak }),
        _ => Ok(peak),
    }
}

/// What is wrong with a packing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// Not one offset for each buffer.
    #[error("{found} offsets for {expected} buffers")]
    Count {
        /// The number of buffers.
        expected: usize,
        /// The number of offsets.
        found: usize,
    },
    /// An offset is not a multiple of the alignment.
    #[error("{buffer} is at offset {offset}, which is not a multiple of {align}")]
    Misaligned {
        /// The buffer.
        buffer: BufferId,
        /// Its offset.
        offset: Offset,
        /// Its alignment in bytes.
        align: u64,
    },
    /// A buffer is not at its fixed offset.
    #[error("{buffer} is at offset {offset} and fixed at {fixed}")]
    NotFixed {
        /// The buffer.
        buffer: BufferId,
        /// Where it is.
        offset: Offset,
        /// Where it must be.
        fixed: Offset,
    },
    /// The end of a buffer exceeds the range of `u64`.
    #[error("{buffer} at offset {offset} ends beyond 2^64 bytes")]
    Overflow {
        /// The buffer.
        buffer: BufferId,
        /// Its offset.
        offset: Offset,
    },
    /// Two buffers that must share storage have different offsets.
    #[error("{a} and {b} must share storage and have different offsets")]
    NotShared {
        /// One buffer.
        a: BufferId,
        /// The other.
        b: BufferId,
    },
    /// A share names a missing buffer or one with a windowed gap, or an in-place pair whose lives do
    /// not meet.
    #[error("share {share} of the problem is malformed")]
    MalformedShare {
        /// The position in [`Problem::shares`].
        share: usize,
    },
    /// Two buffers occupy the same bytes at the same time.
    #[error(
        "{a} and {b} overlap at times {}..{} in bytes {}..{}",
        time.start, time.end, bytes.start, bytes.end
    )]
    Overlap {
        /// The buffer with the lower id.
        a: BufferId,
        /// The other.
        b: BufferId,
        /// When both occupy the bytes.
        time: Range<u64>,
        /// The addresses that both occupy.
        bytes: Range<u64>,
    },
    /// The peak stated is not the greatest end of a buffer.
    #[error("the packing states a peak of {stated} byte{}, and has one of {actual}", plural(*stated))]
    Peak {
        /// The peak stated, in bytes.
        stated: u64,
        /// The real one.
        actual: u64,
    },
    /// The lower bound stated is above the peak.
    #[error("the packing states a lower bound of {lower_bound} byte{} above its peak of {peak}", plural(*lower_bound))]
    Bound {
        /// The bound stated, in bytes.
        lower_bound: u64,
        /// The peak in bytes.
        peak: u64,
    },
    /// The peak exceeds the capacity.
    #[error("the peak of {peak} byte{} exceeds the capacity of {capacity}", plural(*peak))]
    Capacity {
        /// Bytes available.
        capacity: u64,
        /// The peak in bytes.
        peak: u64,
    },
}

/// Checks one buffer by itself; returns its end if it counts towards the peak, else 0.
fn check_placement(id: BufferId, buffer: &BufferSpec, offset: Offset) -> Result<u64, Violation> {
    if buffer.align == 0 || !offset.bytes().is_multiple_of(buffer.align) {
        return Err(Violation::Misaligned { buffer: id, offset, align: buffer.align });
    }
    if let Some(fixed) = buffer.fixed
        && fixed != offset
    {
        return Err(Violation::NotFixed { buffer: id, offset, fixed });
    }
    let end = offset
        .bytes()
        .checked_add(buffer.size)
        .ok_or(Violation::Overflow { buffer: id, offset })?;
    Ok(if buffer.size == 0 || buffer.live.is_empty() { 0 } else { end })
}

/// Which buffers are the same storage by declaration.
struct SharedStorage {
    /// For each buffer the buffer that stands for its storage.
    leader: Vec<usize>,
    /// In-place pairs at equal offsets, lower id first, sorted.
    in_place: Vec<(BufferId, BufferId)>,
}

impl SharedStorage {
    fn of(problem: &Problem, offsets: &PrimaryMap<BufferId, Offset>) -> Result<Self, Violation> {
        let count = problem.buffers.len();
        let mut edges: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut in_place = Vec::new();
        for (share, &pair) in problem.shares.iter().enumerate() {
            // Blocks that share storage must start at the same address: the sweep relies on it.
            let malformed = |id: BufferId| {
                id.index() >= count || problem.buffers[id].gaps.iter().any(|g| g.window.is_some())
            };
            if pair.buffers().into_iter().any(malformed) {
                return Err(Violation::MalformedShare { share });
            }
            match pair {
                Share::Must(a, b) if offsets[a] != offsets[b] => {
                    return Err(Violation::NotShared { a, b });
                }
                Share::Must(a, b) => {
                    edges[a.index()].push(b.index());
                    edges[b.index()].push(a.index());
                }
                Share::May { child, parent } => {
                    let (c, p) = (&problem.buffers[child].live, &problem.buffers[parent].live);
                    if p.start >= c.start || p.end > c.start.saturating_add(1) {
                        return Err(Violation::MalformedShare { share });
                    }
                    if offsets[child] == offsets[parent] {
                        in_place.push((child.min(parent), child.max(parent)));
                    }
                }
            }
        }
        in_place.sort_unstable();
        let mut leader = vec![usize::MAX; count];
        for first in 0..count {
            let mut pending = vec![first];
            while let Some(at) = pending.pop() {
                if leader[at] == usize::MAX {
                    leader[at] = first;
                    pending.extend(&edges[at]);
                }
            }
        }
        Ok(Self { leader, in_place })
    }

    fn allow(&self, a: BufferId, b: BufferId) -> bool {
        self.leader[a.index()] == self.leader[b.index()]
            || self.in_place.binary_search(&(a.min(b), a.max(b))).is_ok()
    }
}

/// Bytes that one buffer occupies for some time.
#[derive(Clone)]
struct OccupiedBlock {
    owner: BufferId,
    time: Range<u64>,
    bytes: Range<u64>,
}

/// Sweeps over time with the set of live blocks, sorted by address.
fn check_disjoint(
    problem: &Problem,
    offsets: &PrimaryMap<BufferId, Offset>,
    shares: &SharedStorage,
) -> Result<(), Violation> {
    let mut blocks = Vec::new();
    for (id, buffer) in problem.buffers.iter() {
        collect_blocks(id, buffer, offsets[id].bytes(), &mut blocks);
    }
    let mut births: Vec<usize> = (0..blocks.len()).collect();
    let mut deaths = births.clone();
    births.sort_by_key(|&i| (blocks[i].time.start, blocks[i].owner, blocks[i].bytes.start));
    deaths.sort_by_key(|&i| blocks[i].time.end);
    let mut deaths = deaths.into_iter().peekable();
    // Blocks that start at the same address are told apart by their position in `blocks`.
    let mut live: BTreeMap<(u64, usize), ()> = BTreeMap::new();
    for born in births {
        let block = &blocks[born];
        while let Some(dead) = deaths.next_if(|&i| blocks[i].time.end <= block.time.start) {
            live.remove(&(blocks[dead].bytes.start, dead));
        }
        // Whatever overlaps from below: live blocks are disjoint or start at the same address, so
        // only those at the nearest lower start can reach this one.
        let below = live.range(..(block.bytes.start, 0)).next_back().map(|(&(start, _), ())| start);
        let from = below.unwrap_or(block.bytes.start);
        let near = live.range((from, 0)..(block.bytes.end, 0)).map(|(&(_, i), ())| &blocks[i]);
        if let Some(other) = near
            .filter(|other| other.bytes.end > block.bytes.start)
            .find(|other| !shares.allow(block.owner, other.owner))
        {
            return Err(overlap(block, other));
        }
        live.insert((block.bytes.start, born), ());
    }
    Ok(())
}

/// Cuts a buffer at its gaps.
fn collect_blocks(
    owner: BufferId,
    buffer: &BufferSpec,
    offset: u64,
    blocks: &mut Vec<OccupiedBlock>,
) {
    let mut push = |time: Range<u64>, bytes: Range<u64>| {
        if !time.is_empty() && !bytes.is_empty() {
            blocks.push(OccupiedBlock { owner, time, bytes });
        }
    };
    let mut gaps: Vec<_> = buffer.gaps.iter().collect();
    gaps.sort_by_key(|gap| gap.live.start);
    let mut now = buffer.live.start;
    for gap in gaps {
        push(now..gap.live.start, offset..offset + buffer.size);
        if let Some(window) = &gap.window {
            let end = offset.saturating_add(window.end);
            push(gap.live.clone(), offset.saturating_add(window.start)..end);
        }
        now = now.max(gap.live.end);
    }
    push(now..buffer.live.end, offset..offset + buffer.size);
}

fn overlap(x: &OccupiedBlock, y: &OccupiedBlock) -> Violation {
    let (a, b) = if x.owner <= y.owner { (x, y) } else { (y, x) };
    let meet = |r: &Range<u64>, s: &Range<u64>| r.start.max(s.start)..r.end.min(s.end);
    Violation::Overlap {
        a: a.owner,
        b: b.owner,
        time: meet(&a.time, &b.time),
        bytes: meet(&a.bytes, &b.bytes),
    }
}

//! Memory of an executable: all sizes are known when it is compiled, and nothing is allocated afterwards.
#![allow(unsafe_code)]

use adfuse_ir::{At, Diagnostic, Kind};
use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

/// The alignment of every array: a cache line.
pub(crate) const ALIGN: u64 = 64;

/// What is aligned as arrays are.
#[repr(align(64))]
struct CacheLine;

/// A page of the large kind, which blocks of several begin at: walking them takes fewer look-ups of
/// addresses, and fresh ones come faster.
const LARGE_PAGE: u64 = 2 << 20;

/// Bytes that are aligned to cache lines. Their initial contents are undefined.
pub(crate) struct AlignedBlock {
    start: NonNull<u8>,
    layout: Option<Layout>,
}

impl AlignedBlock {
    /// This many bytes.
    pub(crate) fn new(bytes: u64) -> Result<AlignedBlock, Diagnostic> {
        if bytes == 0 {
            return Ok(AlignedBlock {
                start: NonNull::<CacheLine>::dangling().cast(),
                layout: None,
            });
        }
        let align = if bytes >= 2 * LARGE_PAGE { LARGE_PAGE } else { ALIGN };
        let size = bytes.checked_next_multiple_of(ALIGN).and_then(|n| usize::try_from(n).ok());
        let layout = size.and_then(|n| Layout::from_size_align(n, align as usize).ok());
        let layout = layout.ok_or_else(|| too_much(bytes))?;
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc(layout) }).ok_or_else(|| too_much(bytes))?;
        if align == LARGE_PAGE {
            advise(start, layout.size());
        }
        Ok(AlignedBlock { start, layout: Some(layout) })
    }

    /// This many bytes, all of them 0.
    pub(crate) fn zeroed(bytes: u64) -> Result<AlignedBlock, Diagnostic> {
        let block = AlignedBlock::new(bytes)?;
        let size = block.layout.map_or(0, |layout| layout.size());
        // SAFETY: the block has this many bytes, and nobody else knows of it.
        unsafe { block.start().write_bytes(0, size) };
        Ok(block)
    }

    /// Where it begins.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

/// Asks the system for large pages. It is free to give none, so its answer does not matter.
#[cfg(target_os = "linux")]
fn advise(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the range was allocated, and advice of this kind changes no byte of it.
    unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise(_: NonNull<u8>, _: usize) {}

impl Drop for AlignedBlock {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            // SAFETY: it was allocated with this layout, and is freed once.
            unsafe { dealloc(self.start.as_ptr(), layout) }
        }
    }
}

// SAFETY: a block is bytes that it owns, and where they begin never changes.
unsafe impl Send for AlignedBlock {}
// SAFETY: as above; who writes the bytes by way of the pointer says why nobody else uses them.
unsafe impl Sync for AlignedBlock {}

/// More bytes than this are refused before they are asked for.
const MOST: u64 = 1 << 46;

pub(crate) fn too_much(bytes: u64) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::Limit, format!("out of memory: {bytes} bytes"))
}

impl Default for OffsetAllocator {
    fn default() -> OffsetAllocator {
        OffsetAllocator::at(0)
    }
}

/// Gives out offsets in a block that is made later.
#[derive(Clone, Copy)]
pub(crate) struct OffsetAllocator {
    base: u64,
    next: u64,
    /// One past the last byte that was ever taken.
    pub(crate) most: u64,
    /// One past the last byte that may be taken.
    limit: u64,
}

impl OffsetAllocator {
    /// Offsets from `base` on.
    pub(crate) fn at(base: u64) -> OffsetAllocator {
        OffsetAllocator { base, next: base, most: base, limit: MOST }
    }

    /// The same with this many bytes at most.
    pub(crate) fn within(self, bytes: u64) -> OffsetAllocator {
        OffsetAllocator { limit: self.base.saturating_add(bytes).min(self.limit), ..self }
    }

    /// An offset for this many elements of this many bytes.
    pub(crate) fn take(&mut self, elements: i64, bytes: u64) -> Result<u64, Diagnostic> {
        let all = || {
            let size = u64::try_from(elements).ok()?.checked_mul(bytes)?;
            let end = self.next.checked_add(size)?.checked_next_multiple_of(ALIGN)?;
            (end <= self.limit).then_some(end)
        };
        let end = all().ok_or_else(|| too_much(elements.unsigned_abs().saturating_mul(bytes)))?;
        let at = self.next;
        self.next = end;
        self.most = self.most.max(end);
        Ok(at)
    }

    /// What has been taken so far stays.
    pub(crate) fn keep(&mut self) {
        self.base = self.next;
    }

    /// What has been taken since is free again.
    pub(crate) fn free(&mut self) {
        self.next = self.base;
    }
}

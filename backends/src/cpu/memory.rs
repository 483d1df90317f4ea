//! Memory of an executable: sizes are found while it is made, and nothing is asked for afterwards.

use adfuse_ir::{At, Diagnostic, Kind};

/// What every array begins at a multiple of: a line of the cache.
pub(super) const ALIGN: u64 = 64;

/// A line of the cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(
    // Only its address is asked for.
    #[allow(dead_code)] [u8; ALIGN as usize],
);

/// Bytes that begin at a line of the cache.
#[derive(Default)]
pub(super) struct Block(Vec<Line>);

impl Block {
    /// So many bytes, zero.
    pub(super) fn new(bytes: u64) -> Result<Block, Diagnostic> {
        let lines = usize::try_from(bytes.div_ceil(ALIGN)).map_err(|_| too_much(bytes))?;
        let mut block = Vec::new();
        block.try_reserve_exact(lines).map_err(|_| too_much(bytes))?;
        block.resize(lines, Line([0; ALIGN as usize]));
        Ok(Block(block))
    }

    /// Where it begins.
    pub(super) fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// More bytes than this are refused before they are asked for.
const MOST: u64 = 1 << 46;

pub(super) fn too_much(bytes: u64) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::Limit, format!("out of memory: {bytes} bytes"))
}

/// Gives out offsets in a block that is made later.
#[derive(Default)]
pub(super) struct Room {
    base: u64,
    next: u64,
    pub(super) most: u64,
}

impl Room {
    /// An offset for so many elements of so many bytes.
    pub(super) fn take(&mut self, elements: i64, bytes: u64) -> Result<u64, Diagnostic> {
        let all = || {
            let size = u64::try_from(elements).ok()?.checked_mul(bytes)?;
            let end = self.next.checked_add(size)?.checked_next_multiple_of(ALIGN)?;
            (end <= MOST).then_some(end)
        };
        let end = all().ok_or_else(|| too_much(elements.unsigned_abs().saturating_mul(bytes)))?;
        let at = self.next;
        self.next = end;
        self.most = self.most.max(end);
        Ok(at)
    }

    /// What has been taken so far stays.
    pub(super) fn keep(&mut self) {
        self.base = self.next;
    }

    /// What has been taken since is free again.
    pub(super) fn free(&mut self) {
        self.next = self.base;
    }
}

//! Pages for code: writable before they are executable, and never after.
#![allow(unsafe_code)]

use super::SweepCode;
use crate::runtime::host_memory::too_much;
use adfuse_ir::{At, Diagnostic, Kind};
use std::ptr::NonNull;

/// Functions, each with its constants, in pages that may be read and executed.
pub(crate) struct CodePages {
    start: NonNull<u8>,
    bytes: usize,
    entries: Vec<usize>,
}

/// Functions are aligned to cache lines.
const ALIGN: usize = 64;

impl CodePages {
    /// Takes in the code of functions.
    pub(in crate::cpu) fn new(made: &[SweepCode]) -> Result<CodePages, Diagnostic> {
        let mut entries = Vec::new();
        let mut bytes = 0usize;
        for m in made {
            entries.push(bytes + m.entry);
            bytes = (bytes + m.bytes.len()).next_multiple_of(ALIGN);
        }
        if bytes == 0 {
            return Ok(CodePages { start: NonNull::dangling(), bytes, entries });
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new pages, of nobody else's memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(too_much(bytes as u64));
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| too_much(bytes as u64))?;
        let pages = CodePages { start, bytes, entries };
        for (m, entry) in made.iter().zip(&pages.entries) {
            let to = start.as_ptr().wrapping_add(entry - m.entry);
            // SAFETY: the pages have room for the bytes of all functions, one after the other, and may be
            // written still.
            unsafe { std::ptr::copy_nonoverlapping(m.bytes.as_ptr(), to, m.bytes.len()) }
        }
        let access = libc::PROT_READ | libc::PROT_EXEC;
        // SAFETY: the pages are this value's alone, and nothing is written to them from here on.
        if unsafe { libc::mprotect(start.as_ptr().cast(), bytes, access) } != 0 {
            let m = "the system does not let code be executed that was made at run time";
            return Err(Diagnostic::new(At::default(), Kind::Unsupported, m));
        }
        Ok(pages)
    }

    /// Where a function begins.
    pub(in crate::cpu) fn entry(&self, k: usize) -> Option<*const u8> {
        self.entries.get(k).map(|&at| self.start.as_ptr().wrapping_add(at).cast_const())
    }
}

impl Drop for CodePages {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: the pages were mapped with this size, and nobody runs their code any more: who has
            // a function borrows this.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        }
    }
}

//! Executables that an engine keeps, by the program and the layout that they are of.

use super::arena_layout::ArenaLayout;
use adfuse_ir::kernel::{Program, Verified};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Of a program, its layout and the options.
pub(crate) type Key = [u8; 32];

/// The executable of a key, which becomes the last one asked for.
pub(crate) fn take<K: PartialEq, E>(all: &mut Vec<(K, Arc<E>)>, key: &K) -> Option<Arc<E>> {
    let found = all.iter().position(|(k, _)| k == key)?;
    let entry = all.remove(found);
    let made = Arc::clone(&entry.1);
    all.push(entry);
    Some(made)
}

/// The hash of a program and its layout.
pub(crate) fn key(program: &Verified<Program>, arena: &ArenaLayout) -> Key {
    let mut hash = Sha256::new();
    // The text reads back as the same program.
    hash.update(program.to_string());
    hash.update(arena.bytes.to_le_bytes());
    let place = |hash: &mut Sha256, at: Option<u64>| {
        hash.update([u8::from(at.is_some())]);
        hash.update(at.unwrap_or(0).to_le_bytes());
    };
    for b in program.buffers.keys() {
        place(&mut hash, arena.offsets[b]);
        place(&mut hash, arena.donated[b].map(|input| u64::from(input.as_u32())));
    }
    for scratch in &arena.scratch {
        place(&mut hash, scratch.map(|(at, _)| at));
        place(&mut hash, scratch.map(|(_, bytes)| bytes));
    }
    hash.finalize().into()
}

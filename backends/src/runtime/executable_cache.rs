//! A cache of executables by program and layout, so that none is compiled twice.

use super::arena_layout::ArenaLayout;
use adfuse_ir::kernel::{Program, Verified};
use adfuse_ir::{Diagnostic, Kind};
use sha2::{Digest, Sha256};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of a program, its layout and how it is made.
pub(crate) type CacheKey = [u8; 32];

/// The hash of a program, its layout, and what else says how it is made.
pub(crate) fn key(program: &Verified<Program>, arena: &ArenaLayout, how: &str) -> CacheKey {
    let mut fields = FieldBytes(Vec::new());
    program.hash(&mut fields);
    let mut hash = Sha256::new();
    hash.update(&fields.0);
    hash.update(arena.bytes.to_le_bytes());
    let place = |hash: &mut Sha256, at: Option<u64>| {
        hash.update([u8::from(at.is_some())]);
        hash.update(at.unwrap_or(0).to_le_bytes());
    };
    for b in program.buffers.keys() {
        place(&mut hash, arena.offsets[b]);
        place(&mut hash, arena.in_donor[b].map(|slice| u64::from(slice.donor.as_u32())));
        place(&mut hash, arena.in_donor[b].map(|slice| slice.at));
    }
    for scratch in &arena.scratch {
        place(&mut hash, scratch.map(|(at, _)| at));
        place(&mut hash, scratch.map(|(_, bytes)| bytes));
    }
    hash.update(how);
    hash.finalize().into()
}

/// The bytes of all that a value hashes, one after the other: those of values that differ are different.
struct FieldBytes(Vec<u8>);

impl Hasher for FieldBytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    // The bytes are hashed as a whole.
    fn finish(&self) -> u64 {
        0
    }
}

/// A bounded cache of the executables that were requested last. Each lives as long as it has an owner. Engines find
/// them by the hash of program and layout; others may have keys of their own.
pub struct ExecutableCache<E, K = [u8; 32]> {
    capacity: usize,
    /// Those asked for last come last.
    entries: Mutex<Vec<(K, Arc<E>)>>,
}

impl<E, K: PartialEq> ExecutableCache<E, K> {
    /// One that keeps this many, and one at least.
    pub fn new(capacity: usize) -> ExecutableCache<E, K> {
        ExecutableCache { capacity: capacity.max(1), entries: Mutex::default() }
    }

    /// The executable of a key, if it is kept.
    pub fn find(&self, key: &K) -> Option<Arc<E>> {
        touch(&mut self.entries(), key)
    }

    /// The executable of a key, made when it is asked for first. Where memory is not enough, those that are
    /// cached ones release theirs, if they have no other owner, and it is compiled again.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get_or_make(
        &self,
        key: K,
        make: impl Fn() -> Result<E, Diagnostic>,
    ) -> Result<Arc<E>, Diagnostic> {
        if let Some(found) = touch(&mut self.entries(), &key) {
            return Ok(found);
        }
        // Others go on meanwhile; should one of them make the same, the first stays.
        let made = match make() {
            Err(d) if d.kind == Kind::Limit && !self.is_empty() => {
                self.clear();
                make()
            }
            made => made,
        };
        let made = Arc::new(made?);
        let mut entries = self.entries();
        if let Some(found) = touch(&mut entries, &key) {
            return Ok(found);
        }
        if entries.len() >= self.capacity {
            entries.remove(0);
        }
        entries.push((key, Arc::clone(&made)));
        Ok(made)
    }

    /// How many it keeps.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// Whether it keeps none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all of them; they live on while they have other owners.
    pub fn clear(&self) {
        // Those that nobody else has are freed when the lock is released.
        let _freed = std::mem::take(&mut *self.entries());
    }

    fn entries(&self) -> MutexGuard<'_, Vec<(K, Arc<E>)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E, K: PartialEq> fmt::Debug for ExecutableCache<E, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutableCache").field("executables", &self.len()).finish()
    }
}

/// The executable of a key, which becomes the last one asked for.
fn touch<E, K: PartialEq>(entries: &mut Vec<(K, Arc<E>)>, key: &K) -> Option<Arc<E>> {
    let found = entries.iter().position(|(k, _)| k == key)?;
    let entry = entries.remove(found);
    let made = Arc::clone(&entry.1);
    entries.push(entry);
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::At;
    use adfuse_ir::kernel::verify;
    use std::cell::Cell;

    #[test]
    fn the_one_asked_for_longest_ago_goes_first() {
        let cache = ExecutableCache::new(2);
        let key = |n: u8| [n; 32];
        let ask = |n: u8| cache.get_or_make(key(n), || Ok(n)).map(|found| *found);
        let again = |n: u8| cache.get_or_make(key(n), || Ok(100 + n)).map(|found| *found);
        assert_eq!([ask(1), ask(2), again(1), ask(3)], [Ok(1), Ok(2), Ok(1), Ok(3)]);
        assert_eq!(cache.len(), 2);
        assert_eq!([again(1), again(3), again(2)], [Ok(1), Ok(3), Ok(102)]);
        cache.clear();
        assert!(cache.is_empty());
    }

    #[test]
    fn keys_tell_programs_apart() {
        let of = |name: &str| {
            let program = Program { name: name.into(), ..Program::default() };
            key(&verify(program).expect("verifies"), &ArenaLayout::default(), "")
        };
        assert_eq!(of("f"), of("f"));
        assert_ne!(of("f"), of("g"));
    }

    #[test]
    fn what_is_kept_makes_room() {
        let cache = ExecutableCache::new(4);
        let short = || Diagnostic::new(At::default(), Kind::Limit, "no room");
        let _ = cache.get_or_make([1; 32], || Ok(1));
        let times = Cell::new(0);
        let made = cache.get_or_make([2; 32], || {
            times.set(times.get() + 1);
            if cache.is_empty() { Ok(2) } else { Err(short()) }
        });
        assert_eq!((made.map(|m| *m), times.get(), cache.len()), (Ok(2), 2, 1));
        // Another error is not tried again, nor is this one if there is nothing to release.
        for (kind, kept) in [(Kind::Usage, 1), (Kind::Limit, 0)] {
            if kept == 0 {
                cache.clear();
            }
            times.set(0);
            let failed = cache.get_or_make([3; 32], || {
                times.set(times.get() + 1);
                Err(Diagnostic { kind, ..short() })
            });
            assert_eq!((failed.err().map(|d| d.kind), times.get()), (Some(kind), 1));
            assert_eq!(cache.len(), kept);
        }
    }
}

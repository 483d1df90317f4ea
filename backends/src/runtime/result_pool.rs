//! A pool of result memory: blocks of dropped results, for the next run.
//!
//! Fresh pages cost more than most steps spend on writing. So large results are in blocks that return to the executable
//! when their array is dropped: at most one for each result, which is what one run takes. A run writes all of its
//! results, so no data of an earlier run is visible.
#![allow(unsafe_code)]

use super::host_memory::AlignedBlock;
use adfuse_ir::Diagnostic;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Bytes from which on a result is in a block; others are as cheap to ask for anew.
const LEAST: usize = 128 << 10;

/// Blocks for the results of one executable.
pub(crate) struct Store {
    /// The sizes of all results that are in blocks.
    sizes: Vec<usize>,
    spare: Mutex<Vec<(usize, AlignedBlock)>>,
}

impl Store {
    /// For results of this many bytes each.
    pub(crate) fn new(results: impl Iterator<Item = usize>) -> Arc<Store> {
        let sizes: Vec<usize> = results.filter(|&bytes| bytes >= LEAST).collect();
        let spare = Mutex::new(Vec::with_capacity(sizes.len()));
        Arc::new(Store { sizes, spare })
    }

    /// Memory for a result, if it is to be in a block: one that came back, or a fresh one.
    pub(crate) fn take(self: &Arc<Store>, bytes: usize) -> Result<Option<PooledBytes>, Diagnostic> {
        if bytes < LEAST {
            return Ok(None);
        }
        let mut spare = self.spare();
        let found = spare.iter().position(|&(of, _)| of == bytes).map(|k| spare.swap_remove(k).1);
        drop(spare);
        let block = match found {
            Some(block) => block,
            None => AlignedBlock::zeroed(bytes as u64)?,
        };
        Ok(Some(PooledBytes { block: Some(block), bytes, home: Arc::downgrade(self) }))
    }

    /// Frees what came back.
    pub(crate) fn free(&self) {
        if self.sizes.is_empty() {
            return;
        }
        let freed = std::mem::take(&mut *self.spare());
        drop(freed);
    }

    /// Bytes that came back and are not in use again.
    pub(crate) fn bytes(&self) -> u64 {
        self.spare().iter().map(|&(bytes, _)| bytes as u64).sum()
    }

    /// Takes a block back, unless there are as many of its size as results.
    fn put_back(&self, bytes: usize, block: AlignedBlock) {
        let most = self.sizes.iter().filter(|&&of| of == bytes).count();
        let mut spare = self.spare();
        let full = spare.iter().filter(|&&(of, _)| of == bytes).count() >= most;
        if !full {
            spare.push((bytes, block));
        }
    }

    fn spare(&self) -> MutexGuard<'_, Vec<(usize, AlignedBlock)>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of a result, in a block that goes back.
pub(crate) struct PooledBytes {
    /// Absent while it goes back.
    block: Option<AlignedBlock>,
    bytes: usize,
    home: Weak<Store>,
}

impl PooledBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.block {
            None => &[],
            // SAFETY: the block has this many bytes, which were 0 at first and written by runs since, and
            // only who has it alone may write there.
            Some(block) => unsafe { std::slice::from_raw_parts(block.start(), self.bytes) },
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.block {
            None => &mut [],
            // SAFETY: as above; it is borrowed alone.
            Some(block) => unsafe { std::slice::from_raw_parts_mut(block.start(), self.bytes) },
        }
    }
}

impl Drop for PooledBytes {
    fn drop(&mut self) {
        // Without its executable a block is freed.
        if let (Some(block), Some(home)) = (self.block.take(), self.home.upgrade()) {
            home.put_back(self.bytes, block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(store: &Arc<Store>, bytes: usize) -> PooledBytes {
        store.take(bytes).unwrap().unwrap()
    }

    #[test]
    fn what_is_dropped_is_used_again() {
        let store = Store::new([LEAST, 2 * LEAST, 8].into_iter());
        assert!(store.take(8).unwrap().is_none(), "small results are asked for anew");
        let mut first = taken(&store, LEAST);
        assert!(first.bytes().iter().all(|&b| b == 0), "fresh memory holds nothing");
        first.bytes_mut().fill(7);
        let at = first.bytes().as_ptr();
        drop(first);
        assert_eq!(store.bytes(), LEAST as u64);
        let other = taken(&store, 2 * LEAST);
        assert_ne!(other.bytes().as_ptr(), at, "another size is another block");
        assert_eq!(taken(&store, LEAST).bytes().as_ptr(), at);
    }

    #[test]
    fn no_more_comes_back_than_one_run_takes() {
        let store = Store::new([LEAST, LEAST, 3 * LEAST].into_iter());
        let many: Vec<PooledBytes> = (0..5).map(|_| taken(&store, LEAST)).collect();
        drop(many);
        assert_eq!(store.bytes(), 2 * LEAST as u64);
        drop([taken(&store, 3 * LEAST), taken(&store, 3 * LEAST)]);
        assert_eq!(store.bytes(), 5 * LEAST as u64);
        store.free();
        assert_eq!(store.bytes(), 0);
    }

    #[test]
    fn results_outlive_their_executable() {
        let store = Store::new(std::iter::once(LEAST));
        let mut kept = taken(&store, LEAST);
        drop(store);
        kept.bytes_mut().fill(1);
        assert_eq!(kept.bytes().len(), LEAST);
    }

    #[test]
    fn threads_share_a_store() {
        let store = Store::new([LEAST; 3].into_iter());
        std::thread::scope(|scope| {
            for k in 0..4u8 {
                let store = &store;
                scope.spawn(move || {
                    for _ in 0..50 {
                        let mut kept = taken(store, LEAST);
                        kept.bytes_mut().fill(k);
                        assert!(kept.bytes().iter().all(|&b| b == k), "two have one block");
                    }
                });
            }
        });
        assert!(store.bytes() <= 3 * LEAST as u64);
    }
}

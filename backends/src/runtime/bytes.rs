//! The bytes of an array: in memory of their own, or in a block that goes back to an executable.

use super::result_pool::PooledBytes;
use std::ops::{Deref, DerefMut};

/// The bytes of an array.
pub(crate) enum Bytes {
    /// Memory that the array frees.
    Own(Vec<u8>),
    /// Memory that goes back to the executable whose result it was.
    Kept(PooledBytes),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Kept(kept) => kept.bytes(),
        }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Kept(kept) => kept.bytes_mut(),
        }
    }
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::Own(Vec::new())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes::Own(bytes)
    }
}

// A copy has memory of its own: only results go back.
impl Clone for Bytes {
    fn clone(&self) -> Bytes {
        Bytes::Own(self.to_vec())
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Bytes {}

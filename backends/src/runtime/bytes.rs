//! The bytes of an array: in a vector whose words are as wide as its elements, or in a block that goes back to an
//! executable.
//!
//! A vector of Rust numbers becomes an array and comes out of it again without a copy, because the words of
//! [`Bytes`] have the size and the alignment of these numbers.

use super::host_memory::too_much;
use super::result_pool::PooledBytes;
use adfuse_ir::Diagnostic;
use bytemuck::allocation::try_zeroed_vec;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

#[cfg(target_endian = "big")]
compile_error!("arrays hold little-endian elements and are read as elements of the host");

/// The bytes of an array.
pub(crate) enum Bytes {
    /// Words of one byte, which the array frees.
    Words1(Vec<u8>),
    /// Words of two bytes.
    Words2(Vec<u16>),
    /// Words of four bytes.
    Words4(Vec<u32>),
    /// Words of eight bytes.
    Words8(Vec<u64>),
    /// Memory that goes back to the executable whose result it was.
    Kept(PooledBytes),
}

impl Bytes {
    /// This many bytes, all 0, aligned for elements of `width` bytes each.
    ///
    /// # Errors
    /// [`Kind::Limit`](adfuse_ir::Kind::Limit) when there is no memory for them.
    pub(crate) fn zeroed(width: usize, bytes: u64) -> Result<Bytes, Diagnostic> {
        let refused = |()| too_much(bytes);
        let size = usize::try_from(bytes).map_err(|_| too_much(bytes))?;
        Ok(match width {
            8 => Bytes::Words8(try_zeroed_vec(size.div_ceil(8)).map_err(refused)?),
            4 => Bytes::Words4(try_zeroed_vec(size.div_ceil(4)).map_err(refused)?),
            2 => Bytes::Words2(try_zeroed_vec(size.div_ceil(2)).map_err(refused)?),
            _ => Bytes::Words1(try_zeroed_vec(size).map_err(refused)?),
        })
    }

    /// A copy of these bytes, aligned for elements of `width` bytes each, of which they are a multiple.
    ///
    /// # Errors
    /// As [`Bytes::zeroed`].
    pub(crate) fn copied(width: usize, from: &[u8]) -> Result<Bytes, Diagnostic> {
        let mut bytes = Bytes::zeroed(width, from.len() as u64)?;
        bytes.copy_from_slice(from);
        Ok(bytes)
    }

    /// Elements of `width` bytes each, `n` of them, whose bits are asked for one after the other.
    ///
    /// # Errors
    /// As [`Bytes::zeroed`]; nothing is asked for then.
    pub(crate) fn filled(
        width: usize,
        n: u64,
        next: &mut dyn FnMut() -> u64,
    ) -> Result<Bytes, Diagnostic> {
        Ok(match width {
            0 => Bytes::default(),
            1 => Bytes::Words1(words(n, || next() as u8)?),
            2 => Bytes::Words2(words(n, || next() as u16)?),
            4 => Bytes::Words4(words(n, || next() as u32)?),
            _ => Bytes::Words8(words(n, next)?),
        })
    }

    /// A copy in memory of its own: only results go back to executables.
    ///
    /// # Errors
    /// As [`Bytes::zeroed`].
    pub(crate) fn duplicate(&self) -> Result<Bytes, Diagnostic> {
        let width = match self {
            Bytes::Words1(_) => 1,
            Bytes::Words2(_) => 2,
            Bytes::Words4(_) => 4,
            Bytes::Words8(_) | Bytes::Kept(_) => 8,
        };
        // Results need not be whole words of eight bytes.
        let width = if self.len().is_multiple_of(width) { width } else { 1 };
        Bytes::copied(width, self)
    }

    /// The bytes to be written: these if nobody else has them, or a copy in their place.
    ///
    /// # Errors
    /// As [`Bytes::zeroed`].
    pub(crate) fn alone(shared: &mut Arc<Bytes>) -> Result<&mut [u8], Diagnostic> {
        if Arc::get_mut(shared).is_none() {
            *shared = Arc::new(shared.duplicate()?);
        }
        // Nobody else has it now, so that this copies nothing.
        Ok(&mut *Arc::make_mut(shared))
    }
}

/// This many words.
fn words<T>(n: u64, mut next: impl FnMut() -> T) -> Result<Vec<T>, Diagnostic> {
    let mut words = Vec::new();
    let room = usize::try_from(n).ok().filter(|&n| words.try_reserve_exact(n).is_ok());
    let n = room.ok_or_else(|| too_much(n.saturating_mul(size_of::<T>() as u64)))?;
    words.extend((0..n).map(|_| next()));
    Ok(words)
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Words1(words) => words,
            Bytes::Words2(words) => bytemuck::cast_slice(words),
            Bytes::Words4(words) => bytemuck::cast_slice(words),
            Bytes::Words8(words) => bytemuck::cast_slice(words),
            Bytes::Kept(kept) => kept.bytes(),
        }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Bytes::Words1(words) => words,
            Bytes::Words2(words) => bytemuck::cast_slice_mut(words),
            Bytes::Words4(words) => bytemuck::cast_slice_mut(words),
            Bytes::Words8(words) => bytemuck::cast_slice_mut(words),
            Bytes::Kept(kept) => kept.bytes_mut(),
        }
    }
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::Words1(Vec::new())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes::Words1(bytes)
    }
}

// What `Arc::make_mut` asks for; copies that may fail are made by `duplicate`.
impl Clone for Bytes {
    fn clone(&self) -> Bytes {
        match self {
            Bytes::Words1(words) => Bytes::Words1(words.clone()),
            Bytes::Words2(words) => Bytes::Words2(words.clone()),
            Bytes::Words4(words) => Bytes::Words4(words.clone()),
            Bytes::Words8(words) => Bytes::Words8(words.clone()),
            Bytes::Kept(kept) => Bytes::Words1(kept.bytes().to_vec()),
        }
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Bytes {}

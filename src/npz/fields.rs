//! Little-endian fields of records, read one after the other.

use super::NpzErrorKind;

/// What is left of a record.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next bytes.
    ///
    /// # Errors
    /// [`NpzErrorKind::Directory`] where fewer are left.
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], NpzErrorKind> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(CUT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], NpzErrorKind> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(CUT)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u16(&mut self) -> Result<u16, NpzErrorKind> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, NpzErrorKind> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, NpzErrorKind> {
        self.array().map(u64::from_le_bytes)
    }
}

const CUT: NpzErrorKind = NpzErrorKind::Directory("a record is cut off");

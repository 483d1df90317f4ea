//! Zip archives of arrays, written: stored entries one after the other, then the directory.

use super::npy::{header, stored};
use crate::backends::Array;
use flate2::Crc;
use std::io::{self, Write};

/// Writes an archive. Equal arrays with equal names give equal bytes.
#[derive(Debug)]
pub struct ArchiveWriter<W> {
    to: W,
    /// Bytes written so far.
    at: u64,
    entries: Vec<WrittenEntry>,
}

/// What the directory says of an entry.
#[derive(Debug)]
pub(super) struct WrittenEntry {
    pub(super) name: String,
    pub(super) crc: u32,
    pub(super) size: u64,
    pub(super) at: u64,
}

/// Numbers that do not fit into 32 bits are in an extra field, as this version of the format has them.
const VERSION_64: u16 = 45;
const VERSION: u16 = 20;
/// Names are UTF-8.
const FLAGS: u16 = 1 << 11;
/// 1980-01-01, the first day that the format knows: files do not depend on when they are written.
const DATE: u16 = 1 << 5 | 1;

impl<W: Write> ArchiveWriter<W> {
    /// An archive that is written to `to`.
    pub fn new(to: W) -> ArchiveWriter<W> {
        ArchiveWriter { to, at: 0, entries: Vec::new() }
    }

    /// Writes an array as the next entry, `NAME.npy`.
    ///
    /// # Errors
    /// Those of the file, and [`io::ErrorKind::InvalidInput`] for a name of more than 65,000 bytes.
    pub fn array(&mut self, name: &str, array: &Array) -> io::Result<()> {
        if name.len() > 65_000 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a name of 65,000 bytes"));
        }
        let stored = stored(array);
        let (head, data) = (header(&stored), stored.bytes());
        let mut crc = Crc::new();
        crc.update(&head);
        crc.update(data);
        let size = head.len() as u64 + data.len() as u64;
        let entry = WrittenEntry { name: format!("{name}.npy"), crc: crc.sum(), size, at: self.at };
        self.write(&entry.local())?;
        self.write(&head)?;
        self.write(data)?;
        self.entries.push(entry);
        Ok(())
    }

    /// Writes the directory, and gives back what was written to.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(mut self) -> io::Result<W> {
        let at = self.at;
        let entries = std::mem::take(&mut self.entries);
        for entry in &entries {
            self.write(&entry.central())?;
        }
        let end = end(entries.len() as u64, self.at - at, at);
        self.write(&end)?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

impl WrittenEntry {
    /// The header before the entry's data. Sizes are both in the extra field or both outside of it.
    pub(super) fn local(&self) -> Vec<u8> {
        let wide = self.size >= u64::from(u32::MAX);
        let extra = if wide { extra_64(&[self.size, self.size]) } else { Vec::new() };
        let mut out = Vec::new();
        put32(&mut out, 0x0403_4b50);
        put16(&mut out, if wide { VERSION_64 } else { VERSION });
        self.put_common(&mut out, extra.len());
        out.extend(self.name.as_bytes());
        out.extend(extra);
        out
    }

    /// The entry of the directory.
    pub(super) fn central(&self) -> Vec<u8> {
        let limit = u64::from(u32::MAX);
        let sizes = [self.size, self.size].into_iter().filter(|_| self.size >= limit);
        let wide: Vec<u64> = sizes.chain((self.at >= limit).then_some(self.at)).collect();
        let extra = if wide.is_empty() { Vec::new() } else { extra_64(&wide) };
        let version = if wide.is_empty() { VERSION } else { VERSION_64 };
        let mut out = Vec::new();
        put32(&mut out, 0x0201_4b50);
        put16(&mut out, version);
        put16(&mut out, version);
        self.put_common(&mut out, extra.len());
        // No comment; the first disk; no attributes.
        out.extend([0; 10]);
        put32(&mut out, narrow(self.at));
        out.extend(self.name.as_bytes());
        out.extend(extra);
        out
    }

    /// From flags to the length of the extra field, which both headers have in common.
    fn put_common(&self, out: &mut Vec<u8>, extra: usize) {
        put16(out, FLAGS);
        // Stored, at midnight.
        put16(out, 0);
        put16(out, 0);
        put16(out, DATE);
        put32(out, self.crc);
        put32(out, narrow(self.size));
        put32(out, narrow(self.size));
        // Names are bounded, and extra fields have at most 28 bytes.
        put16(out, self.name.len() as u16);
        put16(out, extra as u16);
    }
}

/// The records after the directory: that of zip64 where a number does not fit, and the last one.
pub(super) fn end(entries: u64, bytes: u64, at: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let limit = u64::from(u32::MAX);
    if entries >= u64::from(u16::MAX) || bytes >= limit || at >= limit {
        put32(&mut out, 0x0606_4b50);
        // What follows of this record.
        put64(&mut out, 44);
        put16(&mut out, VERSION_64);
        put16(&mut out, VERSION_64);
        put64(&mut out, 0);
        for n in [entries, entries, bytes, at] {
            put64(&mut out, n);
        }
        put32(&mut out, 0x0706_4b50);
        put32(&mut out, 0);
        put64(&mut out, at + bytes);
        put32(&mut out, 1);
    }
    put32(&mut out, 0x0605_4b50);
    put32(&mut out, 0);
    let count = u16::try_from(entries).unwrap_or(u16::MAX);
    put16(&mut out, count);
    put16(&mut out, count);
    put32(&mut out, narrow(bytes));
    put32(&mut out, narrow(at));
    put16(&mut out, 0);
    out
}

/// The extra field with numbers of 64 bits.
fn extra_64(numbers: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    put16(&mut out, 1);
    put16(&mut out, 8 * numbers.len() as u16);
    numbers.iter().for_each(|&n| put64(&mut out, n));
    out
}

/// The number, or the mark that it is elsewhere.
fn narrow(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn put16(out: &mut Vec<u8>, n: u16) {
    out.extend(n.to_le_bytes());
}

fn put32(out: &mut Vec<u8>, n: u32) {
    out.extend(n.to_le_bytes());
}

fn put64(out: &mut Vec<u8>, n: u64) {
    out.extend(n.to_le_bytes());
}

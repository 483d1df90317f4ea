//! Zip archives of arrays, read: the directory at the end, then entries by name.

use super::fields::Fields;
use super::{NpzError, NpzErrorKind, read_npy};
use crate::backends::Array;
use flate2::Crc;
use flate2::read::DeflateDecoder;
use std::io::{self, Read, Seek, SeekFrom};

/// An archive whose directory has been read.
#[derive(Debug)]
pub struct Archive<R> {
    file: R,
    entries: Vec<ArchiveEntry>,
}

/// What the directory says of an entry.
#[derive(Debug)]
struct ArchiveEntry {
    name: Vec<u8>,
    flags: u16,
    method: u16,
    crc: u32,
    /// Bytes in the file.
    stored: u64,
    /// Bytes when it is read.
    size: u64,
    /// Where its own header is.
    at: u64,
}

/// Where the directory is.
struct Directory {
    at: u64,
    bytes: u64,
    entries: u64,
}

const END: u32 = 0x0605_4b50;
const END_BYTES: u64 = 22;
const END_64: u32 = 0x0606_4b50;
const END_64_BYTES: u64 = 56;
const LOCATOR: u32 = 0x0706_4b50;
const LOCATOR_BYTES: u64 = 20;
const CENTRAL: u32 = 0x0201_4b50;
const CENTRAL_BYTES: u64 = 46;
const LOCAL: u32 = 0x0403_4b50;
const LOCAL_BYTES: u64 = 30;

/// The extra field with sizes of 64 bits.
const EXTRA_64: u16 = 1;

/// How many bytes a byte of a deflated stream stands for at most.
const MOST_INFLATED: u64 = 1032;

impl<R: Read + Seek> Archive<R> {
    /// Reads the directory of an archive.
    ///
    /// # Errors
    /// [`NpzErrorKind::Directory`], [`NpzErrorKind::SeveralDisks`], and [`NpzErrorKind::Io`] where the file cannot be read.
    pub fn new(mut file: R) -> Result<Archive<R>, NpzError> {
        let entries = read_directory(&mut file)?;
        Ok(Archive { file, entries })
    }

    /// The names of the arrays, in the order of the directory: entries that end in `.npy`, without that.
    pub fn names(&self) -> Vec<String> {
        let names = self.entries.iter().filter_map(|e| e.name.strip_suffix(b".npy"));
        names.map(|n| String::from_utf8_lossy(n).into_owned()).collect()
    }

    /// Reads an array.
    ///
    /// # Errors
    /// Those of [`Archive::bytes`] and [`read_npy`], which name the entry.
    pub fn array(&mut self, name: &str) -> Result<Array, NpzError> {
        let bytes = self.bytes(name)?;
        read_npy(&mut bytes.as_slice()).map_err(|e| e.why.of(&format!("{name}.npy")))
    }

    /// The `.npy` file of an array, whose size and checksum are those of the directory.
    ///
    /// # Errors
    /// [`NpzErrorKind::NoEntry`]; [`NpzErrorKind::Encrypted`], [`NpzErrorKind::Method`], [`NpzErrorKind::Deflate`], [`NpzErrorKind::Checksum`],
    /// [`NpzErrorKind::Directory`], [`NpzErrorKind::Short`] and [`NpzErrorKind::Io`], which name the entry.
    pub fn bytes(&mut self, name: &str) -> Result<Vec<u8>, NpzError> {
        let file_name = format!("{name}.npy");
        // Where a name recurs, the last entry is the newest.
        let mut named = self.entries.iter().rev();
        let entry = named.find(|e| e.name == file_name.as_bytes());
        let bytes = match entry {
            None => Err(NpzErrorKind::NoEntry),
            Some(entry) => entry.read(&mut self.file),
        };
        bytes.map_err(|why| why.of(&file_name))
    }
}

impl ArchiveEntry {
    fn read(&self, file: &mut (impl Read + Seek)) -> Result<Vec<u8>, NpzErrorKind> {
        if self.flags & 1 != 0 {
            return Err(NpzErrorKind::Encrypted);
        }
        self.seek_data(file)?;
        let mut stored = file.take(self.stored);
        // One byte more than there should be shows that there are more.
        let most = self.size.saturating_add(1);
        let mut bytes = Vec::new();
        match self.method {
            0 => _ = stored.take(most).read_to_end(&mut bytes)?,
            8 if self.size / MOST_INFLATED > self.stored => return Err(NpzErrorKind::Deflate),
            8 => {
                let inflated = DeflateDecoder::new(&mut stored).take(most).read_to_end(&mut bytes);
                inflated.map_err(|e| match e.kind() {
                    io::ErrorKind::UnexpectedEof => NpzErrorKind::Short,
                    io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                        NpzErrorKind::Deflate
                    }
                    _ => NpzErrorKind::Io(e),
                })?;
            }
            method => return Err(NpzErrorKind::Method(method)),
        }
        if (bytes.len() as u64) < self.size {
            return Err(NpzErrorKind::Short);
        }
        if bytes.len() as u64 > self.size {
            return Err(NpzErrorKind::Directory(
                "an entry has another size than the directory says",
            ));
        }
        let mut crc = Crc::new();
        crc.update(&bytes);
        if crc.sum() != self.crc {
            return Err(NpzErrorKind::Checksum);
        }
        Ok(bytes)
    }

    /// Goes to the entry's data, which follows a header of its own.
    fn seek_data(&self, file: &mut (impl Read + Seek)) -> Result<(), NpzErrorKind> {
        file.seek(SeekFrom::Start(self.at))?;
        let mut header = [0; LOCAL_BYTES as usize];
        file.read_exact(&mut header)?;
        let mut fields = Fields(&header);
        if fields.u32()? != LOCAL {
            return Err(NpzErrorKind::Directory("an entry is not where the directory says"));
        }
        fields.bytes(22)?;
        let (name, extra) = (fields.u16()?, fields.u16()?);
        let mut found = vec![0; usize::from(name)];
        file.read_exact(&mut found)?;
        if found != self.name {
            return Err(NpzErrorKind::Directory(
                "an entry has another name than the directory says",
            ));
        }
        file.seek_relative(i64::from(extra))?;
        Ok(())
    }
}

fn read_directory(file: &mut (impl Read + Seek)) -> Result<Vec<ArchiveEntry>, NpzErrorKind> {
    let directory = find_directory(file)?;
    if directory.entries > directory.bytes / CENTRAL_BYTES {
        return Err(NpzErrorKind::Directory("there are more entries than its bytes can hold"));
    }
    let bytes = read_at(file, directory.at, directory.bytes)?;
    let mut fields = Fields(&bytes);
    let mut entries = Vec::new();
    for _ in 0..directory.entries {
        let entry = read_entry(&mut fields)?;
        let end = entry.at.checked_add(LOCAL_BYTES).and_then(|n| n.checked_add(entry.stored));
        if end.is_none_or(|end| end > directory.at) {
            return Err(NpzErrorKind::Directory("an entry is not where entries are"));
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Finds the directory by the record at the end of the file, and by that of zip64 where sizes need it.
fn find_directory(file: &mut (impl Read + Seek)) -> Result<Directory, NpzErrorKind> {
    let length = file.seek(SeekFrom::End(0))?;
    // The record ends with a comment of up to 65,535 bytes.
    let tail_at = length.saturating_sub(END_BYTES + u64::from(u16::MAX));
    let tail = read_at(file, tail_at, length - tail_at)?;
    let last = tail.len().checked_sub(END_BYTES as usize);
    let last = last.ok_or(NpzErrorKind::Directory("it is too short for one"))?;
    let is_end = |&at: &usize| {
        let record = &tail[at..];
        let comment = u16::from_le_bytes([record[20], record[21]]);
        record.starts_with(&END.to_le_bytes())
            && record.len() as u64 == END_BYTES + u64::from(comment)
    };
    let at = (0..=last).rev().find(is_end).ok_or(NpzErrorKind::Directory("it has no directory"))?;
    let end_at = tail_at + at as u64;
    let mut fields = Fields(&tail[at + 4..]);
    let (disk, directory_disk) = (fields.u16()?, fields.u16()?);
    let (here, entries) = (fields.u16()?, fields.u16()?);
    let (bytes, at) = (fields.u32()?, fields.u32()?);
    let (directory, before) = if entries == u16::MAX || bytes == u32::MAX || at == u32::MAX {
        find_directory_64(file, end_at)?
    } else {
        if disk != 0 || directory_disk != 0 || here != entries {
            return Err(NpzErrorKind::SeveralDisks);
        }
        let (entries, bytes, at) = (entries.into(), bytes.into(), at.into());
        (Directory { at, bytes, entries }, end_at)
    };
    let end = directory.at.checked_add(directory.bytes);
    if end.is_none_or(|end| end > before) {
        return Err(NpzErrorKind::Directory("its directory is not where it says"));
    }
    Ok(directory)
}

/// The directory as the record of zip64 says, and where that record is.
fn find_directory_64(
    file: &mut (impl Read + Seek),
    end_at: u64,
) -> Result<(Directory, u64), NpzErrorKind> {
    const NONE: NpzErrorKind =
        NpzErrorKind::Directory("its directory of 64 bits is not where it says");
    let locator_at = end_at.checked_sub(LOCATOR_BYTES).ok_or(NONE)?;
    let locator = read_at(file, locator_at, LOCATOR_BYTES)?;
    let mut fields = Fields(&locator);
    let (signature, disk, record_at) = (fields.u32()?, fields.u32()?, fields.u64()?);
    if signature != LOCATOR || record_at > locator_at.saturating_sub(END_64_BYTES) {
        return Err(NONE);
    }
    let record = read_at(file, record_at, END_64_BYTES)?;
    let mut fields = Fields(&record);
    if fields.u32()? != END_64 {
        return Err(NONE);
    }
    // The record's size and the versions that made it and that it needs.
    fields.bytes(12)?;
    let (here_disk, directory_disk) = (fields.u32()?, fields.u32()?);
    let (here, entries) = (fields.u64()?, fields.u64()?);
    let (bytes, at) = (fields.u64()?, fields.u64()?);
    if disk != 0 || here_disk != 0 || directory_disk != 0 || here != entries {
        return Err(NpzErrorKind::SeveralDisks);
    }
    Ok((Directory { at, bytes, entries }, record_at))
}

fn read_entry(fields: &mut Fields<'_>) -> Result<ArchiveEntry, NpzErrorKind> {
    if fields.u32()? != CENTRAL {
        return Err(NpzErrorKind::Directory("an entry of its directory is damaged"));
    }
    // Versions.
    fields.bytes(4)?;
    let (flags, method) = (fields.u16()?, fields.u16()?);
    // Time and date.
    fields.bytes(4)?;
    let crc = fields.u32()?;
    let (stored, size) = (fields.u32()?, fields.u32()?);
    let (name, extra, comment) = (fields.u16()?, fields.u16()?, fields.u16()?);
    let disk = fields.u16()?;
    // Attributes.
    fields.bytes(6)?;
    let at = fields.u32()?;
    let name = fields.bytes(name.into())?.to_vec();
    let extra = Fields(fields.bytes(extra.into())?);
    fields.bytes(comment.into())?;
    if disk != 0 {
        return Err(NpzErrorKind::SeveralDisks);
    }
    // What does not fit is in an extra field, in this order.
    let mut wide = [size, stored, at].map(u64::from);
    if wide.contains(&u64::from(u32::MAX)) {
        let mut given = extra_64(extra)?;
        for n in wide.iter_mut().filter(|n| **n == u64::from(u32::MAX)) {
            *n = given.u64()?;
        }
    }
    let [size, stored, at] = wide;
    Ok(ArchiveEntry { name, flags, method, crc, stored, size, at })
}

/// The extra field with sizes of 64 bits.
fn extra_64(mut extra: Fields<'_>) -> Result<Fields<'_>, NpzErrorKind> {
    while !extra.0.is_empty() {
        let (id, length) = (extra.u16()?, extra.u16()?);
        let data = extra.bytes(length.into())?;
        if id == EXTRA_64 {
            return Ok(Fields(data));
        }
    }
    Err(NpzErrorKind::Directory("an entry has no sizes"))
}

/// Bytes of the file; memory grows as they come.
fn read_at(file: &mut (impl Read + Seek), at: u64, count: u64) -> Result<Vec<u8>, NpzErrorKind> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(count).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == count { Ok(bytes) } else { Err(NpzErrorKind::Short) }
}

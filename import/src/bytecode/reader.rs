//! Bytes of a file, read in order: numbers of varying length, strings, runs. Nothing is read beyond the end.

use adfuse_ir::{At, Diagnostic, Kind};

/// A position in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteReader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the bytes begin in the file.
    base: usize,
}

pub(super) type Read<T> = Result<T, Diagnostic>;

/// What is wrong at a byte of the file.
pub(super) fn wrong_at<T>(at: usize, what: impl std::fmt::Display) -> Read<T> {
    let m = format!("no StableHLO bytecode: {what}, at byte {at}");
    Err(Diagnostic::new(At::default(), Kind::Syntax, m))
}

impl<'a> ByteReader<'a> {
    pub(super) fn new(bytes: &'a [u8], base: usize) -> ByteReader<'a> {
        ByteReader { bytes, at: 0, base }
    }

    /// The place in the file.
    pub(super) fn place(&self) -> usize {
        self.base + self.at
    }

    pub(super) fn wrong<T>(&self, what: impl std::fmt::Display) -> Read<T> {
        wrong_at(self.place(), what)
    }

    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left() == 0
    }

    pub(super) fn byte(&mut self) -> Read<u8> {
        self.take(1).map(|b| b[0])
    }

    /// The next `count` bytes.
    pub(super) fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        match rest.get(..count) {
            Some(taken) => {
                self.at += count;
                Ok(taken)
            }
            None => self.wrong(format_args!("{count} bytes wanted, {} are left", rest.len())),
        }
    }

    /// The next `count` bytes, to be read on their own.
    pub(super) fn section(&mut self, count: usize) -> Read<ByteReader<'a>> {
        let base = self.place();
        self.take(count).map(|bytes| ByteReader::new(bytes, base))
    }

    /// Skips to the next multiple of `alignment` in the file.
    pub(super) fn align(&mut self, alignment: u64) -> Read<()> {
        let over = self.place() as u64 % alignment.max(1);
        match over {
            0 => Ok(()),
            _ => self.take((alignment - over).min(usize::MAX as u64) as usize).map(drop),
        }
    }

    /// A number without sign: the trailing zeros of its first byte say how many bytes follow.
    pub(super) fn number(&mut self) -> Read<u64> {
        let first = self.byte()?;
        let more = first.trailing_zeros() as usize;
        let mut wide = [0; 8];
        wide[..more].copy_from_slice(self.take(more)?);
        let above = u64::from_le_bytes(wide);
        Ok(match more {
            8 => above,
            _ => above << (7 - more) | u64::from(first) >> (more + 1),
        })
    }

    /// A number with its sign in the lowest bit.
    pub(super) fn signed(&mut self) -> Read<i64> {
        let n = self.number()?;
        Ok((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    /// A number with a flag in the lowest bit.
    pub(super) fn flagged(&mut self) -> Read<(u64, bool)> {
        let n = self.number()?;
        Ok((n >> 1, n & 1 == 1))
    }

    /// A number of things that follow, each of which takes a byte at least.
    pub(super) fn count(&mut self) -> Read<usize> {
        let n = self.number()?;
        self.fits(n)
    }

    /// The number, if there are bytes left for as many things.
    pub(super) fn fits(&self, n: u64) -> Read<usize> {
        match usize::try_from(n) {
            Ok(n) if n <= self.left() => Ok(n),
            _ => self.wrong(format_args!("{n} entries announced, {} bytes are left", self.left())),
        }
    }

    /// As many results of `read` as the number before them says.
    pub(super) fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let n = self.count()?;
        (0..n).map(|_| read(self)).collect()
    }

    /// Bytes with their number before them.
    pub(super) fn blob(&mut self) -> Read<&'a [u8]> {
        let n = self.count()?;
        self.take(n)
    }

    /// Bytes up to a zero, which is skipped.
    pub(super) fn terminated(&mut self) -> Read<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        match rest.iter().position(|&b| b == 0) {
            Some(end) => {
                self.at += end + 1;
                Ok(&rest[..end])
            }
            None => self.wrong("a string that does not end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The encoding of a number, by the rule of the format.
    fn written(n: u64) -> Vec<u8> {
        let more = (1..8).find(|k| n < 1 << (7 * k)).unwrap_or(9) - 1;
        match more {
            8 => [vec![0], n.to_le_bytes().to_vec()].concat(),
            k => ((n << 1 | 1) << k).to_le_bytes()[..k + 1].to_vec(),
        }
    }

    #[test]
    fn numbers_of_every_length_are_read() {
        for shift in 0..64 {
            for n in [1u64 << shift, (1u64 << shift) - 1, (1u64 << shift) + 1] {
                let bytes = written(n);
                let mut r = ByteReader::new(&bytes, 0);
                assert_eq!((r.number().unwrap(), r.left()), (n, 0), "{bytes:?}");
            }
        }
        assert_eq!(ByteReader::new(&[0xff], 0).number().unwrap(), 127);
        assert_eq!(ByteReader::new(&[0x05], 0).signed().unwrap(), 1);
        assert_eq!(ByteReader::new(&[0x07], 0).signed().unwrap(), -2);
        assert_eq!(ByteReader::new(&[0x07], 0).flagged().unwrap(), (1, true));
    }

    #[test]
    fn what_is_not_there_is_told_with_its_place() {
        for bytes in [&[0x00, 1, 2][..], &[0x02], &[]] {
            let e = ByteReader::new(bytes, 10).number().unwrap_err();
            assert!(e.message.contains("at byte 1"), "{e}");
        }
        assert!(ByteReader::new(&written(1 << 40), 0).count().is_err());
        assert!(ByteReader::new(b"ab", 0).terminated().is_err());
    }
}

//! What ranks send each other: frames of a kind, a number and bytes.

use std::io::{self, Read, Write};

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameKind {
    /// Part of an exchange; its number is that of the exchange.
    Data = 1,
    /// The sender is there.
    Alive = 2,
    /// The sender has no more to say.
    Leave = 3,
}

/// The bytes before those of a frame.
const HEADER: usize = 1 + 8 + 8;

/// The most bytes of a frame: tensors have no more.
const MOST: u64 = 1 << 46;

/// A frame without its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameHeader {
    pub(super) kind: FrameKind,
    pub(super) number: u64,
    pub(super) bytes: u64,
}

impl FrameHeader {
    pub(super) fn write(self, to: &mut impl Write) -> io::Result<()> {
        let mut header = [0; HEADER];
        header[0] = self.kind as u8;
        header[1..9].copy_from_slice(&self.number.to_le_bytes());
        header[9..].copy_from_slice(&self.bytes.to_le_bytes());
        to.write_all(&header)
    }

    pub(super) fn read(from: &mut impl Read) -> io::Result<FrameHeader> {
        let mut header = [0; HEADER];
        from.read_exact(&mut header)?;
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&header[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let wrong = |m| io::Error::new(io::ErrorKind::InvalidData, m);
        let kind = [FrameKind::Data, FrameKind::Alive, FrameKind::Leave];
        let kind = kind.into_iter().find(|&kind| kind as u8 == header[0]);
        let kind = kind.ok_or_else(|| wrong("what came is no frame"))?;
        let header = FrameHeader { kind, number: number(1), bytes: number(9) };
        match header.bytes <= MOST && (kind == FrameKind::Data || header.bytes == 0) {
            true => Ok(header),
            false => Err(wrong("what came is too long for a frame")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_read_back_and_others_are_refused() {
        let header = FrameHeader { kind: FrameKind::Data, number: 7, bytes: 1 << 40 };
        let mut bytes = Vec::new();
        header.write(&mut bytes).unwrap();
        assert_eq!(FrameHeader::read(&mut bytes.as_slice()).unwrap(), header);
        for (at, value) in [(0, 0), (0, 9), (16, 0xff)] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert!(FrameHeader::read(&mut wrong.as_slice()).is_err());
        }
        // Frames that say only that somebody is there have no bytes.
        let mut alive = bytes.clone();
        alive[0] = FrameKind::Alive as u8;
        assert!(FrameHeader::read(&mut alive.as_slice()).is_err());
        assert!(FrameHeader::read(&mut bytes[..9].as_ref()).is_err());
    }
}

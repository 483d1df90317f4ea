//! The wire format of protocol buffers: fields of a message, read one after the other from bytes that nobody vouches for.

use std::fmt;

/// Why bytes are no message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WireError {
    /// What is wrong.
    pub(crate) what: &'static str,
    /// Where, in bytes from the end of the message that is read.
    pub(crate) left: usize,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} bytes before the end of a message", self.what, self.left)
    }
}

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WireValue<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// The fields of a message, in their order.
#[derive(Clone, Debug)]
pub(crate) struct WireFields<'a> {
    rest: &'a [u8],
}

impl<'a> WireFields<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> WireFields<'a> {
        WireFields { rest: bytes }
    }

    fn wrong<T>(&self, what: &'static str) -> Result<T, WireError> {
        Err(WireError { what, left: self.rest.len() })
    }

    /// The next field and its number; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, WireValue<'a>)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = match u32::try_from(tag >> 3) {
            Ok(number) if number > 0 => number,
            _ => return self.wrong("a field without a number"),
        };
        let value = match tag & 7 {
            0 => WireValue::Varint(self.varint()?),
            1 => WireValue::Fixed64(u64::from_le_bytes(self.fixed()?)),
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).ok().filter(|&n| n <= self.rest.len());
                let Some(length) = length else { return self.wrong("a field is cut off") };
                WireValue::Bytes(self.take(length))
            }
            5 => WireValue::Fixed32(u32::from_le_bytes(self.fixed()?)),
            _ => return self.wrong("a field of no known kind"),
        };
        Ok(Some((number, value)))
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        bytes
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        match self.rest.split_first_chunk::<N>() {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(*bytes)
            }
            None => self.wrong("a number is cut off"),
        }
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let Some((&byte, rest)) = self.rest.split_first() else {
                return self.wrong("a number is cut off");
            };
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return self.wrong("a number of more than 64 bits");
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        self.wrong("a number of more than 64 bits")
    }
}

impl<'a> WireValue<'a> {
    fn wrong<T>(what: &'static str) -> Result<T, WireError> {
        Err(WireError { what, left: 0 })
    }

    pub(crate) fn int(self) -> Result<i64, WireError> {
        match self {
            WireValue::Varint(v) => Ok(v as i64),
            _ => WireValue::wrong("a field that is no integer"),
        }
    }

    pub(crate) fn float(self) -> Result<f32, WireError> {
        match self {
            WireValue::Fixed32(v) => Ok(f32::from_bits(v)),
            _ => WireValue::wrong("a field that is no float"),
        }
    }

    pub(crate) fn bytes(self) -> Result<&'a [u8], WireError> {
        match self {
            WireValue::Bytes(b) => Ok(b),
            _ => WireValue::wrong("a field without bytes"),
        }
    }

    pub(crate) fn text(self) -> Result<&'a str, WireError> {
        match std::str::from_utf8(self.bytes()?) {
            Ok(text) => Ok(text),
            Err(_) => WireValue::wrong("a text that is not UTF-8"),
        }
    }

    /// Appends the integers of a repeated field: one, or packed ones.
    pub(crate) fn ints(self, to: &mut Vec<i64>) -> Result<(), WireError> {
        match self {
            WireValue::Varint(v) => to.push(v as i64),
            WireValue::Bytes(bytes) => {
                let mut packed = WireFields::of(bytes);
                while !packed.rest.is_empty() {
                    to.push(packed.varint()? as i64);
                }
            }
            _ => return WireValue::wrong("a field that is no integer"),
        }
        Ok(())
    }

    /// Appends the bytes of a repeated field of fixed width: one element, or packed ones.
    pub(crate) fn fixed(self, width: usize, to: &mut Vec<u8>) -> Result<(), WireError> {
        match self {
            WireValue::Fixed32(v) if width == 4 => to.extend(v.to_le_bytes()),
            WireValue::Fixed64(v) if width == 8 => to.extend(v.to_le_bytes()),
            WireValue::Bytes(bytes) if bytes.len().is_multiple_of(width) => {
                to.extend_from_slice(bytes);
            }
            _ => return WireValue::wrong("a field that has no such elements"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_what_is_cut_off_is_an_error() {
        let bytes = [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i', 0x1d, 0, 0, 0x80, 0x3f];
        let mut fields = WireFields::of(&bytes);
        assert_eq!(fields.next(), Ok(Some((1, WireValue::Varint(150)))));
        assert_eq!(fields.next(), Ok(Some((2, WireValue::Bytes(b"hi")))));
        assert_eq!(fields.next(), Ok(Some((3, WireValue::Fixed32(1f32.to_bits())))));
        assert_eq!(fields.next(), Ok(None));
        for bytes in [
            &[0x08][..],
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0x0f, 1],
            &[0x1d, 0, 0],
            &[0x00, 0x01],
            &[0x0b, 0x01],
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        ] {
            assert!(WireFields::of(bytes).next().is_err(), "{bytes:?}");
        }
    }
}

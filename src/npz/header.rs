//! The header of a `.npy` file: magic bytes, version, and a Python dictionary of literals.

use super::{NpzError, NpzErrorKind};
use crate::ir::DType;
use std::io::Read;

/// What the header of an array says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The element type in NumPy's notation, such as `<f4`.
    pub descr: String,
    /// The element type; `None` for one that adfuse has not.
    pub dtype: Option<DType>,
    /// Whether the most significant byte of an element comes first.
    pub big_endian: bool,
    /// Whether the first axis varies fastest.
    pub fortran_order: bool,
    /// The extents. Their product, with 1 in place of 0, is below 2^60.
    pub shape: Vec<u64>,
}

/// Bytes of the dictionary at most.
const LONGEST: usize = 1 << 16;

/// Nesting of brackets at most; types of records nest by their fields.
const DEEPEST: u32 = 16;

pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

impl Header {
    /// Reads magic bytes, version and dictionary; what is left of `from` are the elements.
    ///
    /// # Errors
    /// [`NpzErrorKind::NoNumpy`], [`NpzErrorKind::Version`], [`NpzErrorKind::LongHeader`], [`NpzErrorKind::Header`], [`NpzErrorKind::NoKey`], and
    /// [`NpzErrorKind::Short`] where `from` ends.
    pub fn read(from: &mut impl Read) -> Result<Header, NpzError> {
        let mut start = [0; 10];
        from.read_exact(&mut start)?;
        if !start.starts_with(MAGIC) {
            return Err(NpzErrorKind::NoNumpy.into());
        }
        let [.., major, _, low, high] = start;
        let length = match major {
            1 => usize::from(u16::from_le_bytes([low, high])),
            2 | 3 => {
                let mut rest = [0; 2];
                from.read_exact(&mut rest)?;
                u32::from_le_bytes([low, high, rest[0], rest[1]]) as usize
            }
            _ => return Err(NpzErrorKind::Version(major).into()),
        };
        if length > LONGEST {
            return Err(NpzErrorKind::LongHeader(length).into());
        }
        let mut text = vec![0; length];
        from.read_exact(&mut text)?;
        Ok(Literals { rest: &text }.header()?)
    }
}

/// The text that is left of a dictionary.
struct Literals<'a> {
    rest: &'a [u8],
}

impl<'a> Literals<'a> {
    /// `{'descr': .., 'fortran_order': .., 'shape': ..}`, keys in any order.
    fn header(mut self) -> Result<Header, NpzErrorKind> {
        let (mut descr, mut order, mut shape) = (None, None, None);
        self.expect(b'{', "`{`")?;
        while !self.accepts(b'}') {
            let key = self.string()?;
            self.expect(b':', "`:`")?;
            match key {
                b"descr" => descr = Some(self.descr()?),
                b"fortran_order" => order = Some(self.boolean()?),
                b"shape" => shape = Some(self.shape()?),
                _ => return Err(NpzErrorKind::Header("`descr`, `fortran_order` or `shape`")),
            }
            if !self.accepts(b',') {
                self.expect(b'}', "`,` or `}`")?;
                break;
            }
        }
        self.blank();
        if !self.rest.is_empty() {
            return Err(NpzErrorKind::Header("the end"));
        }
        let (descr, (dtype, big_endian)) = descr.ok_or(NpzErrorKind::NoKey("descr"))?;
        let fortran_order = order.ok_or(NpzErrorKind::NoKey("fortran_order"))?;
        let shape = shape.ok_or(NpzErrorKind::NoKey("shape"))?;
        Ok(Header { descr, dtype, big_endian, fortran_order, shape })
    }

    fn blank(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    /// Takes this byte, if it comes next.
    fn accepts(&mut self, byte: u8) -> bool {
        self.blank();
        let rest = self.rest.strip_prefix(&[byte]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, byte: u8, due: &'static str) -> Result<(), NpzErrorKind> {
        if self.accepts(byte) { Ok(()) } else { Err(NpzErrorKind::Header(due)) }
    }

    /// A string without escapes, in either quotes.
    fn string(&mut self) -> Result<&'a [u8], NpzErrorKind> {
        const DUE: NpzErrorKind = NpzErrorKind::Header("a string without escapes");
        self.blank();
        let [quote @ (b'\'' | b'"'), rest @ ..] = self.rest else { return Err(DUE) };
        let end = rest.iter().position(|b| b == quote).ok_or(DUE)?;
        let (text, rest) = rest.split_at(end);
        self.rest = &rest[1..];
        if text.contains(&b'\\') { Err(DUE) } else { Ok(text) }
    }

    fn boolean(&mut self) -> Result<bool, NpzErrorKind> {
        self.blank();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word.as_bytes()) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(NpzErrorKind::Header("`True` or `False`"))
    }

    /// A tuple of extents. Python 2 wrote long ones with an `L`.
    fn shape(&mut self) -> Result<Vec<u64>, NpzErrorKind> {
        self.expect(b'(', "a tuple of extents")?;
        let (mut shape, mut product) = (Vec::new(), 1u64);
        while !self.accepts(b')') {
            let extent = self.extent()?;
            product = product.checked_mul(extent.max(1)).filter(|&p| p < 1 << 60).ok_or(SIZE)?;
            shape.push(extent);
            if !self.accepts(b',') {
                // A bracket alone makes no tuple.
                if shape.len() == 1 {
                    return Err(NpzErrorKind::Header("`,`"));
                }
                self.expect(b')', "`,` or `)`")?;
                break;
            }
        }
        Ok(shape)
    }

    fn extent(&mut self) -> Result<u64, NpzErrorKind> {
        if self.accepts(b'-') {
            return Err(NpzErrorKind::Header("an extent that is not negative"));
        }
        let digits = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        if number.is_empty() {
            return Err(NpzErrorKind::Header("an extent"));
        }
        self.rest = rest.strip_prefix(b"L").unwrap_or(rest);
        let digit = |n: u64, b: &u8| n.checked_mul(10)?.checked_add(u64::from(b - b'0'));
        number.iter().try_fold(0, digit).ok_or(SIZE)
    }

    /// An element type as text, and what that means: a string, or a list or tuple for records.
    fn descr(&mut self) -> Result<(String, (Option<DType>, bool)), NpzErrorKind> {
        self.blank();
        if let [b'[' | b'(', ..] = self.rest {
            let text = self.brackets()?;
            return Ok((String::from_utf8_lossy(text).into_owned(), (None, false)));
        }
        let text = String::from_utf8_lossy(self.string()?).into_owned();
        let meaning = element(&text);
        Ok((text, meaning))
    }

    /// The text from a bracket to the one that closes it.
    fn brackets(&mut self) -> Result<&'a [u8], NpzErrorKind> {
        let start = self.rest;
        let mut depth = 0;
        loop {
            match self.rest {
                [b'\'' | b'"', ..] => _ = self.string()?,
                [byte, rest @ ..] => {
                    self.rest = rest;
                    match byte {
                        b'[' | b'(' => depth += 1,
                        b']' | b')' => depth -= 1,
                        _ => {}
                    }
                }
                [] => return Err(NpzErrorKind::Header("a closing bracket")),
            }
            if depth > DEEPEST {
                return Err(NpzErrorKind::Header("fewer brackets inside each other"));
            }
            if depth == 0 {
                return Ok(&start[..start.len() - self.rest.len()]);
            }
        }
    }
}

const SIZE: NpzErrorKind = NpzErrorKind::Header("extents whose product is a size");

/// The element type that NumPy writes this way, if adfuse has it, and whether its bytes are big-endian.
fn element(descr: &str) -> (Option<DType>, bool) {
    let mut letters = descr.chars();
    let big = match letters.next() {
        Some('<' | '|') => false,
        Some('>') => true,
        Some('=') => cfg!(target_endian = "big"),
        _ => return (None, false),
    };
    let dtype = match letters.as_str() {
        "f8" => DType::F64,
        "f4" => DType::F32,
        "f2" => DType::F16,
        "V2" => DType::BF16,
        "i8" => DType::I64,
        "i4" => DType::I32,
        "i1" => DType::I8,
        "u4" => DType::U32,
        "u1" => DType::U8,
        "b1" => DType::Bool,
        _ => return (None, big),
    };
    (Some(dtype), big)
}

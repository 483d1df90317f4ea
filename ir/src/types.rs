//! Dimensions, shapes and tensor types, with checked sizes.

use crate::dtype::DType;
use smallvec::SmallVec;
use std::fmt;

/// The most axes a tensor may have.
pub const MAX_RANK: usize = 16;

/// The most bytes one tensor may take: 2^46, far above any memory, far below overflow.
pub const MAX_BYTES: u64 = 1 << 46;

/// The name of a symbolic dimension: up to 15 ASCII letters, digits and underscores.
///
/// Held inline, so that types are self-contained and comparing them needs no table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol {
    len: u8,
    bytes: [u8; 15],
}

impl Symbol {
    /// The symbol of this name; `None` unless it is an identifier of 1 to 15 ASCII characters.
    pub fn new(name: &str) -> Option<Symbol> {
        let ident = |(i, b): (usize, u8)| {
            b == b'_' || b.is_ascii_alphabetic() || (i > 0 && b.is_ascii_digit())
        };
        if name.is_empty() || name.len() > 15 || !name.bytes().enumerate().all(ident) {
            return None;
        }
        let mut bytes = [0; 15];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Some(Symbol { len: name.len() as u8, bytes })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len as usize]).unwrap_or_default()
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The extent of one axis.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    /// A known extent.
    Const(u64),
    /// A named extent of the enclosing function: opaque, equal only to itself.
    Sym(Symbol),
}

impl Dim {
    /// The extent, when known.
    pub fn known(self) -> Option<u64> {
        match self {
            Dim::Const(n) => Some(n),
            Dim::Sym(_) => None,
        }
    }
}

impl From<u64> for Dim {
    fn from(n: u64) -> Dim {
        Dim::Const(n)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Const(n) => write!(f, "{n}"),
            Dim::Sym(s) => f.write_str(s.as_str()),
        }
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The extents of all axes, outermost first.
pub type Shape = SmallVec<[Dim; 4]>;

/// `dtype[shape]`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Extents; empty for a scalar and for a token.
    pub shape: Shape,
}

impl TensorType {
    /// The type with these extents.
    pub fn new(dtype: DType, shape: impl IntoIterator<Item = Dim>) -> TensorType {
        TensorType { dtype, shape: shape.into_iter().collect() }
    }

    /// The type with these known extents.
    pub fn of(dtype: DType, dims: &[u64]) -> TensorType {
        TensorType::new(dtype, dims.iter().map(|&n| Dim::Const(n)))
    }

    /// A tensor without axes.
    pub fn scalar(dtype: DType) -> TensorType {
        TensorType { dtype, shape: Shape::new() }
    }

    /// The type of effect tokens.
    pub fn token() -> TensorType {
        TensorType::scalar(DType::Token)
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The same shape with another element type.
    pub fn with_dtype(&self, dtype: DType) -> TensorType {
        TensorType { dtype, shape: self.shape.clone() }
    }

    /// The extents, when all are known.
    pub fn dims(&self) -> Option<SmallVec<[u64; 4]>> {
        self.shape.iter().map(|d| d.known()).collect()
    }

    /// Number of elements: `None` when an extent is symbolic or the product overflows.
    pub fn elements(&self) -> Option<u64> {
        // Zero first: 0 * huge is 0, not an overflow.
        let dims = self.dims()?;
        if dims.contains(&0) {
            return Some(0);
        }
        dims.iter().try_fold(1u64, |a, &n| a.checked_mul(n))
    }

    /// Bytes of a dense tensor: `None` when symbolic or overflowing.
    pub fn bytes(&self) -> Option<u64> {
        self.elements()?.checked_mul(self.dtype.bytes())
    }

    /// Why this type is not acceptable (too many axes, too large, a token with axes), if so.
    pub fn excess(&self) -> Option<String> {
        if self.rank() > MAX_RANK {
            return Some(format!("{} axes, the limit is {MAX_RANK}", self.rank()));
        }
        if self.dtype == DType::Token && self.rank() > 0 {
            return Some("a token has no axes".into());
        }
        // Symbols count as 1, so that a bound on the constant part is still enforced; extents of
        // an empty tensor are bounded one by one.
        let mut product = 1u64;
        for n in self.shape.iter().filter_map(|d| d.known()).filter(|&n| n > 0) {
            product = product.saturating_mul(n);
        }
        let bytes = product.saturating_mul(self.dtype.bytes().max(1));
        (bytes > MAX_BYTES).then(|| format!("{self} is larger than {MAX_BYTES} bytes"))
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dtype == DType::Token {
            return f.write_str("token");
        }
        write!(f, "{}[", self.dtype)?;
        for (i, d) in self.shape.iter().enumerate() {
            write!(f, "{}{d}", if i > 0 { "," } else { "" })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

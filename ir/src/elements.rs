//! The values of a constant: bytes that all copies of the constant share.

use crate::dtype::DType;
use crate::literal::Literal;
use std::fmt;
use std::sync::Arc;

/// Element values of one type, row-major. A copy shares the bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Elements {
    dtype: DType,
    /// Low bytes first, as many an element as its type has.
    bytes: Option<Arc<[u8]>>,
}

/// No elements.
pub(crate) static EMPTY: Elements = Elements { dtype: DType::Bool, bytes: None };

impl Elements {
    fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or(&[])
    }

    fn width(&self) -> usize {
        // No constant is a token, whose width is 0.
        self.dtype.bytes().max(1) as usize
    }

    /// The element type; `bool` where there are none.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes().len() / self.width()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// The elements in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Literal> + '_ {
        self.bytes().chunks_exact(self.width()).map(|bytes| {
            let mut bits = [0; 8];
            bits[..bytes.len()].copy_from_slice(bytes);
            Literal::from_bits(self.dtype, u64::from_le_bytes(bits))
        })
    }
}

/// # Panics
/// If the elements differ in type.
impl FromIterator<Literal> for Elements {
    fn from_iter<I: IntoIterator<Item = Literal>>(elements: I) -> Elements {
        let mut elements = elements.into_iter().peekable();
        let Some(dtype) = elements.peek().map(|l| l.dtype()) else { return EMPTY.clone() };
        let mut out = Elements { dtype, bytes: None };
        let mut bytes = Vec::with_capacity(elements.size_hint().0.saturating_mul(out.width()));
        for l in elements {
            assert_eq!(l.dtype(), dtype, "elements of one constant have one type");
            bytes.extend_from_slice(&l.bits().to_le_bytes()[..out.width()]);
        }
        out.bytes = Some(bytes.into());
        out
    }
}

impl From<Vec<Literal>> for Elements {
    fn from(elements: Vec<Literal>) -> Elements {
        elements.into_iter().collect()
    }
}

impl fmt::Debug for Elements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

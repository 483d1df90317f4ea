//! Numbers in the files of machine models: where they are in the text, and between which bounds they make sense.

use adfuse_ir::diag::Span;
use adfuse_ir::{At, Diagnostic, Kind};
use std::ops::RangeInclusive;
use toml::{Spanned, Value};

pub(super) fn place<T>(of: &Spanned<T>) -> At {
    At::span(Span::new(of.span().start, of.span().end))
}

/// The number, if it is within the bounds; a number that is not a number is in none.
pub(super) fn within<T: TomlNumber>(
    key: &str,
    number: &Spanned<T>,
    bounds: RangeInclusive<T>,
) -> Result<T, Diagnostic> {
    let n = *number.get_ref();
    if bounds.contains(&n) {
        return Ok(n);
    }
    let (least, most) = (bounds.start().text(), bounds.end().text());
    let m = format!("`{key}` is from {least} to {most}, found {}", n.text());
    Err(Diagnostic::new(place(number), Kind::Usage, m))
}

/// A number in a file.
pub(super) trait TomlNumber: Copy + PartialOrd {
    fn value(self) -> Value;

    /// As messages print it.
    fn text(self) -> String {
        self.value().to_string()
    }
}

impl TomlNumber for f64 {
    fn value(self) -> Value {
        Value::from(self)
    }

    /// Numbers with many zeros are powers of ten, as people write them.
    fn text(self) -> String {
        let size = self.abs();
        match size == 0.0 || !size.is_finite() || (1e-4..1e7).contains(&size) {
            true => self.to_string().to_lowercase(),
            false => format!("{self:e}"),
        }
    }
}

impl TomlNumber for i64 {
    fn value(self) -> Value {
        Value::from(self)
    }
}

impl TomlNumber for u32 {
    fn value(self) -> Value {
        Value::from(i64::from(self))
    }
}

impl TomlNumber for u64 {
    fn value(self) -> Value {
        // Beyond what TOML holds, and beyond every bound.
        Value::from(i64::try_from(self).unwrap_or(i64::MAX))
    }
}

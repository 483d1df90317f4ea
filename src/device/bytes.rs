//! Sizes in bytes as people write them: `64MiB`, `1.5GB`.

use std::fmt;

/// What is wrong with a number of bytes.
#[derive(Clone, PartialEq, Eq)]
pub enum SizeError {
    /// It is below zero.
    Negative,
    /// There is no decimal number before the unit.
    Number,
    /// There is no such unit.
    Unit(String),
    /// It is no whole number of bytes.
    Part,
    /// It is 2^64 or more.
    Overflow,
}

/// As it is displayed: what a `main` that fails prints.
impl fmt::Debug for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let such = "bytes, such as 1024, 64MiB or 16GB";
        match self {
            SizeError::Negative => write!(f, "expected {such}, not below 0"),
            SizeError::Number => write!(f, "expected {such}"),
            SizeError::Unit(unit) => write!(f, "expected {such}; `{unit}` is no unit"),
            SizeError::Part => write!(f, "expected a whole number of bytes"),
            SizeError::Overflow => write!(f, "expected a number of bytes below 2^64"),
        }
    }
}

impl std::error::Error for SizeError {}

/// Reads a whole number of bytes, or a number with a unit, for [`Device::mem_budget`](super::Device::mem_budget).
///
/// ```
/// use adfuse::device::bytes;
///
/// assert_eq!(bytes("1024"), Ok(1024));
/// assert_eq!(bytes("1.5 GiB"), Ok(3 << 29));
/// assert_eq!(bytes("5.9GiB"), Ok(6_335_076_761)); // rounded down
/// assert!(bytes("64M").is_err_and(|e| e.to_string().contains("`M` is no unit")));
/// ```
///
/// # Errors
/// What is wrong with the number or its unit.
pub fn bytes(text: &str) -> Result<u64, SizeError> {
    if text.starts_with('-') {
        return Err(SizeError::Negative);
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim_start();
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || part.is_empty() || part.contains('.') {
        return Err(SizeError::Number);
    }
    match UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
        Some(&(_, scale)) => exact(whole, part, scale),
        None => Err(SizeError::Unit(unit.into())),
    }
}

/// Units and their bytes.
const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("EB", 1_000_000_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("EiB", 1 << 60),
];

/// A decimal number, of digits before and behind the point, times a scale, in whole bytes.
fn exact(whole: &str, part: &str, scale: u64) -> Result<u64, SizeError> {
    let whole: u64 = whole.parse().map_err(|_| SizeError::Overflow)?;
    let whole = whole.checked_mul(scale).ok_or(SizeError::Overflow)?;
    let part = part.trim_end_matches('0');
    let tens = u32::try_from(part.len()).ok().and_then(|n| 10u128.checked_pow(n));
    let read = if part.is_empty() { Ok(0) } else { part.parse::<u128>() };
    let (Some(tens), Ok(part)) = (tens, read) else { return Err(SizeError::Part) };
    let part = part.checked_mul(scale.into()).ok_or(SizeError::Part)?;
    // A part of a unit is rounded down: a budget is never more than what is written.
    if scale == 1 && part > 0 {
        return Err(SizeError::Part);
    }
    let part = u64::try_from(part / tens).map_err(|_| SizeError::Overflow)?;
    whole.checked_add(part).ok_or(SizeError::Overflow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_whole_bytes_or_refused() {
        let unit = |unit: &str| Err(SizeError::Unit(unit.into()));
        for (text, due) in [
            ("0", Ok(0)),
            ("1024", Ok(1024)),
            ("64MiB", Ok(64 << 20)),
            ("64mib", Ok(64 << 20)),
            ("16GB", Ok(16_000_000_000)),
            ("1.5GiB", Ok(3 << 29)),
            ("1.5 kib", Ok(1536)),
            ("0.001kB", Ok(1)),
            ("1.000000000000000000000000000000000000000000000000kB", Ok(1000)),
            ("18446744073709551615", Ok(u64::MAX)),
            ("15.9EiB", Ok(18331451923248866918)),
            ("16EiB", Err(SizeError::Overflow)),
            ("18446744073709551616", Err(SizeError::Overflow)),
            ("99999999999999999999999999999999999999999", Err(SizeError::Overflow)),
            ("0.5", Err(SizeError::Part)),
            ("1.0001kB", Ok(1000)),
            ("5.9GiB", Ok(6_335_076_761)),
            ("", Err(SizeError::Number)),
            (".", Err(SizeError::Number)),
            ("1.", Err(SizeError::Number)),
            ("1.2.3", Err(SizeError::Number)),
            ("many", Err(SizeError::Number)),
            ("+1", Err(SizeError::Number)),
            ("-1", Err(SizeError::Negative)),
            ("-64MiB", Err(SizeError::Negative)),
            ("1e3", unit("e3")),
            ("64M", unit("M")),
            ("4 cows", unit("cows")),
            ("1.0000000000000000000000000000000000000000000000001kB", Err(SizeError::Part)),
        ] {
            assert_eq!(bytes(text), due, "{text}");
        }
    }
}

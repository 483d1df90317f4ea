//! Numbers of bytes as people write them.

/// Reads a whole number of bytes, or a number with a unit: `1024`, `64MiB`, `1.5GB`.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim_start();
    let Some(&(_, scale)) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) else {
        return Err("expected bytes, such as 1024, 64MiB or 16GB".into());
    };
    exact(number, scale).ok_or_else(|| "expected a whole number of bytes below 2^64".into())
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

/// A decimal number times a scale, if that is a whole number of 64 bits.
fn exact(number: &str, scale: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) {
        return None;
    }
    let part = part.trim_end_matches('0');
    let tens = 10u128.checked_pow(part.len().try_into().ok()?)?;
    let part: u128 = if part.is_empty() { 0 } else { part.parse().ok()? };
    let part = part.checked_mul(scale.into())?;
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    if !part.is_multiple_of(tens) {
        return None;
    }
    whole.checked_add(u64::try_from(part / tens).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_exactly_or_refused() {
        for (text, due) in [
            ("0", Some(0)),
            ("1024", Some(1024)),
            ("64MiB", Some(64 << 20)),
            ("16GB", Some(16_000_000_000)),
            ("1.5 kib", Some(1536)),
            ("0.001kB", Some(1)),
            ("18446744073709551615", Some(u64::MAX)),
            ("15.9EiB", None),
            ("16EiB", None),
            ("18446744073709551616", None),
            ("0.5", None),
            ("1.0001kB", None),
            ("", None),
            (".", None),
            ("1.", None),
            ("-1", None),
            ("1e3", None),
            ("4 cows", None),
            ("1.0000000000000000000000000000000000000000000000001kB", None),
        ] {
            assert_eq!(bytes(text).ok(), due, "{text}");
        }
    }
}

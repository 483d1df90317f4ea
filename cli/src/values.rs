//! Values of flags that several commands take.

use std::ops::RangeInclusive;

/// Reads a whole number within bounds.
pub(super) fn whole<T: TryFrom<u64>>(
    within: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|n| within.contains(n));
        let number = number.and_then(|n| T::try_from(n).ok());
        number.ok_or_else(|| match within.end() {
            &u64::MAX => format!("expected a whole number from {} on", within.start()),
            end => format!("expected a whole number from {} to {end}", within.start()),
        })
    }
}

/// A number with its noun: `1 byte`, `2 bytes`.
pub(super) fn counted(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_bounds_are_told_the_bounds() {
        let read = whole::<u8>(1..=16);
        assert_eq!(read("16"), Ok(16));
        for wrong in ["0", "17", "-1", "1.5", "", "x", "99999999999999999999"] {
            assert_eq!(read(wrong), Err("expected a whole number from 1 to 16".into()), "{wrong}");
        }
        let all = whole::<u64>(0..=u64::MAX);
        assert_eq!(all("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(all("-1"), Err("expected a whole number from 0 on".into()));
    }
}

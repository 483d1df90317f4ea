//! Bytes as people read them: the one form of the command line, of reports and of their pages.

/// Units of bytes, each 1024 of the one before.
const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Bytes in the largest unit of which there is one, rounded to the nearest hundredth.
///
/// ```
/// use adfuse_report::sizes::bytes;
///
/// assert_eq!([bytes(1023), bytes(1536)], ["1023 B", "1.50 KiB"]);
/// ```
pub fn bytes(n: u64) -> String {
    let mut unit = None;
    let mut x = n as f64;
    for name in UNITS {
        if x < 1024.0 {
            break;
        }
        x /= 1024.0;
        unit = Some(name);
    }
    unit.map_or_else(|| format!("{n} B"), |unit| format!("{x:.2} {unit}"))
}

/// Bytes that are a limit, such as a budget or a peak, in the largest unit of which there is one: rounded up, so that what is
/// read is never less.
///
/// ```
/// use adfuse_report::sizes::{bytes, limit};
///
/// let peak = (8 << 20) + 4;
/// assert_eq!([bytes(peak), limit(peak)], ["8.00 MiB", "8.01 MiB"]);
/// ```
pub fn limit(n: u64) -> String {
    let unit = UNITS.iter().zip(1u32..).take_while(|(_, k)| n >> (10 * k) > 0).last();
    let Some((unit, k)) = unit else { return format!("{n} B") };
    let hundredths = (u128::from(n) * 100).div_ceil(1 << (10 * k));
    format!("{}.{:02} {unit}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_the_largest_unit() {
        let all = [0, 1023, 1024, 1536, u64::MAX].map(bytes);
        assert_eq!(all, ["0 B", "1023 B", "1.00 KiB", "1.50 KiB", "16.00 EiB"]);
    }

    #[test]
    fn limits_are_rounded_up() {
        for (n, due) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1536, "1.50 KiB"),
            ((8 << 20) + 4, "8.01 MiB"),
            ((1 << 20) - 1, "1024.00 KiB"),
            (11 << 60, "11.00 EiB"),
            (u64::MAX, "16.00 EiB"),
        ] {
            assert_eq!(limit(n), due);
        }
    }
}

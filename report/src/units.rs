//! Figures as people read them.

use crate::data::FigureUnit;
use crate::sizes;
pub(crate) use crate::sizes::limit;

/// Bytes with a minus where they are fewer: as [`sizes::bytes`].
pub(crate) fn bytes(n: f64) -> String {
    let sign = if n < 0.0 { "\u{2212}" } else { "" };
    format!("{sign}{}", sizes::bytes(n.abs().round() as u64))
}

/// Bytes at a mark of an axis, which are a round number.
pub(crate) fn mark_bytes(n: f64) -> String {
    bytes(n).replace(".00 ", " ")
}

/// Seconds in the largest unit of which there is one: `12.3 µs`.
pub(crate) fn seconds(s: f64) -> String {
    let sign = if s < 0.0 { "\u{2212}" } else { "" };
    let x = s.abs();
    let (scaled, unit) = match x {
        // Less than any clock tells: what is left of differences.
        x if x < 5e-12 => return "0 s".into(),
        x if x < 1e-6 => (x * 1e9, "ns"),
        x if x < 1e-3 => (x * 1e6, "\u{b5}s"),
        x if x < 1.0 => (x * 1e3, "ms"),
        x => (x, "s"),
    };
    format!("{sign}{} {unit}", three(scaled))
}

/// Operations or bytes, by powers of 1000: `1.23 G`.
pub(crate) fn metric(x: f64) -> String {
    const UNITS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let (mut y, mut unit) = (x, 0);
    while y >= 1000.0 && unit + 1 < UNITS.len() {
        y /= 1000.0;
        unit += 1;
    }
    if unit == 0 && y.fract() == 0.0 {
        format!("{y:.0}")
    } else {
        format!("{} {}", three(y), UNITS[unit]).trim_end().into()
    }
}

/// Three digits that count.
fn three(x: f64) -> String {
    match x {
        x if x >= 100.0 => format!("{x:.0}"),
        x if x >= 10.0 => format!("{x:.1}"),
        x => format!("{x:.2}"),
    }
}

/// A whole number with its digits in groups of three.
pub(crate) fn count(x: f64) -> String {
    let digits = format!("{:.0}", x.abs());
    let mut out = String::new();
    for (k, c) in digits.chars().enumerate() {
        if k > 0 && (digits.len() - k) % 3 == 0 {
            out.push('\u{202f}');
        }
        out.push(c);
    }
    if x < 0.0 { format!("\u{2212}{out}") } else { out }
}

/// A part of 1 in percent.
pub(crate) fn percent(x: f64) -> String {
    match x * 100.0 {
        p if p.abs() >= 9.95 => format!("{p:.0} %"),
        p => format!("{p:.1} %"),
    }
}

/// A figure in its unit.
pub(crate) fn figure(x: f64, unit: FigureUnit) -> String {
    match unit {
        FigureUnit::Count => count(x),
        FigureUnit::Bytes => bytes(x),
        FigureUnit::Limit => limit(x as u64),
        FigureUnit::Seconds => seconds(x),
        FigureUnit::Share => percent(x),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        let all = [bytes(0.0), bytes(1023.0), bytes(1536.0), bytes(-3.0 * 1048576.0)];
        assert_eq!(all, ["0 B", "1023 B", "1.50 KiB", "\u{2212}3.00 MiB"]);
        assert_eq!([mark_bytes(2048.0), mark_bytes(1536.0)], ["2 KiB", "1.50 KiB"]);
        assert_eq!(seconds(-1e-15), "0 s");
        let all = [seconds(0.0), seconds(3.2e-9), seconds(12.34e-6), seconds(0.2), seconds(-2.0)];
        assert_eq!(all, ["0 s", "3.20 ns", "12.3 \u{b5}s", "200 ms", "\u{2212}2.00 s"]);
        assert_eq!([metric(12.0), metric(1234.0), metric(5e12)], ["12", "1.23 k", "5.00 T"]);
        assert_eq!([count(12.0), count(1234567.0)], ["12", "1\u{202f}234\u{202f}567"]);
        assert_eq!([percent(0.123), percent(0.0123)], ["12 %", "1.2 %"]);
    }
}

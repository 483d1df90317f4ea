//! Figures as people read them.

use crate::data::FigureUnit;

/// Bytes in the largest unit of which there is one: `1.50 KiB`.
pub(crate) fn bytes(n: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut x, mut unit) = (n.abs(), 0);
    while x >= 1024.0 && unit + 1 < UNITS.len() {
        x /= 1024.0;
        unit += 1;
    }
    let sign = if n < 0.0 { "\u{2212}" } else { "" };
    match unit {
        0 => format!("{sign}{x:.0} B"),
        _ => format!("{sign}{} {}", three(x), UNITS[unit]),
    }
}

/// Bytes that are a limit, such as a budget or a peak: as [`bytes`], rounded up, so that what is read is never less.
pub(crate) fn limit(n: u64) -> String {
    let unit = (1..7u32).take_while(|k| n >> (10 * k) > 0).last();
    let Some(unit) = unit else { return format!("{n} B") };
    let digits = match n >> (10 * unit) {
        100.. => 0,
        10.. => 1,
        _ => 2,
    };
    let tens = 10u128.pow(digits);
    let parts = (u128::from(n) * tens).div_ceil(1 << (10 * unit));
    let name = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit as usize - 1];
    match digits {
        0 => format!("{parts} {name}"),
        _ => format!("{}.{:0w$} {name}", parts / tens, parts % tens, w = digits as usize),
    }
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
        let all = [limit(1023), limit(1536), limit((8 << 20) + 4), limit((80 << 20) + 4)];
        assert_eq!(all, ["1023 B", "1.50 KiB", "8.01 MiB", "80.1 MiB"]);
        let all = [limit((800 << 20) + 4), limit(1 << 30), limit((10 << 30) - 1), limit(u64::MAX)];
        assert_eq!(all, ["801 MiB", "1.00 GiB", "10.00 GiB", "16.0 EiB"]);
        assert_eq!(seconds(-1e-15), "0 s");
        let all = [seconds(0.0), seconds(3.2e-9), seconds(12.34e-6), seconds(0.2), seconds(-2.0)];
        assert_eq!(all, ["0 s", "3.20 ns", "12.3 \u{b5}s", "200 ms", "\u{2212}2.00 s"]);
        assert_eq!([metric(12.0), metric(1234.0), metric(5e12)], ["12", "1.23 k", "5.00 T"]);
        assert_eq!([count(12.0), count(1234567.0)], ["12", "1\u{202f}234\u{202f}567"]);
        assert_eq!([percent(0.123), percent(0.0123)], ["12 %", "1.2 %"]);
    }
}

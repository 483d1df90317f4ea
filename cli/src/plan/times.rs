//! Predicted times in reports: milliseconds, and percent above the fastest.

/// Rounded to a picosecond, which no model is good for.
pub(super) fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e12).round() / 1e9
}

/// A time to compile in milliseconds with one decimal, rounded up: what is printed does as a budget. Such times are whole
/// microseconds.
pub(super) fn compile_limit(seconds: f64) -> String {
    let tenths = ((seconds * 1e6).round() as u64).div_ceil(100);
    format!("{}.{} ms", tenths / 10, tenths % 10)
}

/// The same with four decimals, for a predicted time that is a bound.
pub(super) fn at_most(milliseconds: f64) -> String {
    format!("{:.4}", (milliseconds * 1e4).ceil() / 1e4)
}

/// How much longer a point takes than the fastest, in percent.
pub(super) fn slower(seconds: f64, fastest: f64) -> f64 {
    if fastest > 0.0 { (seconds / fastest - 1.0) * 100.0 } else { 0.0 }
}

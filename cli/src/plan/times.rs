//! Predicted times in reports: milliseconds, and percent above the fastest.

/// Rounded to a picosecond, which no model is good for.
pub(super) fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e12).round() / 1e9
}

/// How much longer a point takes than the fastest, in percent.
pub(super) fn slower(seconds: f64, fastest: f64) -> f64 {
    if fastest > 0.0 { (seconds / fastest - 1.0) * 100.0 } else { 0.0 }
}

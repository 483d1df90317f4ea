//! How another plan differs from the one that is told of, as text and as JSON.

use super::table::bytes;
use adfuse::fusion::Difference;
use serde_json::{Value as Json, json};

/// Bytes of the peak and of what is saved, and time.
pub(super) fn change(d: &Difference) -> String {
    format!("peak {}, saved {}, {} us", signed(d.peak), signed(d.saved), micros(d.seconds))
}

/// Bytes with their sign.
pub(super) fn signed(n: i64) -> String {
    let sign = if n < 0 { "-" } else { "+" };
    format!("{sign}{}", bytes(n.unsigned_abs()))
}

/// Microseconds with their sign.
pub(super) fn micros(seconds: f64) -> String {
    format!("{:+.4}", seconds * 1e6)
}

/// The same as JSON, with what the other plan decides.
pub(super) fn difference(decision: &str, d: &Difference) -> Json {
    json!({
        "decision": decision,
        "peak_bytes": d.peak,
        "saved_bytes": d.saved,
        "ms": (d.seconds * 1e12).round() / 1e9,
    })
}

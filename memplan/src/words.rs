//! Numbers in messages.

/// The ending of a noun after this number.
pub(crate) fn plural(n: u64) -> &'static str {
    if n == 1 { "" } else { "s" }
}

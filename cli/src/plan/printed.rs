//! The output of `plan`: lines and JSON.

/// A line each.
pub(super) fn lines(all: &[String]) -> String {
    all.iter().map(|l| format!("{l}\n")).collect()
}

/// JSON as people can read it too.
pub(super) fn json(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

//! Recomputed values by name, as text and as JSON.

use super::lists::shortened;
use adfuse::ir::text::Names;
use adfuse::ir::{Function, Value};
use serde_json::{Value as Json, json};

/// Values by their names, and how often each is computed again.
pub(super) fn named(f: &Function, again: &[(Value, u32)]) -> Vec<(String, u32)> {
    let names = Names::of(f);
    again.iter().map(|&(v, times)| (format!("%{}", names.get(v)), times)).collect()
}

/// The first values that are computed again, at most `most`, and how many more there are; how often, where that is more
/// than once.
pub(super) fn text(all: &[(String, u32)], most: usize) -> String {
    let one = |(name, times): &(String, u32)| match times {
        1 => name.clone(),
        times => format!("{name} ({times} times)"),
    };
    match all {
        [] => "nothing".into(),
        all => shortened(all.iter().map(one), most, ", "),
    }
}

/// What is computed again, and how often.
pub(super) fn json(all: &[(String, u32)]) -> Json {
    all.iter().map(|(name, times)| json!({"value": name, "times": times})).collect()
}

//! Recomputed values by name, as text and as JSON.

use super::lists::shortened;
use adfuse::fusion::CheckpointEnds;
use adfuse::ir::text::Names;
use adfuse::ir::{Function, Value};
use serde_json::{Value as Json, json};

/// Values by their names, and how often each is computed again.
pub(super) fn named(f: &Function, again: &[(Value, u32)]) -> Vec<(String, u32)> {
    let names = Names::of(f);
    again.iter().map(|&(v, times)| (format!("%{}", names.get(v)), times)).collect()
}

/// The checkpoint segments whose insides are computed again, and how many values these are; without segments the first of the values that are,
/// at most `most`.
pub(super) fn summary(segments: &[CheckpointEnds], all: &[(String, u32)], most: usize) -> String {
    if segments.is_empty() {
        return text(all, most);
    }
    let ends = |ends: &CheckpointEnds| {
        let names = ends.names.iter().map(|name| format!("%{name}"));
        format!("segments to {}", shortened(names, most, ", "))
    };
    let mut parts: Vec<String> = segments.iter().map(ends).collect();
    parts.push(format!("{} values", all.len()));
    parts.join("; ")
}

/// The ends of checkpoint segments, a list for each level.
pub(super) fn segments_json(segments: &[CheckpointEnds]) -> Json {
    let name = |name: &String| format!("%{name}");
    segments.iter().map(|ends| ends.names.iter().map(name).collect::<Json>()).collect()
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

//! Finds the messages in sources, so that tests can list those that no test provokes.

/// The string literals with a blank in them, outside of comments and attributes.
pub(crate) fn messages(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let code = source.lines().filter(|l| !l.trim_start().starts_with("//"));
    let code: String = code.flat_map(|l| [l, "\n"]).collect();
    let mut rest = code.as_str();
    while let Some(start) = rest.find('"') {
        rest = &rest[start + 1..];
        let mut text = String::new();
        let mut chars = rest.char_indices();
        for (i, c) in chars.by_ref() {
            match c {
                '"' if !text.ends_with('\\') => {
                    rest = &rest[i + 1..];
                    break;
                }
                c => text.push(c),
            }
        }
        if text.contains(' ') {
            found.push(text);
        }
    }
    found
}

/// Whether `text` has the pieces of the format string between its `{..}`, in order.
pub(crate) fn fits(format: &str, text: &str) -> bool {
    let mut rest = text;
    let mut inside = false;
    for piece in format.split(['{', '}']) {
        if !inside && !piece.is_empty() {
            let Some(at) = rest.find(piece) else { return false };
            rest = &rest[at + piece.len()..];
        }
        inside = !inside;
    }
    true
}

#[test]
fn messages_are_found_in_sources() {
    let source = "// \"not this\"\nlet m = format!(\"axis {d}: a `{x}` b\");\nf(\"word\");\n";
    assert_eq!(messages(source), ["axis {d}: a `{x}` b"]);
    assert!(fits("axis {d}: a `{x}` b", "Shape axis 3: a `q` b and more"));
    assert!(!fits("axis {d}: a `{x}` b", "Shape axis 3: a `q` c"));
}

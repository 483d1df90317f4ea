//! Lists that tables shorten.

/// The first `most` of some words, and how many more there are.
pub(super) fn shortened(
    words: impl ExactSizeIterator<Item = String>,
    most: usize,
    between: &str,
) -> String {
    let more = words.len().saturating_sub(most);
    let shown: Vec<String> = words.take(most).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    shown.join(between) + &more
}

/// Lines in the order in which each first occurs, and how often.
pub(super) fn repeats(lines: &[String]) -> Vec<(&String, usize)> {
    let mut found: Vec<(&String, usize)> = Vec::new();
    for line in lines {
        match found.iter_mut().find(|(known, _)| *known == line) {
            Some((_, times)) => *times += 1,
            None => found.push((line, 1)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_say_how_many_more_there_are() {
        let words = || ["a", "b", "c"].map(String::from).into_iter();
        assert_eq!(shortened(words(), 3, ", "), "a, b, c");
        assert_eq!(shortened(words(), 2, ", "), "a, b and 1 more");
        let lines = ["x", "y", "x"].map(String::from);
        assert_eq!(repeats(&lines), [(&lines[0], 2), (&lines[1], 1)]);
    }
}

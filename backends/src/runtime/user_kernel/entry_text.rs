//! What a PTX text says of its entry points: their names and the types of their parameters. Nothing else of the text is
//! read; the assembler does that.

use adfuse_ir::Span;

/// An entry point of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EntryText {
    pub(crate) name: String,
    /// Where its name stands.
    pub(crate) span: Span,
    /// The types of its parameters, without the dot: `u64`.
    pub(crate) params: Vec<String>,
}

/// The entry points of a text, in its order.
pub(crate) fn entries(text: &str) -> Vec<EntryText> {
    let words = words(text);
    let mut found = Vec::new();
    let mut rest = words.as_slice();
    while let Some(at) = rest.iter().position(|(word, _)| *word == ".entry") {
        rest = &rest[at + 1..];
        let Some(&(name, span)) = rest.first() else { break };
        rest = &rest[1..];
        let params = match rest.first() {
            Some(("(", _)) => {
                let end = rest.iter().position(|(word, _)| *word == ")").unwrap_or(rest.len());
                let list = &rest[1..end];
                rest = &rest[end..];
                list.split(|(word, _)| *word == ",").filter_map(type_of).collect()
            }
            _ => Vec::new(),
        };
        found.push(EntryText { name: name.to_owned(), span, params });
    }
    found
}

/// The type of a parameter: the first of its words that is one. Arrays are told by their brackets.
fn type_of(words: &[(&str, Span)]) -> Option<String> {
    if words.is_empty() {
        return None;
    }
    let mut types = words.iter().filter_map(|(word, _)| word.strip_prefix('.'));
    let is_type = |word: &&str| {
        let digits = word.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        digits.len() < word.len() && !digits.is_empty() && digits.parse::<u32>().is_ok()
    };
    let found = types.find(is_type).unwrap_or("?");
    let is_array = words.iter().any(|(word, _)| *word == "[");
    Some(format!("{found}{}", if is_array { "[]" } else { "" }))
}

/// Words of a text with their places, without comments. Parentheses, brackets, braces, commas and semicolons are words.
fn words(text: &str) -> Vec<(&str, Span)> {
    let is_sign = |b: u8| matches!(b, b'(' | b')' | b'{' | b'}' | b'[' | b']' | b',' | b';');
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let end = match bytes[at] {
            b if b.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'/' if bytes[at..].starts_with(b"//") => {
                at += text[at..].find('\n').unwrap_or(text.len() - at);
                continue;
            }
            b'/' if bytes[at..].starts_with(b"/*") => {
                at += text[at..].find("*/").map_or(text.len() - at, |n| n + 2);
                continue;
            }
            b if is_sign(b) => at + 1,
            _ => {
                let is_end = |b: &u8| is_sign(*b) || b.is_ascii_whitespace();
                let more = bytes[at + 1..].iter().position(|b| is_end(b) || *b == b'/');
                more.map_or(bytes.len(), |n| at + 1 + n)
            }
        };
        // Signs and spaces are ASCII, so that a word ends between characters.
        found.push((&text[at..end], Span::new(at, end)));
        at = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_names_and_types_of_parameters() {
        let text = "// .entry nothing(.param .u64 a)
.version 7.8
.target sm_80 /* .entry this( */
.address_size 64
.func helper(.param .b32 x) { ret; }
.visible .entry first(
  .param .u64 .ptr .global .align 16 x, // one
  .param .u32 n,
  .param .align 8 .b8 map[128]
)
.maxntid 256, 1, 1
{ ret; }
.weak .entry second { ret; }
.entry third() { ret; }";
        let found: Vec<(String, Vec<String>)> =
            entries(text).into_iter().map(|e| (e.name, e.params)).collect();
        let due = [("first", vec!["u64", "u32", "b8[]"]), ("second", vec![]), ("third", vec![])];
        let due = due.map(|(name, params)| {
            (name.to_owned(), params.into_iter().map(str::to_owned).collect::<Vec<_>>())
        });
        assert_eq!(found, due);
        let span = entries(text)[0].span;
        assert_eq!(&text[span.start as usize..span.end as usize], "first");
    }

    #[test]
    fn whatever_a_text_holds_it_is_read() {
        for text in
            ["", ".entry", ".entry f(", ".entry f(.param", "/*", "/", "é.entry é(", ".entry f(,)"]
        {
            assert!(entries(text).iter().all(|e| e.params.len() < 2), "{text}");
        }
    }
}

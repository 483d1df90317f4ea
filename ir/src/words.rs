//! Identifiers: which bytes a name has, and how many.

/// The longest name, in bytes: names appear in messages, so their length is bounded.
pub(crate) const MAX_NAME: usize = 255;

/// Whether `name` is what follows the `@` of a name.
pub(crate) fn is_word(name: &str) -> bool {
    name.len() < MAX_NAME
        && name.bytes().next().is_some_and(is_name_start)
        && name.bytes().all(is_name)
}

/// Whether a name may begin with this byte.
pub(crate) fn is_name_start(b: u8) -> bool {
    b == b'_' || b.is_ascii_alphabetic()
}

/// Whether a name may have this byte after its first.
pub(crate) fn is_name(b: u8) -> bool {
    b == b'_' || b == b'.' || b.is_ascii_alphanumeric()
}

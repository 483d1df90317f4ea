//! Tensors as text, and their digests.

use adfuse::backends::Array;
pub(super) use adfuse::backends::write_array;
use sha2::{Digest, Sha256};
use std::io::{self, Write};

/// Writes `name type sha256` of the elements' little-endian bytes in row-major order.
pub(super) fn write_digest(out: &mut dyn Write, name: &str, a: &Array) -> io::Result<()> {
    writeln!(out, "{name} {} {}", a.ty(), digest(a))
}

/// The SHA-256 of the elements' little-endian bytes in row-major order.
pub(super) fn digest(a: &Array) -> String {
    Sha256::digest(a.bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

//! Tensors as text, and their digests.

use adfuse::backends::Array;
pub(super) use adfuse::backends::write_array;
use sha2::{Digest, Sha256};
use std::io::{self, Write};

/// Writes `name type sha256` of the elements' little-endian bytes in row-major order.
pub(super) fn write_digest(out: &mut dyn Write, name: &str, a: &Array) -> io::Result<()> {
    let digest = Sha256::digest(a.bytes());
    write!(out, "{name} {} ", a.ty())?;
    for byte in digest {
        write!(out, "{byte:02x}")?;
    }
    writeln!(out)
}

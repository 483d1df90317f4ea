//! NumPy files: `.npy` files hold one array, `.npz` files are zip archives of them.
//!
//! Sizes that a file states are bounds, never allocations: memory grows as data arrives, and every sum
//! and product of sizes is checked. Reading ends with an array or an [`NpzError`], whatever the file holds.
//!
//! Read: format versions 1, 2 and 3, both byte orders, both orders of axes; stored and deflated entries,
//! zip64 among them, whose checksums are compared. Written: version 1, little-endian, row-major, stored.
//! NumPy has no `bf16`: it is written as `float32`, which holds each of its values, and read from two-byte
//! void (`V2`), as the package ml_dtypes saves it.

mod archive;
mod error;
mod fields;
mod header;
mod npy;
#[cfg(test)]
mod tests;
mod writer;

pub use archive::Archive;
pub use error::{NpzError, NpzErrorKind};
pub use header::Header;
pub use npy::{numpy_name, read_npy, write_npy};
pub use writer::ArchiveWriter;

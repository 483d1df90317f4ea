//! StableHLO bytecode, the portable form that `jax.export` and others write, as StableHLO text: MLIR's container with
//! the dialect VHLO in it. The text goes the way of any other, so errors and plans point into it.

mod attributes;
mod body;
mod container;
mod decode;
mod elements;
mod export;
mod ops;
mod reader;
mod vhlo;

use adfuse_ir::Diagnostic;
use container::{Container, MAGIC};
use decode::Decoder;

/// The most text that a file becomes: a constant that many instructions share is written by each of them.
fn most_text(bytes: usize) -> usize {
    const LEAST: usize = 1 << 20;
    const MOST: usize = 1 << 30;
    bytes.saturating_mul(256).clamp(LEAST, MOST)
}

/// The bytecode in a file: all of it, or what `jax.export` has wrapped.
fn module(bytes: &[u8]) -> Option<&[u8]> {
    match bytes.starts_with(MAGIC) {
        true => Some(bytes),
        false => export::module(bytes),
    }
}

/// Whether these bytes are StableHLO bytecode.
pub(crate) fn is_bytecode(bytes: &[u8]) -> bool {
    module(bytes).is_some()
}

/// StableHLO bytecode as text.
pub(crate) fn to_text(bytes: &[u8]) -> Result<String, Diagnostic> {
    let bytes = module(bytes).unwrap_or(bytes);
    let container = Container::read(bytes)?;
    let most = most_text(bytes.len());
    body::print(Decoder::new(container, most), most)
}

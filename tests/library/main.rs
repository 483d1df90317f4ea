//! The library for models in Rust: transformations of Rust functions on trees.

mod transforms;

//! StableHLO text: lexer, syntax tree, parser.

mod attributes;
mod instruction;
mod lexer;
mod parser;
pub(crate) mod tree;
mod types;

pub(crate) use parser::parse;

/// Levels of regions, lists and dictionaries inside of each other.
pub(crate) const MOST_NESTED: usize = 64;

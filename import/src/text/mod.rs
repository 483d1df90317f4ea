//! StableHLO text: lexer, syntax tree, parser.

mod attributes;
mod instruction;
mod lexer;
mod locations;
mod parser;
pub(crate) mod tree;
mod types;

pub(crate) use parser::parse;

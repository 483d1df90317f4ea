//! The text form of programs: what is printed parses back to the same. `docs/kernels.md` has the
//! grammar.

mod block;
mod contract;
mod cursor;
mod index;
mod parser;
mod printer;
mod stage;

pub use parser::parse;

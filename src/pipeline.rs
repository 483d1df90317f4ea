//! The way of a program from text to what an engine runs.

pub mod text;

//! Tests that go over the whole op table: a new row is tested by them without a line of its own.

mod cases;
mod closed;
mod derivatives;
mod evaluation;
mod gradients;
mod rewrites;
mod rows;
mod rules;
mod verifier;

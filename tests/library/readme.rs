//! The README shows this program. It is compiled here.

// The program prints what it finds.
#![allow(clippy::print_stdout)]

include!("readme_program.rs");

#[test]
fn the_readme_shows_a_program_that_compiles() {
    let readme = include_str!("../../README.md");
    assert!(readme.contains(&format!("```rust\n{}```", include_str!("readme_program.rs"))));
    let _: fn() -> Result<(), Box<dyn std::error::Error>> = main;
}

//! adfuse as a tool of GradBench: `cargo run --release -p adfuse-examples --example gradbench`.
//!
//! Messages come on standard input and answers go to standard output, one JSON object a line. Modules are
//! written down as their primal functions alone; every derivative is made of them.

mod tool;

use std::io;

fn main() -> io::Result<()> {
    tool::serve(io::stdin().lock(), io::stdout().lock())
}

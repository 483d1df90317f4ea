//! Programs of any size, for benches.

use adfuse::ir::{Function, Module};
use std::fmt::Write;

/// The text of a chain of `n` elementwise instructions and a sum.
pub(crate) fn chain(n: usize) -> String {
    let mut text = String::from("func @chain(%x: f32[8], %y: f32[8]) -> f32[] {\n");
    let mut last = "%x".to_string();
    for i in 0..n {
        let line = match i % 4 {
            0 => format!("tanh {last}"),
            1 => format!("sin {last}"),
            2 => format!("add {last}, %y"),
            _ => format!("mul {last}, %y"),
        };
        writeln!(text, "  %{i} = {line} : f32[8]").expect("writing to a string");
        last = format!("%{i}");
    }
    write!(text, "  %{n} = reduce_sum {last} {{axes = [0]}} : f32[]\n  return %{n}\n}}\n")
        .expect("writing to a string");
    text
}

/// The module's one function.
pub(crate) fn only(module: &Module) -> &Function {
    module.funcs.values().next().expect("one function")
}

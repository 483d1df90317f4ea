//! Programs from text, in whichever form it is: the IR's own, or StableHLO.

use crate::import::{Options, is_stablehlo, stablehlo};
use crate::ir::{Diagnostic, Module, text};

/// Reads a program. What its text begins with says which form it is in. Functions of the IR's own text are not
/// verified yet; imported ones are.
///
/// # Errors
/// All that is wrong with the text, or cannot be imported, with places in it.
pub fn parse(source: &str) -> Result<Module, Vec<Diagnostic>> {
    match is_stablehlo(source) {
        true => {
            stablehlo(source, &Options::default()).map(|i| i.module).map_err(|e| e.diagnostics())
        }
        false => text::parse(source),
    }
}

//! Library functions that programs call by name.

use super::array::Array;
use adfuse_ir::Diagnostic;

/// The functions of libraries that programs call by name.
pub trait LibraryFunctions {
    /// Calls a function; `None` where there is none of this name.
    fn call(&mut self, name: &str, inputs: &[Array]) -> Option<Result<Vec<Array>, Diagnostic>>;
}

/// No functions: a program that calls one is refused when it comes to it.
pub struct NoFunctions;

impl LibraryFunctions for NoFunctions {
    fn call(&mut self, _: &str, _: &[Array]) -> Option<Result<Vec<Array>, Diagnostic>> {
        None
    }
}

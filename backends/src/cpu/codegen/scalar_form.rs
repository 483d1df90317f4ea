//! Scalar programs as machine code computes them: primitives that vectors have, as far as there are such.

use adfuse_ir::scalar::{ScalarProgram, contracted, expand, expand_remainders};

/// A program without functions and without remainders of `f32`. `contract` says whether products may be joined with sums.
pub(crate) fn written(program: &ScalarProgram, contract: bool) -> ScalarProgram {
    expand_remainders(&match contract {
        true => expand(&contracted(program)),
        false => expand(program),
    })
}

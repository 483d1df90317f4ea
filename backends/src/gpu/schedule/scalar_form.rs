//! Scalar programs as a kernel computes them, by floating-point mode.

use adfuse_ir::scalar::{Func, ScalarProgram, contracted, expand, expand_but};
use adfuse_ir::{DType, Fp};

/// Whether a function of this type is written by [`function`], and not as primitives.
pub(crate) fn has(func: Func, dtype: DType) -> bool {
    use Func::{Erf, Exp, Exp2, Logistic, Rsqrt, Tanh};
    dtype == DType::F32 && matches!(func, Exp | Exp2 | Logistic | Tanh | Erf | Rsqrt)
}

/// A program as it is computed: without functions, but for those that the mode takes from the chip, and with
/// products joined to sums where the mode allows it.
pub(crate) fn written(program: &ScalarProgram, fp: Fp) -> ScalarProgram {
    match fp {
        Fp::Strict => expand(program),
        Fp::Reproducible => expand(&contracted(program)),
        Fp::Fast => expand_but(&contracted(program), has),
    }
}

//! Scalar programs as a kernel computes them, by floating-point mode.

use adfuse_ir::scalar::{Func, Prim, SInst, SOp, ScalarProgram, contracted, expand, expand_but};
use adfuse_ir::{DType, Fp};

/// Instructions of a function that the chip has a part of, and of a quotient or a root that is rounded correctly.
const FUNCTION: i64 = 12;
const QUOTIENT: i64 = 16;

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

/// About how many instructions of the chip compute a program once, in this mode.
pub(crate) fn instructions(program: &ScalarProgram, fp: Fp) -> i64 {
    let program = written(program, fp);
    let live = program.live();
    let of = |inst: &SInst| match inst.op {
        SOp::Param(_) | SOp::Const(_) => 0,
        SOp::Func(_) => FUNCTION,
        SOp::Prim(Prim::Div | Prim::Sqrt) if inst.dtype.is_float() && fp != Fp::Fast => QUOTIENT,
        SOp::Prim(_) => 1,
    };
    let all = program.insts.iter().filter(|(v, _)| live[v.as_u32() as usize]);
    all.map(|(_, inst)| of(inst)).sum()
}

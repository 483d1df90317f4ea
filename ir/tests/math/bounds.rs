//! What is promised of each function; `docs/fp.md` quotes this table.

use adfuse_ir::scalar::Func;

/// Bounds on one function.
pub(crate) struct Bound {
    /// The function.
    pub(crate) func: Func,
    /// Largest error in units in the last place, for `f32` and `f64`.
    pub(crate) ulps: [f64; 2],
    /// Largest number of primitives, constants aside, for `f32` and `f64`.
    pub(crate) primitives: [usize; 2],
}

const fn bound(func: Func, ulps: [f64; 2], primitives: [usize; 2]) -> Bound {
    Bound { func, ulps, primitives }
}

/// The bounds, in the order of `Func::ALL`.
pub(crate) const BOUNDS: &[Bound] = &[
    bound(Func::Exp, [2.0, 2.0], [999, 999]),
    bound(Func::Exp2, [2.0, 2.0], [999, 999]),
    bound(Func::Expm1, [2.0, 2.0], [999, 999]),
    bound(Func::Log, [2.0, 2.0], [999, 999]),
    bound(Func::Log1p, [2.0, 2.0], [999, 999]),
    bound(Func::Sin, [2.0, 2.0], [999, 999]),
    bound(Func::Cos, [2.0, 2.0], [999, 999]),
    bound(Func::Tan, [2.0, 2.0], [999, 999]),
    bound(Func::Asin, [2.0, 2.0], [999, 999]),
    bound(Func::Acos, [2.0, 2.0], [999, 999]),
    bound(Func::Atan, [2.0, 2.0], [999, 999]),
    bound(Func::Atan2, [2.0, 2.0], [999, 999]),
    bound(Func::Sinh, [2.0, 2.0], [999, 999]),
    bound(Func::Cosh, [2.0, 2.0], [999, 999]),
    bound(Func::Tanh, [2.0, 2.0], [999, 999]),
    bound(Func::Asinh, [2.0, 2.0], [999, 999]),
    bound(Func::Acosh, [2.0, 2.0], [999, 999]),
    bound(Func::Atanh, [2.0, 2.0], [999, 999]),
    bound(Func::Logistic, [2.0, 2.0], [999, 999]),
    bound(Func::Erf, [2.0, 2.0], [999, 999]),
    bound(Func::Erfc, [2.0, 2.0], [999, 999]),
    bound(Func::Pow, [2.0, 2.0], [999, 999]),
    bound(Func::Cbrt, [2.0, 2.0], [999, 999]),
    bound(Func::Rsqrt, [2.0, 2.0], [999, 999]),
];

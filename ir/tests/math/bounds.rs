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
    bound(Func::Exp, [1.0, 1.0], [21, 26]),
    bound(Func::Exp2, [1.0, 1.0], [20, 25]),
    bound(Func::Expm1, [1.5, 1.5], [22, 28]),
    bound(Func::Log, [1.0, 1.0], [30, 38]),
    bound(Func::Log1p, [1.25, 1.25], [42, 49]),
    bound(Func::Sin, [1.0, 1.0], [46, 122]),
    bound(Func::Cos, [1.0, 1.0], [44, 120]),
    bound(Func::Tan, [0.75, 1.0], [41, 134]),
    bound(Func::Asin, [1.75, 1.75], [19, 26]),
    bound(Func::Acos, [1.25, 1.25], [26, 33]),
    bound(Func::Atan, [1.5, 1.5], [19, 30]),
    bound(Func::Atan2, [1.75, 1.75], [31, 42]),
    bound(Func::Sinh, [1.75, 1.75], [32, 40]),
    bound(Func::Cosh, [1.5, 1.5], [23, 28]),
    bound(Func::Tanh, [2.0, 2.0], [27, 33]),
    bound(Func::Asinh, [1.5, 1.5], [53, 60]),
    bound(Func::Acosh, [2.0, 2.0], [50, 57]),
    bound(Func::Atanh, [1.75, 1.75], [50, 57]),
    bound(Func::Logistic, [1.75, 1.75], [28, 33]),
    bound(Func::Erf, [1.25, 1.25], [34, 54]),
    bound(Func::Erfc, [1.75, 1.75], [82, 107]),
    bound(Func::Pow, [0.75, 1.0], [75, 136]),
    bound(Func::Cbrt, [1.0, 0.75], [40, 45]),
    bound(Func::Rsqrt, [1.5, 1.5], [2, 2]),
    bound(Func::ErfInv, [1.75, 1.75], [56, 99]),
    bound(Func::Lgamma, [0.75, 1.75], [136, 424]),
    bound(Func::Digamma, [0.75, 1.75], [104, 222]),
    bound(Func::Polygamma(1), [0.75, 1.0], [93, 594]),
    bound(Func::Polygamma(2), [0.75, 1.0], [102, 679]),
    bound(Func::Polygamma(3), [0.75, 1.0], [102, 688]),
    bound(Func::Polygamma(4), [0.75, 1.0], [109, 770]),
    bound(Func::Polygamma(5), [0.75, 1.0], [109, 779]),
    bound(Func::Polygamma(6), [0.75, 1.0], [116, 861]),
    bound(Func::Polygamma(7), [0.75, 1.0], [111, 798]),
    bound(Func::Polygamma(8), [0.75, 1.0], [118, 880]),
    bound(Func::Polygamma(9), [0.75, 1.0], [118, 889]),
    bound(Func::Polygamma(10), [0.75, 1.0], [125, 971]),
    bound(Func::Polygamma(11), [0.75, 1.0], [120, 908]),
    bound(Func::Polygamma(12), [0.75, 1.0], [127, 990]),
    bound(Func::Polygamma(13), [0.75, 1.0], [127, 999]),
    bound(Func::Polygamma(14), [0.75, 1.0], [134, 1081]),
    bound(Func::Polygamma(15), [0.75, 1.0], [124, 946]),
    bound(Func::Polygamma(16), [0.75, 1.0], [131, 1028]),
];

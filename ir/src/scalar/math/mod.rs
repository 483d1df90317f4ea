//! The mathematical functions, each written out in scalar primitives.
//!
//! Every function is straight-line: it computes the general case, with as few primitives as its
//! accuracy allows, and puts exceptional results in by selects. Errors are at most 2 ulp; the
//! bounds and the number of primitives of each function are asserted by the crate's tests.
//! Polynomials are minimax fits made for these programs (Remez exchange on a weighted error, the
//! coefficients rounded one after the other, lowest first, and the others fitted again); each
//! states what it approximates, where, and its error, which leaves evaluation aside.

mod cot;
mod digamma;
mod double;
mod erf;
mod erf_inv;
mod exp;
mod float;
mod hyperbolic;
mod inverse_trig;
mod lgamma;
mod log;
mod polygamma;
mod pow;
mod real;
mod reduce;
mod root;
mod trig;

use super::program::Func;
use super::record::S;

pub use super::table::TWO_OVER_PI;
pub use erf::{ERF_32, ERF_TAIL_32};

/// Records the primitives that compute `func` of `args`, which are all `f32` or all `f64`.
pub fn write<'r>(func: Func, args: &[S<'r>]) -> S<'r> {
    let x = args[0];
    match func {
        Func::Exp => exp::exp(x),
        Func::Exp2 => exp::exp2(x),
        Func::Expm1 => exp::expm1(x),
        Func::Log => log::log(x),
        Func::Log1p => log::log1p(x),
        Func::Sin => trig::sin(x),
        Func::Cos => trig::cos(x),
        Func::Tan => trig::tan(x),
        Func::Asin => inverse_trig::asin(x),
        Func::Acos => inverse_trig::acos(x),
        Func::Atan => inverse_trig::atan(x),
        Func::Atan2 => inverse_trig::atan2(x, args[1]),
        Func::Sinh => hyperbolic::sinh(x),
        Func::Cosh => hyperbolic::cosh(x),
        Func::Tanh => hyperbolic::tanh(x),
        Func::Asinh => hyperbolic::asinh(x),
        Func::Acosh => hyperbolic::acosh(x),
        Func::Atanh => hyperbolic::atanh(x),
        Func::Logistic => hyperbolic::logistic(x),
        Func::Erf => erf::erf(x),
        Func::Erfc => erf::erfc(x),
        Func::Pow => pow::pow(x, args[1]),
        Func::Cbrt => root::cbrt(x),
        Func::Rsqrt => root::rsqrt(x),
        Func::ErfInv => erf_inv::erf_inv(x),
        Func::Lgamma => lgamma::lgamma(x),
        Func::Digamma => digamma::digamma(x),
        Func::Polygamma(n) => polygamma::polygamma(x, n),
    }
}

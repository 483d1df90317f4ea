//! What the functions should give: in `f64` for `f32`, in 192 bits and more for `f64`.

use crate::gamma::{self, Gamma};
use adfuse_ir::scalar::Func;
use astro_float_num::{BigFloat, Consts, RoundingMode, Sign};

/// Bits of the significand of a reference for `f64`: a function whose result cancels against one
/// (such as `expm1` of 2^-60) still has more than a hundred bits left.
const PRECISION: usize = 256;
pub(crate) const RM: RoundingMode = RoundingMode::ToEven;

/// The value of `func` in `f64`, good to about 2^-46, for operands that are `f32` numbers.
pub(crate) fn in_f64(func: Func, x: f64, y: f64) -> f64 {
    match func {
        Func::Exp => x.exp(),
        Func::Exp2 => x.exp2(),
        Func::Expm1 => x.exp_m1(),
        Func::Log => x.ln(),
        Func::Log1p => x.ln_1p(),
        Func::Sin => x.sin(),
        Func::Cos => x.cos(),
        Func::Tan => x.tan(),
        Func::Asin => x.asin(),
        Func::Acos => x.acos(),
        Func::Atan => x.atan(),
        Func::Atan2 => x.atan2(y),
        Func::Sinh => x.sinh(),
        Func::Cosh => x.cosh(),
        Func::Tanh => x.tanh(),
        Func::Asinh => x.asinh(),
        Func::Acosh if x < 1.0 => f64::NAN,
        Func::Acosh => {
            let t = x - 1.0;
            (t + (t * (t + 2.0)).sqrt()).ln_1p()
        }
        Func::Atanh => x.atanh(),
        Func::Logistic => 1.0 / (1.0 + (-x).exp()),
        Func::Erf if x.abs() < 2.0 => erf_series(x),
        Func::Erf => (1.0 - erfc_fraction(x.abs())).copysign(x),
        Func::Erfc if x.abs() < 2.0 => 1.0 - erf_series(x),
        Func::Erfc if x < 0.0 => 2.0 - erfc_fraction(-x),
        Func::Erfc => erfc_fraction(x),
        Func::Pow => x.powf(y),
        Func::Cbrt => x.cbrt(),
        Func::Rsqrt => 1.0 / x.sqrt(),
        Func::ErfInv => erf_inv(x),
        Func::Lgamma => gamma::lgamma(x),
        Func::Digamma => gamma::digamma(x),
        Func::Polygamma(n) => gamma::polygamma(n, x),
    }
}

/// By Newton's method on erf, or on erfc where erf is nearly 1.
fn erf_inv(x: f64) -> f64 {
    if x == 0.0 || x.abs() > 1.0 || x.is_nan() {
        return if x == 0.0 { x } else { f64::NAN };
    }
    let a = x.abs();
    if a == 1.0 {
        return x * f64::INFINITY;
    }
    let mut y = (-(-a * a).ln_1p()).sqrt() * 0.886;
    for _ in 0..60 {
        let over = if y < 2.0 { erf_series(y) - a } else { (1.0 - a) - erfc_fraction(y) };
        let step = over * (y * y).exp() / std::f64::consts::FRAC_2_SQRT_PI;
        // Halley's third-order term keeps far starts from leaping.
        y -= step / (1.0 + y * step).max(0.5);
    }
    y.copysign(x)
}

/// erf x = 2/sqrt(pi) e^(-x^2) sum of 2^k x^(2k+1) / (2k+1)!!, DLMF 7.6.2: no cancellation.
fn erf_series(x: f64) -> f64 {
    let (mut term, mut sum, mut k) = (x, x, 1.0);
    while term.abs() > 1e-18 * sum.abs() {
        k += 2.0;
        term *= 2.0 * x * x / k;
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// erfc x by its continued fraction, DLMF 7.9.1, from a depth that is enough for x >= 2.
fn erfc_fraction(x: f64) -> f64 {
    let mut d = x;
    for k in (1..120).rev() {
        d = x + 0.5 * f64::from(k) / d;
    }
    if x.is_nan() { x } else { (-x * x).exp() * 0.5 * std::f64::consts::FRAC_2_SQRT_PI / d }
}

/// A number whose size counts beside the function's where it crosses zero between two poles: left of
/// zero the gamma family is the difference of two terms, one of them its value at 1 - x.
pub(crate) fn beside(func: Func, x: f64) -> f64 {
    match func {
        Func::Lgamma | Func::Digamma | Func::Polygamma(_) if x < 0.0 => in_f64(func, 1.0 - x, 0.0),
        _ => 0.0,
    }
}

/// Computes references for `f64`; keeps the constants that its arithmetic library computes.
pub(crate) struct Exact {
    consts: Consts,
    gamma: Gamma,
}

impl Exact {
    pub(crate) fn new() -> Exact {
        Exact {
            consts: Consts::new().expect("constants of the reference arithmetic"),
            gamma: Gamma::new(),
        }
    }

    /// The value of `func` at finite operands inside its domain.
    pub(crate) fn value(&mut self, func: Func, x: f64, y: f64) -> BigFloat {
        // Enough bits that reducing a large angle leaves PRECISION of them.
        let exponent = x.abs().max(1.0).log2() as usize;
        let p = match func {
            Func::Sin | Func::Cos | Func::Tan => PRECISION + exponent,
            // 1 + tiny has to keep the tiny part.
            Func::Log1p | Func::Asinh | Func::Expm1 | Func::Atanh | Func::Acosh => {
                PRECISION
                    + 2 * (-(x.abs().max(f64::MIN_POSITIVE).log2())).clamp(0.0, 1100.0) as usize
            }
            _ => PRECISION,
        };
        let big = |v: f64| big(v, p);
        let (b, one) = (big(x), big(1.0));
        let c = &mut self.consts;
        match func {
            Func::Exp => b.exp(p, RM, c),
            Func::Exp2 => big(2.0).pow(&b, p, RM, c),
            Func::Expm1 if x.abs() < 1e-100 => b,
            Func::Expm1 => b.exp(p, RM, c).sub(&one, p, RM),
            Func::Log => b.ln(p, RM, c),
            Func::Log1p if x.abs() < 1e-100 => b,
            Func::Log1p => b.add_full_prec(&one).ln(p, RM, c),
            Func::Sin => b.sin(p, RM, c),
            Func::Cos => b.cos(p, RM, c),
            Func::Tan => b.tan(p, RM, c),
            Func::Asin => b.asin(p, RM, c),
            Func::Acos => b.acos(p, RM, c),
            Func::Atan => b.atan(p, RM, c),
            Func::Atan2 => {
                let pi = c.pi(p, RM);
                let divisor = big(y);
                let angle = b.div(&divisor, p, RM).atan(p, RM, c);
                match (y < 0.0, x < 0.0) {
                    (false, _) => angle,
                    (true, false) => angle.add(&pi, p, RM),
                    (true, true) => angle.sub(&pi, p, RM),
                }
            }
            // sinh x = (E + E / (E + 1)) / 2 with E = e^x - 1 would need care; enough bits do not.
            Func::Sinh => b.sinh(p, RM, c),
            Func::Cosh => b.cosh(p, RM, c),
            Func::Tanh => b.tanh(p, RM, c),
            Func::Asinh => b.asinh(p, RM, c),
            Func::Acosh => b.acosh(p, RM, c),
            Func::Atanh => b.atanh(p, RM, c),
            Func::Logistic => {
                let e = b.neg().exp(p, RM, c);
                one.div(&one.add(&e, p, RM), p, RM)
            }
            Func::Erf if x.abs() < 3.0 => erf_series_exact(&b, p, c),
            Func::Erf => {
                let y = one.sub(&erfc_fraction_exact(&b.abs(), p, c), p, RM);
                if x < 0.0 { y.neg() } else { y }
            }
            Func::Erfc if x.abs() < 3.0 => one.sub(&erf_series_exact(&b, p, c), p, RM),
            Func::Erfc if x < 0.0 => big(2.0).sub(&erfc_fraction_exact(&b.neg(), p, c), p, RM),
            Func::Erfc => erfc_fraction_exact(&b, p, c),
            Func::Pow => {
                let magnitude = b.abs().ln(p, RM, c).mul(&big(y), p, RM).exp(p, RM, c);
                let odd = y.trunc() == y && (y / 2.0).trunc() != y / 2.0;
                if x < 0.0 && odd { magnitude.neg() } else { magnitude }
            }
            Func::Cbrt => b.cbrt(p, RM),
            Func::Rsqrt => one.div(&b.sqrt(p, RM), p, RM),
            Func::ErfInv => erf_inv_exact(x, p, c),
            Func::Lgamma | Func::Digamma | Func::Polygamma(_) => self.gamma.value(func, x, p, c),
        }
    }
}

/// As [`erf_inv`], whose result three more steps refine.
fn erf_inv_exact(x: f64, p: usize, c: &mut Consts) -> BigFloat {
    let one = big(1.0, p);
    let mut y = big(erf_inv(x.abs()), p);
    let scale = c.pi(p, RM).sqrt(p, RM).div(&big(2.0, p), p, RM);
    for _ in 0..3 {
        let over = if y < big(3.0, p) {
            erf_series_exact(&y, p, c).sub(&big(x.abs(), p), p, RM)
        } else {
            one.sub(&big(x.abs(), p), p, RM).sub(&erfc_fraction_exact(&y, p, c), p, RM)
        };
        let slope = y.mul(&y, p, RM).exp(p, RM, c).mul(&scale, p, RM);
        y = y.sub(&over.mul(&slope, p, RM), p, RM);
    }
    if x < 0.0 { y.neg() } else { y }
}

/// `v` exactly. The library takes subnormal numbers for others.
pub(crate) fn big(v: f64, p: usize) -> BigFloat {
    let mut b = BigFloat::from_f64(v, p);
    if v.is_subnormal() {
        b = BigFloat::from_f64(v * 64f64.exp2(), p);
        if let Some(e) = b.exponent() {
            b.set_exponent(e - 64);
        }
    }
    b
}

/// As [`erf_series`].
fn erf_series_exact(x: &BigFloat, p: usize, c: &mut Consts) -> BigFloat {
    let square = x.mul(x, p, RM);
    let (mut term, mut sum) = (x.clone(), x.clone());
    for k in 1..400u32 {
        let odd = BigFloat::from_u32(2 * k + 1, p);
        term = term.mul(&square, p, RM).mul(&BigFloat::from_u32(2, p), p, RM).div(&odd, p, RM);
        sum = sum.add(&term, p, RM);
        let (Some(t), Some(s)) = (term.exponent(), sum.exponent()) else { break };
        if t < s - p as i32 {
            break;
        }
    }
    let scale = BigFloat::from_u32(2, p).div(&c.pi(p, RM).sqrt(p, RM), p, RM);
    square.neg().exp(p, RM, c).mul(&scale, p, RM).mul(&sum, p, RM)
}

/// As [`erfc_fraction`], for x >= 3: the error falls like e^(-2 x sqrt(2 depth)).
fn erfc_fraction_exact(x: &BigFloat, p: usize, c: &mut Consts) -> BigFloat {
    let half = big(0.5, p);
    let mut d = x.clone();
    for k in (1..150u32).rev() {
        d = x.add(&BigFloat::from_u32(k, p).mul(&half, p, RM).div(&d, p, RM), p, RM);
    }
    let e = x.mul(x, p, RM).neg().exp(p, RM, c);
    e.div(&c.pi(p, RM).sqrt(p, RM).mul(&d, p, RM), p, RM)
}

/// |got - exact| in units of the last place that an `f32` result near `exact` has.
pub(crate) fn ulps_f32(got: f32, exact: f64, beside: f64) -> f64 {
    let over = 128f64.exp2();
    match (got.is_nan(), exact.is_nan()) {
        (true, true) => return 0.0,
        (false, false) => {}
        _ => return f64::INFINITY,
    }
    if exact.abs() >= over {
        return if f64::from(got) == over.copysign(exact) * f64::INFINITY {
            0.0
        } else {
            f64::INFINITY
        };
    }
    let got = if got.is_infinite() { over.copysign(got.into()) } else { got.into() };
    let larger = exact.abs().max(beside.abs());
    let exponent = (larger.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    (got - exact).abs() / f64::from(exponent.max(-126) - 23).exp2()
}

/// |got - exact| in units of the last place that an `f64` result near `exact` has.
pub(crate) fn ulps_f64(got: f64, exact: &BigFloat, beside: f64) -> f64 {
    if got.is_nan() || exact.is_nan() {
        return if got.is_nan() && exact.is_nan() { 0.0 } else { f64::INFINITY };
    }
    // Exponents of the library: 1 is 0.1b * 2^1.
    let exponent = exact.exponent().unwrap_or(-1_000_000);
    let sign = if exact.sign() == Some(Sign::Neg) { -1.0 } else { 1.0 };
    if exact.is_inf() || exponent > 1024 {
        return if got == sign * f64::INFINITY { 0.0 } else { f64::INFINITY };
    }
    let p = PRECISION;
    let got = if got.is_infinite() {
        // The next number that a wider exponent would have.
        big(1023f64.exp2().copysign(got), p).mul(&big(2.0, p), p, RM)
    } else {
        big(got, p)
    };
    let difference = got.sub(exact, p, RM);
    let Some((words, _, _, e, _)) = difference.as_raw_parts() else { return f64::INFINITY };
    let top = words.last().copied().unwrap_or(0) as f64 * (-64f64).exp2();
    let beside = (beside.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    let ulp = (exponent - 1).max(beside).max(-1022) - 52;
    top * f64::from((e - ulp).clamp(-1000, 1000)).exp2()
}

//! The derivatives of digamma, each order a program of its own: psi_n(x) = (-1)^(n+1) n! zeta(s, x)
//! with s = n + 1 (DLMF 5.15.1).
//!
//! Hurwitz' zeta is the sum of (x + k)^-s over the first few k, and the rest by Euler and Maclaurin's
//! formula (DLMF 25.11.28), all of it relative to x^-s: the terms are powers of x / (x + k), which
//! neither overflow nor vanish too early. Below -1/4, before terms of both signs cancel, it is
//! psi_n(x) = (-1)^n psi_n(1 - x) - pi d^n/dx^n cot(pi x) (DLMF 5.15.6), a polynomial in the
//! cotangent with positive coefficients.

use super::cot::{COT_32, COT_64, pi_cot};
use super::double::Double;
use super::exp::scale;
use super::float::{float, is_f32, poly};
use super::real::Real;
use crate::dtype::DType;
use crate::scalar::record::S;

/// The derivative of digamma of order `n >= 1`; at the poles +inf for odd orders, NaN for even ones.
pub(super) fn polygamma<'r>(x: S<'r>, n: u8) -> S<'r> {
    if is_f32(x) {
        // Of the sum an error of 2^-30.4 is left.
        let fits = PolygammaFits { terms: 4, corrections: 6, cot: &COT_32 };
        in_f64::<S<'r>>(x.convert(DType::F64), n.into(), &fits).convert(DType::F32)
    } else {
        // 2^-57.7
        let fits = PolygammaFits { terms: 8, corrections: 10, cot: &COT_64 };
        in_f64::<Double<'r>>(x, n.into(), &fits)
    }
}

/// What one format needs.
struct PolygammaFits {
    /// How many terms of the zeta function are summed as they are ..
    terms: u32,
    /// .. and how many corrections the rest of them takes.
    corrections: usize,
    cot: &'static [f64],
}

fn in_f64<'r, R: Real<'r>>(x: S<'r>, n: u32, fits: &PolygammaFits) -> S<'r> {
    let odd = n % 2 == 1;
    let left = x.lt(-0.25);
    let base = R::select(left, R::sum(x.lit(1.0), -x), R::of(x));
    let zeta = zeta(base, n, fits);
    // Odd orders are positive right of zero, even ones negative.
    let right = if odd { zeta } else { -zeta };
    // The whole order's terms at all integers; those of 1 - x are what x does not have.
    let r = x - x.round_even();
    let all = cot_derivative::<R>(r, n, fits.cot);
    let all = if odd { all } else { -all };
    let reflected = (all + R::of(-zeta)).value();
    let y = left.select(reflected, right);
    let pole = r.eq(0.0) & x.le(0.0);
    let y = pole.select(x.lit(if odd { f64::INFINITY } else { f64::NAN }), y);
    let end = x.lit(if odd { 0.0 } else { -0.0 });
    x.eq(f64::INFINITY).select(end, y)
}

/// n! zeta(n + 1, b) for b >= -1/4 that is not zero.
fn zeta<'r, R: Real<'r>>(b: R, n: u32, fits: &PolygammaFits) -> S<'r> {
    let format = float(b.head());
    let s = n + 1;
    // Far beyond where higher orders vanish: from here on n! and the sum would not fit.
    let far = 600f64.exp2();
    let b =
        if n == 1 { b } else { R::select(b.head().gt(far), R::constant(b.head(), far, 0.0), b) };
    let like = b.head();
    let number = |v: f64| R::constant(like, v, 0.0);

    // The sum over (b / (b + k))^s.
    let mut sum = number(1.0);
    for k in 1..fits.terms {
        sum = sum + b.over(b + number(k.into())).power(s);
    }
    // The rest over q^-s: q/n + 1/2 + sum over j of B(2j)/(2j)! s (s + 1) .. (s + 2j - 2) q^(1 - 2j).
    let q = b + number(fits.terms.into());
    let inverse = 1.0 / q.head();
    let small = inverse * poly(inverse * inverse, &corrections(s)[..fits.corrections]);
    let (hi, lo) = quotient(1.0, n.into());
    let rest = q * R::constant(like, hi, lo) + R::sum(like.lit(0.5), small);
    let sum = sum + b.over(q).power(s) * rest;

    // n! b^-s with b = m 2^e.
    let bits = like.abs().bitcast(format.int);
    let field = bits.shr_l(format.fraction);
    let lower = format.power(like.bits(format.int, 2 * format.bias as u64) - field);
    let m =
        (bits & format.mask() | like.bits(format.int, format.one() as u64)).bitcast(format.dtype);
    let sign = like.lit(1.0).copysign(like);
    let m = match b.tail() {
        Some(tail) => R::sum(m * sign, tail * lower),
        None => R::of(m * sign),
    };
    let factorial: f64 = (1..=n).map(f64::from).product();
    let y = number(1.0).over(m).power(s) * sum * number(factorial);
    let whole = 52f64.exp2();
    let e = (field | like.lit(whole).bitcast(format.int)).bitcast(format.dtype)
        - (whole + format.bias as f64);
    let n = (e * -f64::from(s)).max(-2046.0).min(2045.0);
    let k = (n + (format.magic + (2 * format.bias) as f64)).bitcast(format.int);
    scale(y.value(), k)
}

/// (-1)^n pi d^n/dx^n cot(pi x) at a distance of r from an integer.
fn cot_derivative<'r, R: Real<'r>>(r: S<'r>, n: u32, fit: &[f64]) -> R {
    let c = pi_cot::<R>(r, fit) * R::constant(r, std::f64::consts::FRAC_1_PI, INVERSE_PI_TAIL);
    let square = c * c;
    // All powers of c are even, or all odd.
    let coefficients = cot_polynomial(n);
    let first = usize::from(n.is_multiple_of(2));
    let mut powers = coefficients.iter().skip(first).step_by(2).rev();
    let mut y = integer::<R>(r, powers.next().copied().unwrap_or(0));
    for &p in powers {
        y = y * square + integer::<R>(r, p);
    }
    let y = if first == 1 { y * c } else { y };
    let mut pi = PI;
    for _ in 0..n {
        pi = product(pi, PI);
    }
    y * R::constant(r, pi.0, pi.1)
}

/// The coefficients of P(n), lowest first, where P(0) = c and P(n + 1) = (1 + c^2) P(n)':
/// d^n/dx^n cot x = (-1)^n P(n)(cot x).
fn cot_polynomial(n: u32) -> Vec<u128> {
    let mut p = vec![0, 1];
    for _ in 0..n {
        let mut next = vec![0; p.len() + 1];
        for (k, &c) in (0u128..).zip(&p).skip(1) {
            let at = k as usize - 1;
            next[at] += k * c;
            next[at + 2] += k * c;
        }
        p = next;
    }
    p
}

/// A whole number below 2^106 in two words.
fn integer<'r, R: Real<'r>>(like: S<'r>, v: u128) -> R {
    let hi = v as f64;
    R::constant(like, hi, (v as i128 - hi as i128) as f64)
}

/// B(2j) / (2j)! s (s + 1) .. (s + 2j - 2) for j from 1 to 10, where B(2j) / (2j)! = (-1)^(j+1) 2
/// zeta(2j) / (2 pi)^(2j).
fn corrections(s: u32) -> [f64; 10] {
    let mut rising = f64::from(s);
    let mut next = s + 1;
    BERNOULLI.map(|b| {
        let c = b * rising;
        rising *= f64::from(next) * f64::from(next + 1);
        next += 2;
        c
    })
}

/// `a / b` in two words.
fn quotient(a: f64, b: f64) -> (f64, f64) {
    let hi = a / b;
    (hi, (-hi).mul_add(b, a) / b)
}

/// The product of two numbers of two words.
fn product(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    let hi = a.0 * b.0;
    let low = a.0.mul_add(b.0, -hi) + (a.0 * b.1 + a.1 * b.0);
    let sum = hi + low;
    (sum, low - (sum - hi))
}

/// 1 / pi minus the f64 nearest to it.
const INVERSE_PI_TAIL: f64 = -1.9678676675182486e-17;

/// pi in two words.
const PI: (f64, f64) = (std::f64::consts::PI, 1.2246467991473532e-16);

/// B(2j) / (2j)! for j from 1 on.
const BERNOULLI: [f64; 10] = [
    1.0 / 12.0,
    -1.0 / 720.0,
    1.0 / 30_240.0,
    -1.0 / 1_209_600.0,
    1.0 / 47_900_160.0,
    -691.0 / 1_307_674_368_000.0,
    1.0 / 74_724_249_600.0,
    -3617.0 / 10_670_622_842_880_000.0,
    43_867.0 / 5_109_094_217_170_944_000.0,
    -174_611.0 / 802_857_662_698_291_200_000.0,
];

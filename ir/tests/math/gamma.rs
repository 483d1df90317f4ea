//! References for the gamma family: lgamma, digamma and its derivatives, in `f64` and in many bits.
//!
//! They share nothing with the functions under test but the definitions: power series at 2 (DLMF
//! 5.7.3, 5.7.4) or recurrences up to 40 and asymptotic series there, and to the left of zero sums
//! over all integers instead of the cotangent's polynomials.

use crate::reference::{RM, big};
use adfuse_ir::scalar::Func;
use astro_float_num::{BigFloat, Consts};
use std::f64::consts::PI;

/// Euler's constant.
const GAMMA: f64 = 0.577_215_664_901_532_9;

/// log |gamma(x)| in `f64`.
pub(crate) fn lgamma(x: f64) -> f64 {
    if x.is_infinite() || x <= 0.0 && x == x.trunc() {
        return f64::INFINITY;
    }
    if x < -0.5 {
        let r = x - x.round();
        return (PI / (x * (PI * r).sin()).abs()).ln() - lgamma(-x);
    }
    if x < 0.5 {
        return lgamma(x + 1.0) - x.abs().ln();
    }
    if x < 1.5 {
        return lgamma_series(x - 1.0) - (x - 1.0).ln_1p();
    }
    if x < 2.5 {
        return lgamma_series(x - 2.0);
    }
    let shifts = (20.0 - x).max(0.0).ceil();
    let product: f64 = (0..shifts as u32).map(|k| x + f64::from(k)).product();
    let q = x + shifts;
    let z = 1.0 / (q * q);
    let tail = (1.0 / 12.0 - z * (1.0 / 360.0 - z * (1.0 / 1260.0 - z / 1680.0))) / q;
    (q - 0.5) * (q.ln() - 1.0) + ((2.0 * PI).ln() - 1.0) / 2.0 + tail - product.ln()
}

/// lgamma(2 + u) for |u| <= 1/2.
fn lgamma_series(u: f64) -> f64 {
    let (mut sum, mut power) = (0.0, 1.0);
    let mut terms = vec![u * (1.0 - GAMMA)];
    for k in 2..60 {
        power *= -u;
        terms.push(-power * u * zeta_minus_one(k) / f64::from(k));
    }
    for t in terms.iter().rev() {
        sum += t;
    }
    sum
}

fn zeta_minus_one(k: i32) -> f64 {
    // The rest of the sum, by Euler and Maclaurin.
    (2..12).rev().map(|n| f64::from(n).powi(-k)).sum::<f64>() + hurwitz_rest(f64::from(k), 12.0)
}

/// The sum of (q + j)^-s over j >= 0 for q of 10 and more.
fn hurwitz_rest(s: f64, q: f64) -> f64 {
    let mut rising = s;
    let mut sum = q / (s - 1.0) + 0.5;
    let coefficients = [12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1892437580.318379];
    for (j, c) in (0..).map(f64::from).zip(coefficients) {
        sum += rising / c * q.powf(-2.0 * j - 1.0);
        rising *= (s + 2.0 * j + 1.0) * (s + 2.0 * j + 2.0);
    }
    sum * q.powf(-s)
}

/// The sum of (x + j)^-s over j >= 0, for x above -1.
fn hurwitz(s: i32, x: f64) -> f64 {
    let terms = (0..24).rev().map(|k| (x + f64::from(k)).powi(-s)).sum::<f64>();
    // Powers of a reciprocal go to zero where those of the number itself overflow.
    let rest = hurwitz_rest(f64::from(s), x + 24.0);
    if x > 1e12 { (1.0 / x).powi(s - 1) / f64::from(s - 1) } else { terms + rest }
}

/// The derivative of lgamma in `f64`.
pub(crate) fn digamma(x: f64) -> f64 {
    if x.is_nan() || x <= 0.0 && x == x.trunc() {
        return f64::NAN;
    }
    if x < 0.0 {
        let r = x - x.round();
        return digamma(1.0 - x) - PI * (PI * r).cos() / (PI * r).sin();
    }
    if x < 0.5 {
        return digamma(x + 1.0) - 1.0 / x;
    }
    if x < 1.5 {
        return digamma_series(x - 1.0) - 1.0 / x;
    }
    if x < 2.5 {
        return digamma_series(x - 2.0);
    }
    let shifts = (20.0 - x).max(0.0).ceil();
    let inverses: f64 = (0..shifts as u32).map(|k| 1.0 / (x + f64::from(k))).sum();
    let q = x + shifts;
    let z = 1.0 / (q * q);
    let tail = z * (1.0 / 12.0 - z * (1.0 / 120.0 - z * (1.0 / 252.0 - z / 240.0)));
    q.ln() - 0.5 / q - tail - inverses
}

/// digamma(2 + u) for |u| <= 1/2.
fn digamma_series(u: f64) -> f64 {
    let mut sum = 0.0;
    for k in (2..60).rev() {
        sum = zeta_minus_one(k) - u * sum;
    }
    1.0 - GAMMA + u * sum
}

/// The derivative of digamma of order n in `f64`.
pub(crate) fn polygamma(n: u8, x: f64) -> f64 {
    let s = i32::from(n) + 1;
    let odd = n % 2 == 1;
    if x.is_nan() || x == f64::NEG_INFINITY {
        return f64::NAN;
    }
    if x <= 0.0 && x == x.trunc() {
        return if odd { f64::INFINITY } else { f64::NAN };
    }
    let factorial: f64 = (1..s).map(f64::from).product();
    let sum = if x < -0.5 {
        let r = x - x.round();
        let left = hurwitz(s, 1.0 - r) - hurwitz(s, 1.0 - x);
        let all = r.powi(-s) + hurwitz(s, 1.0 + r);
        match odd {
            true => all + left,
            // The halves of the sum over all integers cancel.
            false if r.abs() == 0.5 => hurwitz(s, 1.0 - x),
            false => all - left,
        }
    } else {
        hurwitz(s, x)
    };
    factorial * if odd { sum } else { -sum }
}

/// References in many bits, with the numbers that all of them need.
pub(crate) struct Gamma {
    /// B(2j) / (2j)! for j from 1 on.
    bernoulli: Vec<BigFloat>,
}

/// From here on the asymptotic series give 2^-256 and less.
const FAR: f64 = 48.0;

impl Gamma {
    pub(crate) fn new() -> Gamma {
        // b(m) = B(m) / m!: the sum of b(k) / (m + 1 - k)! over k <= m is 0 for m >= 1.
        let p = 768;
        let mut inverse_factorials = vec![big(1.0, p)];
        for k in 1..100u32 {
            let last = &inverse_factorials[k as usize - 1];
            inverse_factorials.push(last.div(&BigFloat::from_u32(k, p), p, RM));
        }
        let mut b = vec![big(1.0, p)];
        for m in 1..92 {
            let mut sum = big(0.0, p);
            for (k, bk) in b.iter().enumerate() {
                sum = sum.add(&bk.mul(&inverse_factorials[m + 1 - k], p, RM), p, RM);
            }
            b.push(sum.neg());
        }
        Gamma { bernoulli: b.into_iter().skip(2).step_by(2).collect() }
    }

    /// The value of a function of the family at `x` that is no pole.
    pub(crate) fn value(&self, func: Func, x: f64, p: usize, c: &mut Consts) -> BigFloat {
        let b = big(x, p);
        match func {
            Func::Lgamma if x < 0.0 => {
                let pi = c.pi(p, RM);
                let sine = big(x - x.round(), p).mul(&pi, p, RM).sin(p, RM, c);
                let quotient = pi.div(&sine.mul(&b, p, RM).abs(), p, RM);
                quotient.ln(p, RM, c).sub(&self.lgamma(&b.neg(), p, c), p, RM)
            }
            Func::Lgamma => self.lgamma(&b, p, c),
            Func::Digamma if x < 0.0 => {
                let pi = c.pi(p, RM);
                let angle = big(x - x.round(), p).mul(&pi, p, RM);
                let (sine, cosine) = (angle.sin(p, RM, c), angle.cos(p, RM, c));
                let cot = pi.mul(&cosine, p, RM).div(&sine, p, RM);
                self.digamma(&big(1.0, p).sub(&b, p, RM), p, c).sub(&cot, p, RM)
            }
            Func::Digamma => self.digamma(&b, p, c),
            Func::Polygamma(n) => self.polygamma(n, x, p),
            _ => unreachable!("{} is not of the family", func.name()),
        }
    }

    /// x moved up to where the series hold, and the numbers on the way.
    fn moved(x: &BigFloat, p: usize) -> (BigFloat, Vec<BigFloat>) {
        let (mut q, mut passed) = (x.clone(), Vec::new());
        while q < big(FAR, p) {
            passed.push(q.clone());
            q = q.add(&big(1.0, p), p, RM);
        }
        (q, passed)
    }

    fn lgamma(&self, x: &BigFloat, p: usize, c: &mut Consts) -> BigFloat {
        let (q, passed) = Gamma::moved(x, p);
        let product = passed.iter().fold(big(1.0, p), |y, v| y.mul(v, p, RM));
        let half = big(0.5, p);
        let head = q.sub(&half, p, RM).mul(&q.ln(p, RM, c), p, RM).sub(&q, p, RM);
        let circle = c.pi(p, RM).mul(&big(2.0, p), p, RM).ln(p, RM, c).mul(&half, p, RM);
        // B(2j) / (2j (2j - 1)) = (B(2j) / (2j)!) (2j - 2)!
        let tail =
            self.series(&q, p, |j| ((2 * j).max(1) * (2 * j).saturating_sub(1).max(1)) as f64);
        let tail = tail.div(&q, p, RM);
        head.add(&circle, p, RM).add(&tail, p, RM).sub(&product.ln(p, RM, c), p, RM)
    }

    fn digamma(&self, x: &BigFloat, p: usize, c: &mut Consts) -> BigFloat {
        let (q, passed) = Gamma::moved(x, p);
        let one = big(1.0, p);
        let inverses = passed.iter().fold(big(0.0, p), |y, v| y.add(&one.div(v, p, RM), p, RM));
        // B(2j) / (2j) = (B(2j) / (2j)!) (2j - 1)!
        let tail = self.series(&q, p, |j| ((2 * j + 1) * (2 * j).max(1)) as f64);
        let tail = tail.div(&q.mul(&q, p, RM), p, RM);
        let half = big(0.5, p).div(&q, p, RM);
        q.ln(p, RM, c).sub(&half, p, RM).sub(&tail, p, RM).sub(&inverses, p, RM)
    }

    /// The sum of bernoulli[j] f(0) f(1) .. f(j) q^(-2j).
    fn series(&self, q: &BigFloat, p: usize, f: impl Fn(usize) -> f64) -> BigFloat {
        let inverse = big(1.0, p).div(&q.mul(q, p, RM), p, RM);
        let (mut sum, mut factor) = (big(0.0, p), big(1.0, p));
        for (j, b) in self.bernoulli.iter().enumerate() {
            factor = factor.mul(&big(f(j), p), p, RM);
            sum = sum.add(&b.mul(&factor, p, RM), p, RM);
            factor = factor.mul(&inverse, p, RM);
        }
        sum
    }

    fn polygamma(&self, n: u8, x: f64, p: usize) -> BigFloat {
        let s = usize::from(n) + 1;
        let odd = n % 2 == 1;
        let (one, b) = (big(1.0, p), big(x, p));
        let sum = if x < 0.0 {
            let r = big(x - x.round(), p);
            let left = self.hurwitz(s, &one.sub(&r, p, RM), p);
            let left = left.sub(&self.hurwitz(s, &one.sub(&b, p, RM), p), p, RM);
            let right = one.div(&r.powi(s, p, RM), p, RM);
            let right = right.add(&self.hurwitz(s, &one.add(&r, p, RM), p), p, RM);
            if odd { right.add(&left, p, RM) } else { right.sub(&left, p, RM) }
        } else {
            self.hurwitz(s, &b, p)
        };
        let factorial: f64 = (1..s).map(|k| k as f64).product();
        let y = sum.mul(&big(factorial, p), p, RM);
        if odd { y } else { y.neg() }
    }

    /// The sum of (x + j)^-s over j >= 0.
    fn hurwitz(&self, s: usize, x: &BigFloat, p: usize) -> BigFloat {
        let (q, passed) = Gamma::moved(x, p);
        let one = big(1.0, p);
        let power = |v: &BigFloat| one.div(&v.powi(s, p, RM), p, RM);
        let terms = passed.iter().fold(big(0.0, p), |y, v| y.add(&power(v), p, RM));
        let tail = self.series(&q, p, |j| match j {
            0 => s as f64,
            _ => ((s + 2 * j - 1) * (s + 2 * j)) as f64,
        });
        let head = q.div(&big((s - 1) as f64, p), p, RM).add(&big(0.5, p), p, RM);
        let rest = head.add(&tail.div(&q, p, RM), p, RM).mul(&power(&q), p, RM);
        terms.add(&rest, p, RM)
    }
}

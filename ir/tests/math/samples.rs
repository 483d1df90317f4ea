//! Where the functions are tried.

use adfuse_ir::scalar::Func;

/// A small generator of bits (SplitMix64), the same on every run.
pub(crate) struct Bits(pub(crate) u64);

impl Bits {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform between `a` and `b`.
    pub(crate) fn within(&mut self, a: f64, b: f64) -> f64 {
        a + (b - a) * ((self.next() >> 11) as f64 * (-53f64).exp2())
    }

    /// Any sign, any exponent between the two, subnormals included, any fraction.
    pub(crate) fn stratified(&mut self, low: i64, high: i64) -> f64 {
        let span = (high - low + 1) as u64;
        let field = (low + (self.next() % span) as i64 + 1023).max(0) as u64;
        let bits = self.next();
        f64::from_bits(bits & 0x800f_ffff_ffff_ffff | field << 52)
    }
}

/// Intervals in which a function's value or its algorithm changes character, to be sampled evenly:
/// those of `f32` lie within those of `f64`.
pub(crate) fn intervals(func: Func) -> &'static [(f64, f64)] {
    match func {
        Func::Exp => {
            &[(-1.0, 1.0), (-104.0, -86.0), (86.0, 89.0), (-746.0, 710.0), (-746.0, -707.0)]
        }
        Func::Exp2 => &[(-1.0, 1.0), (-151.0, 128.5), (-1076.0, 1024.5), (-1076.0, -1020.0)],
        Func::Expm1 => &[(-0.5, 0.5), (-2.0, 2.0), (-40.0, 40.0), (80.0, 89.0), (700.0, 710.0)],
        Func::Log => &[(0.0, 2.0), (0.7, 0.72), (0.99, 1.01), (1.4, 1.42), (0.0, 1e3)],
        Func::Log1p => &[(-1.0, 1.0), (-0.3, -0.28), (-0.01, 0.01), (0.4, 0.42), (0.0, 1e3)],
        Func::Sin | Func::Cos | Func::Tan => {
            &[(-0.8, 0.8), (-3.2, 3.2), (1.57, 1.571), (3.13, 3.15), (-1e3, 1e3), (0.0, 1e9)]
        }
        Func::Asin | Func::Acos | Func::Atanh => {
            &[(-1.0, 1.0), (-0.5, 0.5), (0.49, 0.51), (0.999, 1.0), (-1.0, -0.999), (0.5, 1.0)]
        }
        Func::Atan => &[(-1.0, 1.0), (0.9, 1.1), (-10.0, 10.0), (1.0, 3.0)],
        Func::Sinh | Func::Cosh => {
            &[(-1.1, 1.1), (-20.0, 20.0), (88.0, 90.0), (709.0, 711.0), (0.0, 3.0)]
        }
        Func::Tanh => &[(-0.4, 0.4), (-1.0, 1.0), (-3.0, 3.0), (0.0, 20.0), (8.0, 11.0)],
        Func::Asinh => &[(-1.0, 1.0), (-0.1, 0.1), (-10.0, 10.0), (0.0, 1e4), (0.4, 0.9)],
        Func::Acosh => &[(1.0, 1.0001), (1.0, 2.0), (1.0, 10.0), (1.0, 1e4)],
        Func::Logistic => {
            &[(-2.0, 2.0), (-104.0, 20.0), (-104.0, -86.0), (-746.0, -700.0), (-10.0, 0.0)]
        }
        Func::Erf => &[(-1.0, 1.0), (0.9, 1.1), (1.0, 2.0), (2.0, 6.1), (-4.0, 4.0)],
        Func::Erfc => &[
            (-1.0, 1.0),
            (0.4, 0.6),
            (0.0, 3.0),
            (0.0, 10.2),
            (9.0, 10.1),
            (-4.0, 0.0),
            (3.0, 27.3),
            (26.0, 27.3),
        ],
        Func::Cbrt | Func::Rsqrt => &[(0.125, 1.0), (0.5, 4.0), (1.0, 8.0)],
        Func::ErfInv => {
            &[(-1.0, 1.0), (-0.1, 0.1), (0.99, 0.9999), (0.996, 0.997), (-1.0, -0.9999)]
        }
        Func::Lgamma => &[
            (0.5, 3.0),
            (0.99, 1.01),
            (1.99, 2.01),
            (2.4, 2.6),
            (-2.6, 0.5),
            (-3.0, -2.4),
            (-50.0, 0.0),
            (0.0, 100.0),
        ],
        Func::Digamma => &[
            (0.0, 3.0),
            (1.46, 1.463),
            (0.99, 1.01),
            (1.9, 2.1),
            (-2.0, 0.0),
            (-50.0, 0.0),
            (0.0, 100.0),
        ],
        Func::Polygamma(_) => {
            &[(0.0, 2.0), (-0.6, 0.1), (-2.0, 0.0), (-50.0, 0.0), (0.0, 40.0), (0.0, 1e4)]
        }
        Func::Pow | Func::Atan2 => &[],
    }
}

/// Whether the function is finite mathematics at `x` (specials are tried by a table).
pub(crate) fn in_domain(func: Func, x: f64) -> bool {
    match func {
        Func::Log | Func::Rsqrt => x > 0.0,
        Func::Log1p => x > -1.0,
        Func::Asin | Func::Acos => x.abs() <= 1.0,
        Func::Atanh | Func::ErfInv => x.abs() < 1.0,
        Func::Lgamma | Func::Digamma | Func::Polygamma(_) => x > 0.0 || x != x.trunc(),
        Func::Acosh => x >= 1.0,
        _ => true,
    }
}

/// Operands of a function of one operand: `n` over all exponents up to `top`, and `n / 4` in each
/// of its intervals.
pub(crate) fn unary(func: Func, n: usize, top: i64) -> Vec<f64> {
    let mut bits = Bits(func.index().unwrap_or(0) as u64);
    let mut xs: Vec<f64> = (0..n).map(|_| bits.stratified(-top - 51, top)).collect();
    xs.extend((0..n / 4).map(|_| bits.stratified(-30, 8)));
    if matches!(func, Func::Sin | Func::Cos | Func::Tan) {
        // Near multiples of pi/2, and the two numbers known to be nearest to one in either format.
        let quarters = |n: f64| n.round() * std::f64::consts::FRAC_PI_2;
        xs.extend((0..n / 4).map(|_| quarters(bits.within(-1e5, 1e5))));
        xs.extend((0..n / 4).map(|_| quarters(bits.stratified(0, top - 1))));
        xs.extend([16_367_173.0 * 72f64.exp2(), 6_381_956_970_095_103.0 * 797f64.exp2()]);
    }
    for &(a, b) in intervals(func) {
        xs.extend((0..n / 4).map(|_| bits.within(a, b)));
    }
    xs
}

/// Operands of a function of two operands: all exponents, moderate ones, equal exponents; for
/// `pow` also exponents chosen so that the power is in range, and powers near 1.
pub(crate) fn binary(func: Func, n: usize, top: i64) -> Vec<(f64, f64)> {
    let mut bits = Bits(func.index().unwrap_or(0) as u64);
    let mut out = Vec::new();
    for _ in 0..n {
        let x = bits.stratified(-top - 51, top);
        out.push((x, bits.stratified(-top - 51, top)));
        out.push((bits.stratified(-3, 3), bits.stratified(-3, 3)));
        let near = bits.within(0.9, 1.1);
        out.push((x, x * near));
        if func == Func::Pow {
            let log = bits.within(-1.05, 1.0) * top as f64;
            out.push((x.abs(), log / x.abs().log2()));
            out.push((near, log / near.log2()));
            out.push((-x.abs(), (log / x.abs().log2()).round()));
            out.push((bits.within(0.0, 100.0), bits.within(-10.0, 10.0)));
        }
    }
    out
}

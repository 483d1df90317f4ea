//! What the bodies and partials of several elementwise rows share.

use crate::scalar::S;

pub(super) fn sign(x: S<'_>) -> S<'_> {
    let one = x.int(1);
    if x.dtype().is_float() {
        x.eq(x).select((x.ne(0.0)).select(one.copysign(x), x), x)
    } else {
        x.gt(0).select(one, x.lt(0).select(x.int(-1), x.int(0)))
    }
}

/// -1, 0 or 1 by sign, 0 for NaN: two bits an element decide it.
pub(super) fn direction(x: S<'_>) -> S<'_> {
    x.gt(0.0).convert(x.dtype()) - x.lt(0.0).convert(x.dtype())
}

/// 1 where `a > b`, one half where equal, 0 elsewhere.
pub(super) fn larger<'r>(a: S<'r>, b: S<'r>) -> S<'r> {
    a.gt(b).select(a.lit(1.0), a.eq(b).select(a.lit(0.5), a.lit(0.0)))
}

/// e^a / (e^a + e^b), one half for equal infinities.
pub(super) fn share<'r>(a: S<'r>, b: S<'r>) -> S<'r> {
    // Equal infinities have no difference; gating it keeps derivatives of this finite too.
    let same = a.eq(b) & a.abs().eq(f64::INFINITY);
    same.select(a.lit(0.0), a - b).logistic()
}

/// Binary powering, so that the number of products is logarithmic.
pub(super) fn integer_pow(x: S<'_>, n: i64) -> S<'_> {
    let mut power = x;
    let mut rest = n.unsigned_abs();
    let mut product = None;
    while rest > 0 {
        if rest & 1 == 1 {
            product = Some(product.map_or(power, |p: S<'_>| p * power));
        }
        rest >>= 1;
        if rest > 0 {
            power = power * power;
        }
    }
    let product = product.unwrap_or(x.int(1));
    if n < 0 { 1.0 / product } else { product }
}

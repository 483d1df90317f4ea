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

/// What `partial` gives for x, and its limit 0 where x is infinite. There it is 0 to every order: written plainly,
/// products of 0 and infinity would make derivatives of a partial NaN.
pub(super) fn vanishing<'r>(x: S<'r>, partial: impl Fn(S<'r>) -> S<'r>) -> S<'r> {
    let far = x.abs().eq(f64::INFINITY);
    // What is not selected is still differentiated, so it must be finite too: 2 is no pole of any of these.
    far.select(x.lit(0.0), partial(far.select(x.lit(2.0), x)))
}

/// As [`vanishing`], of two operands, of which one or both are infinite.
pub(super) fn vanishing2<'r>(x: &[S<'r>], partial: impl Fn(S<'r>, S<'r>) -> S<'r>) -> S<'r> {
    let far = x[0].abs().max(x[1].abs()).eq(f64::INFINITY);
    let near = |x: S<'r>| far.select(x.lit(1.0), x);
    far.select(x[0].lit(0.0), partial(near(x[0]), near(x[1])))
}

/// e^-x^2, of an x that is cut where that is 0 in every float type, so that derivatives of it are 0 there.
pub(super) fn bell(x: S<'_>) -> S<'_> {
    let x = x.max(x.lit(-30.0)).min(x.lit(30.0));
    (-(x * x)).exp()
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

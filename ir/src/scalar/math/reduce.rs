//! Reduction of any finite angle modulo pi/2 (after Payne and Hanek, "Radian reduction for
//! trigonometric functions", 1983): x * 2/pi, whose leading bits do not matter when they are
//! multiples of four. For each block of exponents the table holds 2/pi without the bits that any
//! x of the block multiplies to a multiple of four, as a sum of a few `f64`; their exact products
//! with x are then added from the largest down, integers dropped on the way.

use super::double::{Double, fast_two_sum, two_product, two_sum};
use super::float::float;
use crate::dtype::DType;
use crate::scalar::record::S;
use crate::scalar::table::Table;
use std::f64::consts::FRAC_PI_2;

/// x = (quadrant + remainder) pi/2, for an `f32` in x.
///
/// The remainder, an `f64` in radians from -pi/4 to pi/4, has a relative error below 2^-34 (no
/// `f32` is nearer to a multiple of pi/2 than about 2^-31).
pub(super) fn reduce_f32<'r>(x: S<'r>) -> (S<'r>, S<'r>) {
    // Blocks of 16 exponents, two words each.
    let index = x.bitcast(DType::I32).shr_l(26) & 30;
    let word = |i: S<'r>| i.lookup(Table::TwoOverPi).bitcast(DType::F64);
    let (c0, c1) = (word(index), word(index | 1));
    let x = x.convert(DType::F64);
    // Below 2^42, so that adding the magic number rounds it.
    let p = two_product(x, c0);
    let magic = float(x).magic;
    let t = p.hi + magic;
    let turns = (p.hi - (t - magic)) + x.fma(c1, p.lo);
    (t.bitcast(DType::I64).convert(DType::I32), turns * FRAC_PI_2)
}

/// x = (quadrant + remainder) pi/2, for an `f64` in x of at least 2^-300 or zero.
///
/// The remainder is in radians, slightly beyond -pi/4 to pi/4, with a relative error below 2^-60.
pub(super) fn reduce_f64<'r>(x: S<'r>) -> (S<'r>, Double<'r>) {
    // Blocks of 32 exponents, four words each, from exponent field 33 * 32 on; all smaller numbers
    // share the first.
    let block = x.bitcast(DType::I64).shr_l(55) & 0xfc;
    let index = (block.convert(DType::I32) - (33 * 4 - WORDS_F32)).max(WORDS_F32);
    let word = |k: i64| (index + k).lookup(Table::TwoOverPi).bitcast(DType::F64);
    // The table is scaled the other way, so that its last words are not subnormal.
    let x = x * (-200f64).exp2();
    // Below 2^87, 2^34, 2^-19 and 2^-72, with errors 2^-53 times that.
    let p0 = two_product(x, word(0));
    let p1 = two_product(x, word(1));
    let p2 = two_product(x, word(2));
    let p3 = x * word(3);
    let modulo_four = |v: S<'r>| (v * 0.25).round_even().fma(-4.0, v);
    let whole = modulo_four(p0.hi);
    let next = two_sum(p0.lo, p1.hi);
    let next_hi = modulo_four(next.hi);
    let magic = float(x).magic;
    let t = whole + next_hi + magic;
    // From here on nothing is dropped but the errors of the last sums, about 2^-125.
    let f0 = two_sum(whole - (t - magic), next_hi);
    let f1 = two_sum(next.lo, p1.lo);
    let f2 = two_sum(p2.hi, f1.hi);
    let f3 = two_sum(f0.hi, f2.hi);
    let tail = (p2.lo + p3) + (f1.lo + f2.lo) + f0.lo + f3.lo;
    let turns = fast_two_sum(f3.hi, tail);
    let r = two_product(turns.hi, x.lit(FRAC_PI_2));
    let low = turns.lo.fma(FRAC_PI_2, turns.hi.fma(HALF_PI_TAIL, r.lo));
    (t.bitcast(DType::I64), fast_two_sum(r.hi, low))
}

/// pi/2 minus the f64 nearest to it.
const HALF_PI_TAIL: f64 = 6.123233995736766e-17;

/// Words at the beginning of the table that are for `f32`.
const WORDS_F32: i64 = 32;

//! Unevaluated sums of two floats, for results that one float does not hold.
//!
//! Sources: Dekker, "A floating-point technique for extending the available precision" (1971);
//! Knuth, TAOCP 2, 4.2.2 (the sum without order). The product's error is one fma.

use crate::scalar::record::S;

/// `hi + lo`, with `lo` small beside `hi`.
#[derive(Clone, Copy)]
pub(super) struct Double<'r> {
    pub(super) hi: S<'r>,
    pub(super) lo: S<'r>,
}

/// `a + b` exactly, for |a| >= |b|, or a = 0, or a multiple of the unit in the sum's last place.
pub(super) fn fast_two_sum<'r>(a: S<'r>, b: S<'r>) -> Double<'r> {
    let hi = a + b;
    Double { hi, lo: b - (hi - a) }
}

/// `a + b` exactly.
pub(super) fn two_sum<'r>(a: S<'r>, b: S<'r>) -> Double<'r> {
    let hi = a + b;
    let b2 = hi - a;
    Double { hi, lo: (a - (hi - b2)) + (b - b2) }
}

/// `a * b` exactly, where nothing underflows.
pub(super) fn two_product<'r>(a: S<'r>, b: S<'r>) -> Double<'r> {
    let hi = a * b;
    Double { hi, lo: a.fma(b, -hi) }
}

//! The mathematical functions, each written out in scalar primitives.

use super::program::Func;
use super::record::S;

/// Leading fraction bits of 2/pi.
pub static TWO_OVER_PI: [u64; 1] = [0xa2f9_836e_4e44_1529];

/// Records the primitives that compute `func` of `args`.
pub fn write<'r>(func: Func, args: &[S<'r>]) -> S<'r> {
    let x = args[0];
    match func {
        Func::Rsqrt => 1.0 / x.sqrt(),
        other => unreachable!("{}", other.name()),
    }
}

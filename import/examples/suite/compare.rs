//! Comparisons of arrays by the rules of the tests.

use adfuse::backends::Array;
use adfuse::ir::{DType, Literal};
use adfuse_import::Compare;

/// Units in the last place that `expect_close` allows.
const MOST_ULPS: u64 = 3;

/// The first element that differs, if one does.
pub(crate) fn difference(got: &Array, wanted: &Array, compare: Compare) -> Option<String> {
    if got.ty() != wanted.ty() {
        return Some(format!("{}, not {}", got.ty(), wanted.ty()));
    }
    let holds = |a: Literal, b: Literal| match compare {
        // Zeros of both signs are equal, and so are NaNs.
        Compare::Equal => a == b || a.dtype().is_float() && a.to_f64() == b.to_f64(),
        Compare::Close => a == b || ulps(a, b).is_some_and(|n| n <= MOST_ULPS),
        Compare::Within(most) => {
            let (x, y) = (a.to_f64(), b.to_f64());
            a == b || x == y || (x - y).abs() <= most
        }
    };
    let at = got.iter().zip(wanted.iter()).position(|(a, b)| !holds(a, b))?;
    let count = got.iter().zip(wanted.iter()).filter(|&(a, b)| !holds(a, b)).count();
    let apart = ulps(got.get(at), wanted.get(at)).map_or(String::new(), |n| format!(", {n} ulps"));
    Some(format!(
        "element {at} is {}, not {}{apart} ({count} of {})",
        got.get(at),
        wanted.get(at),
        got.len()
    ))
}

/// The distance in units in the last place.
fn ulps(a: Literal, b: Literal) -> Option<u64> {
    let width = match a.dtype() {
        DType::F64 => 64,
        DType::F32 => 32,
        DType::BF16 | DType::F16 => 16,
        _ => return None,
    };
    if a.to_f64().is_nan() || b.to_f64().is_nan() {
        return None;
    }
    let order = |l: Literal| {
        let top = 1u64 << (width - 1);
        let size = i128::from(l.bits() & (top - 1));
        if l.bits() & top == 0 { size } else { -size }
    };
    Some(order(a).abs_diff(order(b)).min(u64::MAX.into()) as u64)
}

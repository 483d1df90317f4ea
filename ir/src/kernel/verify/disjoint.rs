//! Proof that a store writes every element of its buffer exactly once.

use super::Wrong;
use crate::diag::Kind;
use crate::index::IndexExpr;
use smallvec::{SmallVec, smallvec};

/// Checks that an index, known to stay inside of a buffer's extents, takes each of its places exactly
/// once over coordinates below `extents`.
///
/// The place is an affine expression of the coordinates. Ordered by the size of their factors, each
/// axis must step over everything that the smaller ones reach (mixed radix): then no two coordinates
/// share a place. As many coordinates as elements then means that none is left out.
pub(super) fn exactly_once(
    index: &[IndexExpr],
    dims: &[i64],
    extents: &[i64],
) -> Result<(), Wrong> {
    let count = |extents: &[i64]| -> i128 {
        if extents.contains(&0) { 0 } else { extents.iter().map(|&n| i128::from(n)).product() }
    };
    let (written, elements) = (count(extents), count(dims));
    if written != elements {
        let m = format!("{written} elements are written, the buffer has {elements}");
        return Err(Wrong::new(Kind::Overlap, m));
    }
    if written == 0 {
        return Ok(());
    }
    let mut place: SmallVec<[i128; 8]> = smallvec![0; extents.len()];
    let mut stride = 1i128;
    for (e, &n) in index.iter().zip(dims).rev() {
        let Some(factors) = e.factors(extents.len()) else {
            let m = format!("`{e}` is not affine: its writes are not proven disjoint");
            return Err(Wrong::new(Kind::Overlap, m));
        };
        for (p, f) in place.iter_mut().zip(factors) {
            // Inside of a buffer's bounds a factor of a longer axis is small; others are refused.
            let step = f.checked_mul(stride).and_then(|s| p.checked_add(s));
            *p = step.ok_or_else(|| Wrong::new(Kind::Limit, format!("`{e}` steps too far")))?;
        }
        stride *= i128::from(n);
    }
    let steps = place.iter().zip(extents).map(|(&p, &n)| (p, i128::from(n)));
    match reach(steps) {
        Some(_) => Ok(()),
        None => Err(Wrong::new(Kind::Overlap, "two coordinates may write the same element")),
    }
}

/// How far axes of these steps and extents reach together; `None` where two coordinates are not
/// proven to be in different places.
pub(super) fn reach(axes: impl Iterator<Item = (i128, i128)>) -> Option<i128> {
    let long = axes.filter(|&(_, n)| n > 1).map(|(step, n)| (step.saturating_abs(), n));
    let mut axes: SmallVec<[(i128, i128); 8]> = long.collect();
    axes.sort_unstable();
    axes.into_iter().try_fold(0i128, |reach, (step, n)| {
        let further = reach.saturating_add(step.saturating_mul(n - 1));
        (step > reach).then_some(further)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_radix_is_what_counts() {
        let (a, b) = (IndexExpr::axis(0), IndexExpr::axis(1));
        let kind = |index: &[IndexExpr], dims: &[i64], extents: &[i64]| {
            exactly_once(index, dims, extents).map_err(|w| w.kind)
        };
        assert_eq!(kind(&[b.clone(), a.clone()], &[3, 2], &[2, 3]), Ok(()));
        assert_eq!(kind(&[a.clone().times(3).sum(b.clone())], &[6], &[2, 3]), Ok(()));
        assert_eq!(kind(&[a.clone().times(-1).plus(5)], &[6], &[6]), Ok(()));
        // Two rows of three that overlap by one, and a row that is written twice.
        let close = a.clone().times(2).sum(b.clone());
        assert_eq!(kind(&[close], &[6], &[2, 3]), Err(Kind::Overlap));
        assert_eq!(kind(&[b.clone(), b.clone()], &[2, 3], &[2, 3]), Err(Kind::Overlap));
        assert_eq!(kind(&[a.clone().modulo(2)], &[2], &[2]), Err(Kind::Overlap));
        assert_eq!(kind(&[a], &[7], &[6]), Err(Kind::Overlap));
    }
}

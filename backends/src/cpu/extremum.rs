//! Argmax and argmin over slices: the extreme value by lanes, which become vectors, then its first place.

use super::element::FoldElement;

/// Values that are compared side by side.
const LANES: usize = 32;

/// Values of a block, of which one is gone through again for the place.
const BLOCK: usize = 8 * LANES;

/// Whether `a` takes the place of `b`, which came before; a NaN beats every number.
pub(super) fn beats<T: FoldElement>(max: bool, a: T, b: T) -> bool {
    !b.nan() && (is_beyond(max, a, b) || a.nan())
}

/// The first of the places whose value no other beats; 0 where there are no values.
pub(super) fn first_extremum<T: FoldElement>(max: bool, values: &[T]) -> i32 {
    let place = match max {
        true => first::<T, true>(values),
        false => first::<T, false>(values),
    };
    place as i32
}

fn first<T: FoldElement, const MAX: bool>(values: &[T]) -> usize {
    let Some(&begin) = values.first() else { return 0 };
    let (mut best, mut found) = (begin, 0);
    for (k, block) in values.chunks(BLOCK).enumerate() {
        match extreme::<T, MAX>(block, best) {
            None => return k * BLOCK + block.iter().position(|x| x.nan()).unwrap_or(0),
            // The first block that has the value has its first place.
            Some(value) if is_beyond(MAX, value, best) => (best, found) = (value, k),
            Some(_) => {}
        }
    }
    let from = found * BLOCK;
    from + values[from..].iter().position(|&x| x == best).unwrap_or(0)
}

/// The most extreme of a value and those of a block; `None` where there is a NaN.
fn extreme<T: FoldElement, const MAX: bool>(block: &[T], best: T) -> Option<T> {
    let mut lanes = [best; LANES];
    let mut unordered = [false; LANES];
    let rows = block.chunks_exact(LANES);
    let tail = rows.remainder();
    for row in rows {
        for l in 0..LANES {
            lanes[l] = if is_beyond(MAX, row[l], lanes[l]) { row[l] } else { lanes[l] };
            unordered[l] |= row[l].nan();
        }
    }
    let further = |best: T, &x: &T| if is_beyond(MAX, x, best) { x } else { best };
    let found = lanes.iter().chain(tail).fold(best, further);
    let is_ordered = !unordered.contains(&true) && !tail.iter().any(|x| x.nan()) && !best.nan();
    is_ordered.then_some(found)
}

fn is_beyond<T: PartialOrd>(max: bool, a: T, b: T) -> bool {
    if max { a > b } else { a < b }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the definition says it.
    fn one_by_one<T: FoldElement>(max: bool, values: &[T]) -> i32 {
        let better =
            |best: usize, k: usize| if beats(max, values[k], values[best]) { k } else { best };
        (1..values.len()).fold(0, better) as i32
    }

    #[test]
    fn places_are_those_of_the_definition() {
        let special = [f32::NAN, -f32::NAN, 0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, 1.0, 2.0];
        for n in (0..=70).chain([255, 256, 257, 511, 512, 1000, 3000]) {
            for seed in 0..40 {
                let mut state = seed * 7919 + n as u32;
                let mut next = || {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    state >> 8
                };
                // Many equal ones, or hardly any; NaN in few of them.
                let values: Vec<f32> = (0..n)
                    .map(|_| match next() % 4000 {
                        k if seed % 2 == 0 && k < 4 => special[k as usize % 2],
                        k if k < 100 => special[2 + k as usize % 6],
                        k => (k % (1 + 97 * seed)) as f32 - 50.0,
                    })
                    .collect();
                let ints: Vec<i8> = (0..n).map(|_| next() as i8 / 2).collect();
                for max in [false, true] {
                    assert_eq!(
                        first_extremum(max, &values),
                        one_by_one(max, &values),
                        "{values:?}"
                    );
                    assert_eq!(first_extremum(max, &ints), one_by_one(max, &ints), "{ints:?}");
                }
            }
        }
    }
}

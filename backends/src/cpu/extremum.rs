//! Argmax and argmin over slices: the extreme value by lanes, which become vectors, then its first place.
#![allow(unsafe_code)]

use super::codegen::vector_width::Vectors;
use super::element::FoldElement;
use super::strict_folds::ABREAST;

/// Values that are compared side by side.
const LANES: usize = 32;

/// Values of a block, of which one is gone through again for the place.
const BLOCK: usize = 8 * LANES;

/// Whether `a` takes the place of `b`, which came before; a NaN beats every number.
pub(super) fn beats<T: FoldElement>(max: bool, a: T, b: T) -> bool {
    !b.nan() & (is_beyond(max, a, b) | a.nan())
}

/// The first of the places whose value no other beats; 0 where there are no values.
pub(super) fn first_extremum<T: FoldElement>(max: bool, values: &[T]) -> i32 {
    let find = finder::<T>(max);
    // SAFETY: the processor has what it was compiled for.
    unsafe { find(values) as i32 }
}

/// Finds the place of the first extremum.
type FindFirst<T> = unsafe fn(&[T]) -> usize;

/// The fastest that the processor can run.
fn finder<T: FoldElement>(max: bool) -> FindFirst<T> {
    let of = |all: [FindFirst<T>; 2]| all[usize::from(max)];
    match Vectors::of_processor() {
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx512 => of([avx512::<T, false>, avx512::<T, true>]),
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx2 => of([avx2::<T, false>, avx2::<T, true>]),
        _ => of([first::<T, false>, first::<T, true>]),
    }
}

/// # Safety
/// The processor has these features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl")]
unsafe fn avx512<T: FoldElement, const MAX: bool>(values: &[T]) -> usize {
    first::<T, MAX>(values)
}

/// # Safety
/// The processor has these features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2<T: FoldElement, const MAX: bool>(values: &[T]) -> usize {
    first::<T, MAX>(values)
}

#[inline(always)]
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
#[inline(always)]
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

/// The first extremum of each row of `n` values. Short rows are gone through side by side: each waits for its own comparisons only.
pub(super) fn row_extrema<T: FoldElement>(max: bool, values: &[T], n: usize, out: &mut [i32]) {
    let abreast = match max {
        _ if n >= LANES || n == 0 => 0,
        true => short_rows::<T, true>(values, n, out),
        false => short_rows::<T, false>(values, n, out),
    };
    let find = finder::<T>(max);
    for (k, out) in out.iter_mut().enumerate().skip(abreast) {
        // SAFETY: the processor has what it was compiled for.
        *out = unsafe { find(&values[k * n..(k + 1) * n]) as i32 };
    }
}

/// Rows of `n` values, at least one, as many as are gone through side by side; gives how many.
fn short_rows<T: FoldElement, const MAX: bool>(values: &[T], n: usize, out: &mut [i32]) -> usize {
    let (groups, _) = out.as_chunks_mut::<ABREAST>();
    for (rows, out) in values.chunks_exact(n * ABREAST).zip(&mut *groups) {
        let column = |l: usize| -> [T; ABREAST] { std::array::from_fn(|k| rows[k * n + l]) };
        let (mut best, mut found) = (column(0), [0; ABREAST]);
        for l in 1..n {
            take_beyond::<T, MAX>((&mut best, &mut found), &column(l), l as i32);
        }
        *out = found;
    }
    ABREAST * groups.len()
}

/// The first extrema along the middle of three axes, of which the innermost is as long as `best`, room for values; 0 where
/// there are no values.
pub(super) fn column_extrema<T: FoldElement>(
    max: bool,
    values: &[T],
    n: usize,
    best: &mut [T],
    out: &mut [i32],
) {
    let inner = best.len().max(1);
    out.fill(0);
    for (rows, out) in values.chunks_exact((n * inner).max(1)).zip(out.chunks_exact_mut(inner)) {
        match max {
            true => columns::<T, true>(rows, best, out),
            false => columns::<T, false>(rows, best, out),
        }
    }
}

fn columns<T: FoldElement, const MAX: bool>(values: &[T], best: &mut [T], out: &mut [i32]) {
    let mut rows = values.chunks_exact(best.len().max(1));
    if let Some(first) = rows.next() {
        best.copy_from_slice(first);
    }
    for (row, k) in rows.zip(1..) {
        take_beyond::<T, MAX>((best, out), row, k);
    }
}

/// Takes those of some values that beat the best ones, with their place `k`.
#[inline]
fn take_beyond<T: FoldElement, const MAX: bool>(
    (best, out): (&mut [T], &mut [i32]),
    values: &[T],
    k: i32,
) {
    for ((&x, best), out) in values.iter().zip(best).zip(out) {
        let beyond = beats(MAX, x, *best);
        *best = if beyond { x } else { *best };
        *out = if beyond { k } else { *out };
    }
}

#[inline(always)]
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
                for (width, max) in [(1, false), (3, true), (7, false), (16, true)] {
                    let rows = values.len() / 2 / width;
                    let (mut best, mut found) = (vec![0.0; width], vec![7; 2 * width]);
                    column_extrema(max, &values[..2 * rows * width], rows, &mut best, &mut found);
                    let column = |k: usize| {
                        let whole = values[..2 * rows * width].chunks_exact((rows * width).max(1));
                        let rows =
                            whole.skip(k / width).take(1).flat_map(|w| w.chunks_exact(width));
                        one_by_one(max, &rows.map(|r| r[k % width]).collect::<Vec<f32>>())
                    };
                    assert!(found.iter().enumerate().all(|(k, &at)| at == column(k)), "{values:?}");
                }
                for (n, max) in [(1, true), (3, false), (10, true), (31, false), (40, true)] {
                    let mut found = vec![7; values.len() / n];
                    row_extrema(max, &values, n, &mut found);
                    let rows = values.chunks_exact(n).map(|row| one_by_one(max, row));
                    assert!(rows.eq(found), "{n}: {values:?}");
                }
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

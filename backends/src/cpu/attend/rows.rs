//! What is done to the scores of a tile, row by row, between products and exponentials: plain Rust over slices, compiled for
//! the instruction sets that hosts have.
#![allow(unsafe_code)]

use crate::cpu::codegen::vector_width::Vectors;
use crate::reference::order::LANES;

/// An element of scores.
pub(super) trait ScoreElement: Copy + PartialOrd + Default + 'static {
    const LEAST: Self;
    const NAN: Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn over(self, other: Self) -> Self;
}

macro_rules! elements {
    ($($t:ty)*) => {
        $(impl ScoreElement for $t {
            const LEAST: $t = <$t>::NEG_INFINITY;
            const NAN: $t = <$t>::NAN;
            #[inline(always)]
            fn plus(self, other: $t) -> $t { self + other }
            #[inline(always)]
            fn minus(self, other: $t) -> $t { self - other }
            #[inline(always)]
            fn times(self, other: $t) -> $t { self * other }
            #[inline(always)]
            fn over(self, other: $t) -> $t { self / other }
        })*
    };
}

elements!(f32 f64);

#[inline(always)]
#[allow(clippy::eq_op)]
fn is_nan<T: ScoreElement>(x: T) -> bool {
    x != x
}

/// NaN as buffers have it.
#[inline(always)]
fn canonical<T: ScoreElement>(x: T) -> T {
    if is_nan(x) { T::NAN } else { x }
}

/// A maximum, or 0 where nothing is seen.
#[inline(always)]
fn shift<T: ScoreElement>(most: T) -> T {
    if most == T::LEAST { T::default() } else { most }
}

/// What a row of a tile knows of the mask or the bias: elements of the row, `step` from each other.
#[derive(Clone, Copy)]
pub(super) enum ExtraRow<T> {
    None,
    Bias(*const T, isize),
    Mask(*const u8, isize),
}

/// The keys of a tile that are within a row's reach.
#[derive(Clone, Copy, Default)]
pub(super) struct ShownKeys {
    pub(super) from: usize,
    pub(super) to: usize,
}

impl ShownKeys {
    /// Fills what is not shown of a row.
    #[inline(always)]
    fn fill_others<T: Copy>(self, row: &mut [T], x: T) {
        if let Some(before) = row.get_mut(..self.from) {
            before.fill(x);
        }
        if let Some(after) = row.get_mut(self.to..) {
            after.fill(x);
        }
    }
}

/// The rows of a tile: scores of `keys` keys, row after row.
pub(super) struct ScoreTile<'a, T> {
    pub(super) scores: &'a mut [T],
    pub(super) keys: usize,
    /// For each row the keys within its reach.
    pub(super) shown: &'a [ShownKeys],
    pub(super) extra: &'a [ExtraRow<T>],
}

/// Adds the bias of a row, and hides what the mask hides and what is not within the row's reach.
///
/// # Safety
/// The mask or the bias has an element for each of the row's.
#[inline(always)]
unsafe fn masked<T: ScoreElement>(row: &mut [T], shown: ShownKeys, extra: ExtraRow<T>) {
    match extra {
        ExtraRow::None => {}
        ExtraRow::Bias(at, 1) => {
            for (k, s) in row.iter_mut().enumerate() {
                // SAFETY: as the caller promises.
                *s = s.plus(unsafe { *at.add(k) });
            }
        }
        ExtraRow::Bias(at, step) => {
            for (k, s) in row.iter_mut().enumerate() {
                // SAFETY: as the caller promises.
                *s = s.plus(unsafe { *at.offset(k as isize * step) });
            }
        }
        ExtraRow::Mask(at, step) => {
            for (k, s) in row.iter_mut().enumerate() {
                // SAFETY: as the caller promises.
                let seen = unsafe { *at.offset(k as isize * step) } != 0;
                *s = if seen { *s } else { T::LEAST };
            }
        }
    }
    shown.fill_others(row, T::LEAST);
}

/// The largest of a row and a number; NaN if one of them is.
// Lanes are numbered: three arrays go together.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn largest<T: ScoreElement>(row: &[T], so_far: T) -> T {
    let mut lanes = [so_far; LANES];
    let mut wrong = [false; LANES];
    let (whole, rest) = row.as_chunks::<LANES>();
    for chunk in whole {
        for l in 0..LANES {
            lanes[l] = if chunk[l] > lanes[l] { chunk[l] } else { lanes[l] };
            wrong[l] |= is_nan(chunk[l]);
        }
    }
    for (l, &x) in rest.iter().enumerate() {
        lanes[l] = if x > lanes[l] { x } else { lanes[l] };
        wrong[l] |= is_nan(x);
    }
    let mut most = so_far;
    for x in lanes {
        most = if x > most { x } else { most };
    }
    if is_nan(so_far) || wrong.contains(&true) { T::NAN } else { most }
}

/// The sum of a row of weights in the lane order. Weights are not negative, so absent lanes may be 0.
// As above.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn sum<T: ScoreElement>(row: &[T]) -> T {
    let mut lanes = [T::default(); LANES];
    let (whole, rest) = row.as_chunks::<LANES>();
    for chunk in whole {
        for l in 0..LANES {
            lanes[l] = lanes[l].plus(chunk[l]);
        }
    }
    for (l, &x) in rest.iter().enumerate() {
        lanes[l] = lanes[l].plus(x);
    }
    let mut half = LANES / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] = lanes[l].plus(lanes[l + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Of each row: the running maximum `most`, the scores less it, and in `scale` the exponent by which earlier sums shrink.
///
/// # Safety
/// As of [`masked`], for each row.
#[inline(always)]
unsafe fn shifted<T: ScoreElement>(tile: ScoreTile<'_, T>, most: &mut [T], scale: &mut [T]) {
    let rows = tile.scores.chunks_exact_mut(tile.keys).zip(tile.shown).zip(tile.extra);
    for (((row, &shown), &extra), (most, scale)) in rows.zip(most.iter_mut().zip(scale)) {
        // SAFETY: as the caller promises.
        unsafe { masked(row, shown, extra) };
        let new = largest(row, *most);
        let by = shift(new);
        *scale = most.minus(by);
        *most = new;
        row.iter_mut().for_each(|s| *s = s.minus(by));
    }
}

/// Of each row: its sum, with what was before made smaller by `scale`.
#[inline(always)]
fn summed<T: ScoreElement>(weights: &[T], keys: usize, scale: &[T], total: &mut [T]) {
    for ((row, &scale), total) in weights.chunks_exact(keys).zip(scale).zip(total) {
        *total = total.times(scale).plus(sum(row));
    }
}

/// Of each row: what was weighed before made smaller by `scale`, and the products of this tile.
#[inline(always)]
fn weighed<T: ScoreElement>(sums: &mut [T], width: usize, scale: &[T], part: &[T]) {
    for ((row, &scale), part) in
        sums.chunks_exact_mut(width).zip(scale).zip(part.chunks_exact(width))
    {
        for (x, &y) in row.iter_mut().zip(part) {
            *x = x.times(scale).plus(y);
        }
    }
}

/// The results: weighed sums divided by their row's total.
#[inline(always)]
fn finished<T: ScoreElement>(sums: &[T], width: usize, total: &[T], to: &mut [T]) {
    for ((row, &total), to) in sums.chunks_exact(width).zip(total).zip(to.chunks_exact_mut(width)) {
        for (&x, to) in row.iter().zip(to) {
            *to = canonical(x.over(total));
        }
    }
}

/// Of each row: the maximum's shift and the logarithm of the total.
#[inline(always)]
fn log_sums<T: ScoreElement>(most: &[T], log: &[T], to: &mut [T]) {
    for ((&most, &log), to) in most.iter().zip(log).zip(to) {
        *to = canonical(shift(most).plus(log));
    }
}

/// Of each row: the scores less the logarithm of its sum.
///
/// # Safety
/// As of [`masked`], for each row.
#[inline(always)]
unsafe fn less_log_sum<T: ScoreElement>(tile: ScoreTile<'_, T>, log_sum: &[T]) {
    let rows = tile.scores.chunks_exact_mut(tile.keys).zip(tile.shown).zip(tile.extra);
    for (((row, &shown), &extra), &log_sum) in rows.zip(log_sum) {
        // SAFETY: as the caller promises.
        unsafe { masked(row, shown, extra) };
        let by = shift(log_sum);
        row.iter_mut().for_each(|s| *s = s.minus(by));
    }
}

/// The cotangents of scores, in place of those of weights; what is hidden weighs nothing and moves nothing.
///
/// # Safety
/// As of [`masked`], for each row.
#[inline(always)]
unsafe fn cotangents<T: ScoreElement>(tile: ScoreTile<'_, T>, moved: &mut [T], delta: &[T]) {
    let keys = tile.keys;
    let rows = tile.scores.chunks_exact_mut(keys).zip(tile.shown).zip(tile.extra);
    for (((row, &shown), &extra), (moved, &delta)) in
        rows.zip(moved.chunks_exact_mut(keys).zip(delta))
    {
        for (p, d) in row.iter().zip(moved.iter_mut()) {
            *d = p.times(d.minus(delta));
        }
        for x in [&mut *row, &mut *moved] {
            shown.fill_others(x, T::default());
        }
        if let ExtraRow::Mask(at, step) = extra {
            for (k, (p, d)) in row.iter_mut().zip(moved.iter_mut()).enumerate() {
                // SAFETY: as the caller promises.
                let seen = unsafe { *at.offset(k as isize * step) } != 0;
                *p = if seen { *p } else { T::default() };
                *d = if seen { *d } else { T::default() };
            }
        }
    }
}

/// Adds the elements of a tile's product to a result.
#[inline(always)]
fn added<T: ScoreElement>(to: &mut [T], part: &[T]) {
    for (to, &x) in to.iter_mut().zip(part) {
        *to = to.plus(x);
    }
}

#[inline(always)]
fn made_canonical<T: ScoreElement>(all: &mut [T]) {
    all.iter_mut().for_each(|x| *x = canonical(*x));
}

/// These functions, for an instruction set.
pub(super) struct RowKernels<T: 'static> {
    pub(super) shifted: unsafe fn(ScoreTile<'_, T>, &mut [T], &mut [T]),
    pub(super) summed: unsafe fn(&[T], usize, &[T], &mut [T]),
    pub(super) weighed: unsafe fn(&mut [T], usize, &[T], &[T]),
    pub(super) finished: unsafe fn(&[T], usize, &[T], &mut [T]),
    pub(super) log_sums: unsafe fn(&[T], &[T], &mut [T]),
    pub(super) less_log_sum: unsafe fn(ScoreTile<'_, T>, &[T]),
    pub(super) cotangents: unsafe fn(ScoreTile<'_, T>, &mut [T], &[T]),
    pub(super) added: unsafe fn(&mut [T], &[T]),
    pub(super) canonical: unsafe fn(&mut [T]),
}

macro_rules! instances {
    ($set:ident, $meta:meta) => {
        mod $set {
            use super::{RowKernels, ScoreElement, ScoreTile};

            instances!(@each $meta;
                shifted(tile: ScoreTile<'_, T>, most: &mut [T], scale: &mut [T]);
                summed(weights: &[T], keys: usize, scale: &[T], total: &mut [T]);
                weighed(sums: &mut [T], width: usize, scale: &[T], part: &[T]);
                finished(sums: &[T], width: usize, total: &[T], to: &mut [T]);
                log_sums(most: &[T], log: &[T], to: &mut [T]);
                less_log_sum(tile: ScoreTile<'_, T>, log_sum: &[T]);
                cotangents(tile: ScoreTile<'_, T>, moved: &mut [T], delta: &[T]);
                added(to: &mut [T], part: &[T]);
                made_canonical(all: &mut [T]);
            );

            pub(super) const fn all<T: ScoreElement>() -> RowKernels<T> {
                RowKernels {
                    shifted: shifted::<T>,
                    summed: summed::<T>,
                    weighed: weighed::<T>,
                    finished: finished::<T>,
                    log_sums: log_sums::<T>,
                    less_log_sum: less_log_sum::<T>,
                    cotangents: cotangents::<T>,
                    added: added::<T>,
                    canonical: made_canonical::<T>,
                }
            }
        }
    };
    (@each $meta:meta; $($name:ident($($arg:ident: $ty:ty),*);)*) => {
        $(
            /// # Safety
            /// As of the function of this name, on a processor that has the features of this set.
            #[allow(unused_unsafe)]
            #[$meta]
            unsafe fn $name<T: ScoreElement>($($arg: $ty),*) {
                // SAFETY: as the caller promises.
                unsafe { super::$name($($arg),*) }
            }
        )*
    };
}

instances!(any, inline);
#[cfg(target_arch = "x86_64")]
instances!(avx2, target_feature(enable = "avx2,fma"));
#[cfg(target_arch = "x86_64")]
instances!(avx512, target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"));

/// The fastest that the host can run.
pub(super) fn found<T: ScoreElement>() -> RowKernels<T> {
    type FindKernels<T> = fn() -> RowKernels<T>;
    let found = Vectors::runnable(&[
        (Vectors::Narrow, any::all as FindKernels<T>),
        #[cfg(target_arch = "x86_64")]
        (Vectors::Avx2, avx2::all),
        #[cfg(target_arch = "x86_64")]
        (Vectors::Avx512, avx512::all),
    ]);
    found.first().map_or_else(any::all, |found| found())
}

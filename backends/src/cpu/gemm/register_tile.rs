//! Sums of a tile in registers, over a chunk of the depth: an instance for each instruction set and type of floats.
//!
//! A tile has up to fourteen rows, whose elements are broadcast, and one or two vectors of columns. That many rows ask the second
//! cache for few bytes a cycle: the columns of 14 x 32 elements of `f32` are 128 bytes in fourteen cycles, those of 4 x 96 are 384
//! in twelve, for which its bandwidth does not suffice.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

/// What a tile multiplies, and where its sums go. Distances are in elements.
pub(super) struct TileOperands<T> {
    pub(super) depth: usize,
    pub(super) rows: *const T,
    /// From one row to the next where the depth of rows is dense; otherwise from one step of the depth to the next, at which rows are
    /// neighbours.
    pub(super) stride: isize,
    /// The first column's first element, and from one step of the depth to the next.
    pub(super) columns: *const T,
    pub(super) line: isize,
    /// Columns of the last vector that there are.
    pub(super) last: usize,
    /// Where columns that are read in place are copied to, for the tiles of further rows; nowhere if it is null.
    pub(super) copy: *mut T,
    /// Where the first sum goes, and from one row to the next.
    pub(super) out: *mut T,
    pub(super) out_row: isize,
    /// Whether these are sums of the first chunk. Others are added to what there is.
    pub(super) first: bool,
    /// What is added to the sums in the end, unless it is null: the first element, and from one row to the next.
    pub(super) added: *const T,
    pub(super) added_row: isize,
    /// What is touched next at the places of the sums: where the first elements are, and from one row to the next. Of the first this many
    /// arrays it is fetched into the second cache, a row with each step of the depth.
    pub(super) next: [(*const T, isize); 2],
    pub(super) fetched: usize,
}

/// Multiplies a tile.
///
/// # Safety
/// The host has the instructions of the set. The operands have as many rows, columns and steps of the depth as the tile, which nobody
/// writes meanwhile, and the result has room for its sums, which nobody else uses.
pub(super) type RegisterTile<T> = unsafe fn(&TileOperands<T>);

/// The tiles of an instruction set.
pub(super) struct RegisterTiles<T: 'static> {
    /// Columns of a vector.
    pub(super) lanes: usize,
    /// For each number of rows, from one on: of one vector and of two, each for rows that are neighbours and for rows whose depth is dense.
    pub(super) by_rows: &'static [[[RegisterTile<T>; 2]; 2]],
}

/// The most rows and columns of a tile.
pub(super) const MOST_ROWS: usize = 14;
pub(super) const MOST_COLUMNS: usize = 32;

/// Steps of the depth whose columns are fetched into the first cache, and into the second one, before they are multiplied.
const AHEAD: isize = 8;
const FAR_AHEAD: isize = 28;

/// The mask of the first lanes.
///
/// # Safety
/// The host has AVX-512.
#[target_feature(enable = "avx512f")]
fn mask16(count: usize) -> __mmask16 {
    ((1u32 << count) - 1) as __mmask16
}

/// As [`mask16`], of `f64`.
///
/// # Safety
/// As there.
#[target_feature(enable = "avx512f")]
fn mask8(count: usize) -> __mmask8 {
    ((1u32 << count) - 1) as __mmask8
}

/// As [`mask16`], for AVX2.
///
/// # Safety
/// The host has AVX2.
#[target_feature(enable = "avx2")]
fn lanes_of_32(count: usize) -> __m256i {
    _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}

/// As [`lanes_of_32`], of `f64`.
///
/// # Safety
/// As there.
#[target_feature(enable = "avx2")]
fn lanes_of_64(count: usize) -> __m256i {
    _mm256_cmpgt_epi64(_mm256_set1_epi64x(count as i64), _mm256_setr_epi64x(0, 1, 2, 3))
}

/// Every NaN as the canonical one.
///
/// # Safety
/// The host has AVX-512.
#[inline]
#[target_feature(enable = "avx512f")]
fn canonical16(x: __m512) -> __m512 {
    let wrong = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
    _mm512_mask_mov_ps(x, wrong, _mm512_set1_ps(f32::NAN))
}

/// As [`canonical16`], of `f64`.
///
/// # Safety
/// As there.
#[inline]
#[target_feature(enable = "avx512f")]
fn canonical8(x: __m512d) -> __m512d {
    let wrong = _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(x, x);
    _mm512_mask_mov_pd(x, wrong, _mm512_set1_pd(f64::NAN))
}

/// As [`canonical16`], for AVX2.
///
/// # Safety
/// The host has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
fn canonical_ps(x: __m256) -> __m256 {
    let wrong = _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x);
    _mm256_blendv_ps(x, _mm256_set1_ps(f32::NAN), wrong)
}

/// As [`canonical_ps`], of `f64`.
///
/// # Safety
/// As there.
#[inline]
#[target_feature(enable = "avx2")]
fn canonical_pd(x: __m256d) -> __m256d {
    let wrong = _mm256_cmp_pd::<_CMP_UNORD_Q>(x, x);
    _mm256_blendv_pd(x, _mm256_set1_pd(f64::NAN), wrong)
}

/// # Safety
/// The elements of lanes that are asked for must be there.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn some_ps(mask: __m256i, at: *const f32) -> __m256 {
    // SAFETY: as the caller promises.
    unsafe { _mm256_maskload_ps(at, mask) }
}

/// # Safety
/// As of [`some_ps`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn some_pd(mask: __m256i, at: *const f64) -> __m256d {
    // SAFETY: as the caller promises.
    unsafe { _mm256_maskload_pd(at, mask) }
}

macro_rules! register_tiles {
    (
        $name:ident: $t:ty, $vector:ty, $lanes:literal, $features:literal, [$($r:literal),*],
        [$zero:ident, $load:ident, $splat:ident, $fma:ident, $add:ident, $store:ident],
        [$mask:ident, $some:ident, $put:ident, $canonical:ident]
    ) => {
        mod $name {
            use super::*;

            /// How far a tile is: its sums, and where the next step of the depth is.
            struct Progress<const R: usize, const V: usize> {
                sums: [[$vector; V]; R],
                rows: *const $t,
                columns: *const $t,
                copy: *mut $t,
            }

            /// The steps of the depth in a range, with fetching what is touched next or without: a loop that does both is slower.
            ///
            /// # Safety
            /// As of [`RegisterTile`].
            // Iterators in place of the numbers keep the sums in memory.
            #[allow(clippy::needless_range_loop)]
            #[inline(always)]
            unsafe fn steps<const R: usize, const V: usize, const DEEP: bool, const FETCH: bool>(
                o: &TileOperands<$t>,
                range: Range<usize>,
                progress: Progress<R, V>,
            ) -> Progress<R, V> {
                let Progress { mut sums, mut rows, mut columns, mut copy } = progress;
                let (row, step) = if DEEP { (o.stride, 1) } else { (1, o.stride) };
                let [ahead, far_ahead] = [AHEAD, FAR_AHEAD].map(|steps| steps * o.line);
                // SAFETY: as the caller promises; what is prefetched need not be there.
                unsafe {
                    let mask = $mask(o.last);
                    for k in range {
                        if FETCH {
                            let (next, row) = o.next[usize::from(k >= R)];
                            let next = next.wrapping_offset((k % R) as isize * row);
                            for v in 0..V {
                                _mm_prefetch::<_MM_HINT_T1>(next.wrapping_add(v * $lanes).cast());
                            }
                        }
                        let mut y = [$zero(); V];
                        for v in 0..V {
                            let at = columns.add(v * $lanes);
                            y[v] = if v + 1 < V { $load(at) } else { $some(mask, at) };
                            let next = columns.wrapping_add(v * $lanes);
                            _mm_prefetch::<_MM_HINT_T0>(next.wrapping_offset(ahead).cast());
                        }
                        if !copy.is_null() {
                            for v in 0..V {
                                $store(copy.add(v * $lanes), y[v]);
                                let next = columns.wrapping_add(v * $lanes);
                                let next = next.wrapping_offset(far_ahead);
                                _mm_prefetch::<_MM_HINT_T1>(next.cast());
                            }
                            copy = copy.wrapping_add(V * $lanes);
                        }
                        if !DEEP {
                            _mm_prefetch::<_MM_HINT_T0>(rows.wrapping_offset(AHEAD * step).cast());
                        }
                        for i in 0..R {
                            let x = $splat(*rows.offset(i as isize * row));
                            for v in 0..V {
                                sums[i][v] = $fma(x, y[v], sums[i][v]);
                            }
                        }
                        rows = rows.wrapping_offset(step);
                        columns = columns.wrapping_offset(o.line);
                    }
                }
                Progress { sums, rows, columns, copy }
            }

            /// A tile of `R` rows and `V` vectors.
            ///
            /// # Safety
            /// As of [`RegisterTile`].
            #[allow(clippy::needless_range_loop)]
            #[target_feature(enable = $features)]
            unsafe fn tile<const R: usize, const V: usize, const DEEP: bool>(
                o: &TileOperands<$t>,
            ) {
                let to = |i: usize, v: usize| {
                    o.out.wrapping_offset(i as isize * o.out_row).wrapping_add(v * $lanes)
                };
                let mask = $mask(o.last);
                let begin = Progress {
                    sums: [[$zero(); V]; R],
                    rows: o.rows,
                    columns: o.columns,
                    copy: o.copy,
                };
                let fetching = o.depth.min(R * o.fetched);
                // SAFETY: as the caller promises; what is prefetched need not be there.
                unsafe {
                    for i in 0..R {
                        for v in 0..V {
                            _mm_prefetch::<_MM_HINT_T0>(to(i, v).cast());
                        }
                    }
                    let some = steps::<R, V, DEEP, true>(o, 0..fetching, begin);
                    let Progress { sums, .. } =
                        steps::<R, V, DEEP, false>(o, fetching..o.depth, some);
                    for i in 0..R {
                        for v in 0..V {
                            let at = to(i, v);
                            let mut sum = match o.first {
                                true => sums[i][v],
                                false if v + 1 < V => $add($load(at), sums[i][v]),
                                false => $add($some(mask, at), sums[i][v]),
                            };
                            if !o.added.is_null() {
                                let from = o.added.wrapping_offset(i as isize * o.added_row);
                                let from = from.wrapping_add(v * $lanes);
                                let other =
                                    if v + 1 < V { $load(from) } else { $some(mask, from) };
                                sum = $add(other, sum);
                            }
                            let sum = $canonical(sum);
                            if v + 1 < V {
                                $store(at, sum);
                            } else {
                                $put(at, mask, sum);
                            }
                        }
                    }
                }
            }

            pub(in super::super) static TILES: RegisterTiles<$t> = RegisterTiles {
                lanes: $lanes,
                by_rows: &[$([
                    [tile::<$r, 1, false>, tile::<$r, 1, true>],
                    [tile::<$r, 2, false>, tile::<$r, 2, true>],
                ]),*],
            };

            const _: () =
                assert!([$($r),*].len() <= MOST_ROWS && 2 * $lanes <= MOST_COLUMNS);
        }
    };
}

register_tiles!(
    wide_f32: f32, __m512, 16, "avx512f", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14],
    [_mm512_setzero_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_add_ps, _mm512_storeu_ps],
    [mask16, _mm512_maskz_loadu_ps, _mm512_mask_storeu_ps, canonical16]
);
register_tiles!(
    wide_f64: f64, __m512d, 8, "avx512f", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14],
    [_mm512_setzero_pd, _mm512_loadu_pd, _mm512_set1_pd, _mm512_fmadd_pd, _mm512_add_pd, _mm512_storeu_pd],
    [mask8, _mm512_maskz_loadu_pd, _mm512_mask_storeu_pd, canonical8]
);
register_tiles!(
    narrow_f32: f32, __m256, 8, "avx2,fma", [1, 2, 3, 4, 5, 6],
    [_mm256_setzero_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_add_ps, _mm256_storeu_ps],
    [lanes_of_32, some_ps, _mm256_maskstore_ps, canonical_ps]
);
register_tiles!(
    narrow_f64: f64, __m256d, 4, "avx2,fma", [1, 2, 3, 4, 5, 6],
    [_mm256_setzero_pd, _mm256_loadu_pd, _mm256_set1_pd, _mm256_fmadd_pd, _mm256_add_pd, _mm256_storeu_pd],
    [lanes_of_64, some_pd, _mm256_maskstore_pd, canonical_pd]
);
pub(super) use narrow_f32::TILES as NARROW_F32;
pub(super) use narrow_f64::TILES as NARROW_F64;
pub(super) use wide_f32::TILES as WIDE_F32;
pub(super) use wide_f64::TILES as WIDE_F64;

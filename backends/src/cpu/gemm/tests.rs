//! All implementations of products, compared with the defined order.

use super::tiles::{all, all as all_tiles};
use super::window::{Forms, Window, WindowAxes, WindowAxis, merged as merged_axes};
use super::*;
use crate::reference::order::CONTRACT_CHUNK;
use adfuse_ir::DType;
use std::ops::Add;

fn numbers<T>(n: usize, of: impl Fn(f64) -> T) -> Vec<T> {
    (0..n).map(|i| of(((i * 7919 % 1013) as f64 - 500.0) * 0.37)).collect()
}

/// All that the host can run.
fn products() -> Vec<(&'static str, &'static dyn Gemm)> {
    let mut found: Vec<(&str, &dyn Gemm)> = vec![("best", best())];
    #[cfg(target_arch = "x86_64")]
    found.extend(packed::all_of_host().iter().map(|p| (p.name(DType::F32), p as &dyn Gemm)));
    found.extend(all().map(|t| (t.name(DType::F32), t as &dyn Gemm)));
    found
}

fn aid<'a>(room: &mut [u64], met: &'a SubnormalState) -> GemmArgs<'a> {
    GemmArgs::new(room.as_mut_ptr().cast(), met)
}

/// A matrix in memory: its extents, and the elements from one row and column to the next.
#[derive(Clone, Copy, Debug)]
struct Laid {
    rows: usize,
    cols: usize,
    row: usize,
    column: usize,
}

impl Laid {
    /// Dense by rows, by columns, and with gaps between lines or everywhere.
    fn all(rows: usize, cols: usize) -> [Laid; 4] {
        let of = |row, column| Laid { rows, cols, row, column };
        [of(cols, 1), of(1, rows), of(cols + 3, 1), of(3, 3 * rows + 5)]
    }

    fn elements(&self) -> usize {
        (self.rows.max(1) - 1) * self.row + (self.cols.max(1) - 1) * self.column + 1
    }

    fn matrix<T>(&self, at: *mut T) -> MatrixView {
        MatrixView { at: at.cast(), row: self.row as isize, column: self.column as isize }
    }

    fn at(&self, i: usize, j: usize) -> usize {
        i * self.row + j * self.column
    }
}

/// The definition, a sum after the other; what lies between the places of `out` stays.
fn plain<T: Copy + Default + Add<Output = T>>(
    (x, a): (&[T], Laid),
    (y, b): (&[T], Laid),
    (out, to): (&mut [T], Laid),
    fused: fn(T, T, T) -> T,
    plus: fn(T, T) -> T,
) {
    for i in 0..to.rows {
        for j in 0..to.cols {
            let mut total = T::default();
            for from in (0..a.cols).step_by(CONTRACT_CHUNK) {
                let chunk = from..a.cols.min(from + CONTRACT_CHUNK);
                let sum = chunk.fold(T::default(), |s, k| fused(x[a.at(i, k)], y[b.at(k, j)], s));
                // The first is not added to +0: it may be -0.
                total = if from == 0 { sum } else { plus(total, sum) };
            }
            out[to.at(i, j)] = total;
        }
    }
}

const DEPTHS: [usize; 12] = [0, 1, 2, 3, 7, 64, 511, 512, 513, 1024, 1025, 1500];

/// Sizes around those of tiles and of what is packed at a time.
const SIZES: [usize; 12] = [1, 2, 3, 5, 6, 12, 17, 33, 64, 97, 256, 300];

/// Everything against the definition, in all layouts.
fn agrees<T: Copy + PartialEq + Default + Add<Output = T> + std::fmt::Debug>(
    dtype: DType,
    of: fn(f64) -> T,
    fused: fn(T, T, T) -> T,
    plus: fn(T, T) -> T,
) {
    let mut layouts = (0..64).cycle();
    for (d, depth) in DEPTHS.into_iter().enumerate() {
        for (a, rows) in SIZES.into_iter().enumerate() {
            let cols = SIZES[(a * 5 + d) % SIZES.len()];
            // Each size in some of the layouts, all of them in turn; the largest sizes are not needed in all
            // depths.
            let few = match rows * cols * depth {
                ..0x8000 => 5,
                0x8000..0x8_0000 => 1,
                _ => usize::from(rows * cols * depth < 0x20_0000 && d % 4 == 0),
            };
            for layout in layouts.by_ref().take(few) {
                let x = Laid::all(rows, depth)[layout & 3];
                let y = Laid::all(depth, cols)[layout >> 2 & 3];
                let to = Laid::all(rows, cols)[layout >> 4];
                let (xs, ys) = (numbers(x.elements(), of), numbers(y.elements(), of));
                let mut wanted = numbers(to.elements(), of);
                let before = wanted.clone();
                plain((&xs, x), (&ys, y), (&mut wanted, to), fused, plus);
                for (name, gemm) in products() {
                    let size = [rows, cols, depth];
                    let mut out = before.clone();
                    let words = gemm.room(dtype, size).div_ceil(8) as usize;
                    // What is beyond the room must stay.
                    let (mut room, met) = (vec![u64::MAX; words + 1], SubnormalState::default());
                    let (xm, ym) =
                        (x.matrix(xs.as_ptr().cast_mut()), y.matrix(ys.as_ptr().cast_mut()));
                    let om = to.matrix(out.as_mut_ptr());
                    // SAFETY: the vectors have these sizes.
                    unsafe { gemm.product(dtype, size, xm, ym, om, aid(&mut room, &met)) };
                    assert!(out == wanted, "{name}: {dtype}, {x:?} by {y:?} to {to:?}");
                    assert_eq!(room.last(), Some(&u64::MAX), "{name}: {dtype}, {x:?} by {y:?}");
                }
            }
        }
    }
}

#[test]
fn all_keep_the_order() {
    agrees::<f32>(DType::F32, |x| x as f32, f32::mul_add, |a, b| a + b);
    agrees::<f64>(DType::F64, |x| x, f64::mul_add, |a, b| a + b);
}

#[test]
fn integers_wrap() {
    agrees::<i64>(
        DType::I64,
        |x| (x * 1e17) as i64,
        |a, b, s| s.wrapping_add(a.wrapping_mul(b)),
        i64::wrapping_add,
    );
    agrees::<i32>(
        DType::I32,
        |x| (x * 1e7) as i32,
        |a, b, s| s.wrapping_add(a.wrapping_mul(b)),
        i32::wrapping_add,
    );
    agrees::<i8>(
        DType::I8,
        |x| x as i8,
        |a, b, s| s.wrapping_add(a.wrapping_mul(b)),
        i8::wrapping_add,
    );
}

#[test]
fn products_that_underflow_keep_their_sign() {
    for (name, gemm) in products() {
        let (mut x, mut y, mut out) = ([-1e-30f32], [1e-30f32], [1.0f32]);
        let one = |at: *mut f32| MatrixView { at: at.cast(), row: 1, column: 1 };
        let (x, y, to) = (one(x.as_mut_ptr()), one(y.as_mut_ptr()), one(out.as_mut_ptr()));
        let met = SubnormalState::default();
        let mut room = vec![0u64; gemm.room(DType::F32, [1; 3]).div_ceil(8) as usize];
        // SAFETY: one element each.
        unsafe { gemm.product(DType::F32, [1; 3], x, y, to, aid(&mut room, &met)) };
        assert_eq!(out[0].to_bits(), 0x8000_0000, "{name}");
    }
}

/// Windows of an image with two channels against the definition: strides, dilations, padding, several images,
/// and rows beside each other that are no matrix.
#[test]
fn windows_have_the_sums_of_what_they_show() {
    windows_agree::<f32>(DType::F32, |x| x as f32, f32::mul_add, |a, b| a + b);
    windows_agree::<f64>(DType::F64, |x| x, f64::mul_add, |a, b| a + b);
}

fn windows_agree<T: Copy + PartialEq + Default + Add<Output = T> + std::fmt::Debug>(
    dtype: DType,
    of: fn(f64) -> T,
    fused: fn(T, T, T) -> T,
    plus: fn(T, T) -> T,
) {
    // Images, channels, their lines and columns, kernel lines and columns, stride, dilation, padding, rows.
    const CASES: [[i64; 10]; 17] = [
        [2, 1, 12, 12, 5, 5, 1, 1, 0, 6],
        [3, 6, 12, 12, 5, 5, 1, 1, 0, 16],
        [1, 3, 9, 7, 3, 3, 1, 1, 1, 1],
        [2, 2, 11, 13, 3, 2, 2, 1, 1, 5],
        [1, 4, 10, 10, 3, 3, 1, 2, 2, 13],
        [2, 1, 8, 40, 1, 7, 1, 1, 3, 12],
        [1, 1, 5, 5, 5, 5, 1, 1, 0, 3],
        [2, 70, 6, 6, 3, 3, 1, 1, 1, 7],
        [1, 2, 20, 20, 2, 2, 2, 1, 0, 24],
        [4, 3, 7, 9, 3, 5, 3, 2, 4, 4],
        [1, 1, 1, 600, 1, 1, 1, 1, 0, 2],
        [1, 1, 64, 64, 3, 3, 1, 1, 1, 70],
        // Lines of more columns than a vector has, which are no multiple of it.
        [1, 2, 6, 42, 3, 3, 1, 1, 0, 9],
        [3, 6, 7, 28, 5, 5, 1, 1, 0, 20],
        [2, 3, 5, 21, 3, 3, 1, 1, 1, 4],
        // The same with several chunks of the depth.
        [1, 70, 4, 36, 3, 3, 1, 1, 1, 5],
        [1, 60, 5, 35, 3, 3, 1, 1, 0, 13],
    ];
    for case in CASES {
        let [images, channels, high, wide, kh, kw, stride, dilation, pad, rows] = case;
        let count = |n: i64, k: i64| (n + 2 * pad - dilation * (k - 1) - 1) / stride + 1;
        let (oh, ow) = (count(high, kh), count(wide, kw));
        let axis = |extent, place, line, column| {
            let mut steps = Forms::default();
            steps[..3].copy_from_slice(&[place, line, column]);
            WindowAxis { extent, steps }
        };
        let all = |axes: &[WindowAxis]| merged_axes(axes.iter().copied()).expect("few axes");
        let free = [
            axis(images, channels * high * wide, 0, 0),
            axis(oh, stride * wide, stride, 0),
            axis(ow, stride, 0, stride),
        ];
        let depth = [
            axis(channels, high * wide, 0, 0),
            axis(kh, dilation * wide, dilation, 0),
            axis(kw, dilation, 0, dilation),
        ];
        let mut first = Forms::default();
        first[..3].copy_from_slice(&[-pad * (wide + 1), -pad, -pad]);
        let guards = if pad > 0 { vec![0..high, 0..wide] } else { Vec::new() };
        let (n, k) = ((images * oh * ow) as usize, (channels * kh * kw) as usize);
        let image = numbers((images * channels * high * wide) as usize, of);
        // Every element as it is defined.
        let mut written = vec![T::default(); k * n];
        let at = |axes: &[WindowAxis], mut place: usize| {
            axes.iter().rev().fold([0i64; 3], |mut sum, a| {
                let c = (place as i64) % a.extent;
                place /= a.extent as usize;
                sum.iter_mut().zip(a.steps).for_each(|(s, step)| *s += c * step);
                sum
            })
        };
        for (d, line) in written.chunks_mut(n).enumerate() {
            for (j, x) in line.iter_mut().enumerate() {
                let (a, b) = (at(&depth, d), at(&free, j));
                let [place, y, x0] = [0, 1, 2].map(|k| first[k] + a[k] + b[k]);
                if (0..high).contains(&y) && (0..wide).contains(&x0) {
                    *x = image[place as usize];
                }
            }
        }
        let rows = rows as usize;
        let weights = numbers(rows * k, of);
        let lines = |rows, cols| Laid { rows, cols, row: cols, column: 1 };
        let mut wanted = vec![T::default(); rows * n];
        plain(
            (&weights, lines(rows, k)),
            (&written, lines(k, n)),
            (&mut wanted, lines(rows, n)),
            fused,
            plus,
        );
        let window = |free: &[WindowAxis], depth: &[WindowAxis]| Window {
            first,
            batch: WindowAxes::new(),
            free: all(free),
            depth: all(depth),
            guards: guards.iter().cloned().collect(),
            elements: image.len() as i64,
        };
        let window = window(&free, &depth);
        let left =
            MatrixView { at: weights.as_ptr().cast_mut().cast(), row: k as isize, column: 1 };
        // Halves of the columns, so that a piece begins within lines.
        for tiles in all_tiles() {
            let half = n / 2;
            for (from, to) in [(0, half), (half, n)] {
                let right = GemmSide::Window(window.placed(image.as_ptr().cast(), 0, from));
                let left = GemmSide::Matrix(left);
                let count = to - from;
                // Upright, and turned, so that the window's places are rows; the result row-major, and column-major.
                let upright = ([rows, count, k], [left, right]);
                let turned = ([count, rows, k], [right, left.transposed()]);
                for (size, sides, window_rows) in
                    [upright, turned].into_iter().zip([false, true]).map(|((a, b), c)| (a, b, c))
                {
                    for (row, column) in [(size[1], 1), (1, size[0])] {
                        let words = tiles.room(dtype, size).div_ceil(8) as usize;
                        let mut room = vec![u64::MAX; words + 1];
                        let mut out = vec![T::default(); rows * count];
                        let at = out.as_mut_ptr().cast();
                        let result = MatrixView { at, row: row as isize, column: column as isize };
                        // SAFETY: the vectors have these sizes.
                        unsafe {
                            tiles.windows(dtype, size, sides, result, room.as_mut_ptr().cast())
                        };
                        for (i, j) in (0..rows).flat_map(|i| (0..count).map(move |j| (i, j))) {
                            let [a, b] = if window_rows { [j, i] } else { [i, j] };
                            let (found, sum) =
                                (out[a * row + b * column], wanted[i * n + from + j]);
                            assert_eq!(found, sum, "{case:?}, {window_rows}, {row}: {i}, {j}");
                        }
                        assert_eq!(room.last(), Some(&u64::MAX), "{case:?}, {window_rows}, {row}");
                    }
                }
            }
        }
    }
}

/// Every NaN of a result becomes the canonical one, in every layout; what lies between its places stays.
#[test]
fn nans_of_results_become_canonical() {
    const OTHER: u32 = 0xFFC0_0001;
    for [rows, cols] in [[1, 1], [1, 40], [3, 7], [5, 16], [16, 16], [33, 9], [0, 4], [4, 0]] {
        for to in Laid::all(rows, cols) {
            let places = (0..rows).flat_map(|i| (0..cols).map(move |j| to.at(i, j)));
            let places: Vec<usize> = places.collect();
            for every in [1, 3, 64] {
                let of = |n: usize| match places.iter().position(|&p| p == n) {
                    Some(k) if k % every != 0 => 1.5,
                    _ => f32::from_bits(OTHER),
                };
                let length = to.elements().max(1);
                let mut out: Vec<f32> = (0..length).map(of).collect();
                let mut wanted = out.clone();
                for &place in places.iter().step_by(every) {
                    wanted[place] = f32::NAN;
                }
                // SAFETY: the vector has these places.
                unsafe { canonical(DType::F32, [rows, cols], to.matrix(out.as_mut_ptr())) };
                let bits = |all: &[f32]| all.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
                assert_eq!(bits(&out), bits(&wanted), "{to:?}, every {every}");
            }
        }
    }
}

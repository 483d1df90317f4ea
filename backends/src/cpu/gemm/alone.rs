//! How fast tiles are multiplied whose operands are in the first cache: what products can reach on a host.
#![allow(unsafe_code)]

use super::packed::found;
use super::{Gemm, GemmArgs, MatrixView, SubnormalState};
use adfuse_ir::DType;
use std::time::Instant;

/// Rows, columns and depth of a product of few tiles, whose rows, columns and sums are 22 KiB of `f64`.
const SIZE: [usize; 3] = [14, 32, 64];

/// Products in a measurement, and measurements, of which the median counts: cores that share their multipliers do so.
const PRODUCTS: usize = 200;
const TIMES: usize = 501;

/// Floating-point operations a second of products of this type on one thread; `None` where the host has no such tiles.
pub fn tile_rate(dtype: DType) -> Option<f64> {
    let gemm = found().filter(|_| dtype.is_float() && dtype.bytes() >= 4)?;
    let [rows, cols, depth] = SIZE;
    let words = gemm.room(dtype, SIZE).div_ceil(8) as usize;
    let mut arrays = [vec![0u64; rows * depth], vec![0; depth * cols], vec![0; rows * cols]];
    let mut room = vec![0u64; words];
    let met = SubnormalState::default();
    let mut view = |k: usize, line: usize| {
        let at = arrays[k].as_mut_ptr().cast();
        MatrixView { at, row: line as isize, column: 1 }
    };
    let [x, y, out] = [view(0, depth), view(1, cols), view(2, cols)];
    let mut all = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let begin = Instant::now();
        for _ in 0..PRODUCTS {
            let aid = GemmArgs::new(room.as_mut_ptr().cast(), &met);
            // SAFETY: the arrays have these sizes.
            unsafe { gemm.product(dtype, SIZE, x, y, out, aid) };
        }
        all.push(begin.elapsed().as_secs_f64());
    }
    all.sort_by(f64::total_cmp);
    Some(2.0 * (rows * cols * depth * PRODUCTS) as f64 / all[TIMES / 2])
}

//! The matrix library without the engine, on dense operands.

use crate::{flops, median, seconds};
use adfuse::ir::DType;
use std::time::Instant;

/// The most GFLOP/s of the four layouts, for a product of this size on one thread, and which that is: `N` for
/// rows one after the other, `T` for columns; the left operand's comes first.
#[cfg(target_arch = "x86_64")]
pub(crate) fn best(dtype: DType, sizes: [usize; 4]) -> (f64, &'static str) {
    use adfuse::backends::cpu::LibraryProduct;
    let [batch, rows, cols, depth] = sizes;
    let layouts =
        [("NN", [false; 2]), ("NT", [false, true]), ("TN", [true, false]), ("TT", [true; 2])];
    let rate = |turned| {
        let mut product = LibraryProduct::new(dtype, batch, [rows, cols, depth], turned)?;
        let all = seconds(|| {
            let begin = Instant::now();
            product.run();
            begin.elapsed().as_secs_f64()
        });
        Some(flops(sizes) / median(&all) / 1e9)
    };
    let rates = layouts.into_iter().filter_map(|(name, turned)| Some((rate(turned)?, name)));
    rates.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::NAN, "-"))
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn best(_: DType, _: [usize; 4]) -> (f64, &'static str) {
    (f64::NAN, "-")
}

//! How much memory a library's product takes beside its matrices: the library says how well each of its ways fills the chip,
//! and a way is taken where what it gains is worth what its workspace costs.
//!
//! A workspace has the sums of parts of the depth, which are written and read once more. In a plan its bytes count as those of
//! any temporary, so of ways that take as long the one with the least is taken.

use crate::gpu::schedule::library_product::Product;
use crate::gpu::schedule::warpgroup_price::{BANDWIDTH, LIBRARY_RATE};
use adfuse_ir::{DType, Fp};

/// What the library is asked to keep within, in bytes; more memory is only asked for where less leaves the chip idle.
pub(super) const WORKSPACES: [usize; 3] = [0, 4 << 20, 32 << 20];

/// Another way has to take this part of the time less for each larger workspace.
const WORTH: f64 = 0.05;

/// A way to multiply, as the library describes it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct WayFacts {
    /// Bytes beside the matrices.
    pub(super) workspace: u64,
    /// How many times the blocks fill the chip.
    pub(super) waves: f64,
}

impl WayFacts {
    /// Seconds of a product that takes `ideal` where it fills the chip in every wave.
    fn seconds(&self, ideal: f64) -> f64 {
        let known = self.waves.is_finite() && self.waves > 0.0;
        let idle = if known { self.waves.ceil() / self.waves } else { 1.0 };
        ideal * idle + 2.0 * self.workspace as f64 / BANDWIDTH
    }
}

/// Seconds of a product at the rate of the library's best, on an H200.
pub(super) fn ideal_seconds(product: &Product, fp: Fp) -> f64 {
    let operations = 2.0 * product.size.iter().map(|&n| n as f64).product::<f64>();
    let slower = match (product.lhs.dtype, fp) {
        (DType::BF16 | DType::F16, _) => 1.0,
        (DType::F32, Fp::Fast) => 2.0,
        _ => 15.0,
    };
    operations * slower / LIBRARY_RATE
}

/// Which of some ways is taken, those with less memory first.
pub(super) fn chosen(ways: &[WayFacts], ideal: f64) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for (k, way) in ways.iter().enumerate() {
        let seconds = way.seconds(ideal);
        let is_better = best.is_none_or(|(n, least)| {
            let more = way.workspace > ways[n].workspace;
            seconds < if more { least * (1.0 - WORTH) } else { least }
        });
        if is_better {
            best = Some((k, seconds));
        }
    }
    best.map(|(k, _)| k)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(mebibytes: u64, waves: f64) -> WayFacts {
        WayFacts { workspace: mebibytes << 20, waves }
    }

    #[test]
    fn a_workspace_has_to_be_worth_its_traffic() {
        let cases = [
            // Full waves gain nothing from parts of the depth.
            (1e-4, vec![way(0, 1.0), way(32, 1.0)], 0),
            (1e-4, vec![way(0, 7.8), way(32, 8.0)], 0),
            // A seventh of the chip: the depth is divided.
            (2.5e-5, vec![way(0, 0.14), way(4, 0.14), way(32, 0.97)], 2),
            // A smaller workspace that does as well.
            (2.5e-5, vec![way(0, 0.14), way(4, 0.9), way(32, 0.97)], 1),
            // A short product takes less than 32 MiB take to write and read.
            (2e-6, vec![way(0, 0.14), way(32, 1.0)], 0),
            // Where the library says nothing of waves, the least memory.
            (1e-4, vec![way(0, 0.0), way(32, f64::NAN)], 0),
            // The library may give less than was offered, or no way without memory.
            (1e-4, vec![way(2, 1.0), way(0, 1.0)], 1),
            (1e-4, vec![way(32, 0.5)], 0),
        ];
        for (ideal, ways, due) in cases {
            assert_eq!(chosen(&ways, ideal), Some(due), "{ways:?}");
        }
        assert_eq!(chosen(&[], 1.0), None);
    }
}

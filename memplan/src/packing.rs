//! The planner's answer: an offset for every buffer, and how good that answer is known to be.

use std::fmt;

use cranelift_entity::PrimaryMap;

use crate::problem::{BufferId, Offset};

/// Offsets for all buffers of a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Where each buffer starts.
    pub offsets: PrimaryMap<BufferId, Offset>,
    /// Bytes the arena needs: the greatest end of any buffer that holds bytes at some time.
    pub peak: u64,
    /// No packing has a peak below this many bytes.
    pub lower_bound: u64,
    /// What found the packing.
    pub method: Method,
    /// Search steps spent, of [`PackOptions::effort`](crate::PackOptions::effort).
    pub steps: u64,
    /// How often all buffers were placed, in some order or by best fit: what is certain to be no better than another is counted
    /// too, though it is not gone on with.
    pub placements: u64,
}

impl Packing {
    /// Whether the peak is known to be the least possible.
    pub fn is_optimal(&self) -> bool {
        self.peak == self.lower_bound
    }
}

/// A rule that puts buffers in the order in which they are placed, each as low as it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlacementOrder {
    /// Largest size first.
    Size,
    /// Largest product of size and lifetime first.
    Area,
    /// Longest lifetime first.
    Lifetime,
    /// Earliest birth first: what an allocator does that sees the program as it runs.
    Birth,
    /// Latest death first: the same with time reversed.
    Death,
    /// Live at the most crowded moment first.
    Load,
}

impl PlacementOrder {
    /// All orders, in the order they are tried.
    pub const ALL: [PlacementOrder; 6] = [
        PlacementOrder::Size,
        PlacementOrder::Area,
        PlacementOrder::Lifetime,
        PlacementOrder::Load,
        PlacementOrder::Birth,
        PlacementOrder::Death,
    ];
}

/// The part of the planner that found a packing.
///
/// Where a problem falls into parts that are never live together, this is the method of the part
/// that has the peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// No buffer needed placing.
    Trivial,
    /// One pass in a fixed order.
    Greedy(PlacementOrder),
    /// One pass along time, each buffer where it fits best.
    Sweep,
    /// The lowest free room filled with what fits best, again and again.
    BestFit,
    /// Buffers that fit together exactly were joined to boxes first, and the boxes placed.
    Boxes,
    /// An order improved by moving what stuck out to the front.
    Refined,
    /// The exact search.
    Search,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Method::Trivial => "trivial",
            Method::Greedy(PlacementOrder::Size) => "greedy by size",
            Method::Greedy(PlacementOrder::Area) => "greedy by area",
            Method::Greedy(PlacementOrder::Lifetime) => "greedy by lifetime",
            Method::Greedy(PlacementOrder::Birth) => "greedy by birth",
            Method::Greedy(PlacementOrder::Death) => "greedy by death",
            Method::Greedy(PlacementOrder::Load) => "greedy by load",
            Method::BestFit => "best fit",
            Method::Sweep => "one pass along time",
            Method::Boxes => "boxes",
            Method::Refined => "refined order",
            Method::Search => "search",
        })
    }
}

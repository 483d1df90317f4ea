//! Which axes of gathers and scatters have windows, and which have places.

use super::attributes::{entry, number};
use crate::emit::refusal::{Unlowered, refuse};
use crate::text::tree::Attribute;

/// The dimension numbers of a gather or of a scatter.
#[derive(Clone)]
pub(super) struct DimensionNumbers {
    pub(super) window: Vec<i64>,
    pub(super) removed: Vec<i64>,
    pub(super) batching: Vec<i64>,
    pub(super) indices_batching: Vec<i64>,
    pub(super) map: Vec<i64>,
    pub(super) vector: i64,
}

impl DimensionNumbers {
    pub(super) fn of(
        attr: Option<&Attribute<'_>>,
        names: [&str; 5],
    ) -> Result<DimensionNumbers, Unlowered> {
        let Some(attr) = attr else { return refuse("without dimension numbers") };
        Ok(DimensionNumbers {
            window: entry(attr, names[0])?,
            removed: entry(attr, names[1])?,
            batching: entry(attr, names[2])?,
            indices_batching: entry(attr, names[3])?,
            map: entry(attr, names[4])?,
            vector: attr.entry("index_vector_dim").map_or(Ok(0), number)?,
        })
    }

    /// The axis of the indices, with their components last, that batching dimension number `k` goes with.
    pub(super) fn index_axis(&self, k: usize) -> i64 {
        let along = self.indices_batching.get(k).copied().unwrap_or(0);
        if along > self.vector { along - 1 } else { along }
    }

    /// The operand's axes that no window has.
    pub(super) fn collapsed(&self) -> Vec<i64> {
        let mut all: Vec<i64> = self.removed.iter().chain(&self.batching).copied().collect();
        all.sort_unstable();
        all
    }
}

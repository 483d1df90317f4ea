//! The extents of an attention, and of its blocks.

use crate::types::TensorType;

/// Keys of a block, and rows of a block where cotangents of keys and values are summed.
pub const ATTENTION_BLOCK: u64 = 128;

/// Elements of a query and of a value together for which cotangents of keys and of values are computed in one pass on matrix units;
/// of more, there is a pass for each.
pub const ATTENTION_JOINT: u64 = 256;

/// Extents of an attention, with one batch axis for all of the operands' and one for the heads that share keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttentionShape {
    /// Groups of heads, over the whole batch: each has keys and values of its own.
    pub groups: u64,
    /// Heads that share the keys and values of a group.
    pub shared: u64,
    /// Queries of a head.
    pub rows: u64,
    /// Keys of a group.
    pub stream: u64,
    /// Elements of a query and a key.
    pub depth: u64,
    /// Elements of a value.
    pub width: u64,
}

impl AttentionShape {
    /// Of the types of queries, keys and values; `None` where extents are unknown or the types do not fit.
    pub fn of(q: &TensorType, k: &TensorType, v: &TensorType) -> Option<AttentionShape> {
        let [q, k, v] = [q.dims()?, k.dims()?, v.dims()?];
        let rank = q.len();
        if rank < 3 || k.len() != rank || v.len() != rank {
            return None;
        }
        let (heads, groups) = (q[rank - 3], k[rank - 3]);
        let shared = match groups {
            0 => 1,
            n => heads / n,
        };
        Some(AttentionShape {
            groups: k[..rank - 2].iter().product(),
            shared,
            rows: q[rank - 2],
            stream: k[rank - 2],
            depth: q[rank - 1],
            width: v[rank - 1],
        })
    }

    /// How many keys further a query sees than its own place: the last query sees all keys.
    pub fn ahead(self) -> i64 {
        self.stream as i64 - self.rows as i64
    }
}

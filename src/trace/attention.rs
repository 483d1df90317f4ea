//! Attention of queries to keys and values.

use super::Tensor;
use super::record::apply_all;
use crate::ir::Op;
use crate::ir::attrs::Attrs;
use crate::ir::op::AttentionReach;

/// What a query sees of the keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionMask<'t> {
    /// Whether row i sees no key after its place, i + stream - rows.
    pub causal: bool,
    /// How many keys before its place, and how many after it, a row sees; `None` where it sees all of them. Engines with a step for
    /// attention leave out tiles of keys that no row of a block sees.
    pub window: [Option<u64>; 2],
    /// Truth values, where keys are seen, or a bias of scores, with the extents of scores or 1: `[.., heads, rows, stream]`.
    pub extra: Option<&'t Tensor>,
}

impl Tensor {
    /// Values `[.., groups, stream, width]` weighed by the softmax of the products of these queries `[.., heads, rows, depth]`
    /// with keys `[.., groups, stream, depth]`; and the logarithm of each row's sum of exponentials. Groups divide heads.
    /// Scores are never stored, forward or backward. Scale the queries where scores are scaled.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| {
    ///     let (q, k) = (t.constant([[[1.0, 0.0]]]), t.constant([[[5.0, 1.0], [5.0, 2.0]]]));
    ///     q.attention(&k, &t.constant([[[1.0], [3.0]]]), AttentionMask::default()).0
    /// })?;
    /// assert_eq!(y.to_f64s(), [2.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn attention(&self, k: &Tensor, v: &Tensor, mask: AttentionMask<'_>) -> (Tensor, Tensor) {
        let [before, after] = mask.window;
        let after = if mask.causal { Some(0) } else { after };
        let attrs = AttentionReach { before, after }.with(Attrs::none());
        let args: Vec<&Tensor> = [self, k, v].into_iter().chain(mask.extra).collect();
        self.pair(apply_all(&self.state, Op::Attention, &args, attrs, None))
    }
}

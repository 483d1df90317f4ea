//! Contractions with columns as a batch: the same sums, of matrices whose columns are evenly spaced in memory.

use super::buffer::Extents;
use super::program::Member;
use super::stage::Sink;
use crate::index::IndexExpr;

impl Member {
    /// The same sums with the outermost axis of the columns as the innermost of the batch; `None` where that is the only one, or
    /// what follows the sums folds them, in the order of their coordinates.
    pub fn with_columns_in_batch(&self) -> Option<Member> {
        let (&outermost, cols) = self.cols.split_first()?;
        if cols.is_empty() || !self.then.sinks.iter().all(|s| matches!(s, Sink::Store { .. })) {
            return None;
        }
        let (batch, rows) = (self.batch.len(), self.rows.len());
        // Where the axes of the left operand, and of the result, are now. Those of the right one stay where they are.
        let behind = |axis: usize| if axis < batch { axis } else { axis + 1 };
        let lhs: Vec<IndexExpr> =
            (0..batch + rows + self.depth.len()).map(|a| IndexExpr::axis(behind(a))).collect();
        let result = |axis: usize| match axis {
            a if a == batch + rows => batch,
            a if a < batch + rows => behind(a),
            a => a,
        };
        let result: Vec<IndexExpr> =
            (0..self.result().len()).map(|a| IndexExpr::axis(result(a))).collect();
        Some(Member {
            batch: self.batch.iter().copied().chain([outermost]).collect(),
            cols: cols.iter().copied().collect::<Extents>(),
            lhs: self.lhs.at(&lhs),
            then: self.then.at(&result),
            ..self.clone()
        })
    }
}

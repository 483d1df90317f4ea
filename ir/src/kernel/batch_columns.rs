//! Contractions with columns as a batch: the same sums, of matrices whose columns are evenly spaced in memory.

use super::buffer::Extents;
use super::program::{Feed, Member};
use super::stage::{Sink, Stage};
use super::unroll::moved;
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

impl Feed {
    /// What it reads at other coordinates.
    fn at(&self, coordinates: &[IndexExpr]) -> Feed {
        let params = self.params.iter().map(|p| moved(p, coordinates)).collect();
        Feed { params, program: self.program.clone() }
    }
}

impl Stage {
    /// What it reads and stores at other coordinates.
    fn at(&self, coordinates: &[IndexExpr]) -> Stage {
        let mut stage = self.clone();
        for param in &mut stage.params {
            *param = moved(param, coordinates);
        }
        for sink in &mut stage.sinks {
            if let Sink::Store { index, .. } = sink {
                index.iter_mut().for_each(|e| *e = e.compose(coordinates));
            }
        }
        stage
    }
}

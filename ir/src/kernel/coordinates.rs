//! What kernels read and store at other coordinates: expressions in place of the coordinates that are there.

use super::program::Feed;
use super::stage::{Param, Sink, Stage};
use crate::index::IndexExpr;

impl Param {
    /// The parameter with expressions in place of its coordinates.
    #[must_use]
    pub fn at(&self, coordinates: &[IndexExpr]) -> Param {
        let mut param = self.clone();
        param.expressions_mut().for_each(|e| *e = e.compose(coordinates));
        param
    }
}

impl Feed {
    /// The operand with expressions in place of its coordinates.
    #[must_use]
    pub fn at(&self, coordinates: &[IndexExpr]) -> Feed {
        let params = self.params.iter().map(|p| p.at(coordinates)).collect();
        Feed { params, program: self.program.clone() }
    }
}

impl Stage {
    /// The stage with expressions in place of the coordinates of what it reads and stores. Folds, which name axes, stay as they are.
    #[must_use]
    pub fn at(&self, coordinates: &[IndexExpr]) -> Stage {
        let mut stage = self.clone();
        stage.params.iter_mut().for_each(|param| *param = param.at(coordinates));
        for sink in &mut stage.sinks {
            if let Sink::Store { index, .. } = sink {
                index.iter_mut().for_each(|e| *e = e.compose(coordinates));
            }
        }
        stage
    }
}

//! Folds behind a contraction: which go in the order of its tiles.

use super::part::{Part, PartContext};
use crate::analysis::axes::{AtomRun, TensorAxes};
use crate::analysis::class::InstClass;
use crate::analysis::facts::{Facts, folded};
use crate::plan::refusal::Refusal;
use adfuse_ir::Inst;

impl Part {
    /// Checks that a reduction behind a contraction folds in the order of the tiles.
    pub(super) fn check_tile_order(
        &self,
        cx: &PartContext<'_>,
        i: Inst,
        place: &TensorAxes,
        frame: &AtomRun,
    ) -> Result<(), Refusal> {
        let marks = folded(cx.facts, i);
        let folds: AtomRun = (place.iter().zip(&marks).filter(|(_, f)| **f))
            .flat_map(|(run, _)| self.axes.whole(run))
            .collect();
        let kept = marks.iter().rposition(|f| !f);
        let gone = marks.iter().position(|&f| f);
        if gone > kept && kept.is_some() {
            let held = self.holds_rows(cx, i, &folds);
            return if held { Ok(()) } else { Err(Refusal::Rows) };
        }
        // In another order than that of the tiles every value would have to be kept.
        let first = frame.iter().position(|a| folds.contains(a)).unwrap_or(0);
        if frame[first..].iter().take(folds.len()).any(|a| !folds.contains(a)) {
            return Err(Refusal::Interleaved);
        }
        Ok(())
    }

    /// Whether tiles hold the whole rows that a reduction folds. Rows of the result lie across the tiles of a GPU, and a kernel that
    /// reads them whole folds them better. On other machines a tile has all columns of its rows where these are few: the places of
    /// extrema are found there, so that the result isn't stored. Other folds of rows are often followed by what reads them again.
    fn holds_rows(&self, cx: &PartContext<'_>, i: Inst, folds: &AtomRun) -> bool {
        let Facts { f, class, .. } = cx.facts;
        let is_place = matches!(class[i], InstClass::Reduce(monoid) if monoid.is_arg());
        let columns = self.columns(cx.facts).is_some_and(|columns| columns == *folds);
        let bytes = f.ty(f.args(i)[0]).dtype.bytes();
        is_place && columns && cx.device.tile_has_rows(self.axes.points(folds), bytes)
    }
}

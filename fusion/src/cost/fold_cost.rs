//! The cost of folds: those along vectors are free beside their operation, others take each element by itself.

use adfuse_ir::kernel::{Order, Run, Sink, Stage};

/// Shorter lines and columns are not folded by vectors.
const SHORT: i64 = 16;

/// How an engine goes through what it folds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FoldPattern {
    /// With vectors, as the elements are computed.
    Vector,
    /// One after the other, from an array.
    Single,
    /// As [`FoldPattern::Single`], after the array's axes have been interchanged.
    Interchanged,
}

/// How a sink folds, if it does; `extents` are those of the domain and of the stage's axes.
pub(super) fn pattern(stage: &Stage, sink: &Sink, extents: &[i64]) -> Option<FoldPattern> {
    let domain = extents.len().saturating_sub(stage.axes.len());
    match sink {
        Sink::Reduce { runs, .. } => Some(of_runs(runs, extents.get(domain..)?)),
        Sink::Fold { runs, .. } => Some(of_runs(runs, extents)),
        Sink::Store { .. } | Sink::Scan { .. } | Sink::Keep(_) | Sink::Leave(_) => None,
    }
}

/// The first run takes every element, the others what it leaves.
fn of_runs(runs: &[Run], extents: &[i64]) -> FoldPattern {
    let Some(run) = runs.first() else { return FoldPattern::Vector };
    let long: Vec<usize> = (0..extents.len()).filter(|&a| extents[a] != 1).collect();
    let axes: Vec<usize> = run.axes.iter().map(|&a| usize::from(a)).collect();
    let Some(at) = long.windows(axes.len().max(1)).position(|w| w == axes) else {
        return FoldPattern::Interchanged;
    };
    let last = |axes: &[usize]| axes.last().map_or(1, |&a| extents[a]);
    let behind = &long[at + axes.len()..];
    let vectors = match (run.order, behind.is_empty()) {
        (Order::Lane, true) => last(&axes) >= SHORT,
        (Order::Lane, false) => return FoldPattern::Interchanged,
        // A chain along a line waits for each of its elements.
        (Order::Chain, true) => false,
        (Order::Chain, false) => last(behind) >= SHORT,
    };
    if vectors { FoldPattern::Vector } else { FoldPattern::Single }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_are_along_vectors_or_take_each_element() {
        use FoldPattern::*;
        use Order::*;
        for (extents, axes, order, due) in [
            (&[64, 64][..], &[1u8][..], Lane, Vector),
            (&[64, 64], &[0, 1], Lane, Vector),
            (&[64, 64], &[0], Chain, Vector),
            // Short lines and columns; a chain along a line.
            (&[64, 8], &[1], Lane, Single),
            (&[64, 8], &[0], Chain, Single),
            (&[64, 64], &[1], Chain, Single),
            // Axes of extent 1 are nowhere.
            (&[64, 64, 1], &[1], Lane, Vector),
            // Rows that come one column after the other, axes that are no neighbours.
            (&[64, 64], &[0], Lane, Interchanged),
            (&[64, 4, 64], &[0, 2], Lane, Interchanged),
        ] {
            let run = Run { axes: axes.iter().copied().collect(), order };
            assert_eq!(of_runs(&[run], extents), due, "{extents:?} {axes:?} {order:?}");
        }
        assert_eq!(of_runs(&[], &[4]), Vector);
    }
}

//! Vector accesses: which neighbouring elements one load or store has.

use super::index::{coordinates, divisible, split, whole};
use adfuse_ir::affine::simplified;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Operand, Param, Piece, Program, Sink, Stage, Storage, volume};

/// The coordinates of neighbouring points, in terms of variables of these extents.
pub(crate) struct VectorLanes<'a> {
    pub(crate) coords: &'a [Vec<IndexExpr>],
    pub(crate) extents: &'a [i64],
}

/// The coordinates of `width` neighbours of group `d0` of points of a domain; `None` where they do not divide it.
pub(crate) fn neighbours(domain: &[i64], width: i64) -> Option<Vec<Vec<IndexExpr>>> {
    if volume(domain) % width != 0 {
        return None;
    }
    let g = IndexExpr::axis(0);
    let last = domain.iter().rposition(|&n| n != 1);
    let coords = (0..width).map(|j| match last {
        Some(last) if domain[last] % width == 0 => {
            let mut groups = domain.to_vec();
            groups[last] /= width;
            let mut at = coordinates(&g, &groups);
            at[last] = at[last].clone().times(width).plus(j);
            at
        }
        _ => coordinates(&g.clone().times(width).plus(j), domain),
    });
    Some(coords.collect())
}

/// The number of elements of memory before an element, as an expression of variables of these extents.
pub(crate) fn element(
    program: &Program,
    b: Buffer,
    index: &[IndexExpr],
    (coords, extents): (&[IndexExpr], &[i64]),
) -> IndexExpr {
    let data = &program.buffers[b];
    let mut dense = 1i64;
    let mut sum = IndexExpr::Const(0);
    for (k, e) in index.iter().enumerate().rev() {
        let stride = data.strides.as_ref().and_then(|s| s.get(k).copied()).unwrap_or(dense);
        sum = e.clone().times(stride).sum(sum);
        dense = dense.saturating_mul(data.dims.get(k).copied().unwrap_or(1).max(1));
    }
    simplified(&sum.compose(coords), extents)
}

impl VectorLanes<'_> {
    /// How many accesses of a stage are vectors.
    fn accesses(&self, program: &Program, stage: &Stage) -> usize {
        let loads = stage.params.iter().filter_map(whole);
        let loads = loads.filter(|(b, piece)| self.aligned(program, *b, &piece.index).is_some());
        let stores = stage.sinks.iter().filter(|sink| match sink {
            Sink::Store { buffer, index } => self.aligned(program, *buffer, index).is_some(),
            _ => false,
        });
        loads.count() + stores.count()
    }

    /// The first of the elements that the points have in a row of memory, which begins at a multiple of their number.
    pub(crate) fn aligned(
        &self,
        program: &Program,
        b: Buffer,
        index: &[IndexExpr],
    ) -> Option<IndexExpr> {
        let width = self.coords.len() as i64;
        if program.buffers[b].storage != Storage::Plain || width < 2 {
            return None;
        }
        let of = |coords: &Vec<IndexExpr>| element(program, b, index, (coords, self.extents));
        let first = of(self.coords.first()?);
        let (rest, start) = split(&first);
        if start % width != 0 || !divisible(&rest, width) {
            return None;
        }
        let in_a_row = self.coords.iter().zip(0i64..).skip(1).all(|(coords, j)| {
            let (other, k) = split(&of(coords));
            other == rest && k == start + j
        });
        in_a_row.then_some(first)
    }
}

/// How many accesses of a stage over a domain are vectors, where threads have this many neighbours each; `None` where
/// they do not divide the domain.
pub(crate) fn vectors(
    program: &Program,
    stage: &Stage,
    domain: &[i64],
    width: i64,
) -> Option<usize> {
    let coords = neighbours(domain, width)?;
    let extents = [(volume(domain) / width).max(1)];
    Some(VectorLanes { coords: &coords, extents: &extents }.accesses(program, stage))
}

/// Loads of single elements that threads with this many neighbours have under way together: those that are no vectors and differ from
/// neighbour to neighbour. None where they do not divide the domain.
pub(crate) fn single_loads(program: &Program, stage: &Stage, domain: &[i64], width: i64) -> i64 {
    let Some(coords) = neighbours(domain, width) else { return 0 };
    let extents = [(volume(domain) / width).max(1)];
    let lanes = VectorLanes { coords: &coords, extents: &extents };
    let differs = |piece: &Piece| {
        let of = |e: &IndexExpr, u: usize| simplified(&e.compose(&coords[u]), &extents);
        coords.len() > 1 && piece.index.iter().any(|e| of(e, 0) != of(e, 1))
    };
    let single = |piece: &&Piece| match piece.from {
        Operand::Buffer(b) => lanes.aligned(program, b, &piece.index).is_none() && differs(piece),
        Operand::Literal(_) => false,
    };
    let read = stage.params.iter().enumerate().filter(|(k, _)| stage.program.reads_param(*k));
    let pieces = read.flat_map(|(_, param)| match param {
        Param::Load(pieces) => pieces.as_slice(),
        _ => &[],
    });
    pieces.filter(single).count() as i64 * width
}

/// How many accesses of a stage over a domain are vectors, where threads have this many neighbours each along an axis whose
/// extent is a multiple.
pub(crate) fn vectors_along(
    program: &Program,
    stage: &Stage,
    (domain, axis): (&[i64], usize),
    width: i64,
) -> usize {
    let mut extents = domain.to_vec();
    extents[axis] /= width;
    let coords = (0..width).map(|j| {
        let mut at: Vec<IndexExpr> = (0..domain.len()).map(IndexExpr::axis).collect();
        at[axis] = IndexExpr::axis(axis).times(width).plus(j);
        at
    });
    let coords: Vec<_> = coords.collect();
    VectorLanes { coords: &coords, extents: &extents }.accesses(program, stage)
}

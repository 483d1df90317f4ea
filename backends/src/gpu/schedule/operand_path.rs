//! How a product's operand comes to its tiles: as it lies in memory, or element by element.

use adfuse_ir::kernel::{Operand as From, Param, Storage, volume};
use adfuse_ir::scalar::SOp;

use super::mma_unit::Unit;
use adfuse_ir::DType;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Extents, Feed, Member, Piece, Program};

/// How an operand's elements come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OperandPath {
    /// Copied from a buffer, this many bytes at a time; from line to line and along the depth they lie so
    /// many elements apart.
    Copied { buffer: Buffer, steps: [i64; 2], bytes: i64, along: bool },
    /// Computed, by threads that go along the depth or across it.
    Computed { along: bool },
}

impl OperandPath {
    /// Bytes of one copy; none for what is computed.
    pub(crate) fn copied(&self) -> Option<i64> {
        match *self {
            OperandPath::Copied { bytes, .. } => Some(bytes),
            OperandPath::Computed { .. } => None,
        }
    }

    /// Whether neighbours in memory are along the depth.
    pub(crate) fn along(&self) -> bool {
        match *self {
            OperandPath::Copied { along, .. } | OperandPath::Computed { along } => along,
        }
    }
}

/// The feed of an operand, and the axes that are its own.
pub(crate) fn feed(m: &Member, side: usize) -> (&Feed, &Extents) {
    if side == 0 { (&m.lhs, &m.rows) } else { (&m.rhs, &m.cols) }
}

/// How an operand comes to shared memory, where its elements have the type `held`.
pub(crate) fn operand_path(
    program: &Program,
    m: &Member,
    side: usize,
    unit: Unit,
    held: DType,
) -> OperandPath {
    let along = along_depth(program, m, side);
    let computed = OperandPath::Computed { along };
    let (feed, axes) = feed(m, side);
    let Some((buffer, piece)) = whole(program, feed, held) else { return computed };
    let data = &program.buffers[buffer];
    let (batch, own) = (m.batch.len(), axes.len());
    let rank = batch + own + m.depth.len();
    let Some(steps) = data.steps(&piece.index, rank) else { return computed };
    let Some(first) = first(program, buffer, &piece.index, rank) else { return computed };
    let (lines, deep) = (&steps[batch..batch + own], &steps[batch + own..]);
    let (Some(line), Some(deep)) = (merged(lines, axes), merged(deep, &m.depth)) else {
        return computed;
    };
    let size = held.bytes() as i64;
    let wide = 16 / size.max(1);
    let extents = [volume(axes), volume(&m.depth)];
    let (near, far) = if along { (1, 0) } else { (0, 1) };
    let all = [line, deep];
    let aligned = |step: i64, n: i64| n == 1 || step % wide == 0;
    let in_rows = all[near] == 1
        && extents[near] % wide == 0
        && aligned(all[far], extents[far])
        && first % wide == 0
        && steps.iter().zip(&m.batch).all(|(&s, &n)| aligned(s, n));
    let bytes = match unit {
        // Multiply-adds have neighbours across the depth in shared memory.
        Unit::Fma if along => size,
        _ if in_rows => 16,
        _ => size,
    };
    match bytes {
        4 | 8 | 16 => OperandPath::Copied { buffer, steps: all, bytes, along },
        _ => computed,
    }
}

/// The buffer whose elements a feed gives as they are.
pub(crate) fn whole<'f>(
    program: &Program,
    feed: &'f Feed,
    held: DType,
) -> Option<(Buffer, &'f Piece)> {
    let [Param::Load(pieces)] = feed.params.as_slice() else { return None };
    let [piece] = pieces.as_slice() else { return None };
    let From::Buffer(b) = piece.from else { return None };
    let [out] = feed.program.outputs.as_slice() else { return None };
    let data = &program.buffers[b];
    let as_it_is = feed.program.insts[*out].op == SOp::Param(0) && data.dtype == held;
    let plain = data.storage == Storage::Plain && piece.guards.is_empty();
    (as_it_is && plain).then_some((b, piece))
}

/// The number of the element at the first coordinates, of which there are this many.
pub(crate) fn first(program: &Program, b: Buffer, index: &[IndexExpr], rank: usize) -> Option<i64> {
    let data = &program.buffers[b];
    let zeros = vec![0; rank];
    let (mut at, mut dense) = (0i64, 1i64);
    for (k, e) in index.iter().enumerate().rev() {
        let stride = data.strides.as_ref().map_or(Some(dense), |s| s.get(k).copied())?;
        at = at.checked_add(e.eval(&zeros, &[]).checked_mul(stride)?)?;
        dense = dense.checked_mul((*data.dims.get(k)?).max(1))?;
    }
    Some(at)
}

/// The step of axes as one; `None` where they are not one.
pub(crate) fn merged(steps: &[i64], extents: &[i64]) -> Option<i64> {
    let long = || steps.iter().zip(extents).filter(|(_, n)| **n != 1);
    let fits = long().zip(long().skip(1)).all(|((a, _), (b, n))| b.checked_mul(*n) == Some(*a));
    match long().next_back() {
        None => Some(0),
        Some((&step, _)) => fits.then_some(step),
    }
}

/// Whether neighbours along the depth are nearer in memory than those across it.
pub(crate) fn along_depth(program: &Program, m: &Member, side: usize) -> bool {
    let (feed, own) = feed(m, side);
    let (batch, axes) = (m.batch.len(), own.len());
    let rank = batch + axes + m.depth.len();
    let steps = feed.params.iter().find_map(|p| {
        let Param::Load(pieces) = p else { return None };
        let piece = pieces.iter().find(|p| matches!(p.from, From::Buffer(_)))?;
        let From::Buffer(b) = piece.from else { return None };
        program.buffers[b].steps(&piece.index, rank)
    });
    let Some(steps) = steps else { return true };
    let least = |part: &[i64]| part.iter().filter(|&&s| s != 0).map(|s| s.abs()).min();
    let (across, along) = (least(&steps[batch..batch + axes]), least(&steps[batch + axes..]));
    along.unwrap_or(i64::MAX) <= across.unwrap_or(i64::MAX)
}

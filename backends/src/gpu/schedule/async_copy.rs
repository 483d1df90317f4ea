//! Asynchronous copies: which arrays of a row are copied ahead, while the row before is computed.

use super::cooperative_row::Team;
use adfuse_ir::affine::simplified;
use adfuse_ir::kernel::{Buffer, Extents, Kernel, Operand, Param, Program, Storage, volume};
use smallvec::SmallVec;

use super::index::{coordinates, divisible};
use adfuse_ir::index::IndexExpr;

/// Bytes of one copy.
pub(crate) const UNIT: i64 = 16;

/// Rows of a buffer, of which elements are next to each other in the order of the stage's places.
#[derive(Clone)]
pub(crate) struct RowArray {
    pub(crate) buffer: Buffer,
    pub(crate) index: SmallVec<[IndexExpr; 4]>,
    pub(crate) axes: Extents,
    /// Bytes of an element.
    pub(crate) size: i64,
    /// Bytes from the first of a row of all arrays.
    pub(crate) offset: i64,
    /// The last stage that reads it.
    pub(crate) last: usize,
}

/// The arrays that a kernel's stages read whole, others for each step along the walked axes of the domain, and
/// which parameter of which stage reads which.
pub(crate) fn arrays(
    program: &Program,
    kernel: &Kernel,
    team: Team,
    walked: &[usize],
) -> (Vec<RowArray>, Vec<Vec<Option<usize>>>) {
    let mut found: Vec<RowArray> = Vec::new();
    let mut reads = Vec::new();
    for (s, stage) in kernel.stages.iter().enumerate() {
        let mut own = vec![None; stage.params.len()];
        for (k, param) in stage.params.iter().enumerate() {
            let line = in_line(program, &kernel.domain, &stage.axes, param);
            let Some((buffer, index)) = line else { continue };
            let changes = walked.iter().any(|&a| {
                index.iter().any(|e| kernel.domain[a] > 1 && e.shares(&IndexExpr::axis(a)))
            });
            if !changes || team.threads < 32 || !stage.program.reads_param(k) {
                continue;
            }
            let same =
                |a: &RowArray| a.buffer == buffer && a.index == *index && a.axes == stage.axes;
            let number = found.iter().position(same).unwrap_or_else(|| {
                let size = program.buffers[buffer].dtype.bytes() as i64;
                let (index, axes) = (index.clone(), stage.axes.clone());
                found.push(RowArray { buffer, index, axes, size, offset: 0, last: s });
                found.len() - 1
            });
            found[number].last = s;
            own[k] = Some(number);
        }
        reads.push(own);
    }
    (found, reads)
}

/// The buffer that a parameter reads, where a row of it is one piece of memory that begins at a multiple of
/// 16 bytes; it may end elsewhere.
fn in_line<'p>(
    program: &Program,
    domain: &Extents,
    axes: &Extents,
    param: &'p Param,
) -> Option<(Buffer, &'p SmallVec<[IndexExpr; 4]>)> {
    let Param::Load(pieces) = param else { return None };
    let [piece] = pieces.as_slice() else { return None };
    let Operand::Buffer(b) = piece.from else { return None };
    let data = &program.buffers[b];
    let mut computed = false;
    piece
        .index
        .iter()
        .for_each(|e| crate::gpu::schedule::index::data_of(e, &mut |_| computed = true));
    if computed || !piece.guards.is_empty() || data.storage != Storage::Plain || axes.is_empty() {
        return None;
    }
    let (rank, n) = (domain.len(), volume(axes));
    let mut dense = 1i64;
    let mut place = IndexExpr::Const(0);
    for (k, e) in piece.index.iter().enumerate().rev() {
        let stride = data.strides.as_ref().and_then(|s| s.get(k).copied()).unwrap_or(dense);
        place = e.clone().times(stride).sum(place);
        dense = dense.saturating_mul(data.dims.get(k).copied().unwrap_or(1).max(1));
    }
    let mut at: Vec<IndexExpr> = (0..rank).map(IndexExpr::axis).collect();
    at.extend(coordinates(&IndexExpr::axis(rank), axes));
    let mut extents = domain.clone();
    extents.push(n);
    let e = simplified(&place.compose(&at), &extents);
    let mut terms = Vec::new();
    flat(&e, &mut terms);
    let own = terms.iter().filter(|t| t.shares(&IndexExpr::axis(rank))).count();
    let size = data.dtype.bytes() as i64;
    let unit = UNIT / size;
    let whole = terms.iter().filter(|t| !t.shares(&IndexExpr::axis(rank)));
    let aligned = whole.clone().all(|t| divisible(t, unit));
    let straight = own == 1 && terms.contains(&IndexExpr::axis(rank));
    (straight && aligned).then_some((b, &piece.index))
}

fn flat(e: &IndexExpr, terms: &mut Vec<IndexExpr>) {
    match e {
        IndexExpr::Add(a, b) => {
            flat(a, terms);
            flat(b, terms);
        }
        e => terms.push(e.clone()),
    }
}

//! Products as a library of matrices takes them: extents, and where the elements of three matrices lie.

use super::operand_path::{first, merged};
use adfuse_ir::DType;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{
    Buffer, Extents, Feed, Member, Operand, Param, Program, Sink, Stage, Storage,
};
use adfuse_ir::scalar::{Prim, SOp, ScalarProgram};

/// A product of matrices, one for each of a batch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Product {
    /// Batch, rows, columns, depth; all above 0.
    pub(crate) size: [u64; 4],
    /// Rows and depth.
    pub(crate) lhs: Matrix,
    /// ColumnFold and depth.
    pub(crate) rhs: Matrix,
    /// Rows and columns.
    pub(crate) out: Matrix,
    /// The type of the sums.
    pub(crate) sum: DType,
}

/// Where the elements of a matrix lie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Matrix {
    pub(crate) buffer: Buffer,
    pub(crate) dtype: DType,
    /// The number of the first element.
    pub(crate) first: i64,
    /// From a matrix of the batch to the next, and along both axes, in elements.
    pub(crate) steps: [i64; 3],
}

/// Multiply-adds below which a call of the library costs more than it saves.
const WORTH: u64 = 1 << 18;

impl Product {
    /// A member whose operands and sums lie in buffers as they are; `None` for others, and for types
    /// that libraries do not multiply.
    pub(crate) fn of(program: &Program, m: &Member) -> Option<Product> {
        let lhs = lies(program, &m.lhs, [&m.batch, &m.rows, &m.depth])?;
        let rhs = lies(program, &m.rhs, [&m.batch, &m.cols, &m.depth])?;
        let out = stored(program, &m.then, [&m.batch, &m.rows, &m.cols])?;
        let mut size = [0; 4];
        for (n, extents) in size.iter_mut().zip([&m.batch, &m.rows, &m.cols, &m.depth]) {
            *n = extents.iter().try_fold(1u64, |all, &n| all.checked_mul(n.unsigned_abs()))?;
            // The library counts rows and columns in 32 bits.
            if !(1..=i32::MAX as u64).contains(n) {
                return None;
            }
        }
        let typed = match (lhs.dtype, m.sum, out.dtype) {
            (DType::F32, DType::F32, DType::F32) | (DType::F64, DType::F64, DType::F64) => true,
            (x @ (DType::BF16 | DType::F16), DType::F32, to) => to == x || to == DType::F32,
            _ => false,
        };
        let product = Product { size, lhs, rhs, out, sum: m.sum };
        (typed && lhs.dtype == rhs.dtype && product.is_laid_out()).then_some(product)
    }

    /// Whether a call is worth it.
    pub(crate) fn is_worth_a_call(&self) -> bool {
        self.size.iter().fold(1u64, |all, &n| all.saturating_mul(n)) >= WORTH
    }

    /// Whether each matrix has lines that are neighbours, and a step from line to line that is no less
    /// than they are long.
    fn is_laid_out(&self) -> bool {
        let [batch, rows, cols, depth] = self.size;
        let lines = |m: &Matrix, [a, b]: [u64; 2]| m.lines([a, b]).is_some();
        // Results of a batch that share elements have no meaning.
        lines(&self.lhs, [rows, depth])
            && lines(&self.rhs, [cols, depth])
            && lines(&self.out, [rows, cols])
            && (batch == 1 || self.out.steps[0] > 0)
    }
}

impl Matrix {
    /// Whether neighbours lie along the first of its axes, and the step along the other; `None` where
    /// they lie along neither.
    pub(crate) fn lines(&self, [a, b]: [u64; 2]) -> Option<(bool, i64)> {
        let [_, along, across] = self.steps;
        let fits = |step: i64, length: u64, lines: u64| {
            let least = i64::try_from(length).ok()?;
            // A step that is never taken is whatever fits.
            if lines == 1 { Some(step.max(least)) } else { (step >= least).then_some(step) }
        };
        let second = (b == 1 || across == 1).then(|| fits(along, b, a)).flatten();
        let first = || (a == 1 || along == 1).then(|| fits(across, a, b)).flatten();
        second.map(|step| (false, step)).or_else(|| Some((true, first()?)))
    }
}

/// An operand that is an element of a buffer, as it is.
pub(crate) fn lies(program: &Program, feed: &Feed, groups: [&Extents; 3]) -> Option<Matrix> {
    let [Param::Load(pieces)] = feed.params.as_slice() else { return None };
    let [piece] = pieces.as_slice() else { return None };
    let Operand::Buffer(b) = piece.from else { return None };
    let plain = passes(&feed.program, None) && piece.guards.is_empty();
    let size = [volume(groups[1])?, volume(groups[2])?];
    let found = plain.then(|| matrix(program, b, &piece.index, groups)).flatten()?;
    found.lines(size).map(|_| found)
}

/// Whether the library stores the sums of a member as they are wanted.
pub(crate) fn is_stored(program: &Program, m: &Member) -> bool {
    stored(program, &m.then, [&m.batch, &m.rows, &m.cols]).is_some()
}

/// Sums that are stored as they are, but for a conversion to what the buffer holds.
fn stored(program: &Program, then: &Stage, groups: [&Extents; 3]) -> Option<Matrix> {
    let [Sink::Store { buffer, index }] = then.sinks.as_slice() else { return None };
    let to = program.buffers[*buffer].dtype;
    let plain = then.params == [Param::Sum] && passes(&then.program, Some(to));
    plain.then(|| matrix(program, *buffer, index, groups)).flatten()
}

/// Whether a program of one parameter gives what it is given, or that converted to a type.
fn passes(program: &ScalarProgram, to: Option<DType>) -> bool {
    let [out] = program.outputs.as_slice() else { return false };
    let inst = &program.insts[*out];
    match inst.op {
        SOp::Param(0) => true,
        SOp::Prim(Prim::Convert) if Some(inst.dtype) == to => {
            inst.args.first().is_some_and(|&of| program.insts[of].op == SOp::Param(0))
        }
        _ => false,
    }
}

fn volume(extents: &Extents) -> Option<u64> {
    extents.iter().try_fold(1u64, |all, &n| all.checked_mul(n.unsigned_abs()))
}

/// The elements at an index as matrices, over three groups of axes that each are one.
fn matrix(
    program: &Program,
    b: Buffer,
    index: &[IndexExpr],
    groups: [&Extents; 3],
) -> Option<Matrix> {
    let data = &program.buffers[b];
    if data.storage != Storage::Plain {
        return None;
    }
    let axes: usize = groups.iter().map(|g| g.len()).sum();
    let all = data.steps(index, axes)?;
    let mut steps = [0; 3];
    let mut rest = all.as_slice();
    for (step, extents) in steps.iter_mut().zip(groups) {
        let (mine, others) = rest.split_at_checked(extents.len())?;
        // Libraries take none that go backward.
        *step = merged(mine, extents).filter(|&step| step >= 0)?;
        rest = others;
    }
    let first = first(program, b, index, axes)?;
    Some(Matrix { buffer: b, dtype: data.dtype, first, steps })
}

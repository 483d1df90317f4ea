//! Products as a library of matrices takes them: extents, and where the elements of three matrices lie.

use super::operand_path::{first, merged};
use adfuse_ir::DType;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{
    Buffer, Extents, Feed, Member, Operand, Param, Program, Sink, Stage, Storage,
};
use adfuse_ir::scalar::{Prim, SOp, ScalarProgram};
use smallvec::SmallVec;

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

/// Bytes that the library copies together.
const UNIT: u64 = 16;

/// Multiply-adds from which on products are divided: another launch takes less time than the full rate saves.
#[cfg_attr(not(feature = "gpu"), allow(dead_code))]
const WORTH_DIVIDING: u64 = 1 << 30;

/// How many times as long the library takes for products that are [uneven](Product::is_uneven), as measured on an H200: of `bf16` 8192 x 30522 x
/// 768 and what gives its gradients 232 to 239 TFLOP/s.
pub(crate) const UNEVEN: f64 = 3.2;

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
            *n = checked_volume(extents)?;
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

    fn multiply_adds(&self) -> u64 {
        self.size.iter().fold(1u64, |all, &n| all.saturating_mul(n))
    }

    /// Whether a call is worth it.
    pub(crate) fn is_worth_a_call(&self) -> bool {
        self.multiply_adds() >= WORTH
    }

    /// Whether the library multiplies it at a part of its rate: lines of a matrix begin elsewhere than at multiples of 16 bytes, or the depth
    /// along them is no multiple.
    pub(crate) fn is_uneven(&self) -> bool {
        let [_, rows, cols, depth] = self.size;
        self.lhs.is_uneven([rows, depth], true)
            || self.rhs.is_uneven([cols, depth], true)
            || self.out.is_uneven([rows, cols], false)
    }

    /// The products that the library is asked for. Lines of rows or columns that begin at multiples of 16 bytes and have another length are
    /// multiplied at full rate but for their last elements, which are products of their own.
    #[cfg_attr(not(feature = "gpu"), allow(dead_code))]
    pub(crate) fn parts(&self) -> SmallVec<[Product; 4]> {
        let [_, rows, cols, depth] = self.size;
        let mut parts = SmallVec::from_iter([self.clone()]);
        if self.multiply_adds() < WORTH_DIVIDING || self.is_uneven() {
            return parts;
        }
        let is_near = |m: &Matrix, size: [u64; 2], along: bool| {
            m.lines(size).is_some_and(|(first, _)| first == along)
        };
        let out = [rows, cols];
        let of_rows = is_near(&self.lhs, [rows, depth], true) || is_near(&self.out, out, true);
        let of_cols = is_near(&self.rhs, [cols, depth], true) || is_near(&self.out, out, false);
        let wide = UNIT / self.lhs.dtype.bytes();
        for (axis, is_line) in [(1, of_rows), (2, of_cols)] {
            if is_line && !self.size[axis].is_multiple_of(wide) && self.size[axis] > wide {
                let whole = self.size[axis] / wide * wide;
                parts = parts.iter().flat_map(|part| part.divided(axis, whole)).collect();
            }
        }
        parts
    }

    /// The products of the first `whole` rows (axis 1) or columns (axis 2), and of the others.
    #[cfg_attr(not(feature = "gpu"), allow(dead_code))]
    fn divided(&self, axis: usize, whole: u64) -> [Product; 2] {
        let [mut first, mut last] = [self.clone(), self.clone()];
        first.size[axis] = whole;
        last.size[axis] -= whole;
        let operand = if axis == 1 { &mut last.lhs } else { &mut last.rhs };
        operand.first += operand.steps[1] * whole as i64;
        last.out.first += last.out.steps[axis] * whole as i64;
        [first, last]
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
    /// Whether lines begin elsewhere than at multiples of 16 bytes, or the second axis, along them, is a depth and no multiple.
    pub(crate) fn is_uneven(&self, size: [u64; 2], is_operand: bool) -> bool {
        let wide = UNIT / self.dtype.bytes();
        self.lines(size).is_none_or(|(first, step)| {
            let [near, lines] = if first { size } else { [size[1], size[0]] };
            lines > 1 && step.unsigned_abs() % wide != 0 || is_operand && !first && near % wide != 0
        })
    }

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
    let size = [checked_volume(groups[1])?, checked_volume(groups[2])?];
    let found = plain.then(|| matrix(program, b, &piece.index, groups)).flatten()?;
    found.lines(size).map(|_| found)
}

/// Whether the library stores the sums of a member as they are wanted.
pub(crate) fn is_stored(program: &Program, m: &Member) -> bool {
    stored(program, &m.then, [&m.batch, &m.rows, &m.cols]).is_some()
}

/// Sums that are stored as they are, but for a conversion to what the buffer holds.
pub(crate) fn stored(program: &Program, then: &Stage, groups: [&Extents; 3]) -> Option<Matrix> {
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

fn checked_volume(extents: &Extents) -> Option<u64> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::kernel::text::parse;

    /// A product of `bf16`, whose operands and sums lie as they are said to: with the depth or the columns last, at these strides.
    fn product(text: &str) -> Product {
        let program = parse(&format!("program @f {{ {text} return %y }}"));
        let program = program.unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        let [adfuse_ir::kernel::Step::Contract(c)] = program.steps.as_slice() else {
            panic!("{text}")
        };
        Product::of(&program, &c.members[0]).expect("is one of the library's")
    }

    fn scores(words: i64, strides: &str) -> Product {
        product(&format!(
            "input %x: bf16[8192, 768] input %w: bf16[{words}, 768] temp %s: bf16[8192, {words}]{strides} output %y: bf16[1]
             contract @f {{ member batch [] rows [8192] cols [{words}] depth [768] sum f32 {{
               lhs {{ p0 = load %x[d0, d1] s0 = param.bf16 0 out s0 }}
               rhs {{ p0 = load %w[d0, d1] s0 = param.bf16 0 out s0 }}
               then {{ p0 = sum s0 = param.f32 0 s1 = convert.bf16 s0 %s[d0, d1] = store s1 }} }} }}"
        ))
    }

    /// The gradients of [`scores`]: by what is multiplied with the words, whose depth lies along the lines, and by the words, whose rows do.
    fn gradients(words: i64, pitch: i64) -> [Product; 2] {
        let of = |rows: i64, depth: i64, at: &str, other: &str| {
            product(&format!(
                "temp %g: bf16[8192, {words}] strides [{pitch}, 1] input %w: bf16[{depth}, 768] output %y: bf16[{rows}, 768]
                 contract @f {{ member batch [] rows [{rows}] cols [768] depth [{depth}] sum f32 {{
                   lhs {{ p0 = load %g[{at}] s0 = param.bf16 0 out s0 }}
                   rhs {{ p0 = load %w[{other}] s0 = param.bf16 0 out s0 }}
                   then {{ p0 = sum s0 = param.f32 0 s1 = convert.bf16 s0 %y[d0, d1] = store s1 }} }} }}"
            ))
        };
        [of(8192, words, "d0, d1", "d1, d0"), of(words, 8192, "d1, d0", "d1, d0")]
    }

    #[test]
    fn lines_of_another_length_are_multiplied_but_for_their_ends() {
        let sizes = |p: &Product| p.parts().iter().map(|p| p.size).collect::<Vec<_>>();
        let aligned = scores(30522, " strides [30528, 1]");
        assert!(!aligned.is_uneven());
        assert_eq!(sizes(&aligned), [[1, 8192, 30520, 768], [1, 8192, 2, 768]]);
        let last = &aligned.parts()[1];
        assert_eq!([last.lhs.first, last.rhs.first, last.out.first], [0, 30520 * 768, 30520]);
        // Nothing is gained where lines begin anywhere, or where their length is even.
        for whole in [scores(30522, ""), scores(30528, ""), scores(10, " strides [16, 1]")] {
            assert_eq!(sizes(&whole), [whole.size]);
        }
        assert!(scores(30522, "").is_uneven() && !scores(30528, "").is_uneven());
        // The depth is not divided: its sums would be rounded twice.
        let [by_rows, by_words] = gradients(30522, 30528);
        assert!(by_rows.is_uneven() && !by_words.is_uneven());
        assert_eq!(sizes(&by_rows), [[1, 8192, 768, 30522]]);
        assert_eq!(sizes(&by_words), [[1, 30520, 768, 8192], [1, 2, 768, 8192]]);
        let last = &by_words.parts()[1];
        assert_eq!([last.lhs.first, last.rhs.first, last.out.first], [30520, 0, 30520 * 768]);
        assert!(gradients(30522, 30522).iter().all(Product::is_uneven));
    }
}

//! Operands that a kernel of its own lays out as words of two 16-bit floats before a product with windows reads them.
//!
//! In a filter, neighbours along the channels are as many elements apart as the filter has steps. That number is mostly odd, so no
//! asynchronous copy can move such a pair as one word. Filters are small, so a kernel packs their words before the product. The axes
//! of the product are contiguous in the packed filter.

use super::box_word::BoxWord;
use super::operand_path::feed;
use super::staged_box::{BoxDim, BoxOperand, DEEP, OWN};
use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::{
    Buffer, Extents, Member, Operand, Param, Piece, Program, Sink, Stage, volume,
};
use adfuse_ir::scalar::SOp;
use adfuse_ir::{DType, Literal};
use smallvec::SmallVec;

/// The fewest sums that an element is read for: fewer take about as long as laying it out.
const LEAST_READ: i64 = 64;
/// How many times as many elements as the array has an operand may have: windows of images have nine times as many, mostly, and a
/// filter whose windows are two apart has some zeros more.
const MOST_LARGER: i64 = 4;
/// Bytes that go for each element: it is read alone from a sector of the cache.
const BYTES: f64 = 32.0;

/// Which operand is laid out, with words of two neighbours along an axis of the depth.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LaidOut {
    pub(crate) side: usize,
    pub(crate) axis: usize,
}

/// An axis of words, from the outermost to the innermost: a part of the product's axes, and one of those.
type WordAxis = (usize, usize);

impl LaidOut {
    /// The axes of words: the batch's, the paired one, others of the depth, and the operand's own.
    fn axes(self, m: &Member) -> Vec<WordAxis> {
        let own = feed(m, self.side).1;
        let batch = (0..m.batch.len()).map(|a| (0, a));
        let others = (0..m.depth.len()).filter(|&a| a != self.axis).map(|a| (DEEP, a));
        let own = (0..own.len()).map(|a| (OWN, a));
        batch.chain([(DEEP, self.axis)]).chain(others).chain(own).collect()
    }

    /// Extents of the product's axes, with those of words along the depth.
    fn extents(self, m: &Member) -> [Extents; 3] {
        let mut depth = m.depth.clone();
        depth[self.axis] = (depth[self.axis] + 1) / 2;
        [m.batch.clone(), feed(m, self.side).1.clone(), depth]
    }

    /// Whether an operand may be laid out: one of about as many elements as its array has, each of which is read often.
    fn fits(self, program: &Program, m: &Member) -> bool {
        let (feed, _) = feed(m, self.side);
        let others = if self.side == 0 { &m.cols } else { &m.rows };
        let all = self.extents(m);
        let words = volume(all.iter().flatten());
        let is_large = |piece: &Piece| match piece.from {
            Operand::Buffer(b) => 2 * words > MOST_LARGER * volume(&program.buffers[b].dims),
            Operand::Literal(_) => false,
        };
        let repeated = feed.params.iter().any(|param| match param {
            Param::Load(pieces) => pieces.iter().any(is_large),
            _ => false,
        });
        let as_it_is =
            feed.program.outputs.iter().all(|&v| matches!(feed.program.insts[v].op, SOp::Param(_)));
        !repeated && volume(others) >= LEAST_READ && (as_it_is || m.depth[self.axis] % 2 == 0)
    }

    /// The operand as a box of its words; which array they are in is not told yet.
    pub(super) fn operand(self, program: &Program, m: &Member) -> Option<BoxOperand> {
        if !self.fits(program, m) {
            return None;
        }
        let extents = self.extents(m);
        let mut dims = Vec::new();
        let mut dense = 1i64;
        for (part, axis) in self.axes(m).into_iter().rev() {
            let extent = extents[part][axis];
            let mut factors = [0, 1, 2].map(|k| extents[k].iter().map(|_| 0).collect());
            let ones: &mut SmallVec<[i64; 4]> = &mut factors[part];
            ones[axis] = 1;
            dims.push(BoxDim { stride: dense, extent, base: 0, factors, read: 0..extent, span: 1 });
            dense = dense.checked_mul(extent.max(1))?;
        }
        dims.reverse();
        let buffer = Buffer::from_u32(0);
        let word = BoxWord::Neighbours;
        Some(BoxOperand { buffer, origin: 0, dims, extents, word, computed: None })
    }

    /// Bytes that are read and written for it.
    pub(super) fn bytes(self, m: &Member) -> f64 {
        let all = self.extents(m);
        2.0 * BYTES * all.iter().flatten().map(|&n| n as f64).product::<f64>()
    }

    /// Extents of the array of words, which has the two elements of a word behind its axes.
    pub(super) fn dims(self, m: &Member) -> Extents {
        let extents = self.extents(m);
        let words = self.axes(m).into_iter().map(|(part, axis)| extents[part][axis]);
        words.chain([2]).collect()
    }

    /// The loop over that array that lays the operand out in it.
    pub(super) fn stage(self, m: &Member, to: Buffer, dtype: DType) -> Stage {
        let extents = self.extents(m);
        let axes = self.axes(m);
        let half = axes.len();
        let at = |part: usize, axis: usize| {
            let place = axes.iter().position(|&found| found == (part, axis)).unwrap_or(half);
            match (part, axis) == (DEEP, self.axis) {
                true => IndexExpr::axis(place).times(2).sum(IndexExpr::axis(half)),
                false => IndexExpr::axis(place),
            }
        };
        let coords: Vec<IndexExpr> = [0, OWN, DEEP]
            .into_iter()
            .flat_map(|part| (0..extents[part].len()).map(move |axis| (part, axis)))
            .map(|(part, axis)| at(part, axis))
            .collect();
        let n = m.depth[self.axis];
        let zero = (n % 2 != 0).then(|| Guard { expr: at(DEEP, self.axis), range: 0..n });
        let zero = zero.as_ref().map(|end| (end, Literal::zero(dtype)));
        let (feed, _) = feed(m, self.side);
        Stage {
            params: feed.params.iter().map(|param| read_at(param, &coords, zero)).collect(),
            program: feed.program.clone(),
            sinks: vec![Sink::Store { buffer: to, index: super::shape::axes(half + 1) }],
            ..Stage::default()
        }
    }
}

/// What a feed reads at coordinates that are given as expressions; this number where a guard does not hold.
fn read_at(param: &Param, coords: &[IndexExpr], otherwise: Option<(&Guard, Literal)>) -> Param {
    let moved = |piece: &Piece| {
        let guards = piece
            .guards
            .iter()
            .map(|g| Guard { expr: g.expr.compose(coords), range: g.range.clone() });
        Piece {
            from: piece.from,
            index: piece.index.iter().map(|e| e.compose(coords)).collect(),
            guards: guards.chain(otherwise.map(|(end, _)| end.clone())).collect(),
        }
    };
    let number = otherwise.map(|(_, number)| Piece {
        from: Operand::Literal(number),
        index: SmallVec::new(),
        guards: SmallVec::new(),
    });
    match param {
        Param::Load(pieces) => Param::Load(pieces.iter().map(moved).chain(number).collect()),
        Param::Coord(e) => Param::Coord(e.compose(coords)),
        other => other.clone(),
    }
}

//! Kernels: a domain whose points are independent, and stages that run in order at each of them.

use super::buffer::{Buffer, Extents};
use crate::dtype::DType;
use crate::index::{Guard, IndexExpr};
use crate::literal::Literal;
use crate::op::Monoid;
use crate::scalar::{Recorder, ScalarProgram};
use crate::types::MAX_RANK;
use cranelift_entity::{PrimaryMap, entity_impl};
use smallvec::SmallVec;

/// A scalar that a kernel keeps for each point of its domain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Row(u32);
entity_impl!(Row, "r");

/// A small tensor that a kernel keeps for each point of its domain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tile(u32);
entity_impl!(Tile, "t");

/// A parallel domain with stages.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Kernel {
    /// A name for people, without `@`.
    pub name: String,
    /// Extents of the parallel axes, coordinates `d0`, `d1`, ..
    pub domain: Extents,
    /// Types of the scalars kept at each point.
    pub rows: PrimaryMap<Row, DType>,
    /// The tensors kept at each point.
    pub tiles: PrimaryMap<Tile, TileData>,
    /// What happens at each point, in order.
    pub stages: Vec<Stage>,
    /// How an engine walks the points.
    pub schedule: Schedule,
}

impl Kernel {
    /// A kernel that moves the elements of one buffer to another of this type and these extents.
    pub fn copying(
        name: String,
        from: Buffer,
        to: Buffer,
        (dtype, dims): (DType, &Extents),
    ) -> Kernel {
        let index: SmallVec<[IndexExpr; 4]> = (0..dims.len()).map(IndexExpr::axis).collect();
        let (from, guards) = (Operand::Buffer(from), SmallVec::new());
        let piece = Piece { from, index: index.clone(), guards };
        let stage = Stage {
            axes: Extents::new(),
            params: vec![Param::Load(SmallVec::from_iter([piece]))],
            program: Recorder::record_any(&[dtype], |x| x[0]),
            sinks: vec![Sink::Store { buffer: to, index }],
        };
        Kernel { name, domain: dims.clone(), stages: vec![stage], ..Kernel::default() }
    }

    /// Whether neighbouring points may go through the stages together: each of them has axes of its own, does nothing but
    /// scan, keep and store, and may have an axis more.
    pub fn scans_abreast(&self) -> bool {
        let lasting =
            |s: &Sink| matches!(s, Sink::Scan { .. } | Sink::Keep(_) | Sink::Store { .. });
        let alone = |s: &Stage| {
            let room = self.domain.len() + s.axes.len() < 2 * MAX_RANK;
            room && !s.axes.is_empty() && s.sinks.iter().all(lasting)
        };
        let scans = |s: &Sink| matches!(s, Sink::Scan { .. });
        self.stages.iter().flat_map(|s| &s.sinks).any(scans) && self.stages.iter().all(alone)
    }
}

/// How an engine walks the points of a kernel: loops over tiles in the order of the axes, and within each tile
/// loops over its points in the same order, those along `vector` innermost. [`loops`](super::loops)
/// makes a kernel that has these loops as its axes. It changes no value.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Schedule {
    /// The domain's axes, outermost first; none: in the order of the domain.
    pub order: SmallVec<[u8; 4]>,
    /// Extents of the tiles in which the domain is walked, an axis each; none: not tiled. The last tile
    /// of an axis may be short, unless the domain is folded over. Where [stages do nothing but scan, keep and store](Kernel::scans_abreast)
    /// and one axis alone has tiles, all points of a tile go through a stage before the next one begins.
    pub tiles: Extents,
    /// The coordinate along which vectors run, the innermost loop: an axis of the domain (of the stages
    /// that have none of their own), or one that every stage with axes has.
    pub vector: Option<u8>,
}

/// A tensor that a kernel keeps for each point of its domain.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TileData {
    /// Element type.
    pub dtype: DType,
    /// Extents: those of the axes of every stage that writes or reads it.
    pub dims: Extents,
}

/// One pass over further axes: read, compute, and put the results somewhere.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stage {
    /// Extents of the further axes; their coordinates follow the domain's.
    pub axes: Extents,
    /// What the program's parameters are.
    pub params: Vec<Param>,
    /// What is computed at each coordinate.
    pub program: ScalarProgram,
    /// Where the program's outputs go, one each.
    pub sinks: Vec<Sink>,
}

impl Stage {
    /// The stage that converts the sum it follows, which has the type `sum`, and stores it.
    pub fn storing(
        sum: DType,
        buffer: Buffer,
        dtype: DType,
        index: SmallVec<[IndexExpr; 4]>,
    ) -> Stage {
        Stage {
            axes: Extents::new(),
            params: vec![Param::Sum],
            program: Recorder::record_any(&[sum], |x| x[0].convert(dtype)),
            sinks: vec![Sink::Store { buffer, index }],
        }
    }
}

/// What a parameter of a stage's program is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Param {
    /// An element, read through the first piece whose guards hold; the last piece has none.
    Load(SmallVec<[Piece; 1]>),
    /// An expression of the coordinates, as `i64`.
    Coord(IndexExpr),
    /// A scalar that an earlier stage left.
    Row(Row),
    /// The element at the stage's own axes of a tensor that an earlier stage left.
    Tile(Tile),
    /// The sum of a contraction, in its own type; only what follows a contraction has it.
    Sum,
}

/// One way to find an element.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Piece {
    /// What is read.
    pub from: Operand,
    /// An expression for each axis of the buffer; none for a literal.
    pub index: SmallVec<[IndexExpr; 4]>,
    /// When this piece applies.
    pub guards: SmallVec<[Guard; 2]>,
}

impl Param {
    /// The expressions of coordinates that it is read by: of each piece its index and its guards.
    pub fn expressions(&self) -> impl Iterator<Item = &IndexExpr> {
        let (pieces, coordinate) = match self {
            Param::Load(pieces) => (pieces.as_slice(), None),
            Param::Coord(e) => (&[][..], Some(e)),
            Param::Row(_) | Param::Tile(_) | Param::Sum => (&[][..], None),
        };
        pieces.iter().flat_map(Piece::expressions).chain(coordinate)
    }

    /// As [`Param::expressions`], to be changed.
    pub fn expressions_mut(&mut self) -> impl Iterator<Item = &mut IndexExpr> {
        let (pieces, coordinate) = match self {
            Param::Load(pieces) => (pieces.as_mut_slice(), None),
            Param::Coord(e) => (&mut [][..], Some(e)),
            Param::Row(_) | Param::Tile(_) | Param::Sum => (&mut [][..], None),
        };
        pieces.iter_mut().flat_map(Piece::expressions_mut).chain(coordinate)
    }
}

impl Piece {
    /// The expressions of its index, then those of its guards.
    pub fn expressions(&self) -> impl Iterator<Item = &IndexExpr> {
        self.index.iter().chain(self.guards.iter().map(|guard| &guard.expr))
    }

    /// As [`Piece::expressions`], to be changed.
    pub fn expressions_mut(&mut self) -> impl Iterator<Item = &mut IndexExpr> {
        self.index.iter_mut().chain(self.guards.iter_mut().map(|guard| &mut guard.expr))
    }
}

/// Where elements come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// A buffer.
    Buffer(Buffer),
    /// One value everywhere.
    Literal(Literal),
}

/// Where an output of a stage's program goes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Sink {
    /// To an element of a buffer.
    Store {
        /// The buffer.
        buffer: Buffer,
        /// An expression for each of its axes.
        index: SmallVec<[IndexExpr; 4]>,
    },
    /// Folded over the stage's axes.
    Reduce {
        /// How two values combine. `argmax` and `argmin` give the row-major place among the axes, in
        /// the order of the runs.
        monoid: Monoid,
        /// The stage's axes by the order they fold in, the first run first; the last is the outermost.
        /// Axes of extent 1 belong to none.
        runs: SmallVec<[Run; 2]>,
        /// What keeps the result.
        into: Row,
    },
    /// Folded over axes of the domain too. Points of the domain give partial results, which a second
    /// pass joins in the same order whatever the engine, and goes on with.
    Fold {
        /// How two values combine.
        monoid: Monoid,
        /// The coordinates by the order they fold in, counted from the domain's first. The first run
        /// folds first; the last is the outermost. Coordinates of extent 1 belong to none; coordinates
        /// in no run remain.
        runs: SmallVec<[Run; 2]>,
        /// What becomes of the results, at the coordinates that remain: a stage without axes that
        /// reads [`Param::Sum`] and stores into buffers.
        then: Box<Stage>,
    },
    /// Folded along one of the stage's axes, with every partial result kept.
    Scan {
        /// How two values combine.
        monoid: Monoid,
        /// The number of the axis among the stage's.
        axis: u8,
        /// From the last to the first.
        reverse: bool,
        /// What keeps the results.
        into: Tile,
    },
    /// Kept as it is.
    Keep(Tile),
    /// Left as it is, by a stage without axes.
    Leave(Row),
}

/// Axes that fold as one, row-major.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Run {
    /// Numbers of the axes, the slowest first: they fold in this row-major order.
    pub axes: SmallVec<[u8; 4]>,
    /// In which order.
    pub order: Order,
}

/// The two orders in which an axis may fold; `docs/fp.md` defines them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// Blocks of 1024 over 32 lanes.
    Lane,
    /// Blocks of 64, each a chain.
    Chain,
}

impl Order {
    /// The name in text.
    pub fn name(self) -> &'static str {
        match self {
            Order::Lane => "lane",
            Order::Chain => "chain",
        }
    }
}

/// The runs in which the marked axes of a shape fold in strict mode, numbered among the marked axes.
///
/// Axes of extent 1 are dropped, neighbouring marked ones merge, the last run folds first, and it is
/// in the lane order where no axis that is kept follows it.
pub fn strict_runs(dims: &[i64], reduced: &[bool]) -> SmallVec<[Run; 2]> {
    let mut runs: SmallVec<[Run; 2]> = SmallVec::new();
    let mut number = 0;
    let mut open = false;
    for (&n, &reduce) in dims.iter().zip(reduced) {
        match (reduce, n) {
            (false, 1) => {}
            (false, _) => {
                open = false;
                for run in &mut runs {
                    run.order = Order::Chain;
                }
            }
            (true, 1) => number += 1,
            (true, _) => {
                match runs.last_mut() {
                    Some(run) if open => run.axes.push(number),
                    _ => runs.push(Run { axes: SmallVec::from_iter([number]), order: Order::Lane }),
                }
                open = true;
                number += 1;
            }
        }
    }
    // An earlier run is followed by the kept axes that separate it from the next.
    runs.reverse();
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(dims: &[i64], reduced: &[bool]) -> String {
        let run = |r: &Run| format!("{}{:?}", r.order.name(), r.axes.as_slice());
        strict_runs(dims, reduced).iter().map(run).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn runs_merge_and_the_last_is_in_lanes() {
        assert_eq!(shown(&[2, 3], &[true, true]), "lane[0, 1]");
        assert_eq!(shown(&[2, 3, 4], &[true, false, true]), "lane[1] chain[0]");
        assert_eq!(shown(&[2, 1, 4], &[true, false, true]), "lane[0, 1]");
        assert_eq!(shown(&[2, 3, 1], &[true, false, true]), "chain[0]");
        assert_eq!(shown(&[2, 1, 3, 5], &[true, true, true, false]), "chain[0, 2]");
        assert_eq!(shown(&[1], &[true]), "");
    }
}

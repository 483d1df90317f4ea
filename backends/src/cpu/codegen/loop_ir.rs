//! Sweeps, and the loop nests that they become: accesses, guarded sources, folds.

use adfuse_ir::op::Monoid;

use super::affine_form::{AffineForm, WalkedAxes};

use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::{Buffer, Extents, Order, Param, Program};
use adfuse_ir::scalar::{SVal, ScalarProgram};
use adfuse_ir::{DType, Literal};
use std::ops::Range;

/// Parameters, a scalar program and where its outputs go, at each coordinate of some axes.
#[derive(Clone)]
pub(crate) struct Sweep<'a> {
    /// Whose buffers are named.
    pub(crate) program: &'a Program,
    /// All axes, outermost first; places are row-major over them.
    pub(crate) extents: Extents,
    /// How many of them are the domain's.
    pub(crate) domain: usize,
    /// What the scalar program reads.
    pub(crate) params: &'a [Param],
    /// What is computed.
    pub(crate) body: &'a ScalarProgram,
    /// Where each output goes.
    pub(crate) puts: Vec<SweepOutput<'a>>,
    /// Where the arrays are that are not buffers.
    pub(crate) slots: ArraySlots,
    /// For a scatter, where the elements go that its updates are added to: their places as `i64` in a
    /// slot, -1 where a guard does not hold.
    pub(crate) target: Option<(Buffer, &'a [IndexExpr], &'a [Guard], u32)>,
    /// Its role.
    pub(crate) part: SweepRole,
}

/// The role of a sweep in its step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SweepRole {
    /// A stage of a kernel, by its number.
    Stage(usize),
    /// What follows a fold over the domain.
    Folded,
    /// What follows the sums of a contraction.
    Then,
    /// An operand of a contraction.
    Operand,
    /// What the sums of a scatter begin with.
    Begin,
    /// The updates of a scatter.
    Updates,
    /// Where the sums of a scatter go.
    Finish,
}

/// Arrays that are not buffers, as numbers in the table of pointers after those of the buffers.
#[derive(Clone, Default)]
pub(crate) struct ArraySlots {
    /// Of each row, an element a point.
    pub(crate) rows: Vec<u32>,
    /// Of each tile, an element a place.
    pub(crate) tiles: Vec<u32>,
    /// Of the sums that are read, an element a place.
    pub(crate) sums: Option<(u32, DType)>,
}

/// The destination of an output.
#[derive(Clone, Copy)]
pub(crate) enum SweepOutput<'a> {
    /// To an element of a buffer.
    Store(Buffer, &'a [IndexExpr]),
    /// To the element of a slot at the point.
    Point(u32),
    /// To the element of a slot at the place.
    Place(u32),
    /// Combined with others, block by block, to parts in a slot.
    Fold(FoldOutput),
}

/// An array with the form of the element.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// Its number in the table.
    pub(crate) at: u32,
    pub(crate) form: usize,
    pub(crate) dtype: DType,
    /// Bits of an element where it is packed.
    pub(crate) packed: Option<u8>,
    /// Whether it is a buffer: those have no NaN but the canonical one.
    pub(crate) buffer: bool,
}

impl Access {
    /// Whether what is written there has its NaNs made the canonical one.
    pub(crate) fn is_canonical(&self) -> bool {
        // 16-bit floats come out of conversions, which give no other NaN.
        self.buffer && matches!(self.dtype, DType::F32 | DType::F64)
    }
}

#[derive(Debug)]
pub(crate) enum LoadSource {
    Array(Access),
    Literal(Literal),
}

impl LoadSource {
    /// The array, where it is one.
    pub(crate) fn array(&self) -> Option<&Access> {
        match self {
            LoadSource::Array(a) => Some(a),
            LoadSource::Literal(_) => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct GuardedSource {
    pub(crate) from: LoadSource,
    pub(crate) guards: FormRanges,
}

/// How a parameter is read.
#[derive(Debug)]
pub(crate) enum ParamRead {
    Guarded(Vec<GuardedSource>),
    /// A form's value.
    Coord(usize),
}

impl ParamRead {
    /// Where it is read from; nothing of a coordinate.
    pub(crate) fn sources(&self) -> &[GuardedSource] {
        match self {
            ParamRead::Guarded(sources) => sources,
            ParamRead::Coord(_) => &[],
        }
    }
}

/// Forms with the ranges that they must lie in.
pub(crate) type FormRanges = Vec<(usize, Range<i64>)>;

/// Where a scatter's updates go: the form of the element, its guards, and the array of places.
pub(crate) type ScatterTarget = (usize, FormRanges, Access);

/// A sweep as a loop nest over merged axes.
pub(crate) struct LoopNest {
    pub(crate) walk: WalkedAxes,
    pub(crate) forms: Vec<AffineForm>,
    pub(crate) reads: Vec<ParamRead>,
    pub(crate) types: Vec<DType>,
    pub(crate) body: ScalarProgram,
    /// Where each output goes; of one that folds, the part of the first block.
    pub(crate) writes: Vec<Access>,
    /// Of each output, how it folds, if it does.
    pub(crate) folds: Vec<Option<WalkedFold>>,
    pub(crate) target: Option<ScatterTarget>,
    /// Whether a parameter changes along the innermost axis.
    pub(crate) varies: Vec<bool>,
    /// Whether a value of the body does.
    pub(crate) moves: Vec<bool>,
    /// How each parameter is reached by vectors.
    pub(crate) loads: Vec<VectorAccess>,
    /// How each output is.
    pub(crate) stores: Vec<VectorAccess>,
    /// Of each parameter, those that change along the axis and are read to know where it is.
    pub(crate) needs: Vec<Vec<usize>>,
    /// The guards that change along the axis, of what is read by ways.
    pub(crate) breaks: FormRanges,
    /// The values of the body that change, in the order in which vectors are computed.
    pub(crate) order: Vec<SVal>,
    /// The most of them that are alive at once.
    pub(crate) alive: usize,
}

/// An output that folds over neighbouring axes, one part for each block of the places along them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FoldOutput {
    pub(crate) monoid: Monoid,
    /// In which order: of lanes where no axis of more than one element follows, else of chains.
    pub(crate) order: Order,
    /// The first of the axes that fold, by their numbers in the sweep, and one past the last.
    pub(crate) axes: [usize; 2],
    /// The slot of the parts: row-major over the axes before, the blocks, and the axes after.
    pub(crate) parts: u32,
    /// For the order of lanes, the slot of 32 elements that nobody else touches.
    pub(crate) lanes: u32,
}

/// A fold over the axes that are walked.
#[derive(Debug)]
pub(crate) struct WalkedFold {
    pub(crate) monoid: Monoid,
    pub(crate) order: Order,
    /// The type of the values and of the parts.
    pub(crate) dtype: DType,
    /// The form of the place among those that fold into one result. Along the innermost axis that is walked
    /// its step is 1 for lanes and 0 for columns.
    pub(crate) place: usize,
    /// How many places fold into one result.
    pub(crate) size: i64,
    /// How many parts the next block's is further; the write of the output is the first block's part.
    pub(crate) apart: i64,
    /// The 32 lanes, element by element.
    pub(crate) lanes: Option<Access>,
}

/// How vectors access the source of a parameter or the destination of an output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VectorAccess {
    /// In equal steps.
    Even,
    /// Neighbouring packed elements.
    Packed,
    /// Truth values of a bit each, in equal steps.
    Bits,
    /// Coordinates in equal steps.
    Coord,
    /// Elements of 32 bits in a pattern over the axes that lines merge, where guards hold.
    Grid,
    /// Through guards that are affine along the axis, each way to neighbouring elements or to one value.
    Guarded,
    /// Neighbouring elements where guards hold that are affine along the axis, one value elsewhere: lane by
    /// lane, by a mask.
    Masked,
    /// At places that the body computes.
    Placed,
    /// Lane by lane.
    Single,
}

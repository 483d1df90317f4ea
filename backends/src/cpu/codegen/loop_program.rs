//! The loop program: what an emitter is given, a sweep as loops, integer arithmetic and groups of elements.
//!
//! [`lower`](super::lower) makes it of a loop nest; emitters only translate it. Integers are coordinates and addresses,
//! each defined once, in a block that encloses its uses. A group is the body at as many neighbouring coordinates as
//! vectors have lanes. How groups reach parameters and outputs is the same wherever they are: [`GroupRead`],
//! [`GroupWrite`]. Programs have a text ([`loop_printer`](super::loop_printer)) that parses back, and a
//! [verifier](super::loop_verify).

use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::{SVal, ScalarProgram};
use adfuse_ir::{DType, Literal};
use smallvec::{SmallVec, smallvec};

/// A value: an integer of 64 bits, or an element.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct LoopVal(pub(crate) u32);

impl LoopVal {
    /// The first place of a call.
    pub(crate) const BEGIN: LoopVal = LoopVal(0);
    /// One past its last.
    pub(crate) const END: LoopVal = LoopVal(1);
    /// The values that a function is given.
    pub(crate) const GIVEN: u32 = 2;
}

/// How a value is computed. Sums and products wrap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum LoopOp {
    Int(i64),
    /// An element that is known.
    Literal(Literal),
    /// An entry of the table of pointers.
    Pointer(u32),
    /// Where a transposed tile begins.
    Tile(u32),
    /// Where a literal is, as often as groups read it at once.
    Repeated(Literal),
    Add(LoopVal, LoopVal),
    Sub(LoopVal, LoopVal),
    Mul(LoopVal, i64),
    /// Quotient by a number above 0, rounded down.
    FloorDiv(LoopVal, i64),
    /// What is left of that.
    Rem(LoopVal, i64),
    /// Quotient of a number that is not below 0.
    Div(LoopVal, i64),
    And(LoopVal, LoopVal),
    Min(LoopVal, LoopVal),
    Max(LoopVal, LoopVal),
    /// Of a coordinate, a bound, and an end: the bound where it lies between the two, else the end.
    Bound(LoopVal, LoopVal, LoopVal),
    /// -1 where a value is in the range that begins at a number and has this many members, else 0.
    Within(LoopVal, i64, i64),
    /// The element at an address.
    Load(DType, LoopVal),
    /// The element of this many bits that begins at a bit of the byte at an address.
    LoadBits(DType, u8, LoopVal, LoopVal),
    /// An element of a type as an integer.
    Widen(DType, LoopVal),
}

/// What must hold for a block to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoopCond {
    /// A value is one of this many from a number on.
    Within(LoopVal, i64, i64),
    Less(LoopVal, LoopVal),
    Zero(LoopVal),
}

pub(crate) type LoopBlock = Vec<LoopStmt>;

/// The values that something names.
pub(crate) type LoopOperands = SmallVec<[LoopVal; 4]>;

/// How many groups a loop computes at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupShape {
    /// Groups that are interleaved.
    pub(crate) copies: u32,
    /// How often, one after the other.
    pub(crate) rounds: u32,
    /// Whether the lanes of folds are in registers.
    pub(crate) held: bool,
    /// Groups at most for which a part of the body is computed before the next part is, of which as many are interleaved as
    /// registers allow; 0 where the body is whole.
    pub(crate) strip: u32,
}

/// A statement.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum LoopStmt {
    Let(LoopVal, LoopOp),
    /// Of the results, each is the first of two values where all conditions hold, else the second.
    If {
        all: Vec<LoopCond>,
        then: LoopBlock,
        otherwise: LoopBlock,
        results: Vec<(LoopVal, LoopVal, LoopVal)>,
    },
    /// While the first of the values that turns hand on is less than an end. All are named afterwards.
    While {
        carried: Vec<(LoopVal, LoopVal)>,
        below: LoopVal,
        body: LoopBlock,
        next: Vec<LoopVal>,
    },
    /// Fills a tile with this many lines. The first element of the first one is at an address, and those of the others follow it.
    Transpose {
        tile: usize,
        from: LoopVal,
        lines: LoopVal,
    },
    /// Whole groups while they fit below an end, in the first of the shapes that the registers allow; `last` is the
    /// coordinate behind them. Where lanes are held, the first group must begin with a block's first lane: there are
    /// none otherwise.
    Groups {
        last: LoopVal,
        from: LoopVal,
        to: LoopVal,
        shapes: Vec<GroupShape>,
        nontemporal: bool,
    },
    /// One group at a coordinate, of which the elements from one on (or from the first on) are there up to a count.
    Partial {
        at: LoopVal,
        first: Option<LoopVal>,
        count: LoopVal,
    },
    /// The groups of a whole line of this many elements, the last of which may be partial. As many groups are interleaved as
    /// the first number of `copies` says that the registers allow. Lanes of folds are in registers, and are joined to
    /// parts at these addresses: the line is all that folds into them.
    Line {
        count: i64,
        copies: SmallVec<[u32; 3]>,
        joins: Vec<(usize, LoopVal)>,
    },
    /// The values of the body that do not change along a line: what is known of parameters.
    Invariants {
        params: Vec<(usize, LoopVal)>,
    },
    /// The body at one coordinate.
    Element {
        params: Vec<(usize, LoopVal)>,
        results: Vec<LoopVal>,
    },
    /// Stores an element; `canonical` has NaNs become the one of buffers.
    Store {
        dtype: DType,
        canonical: bool,
        at: LoopVal,
        value: LoopVal,
    },
    /// Stores the lowest bits of an element at a bit of a byte.
    StoreBits {
        dtype: DType,
        bits: u8,
        at: LoopVal,
        shift: LoopVal,
        value: LoopVal,
    },
    /// Combines an element of an output that folds with one in memory.
    Combine {
        output: usize,
        at: LoopVal,
        value: LoopVal,
    },
    /// Sets what an output folds into to what is neutral, for a group of columns: for a number of them, or for all.
    FillColumns {
        output: usize,
        at: LoopVal,
        count: Option<LoopVal>,
    },
    /// Sets all lanes of an output to what is neutral.
    FillLanes {
        output: usize,
    },
    /// Joins the lanes of an output, and stores the part.
    JoinLanes {
        output: usize,
        to: LoopVal,
    },
}

/// How groups read a parameter.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum GroupRead {
    /// It does not change along a line.
    Fixed,
    /// Only single elements do.
    Element,
    /// In equal steps from the element of coordinate 0 on.
    Even { pointer: LoopVal, step: i64 },
    /// Neighbouring packed elements of an array; of coordinate 0, the number of the element.
    Packed { bits: u8, pointer: LoopVal, first: LoopVal },
    /// Truth values of a bit each of an array, in equal steps; of coordinate 0, the number of the element.
    Bits { pointer: LoopVal, first: LoopVal, step: i64 },
    /// Coordinates in steps from the first on; over several axes where lines merge them.
    Coord { first: LoopVal, steps: GridSteps },
    /// Elements of 32 bits in a pattern over several axes. The pointer is to the element at coordinate 0 of all axes.
    /// Where a guard does not hold, a literal is read instead.
    Grid { pointer: LoopVal, steps: GridSteps, guards: Vec<GridGuard>, rest: Option<Literal> },
    /// Neighbouring elements at the bits of the coordinate that count: all of them, or none.
    Chosen { pointer: LoopVal, along: LoopVal },
    /// Neighbouring elements between two coordinates, a literal elsewhere.
    Masked { pointer: LoopVal, low: LoopVal, high: LoopVal, rest: Literal },
    /// At places that the body computes: behind a pointer, by as many elements as the first operand of its instruction says. Where
    /// the second one does not hold, a literal is read instead.
    Placed { pointer: LoopVal, rest: Option<Literal> },
    /// Lane by lane: a block that gives the element of a coordinate.
    Lanes { at: LoopVal, block: LoopBlock, value: LoopVal },
}

/// Steps along axes that are merged into one line. A group begins at coordinate 0 of all of them but the outermost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GridSteps {
    /// The step along the outermost axis.
    pub(crate) outer: i64,
    /// Extents of the others and steps along them, the innermost last.
    pub(crate) inner: SmallVec<[(i64, i64); 4]>,
}

/// A condition of a read: a number, which begins with `first` at coordinate 0 and has these steps, must be one of `count`
/// from `low` on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GridGuard {
    pub(crate) first: LoopVal,
    pub(crate) steps: GridSteps,
    pub(crate) low: i64,
    pub(crate) count: i64,
}

impl GridSteps {
    /// How many coordinates are within the outermost axis.
    pub(crate) fn within(&self) -> i64 {
        self.inner.iter().fold(1i64, |n, (extent, _)| n.saturating_mul(*extent))
    }

    /// Equal steps along one axis.
    pub(crate) fn even(step: i64) -> GridSteps {
        GridSteps { outer: step, inner: SmallVec::new() }
    }

    /// The step, where it is the same from each element to the next.
    pub(crate) fn as_even(&self) -> Option<i64> {
        self.inner.is_empty().then_some(self.outer)
    }

    /// Whether all coordinates are the same one.
    pub(crate) fn is_still(&self) -> bool {
        self.outer == 0 && self.inner.iter().all(|(_, step)| *step == 0)
    }

    /// How far an element of a group is from its first one.
    pub(crate) fn offset(&self, lane: i64) -> i64 {
        let (mut rest, mut sum) = (lane, 0i64);
        for &(extent, step) in self.inner.iter().rev() {
            sum = sum.wrapping_add((rest % extent).wrapping_mul(step));
            rest /= extent;
        }
        sum.wrapping_add(rest.wrapping_mul(self.outer))
    }
}

/// A block of an array in memory of the function, a few lines of the sweep one after the other. In the array, elements along a line are in
/// steps, and the lines are neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TransposedTile {
    pub(crate) dtype: DType,
    /// Elements of a line.
    pub(crate) count: i64,
    /// Elements of the array from one of a line to the next.
    pub(crate) step: i64,
}

impl TransposedTile {
    /// Bytes from one of the tile's lines to the next, which are whole vectors.
    pub(crate) fn pitch(&self) -> i64 {
        self.count.saturating_add(15) / 16 * 16 * self.dtype.bytes() as i64
    }
}

/// How the values of an output are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupFold {
    pub(crate) monoid: Monoid,
    pub(crate) dtype: DType,
    /// Whether it is in the order of lanes, else in that of columns.
    pub(crate) lanes: bool,
}

/// Where groups write an output.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum GroupWrite {
    /// Only single elements do.
    Element,
    /// In equal steps from the element of coordinate 0 on; `canonical` has NaNs become the one of buffers.
    Even { dtype: DType, canonical: bool, pointer: LoopVal, step: i64, nontemporal: bool },
    /// Neighbouring packed elements of an array; of coordinate 0, the number of the element.
    Packed { dtype: DType, bits: u8, pointer: LoopVal, first: LoopVal },
    /// To lanes, by the place of coordinate 0 among what folds into one result.
    Lanes { fold: GroupFold, pointer: LoopVal, place: LoopVal },
    /// To columns, of which that of coordinate 0 is at a pointer.
    Columns { fold: GroupFold, pointer: LoopVal },
}

/// A sweep as an emitter is given it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LoopProgram {
    /// Elements of a group.
    pub(crate) lanes: u32,
    /// How far a group is from the one before. Where the inner axes of grids do not divide the lanes, it is the most of their
    /// coordinates that a group has, and the last lanes of each group are not stored.
    pub(crate) apart: u32,
    pub(crate) body: ScalarProgram,
    /// The values of the body that change along a line, in the order in which groups compute them.
    pub(crate) order: Vec<SVal>,
    /// Where the order is cut into the parts of strips.
    pub(crate) cuts: Vec<u32>,
    /// Of each parameter.
    pub(crate) reads: Vec<GroupRead>,
    /// Of each output.
    pub(crate) writes: Vec<GroupWrite>,
    pub(crate) tiles: Vec<TransposedTile>,
    pub(crate) code: LoopBlock,
}

impl GroupWrite {
    /// How the output is combined, where it is.
    pub(crate) fn fold(&self) -> Option<GroupFold> {
        match self {
            GroupWrite::Lanes { fold, .. } | GroupWrite::Columns { fold, .. } => Some(*fold),
            GroupWrite::Element | GroupWrite::Even { .. } | GroupWrite::Packed { .. } => None,
        }
    }

    /// The values that it names.
    pub(crate) fn values(&self) -> LoopOperands {
        match *self {
            GroupWrite::Element => LoopOperands::new(),
            GroupWrite::Even { pointer, .. } | GroupWrite::Columns { pointer, .. } => {
                smallvec![pointer]
            }
            GroupWrite::Packed { pointer, first, .. } => smallvec![pointer, first],
            GroupWrite::Lanes { pointer, place, .. } => smallvec![pointer, place],
        }
    }
}

impl GroupRead {
    /// The values that it names, but for those of a block of its own.
    pub(crate) fn values(&self) -> LoopOperands {
        match *self {
            GroupRead::Fixed | GroupRead::Element | GroupRead::Lanes { .. } => LoopOperands::new(),
            GroupRead::Even { pointer, .. } | GroupRead::Placed { pointer, .. } => {
                smallvec![pointer]
            }
            GroupRead::Grid { pointer, ref guards, .. } => {
                guards.iter().map(|g| g.first).chain([pointer]).collect()
            }
            GroupRead::Coord { first, .. } => smallvec![first],
            GroupRead::Packed { pointer, first, .. } | GroupRead::Bits { pointer, first, .. } => {
                smallvec![pointer, first]
            }
            GroupRead::Chosen { pointer, along } => smallvec![pointer, along],
            GroupRead::Masked { pointer, low, high, .. } => smallvec![pointer, low, high],
        }
    }
}

impl LoopOp {
    /// The values that it names.
    pub(crate) fn operands(&self) -> LoopOperands {
        match *self {
            LoopOp::Int(_)
            | LoopOp::Literal(_)
            | LoopOp::Pointer(_)
            | LoopOp::Tile(_)
            | LoopOp::Repeated(_) => LoopOperands::new(),
            LoopOp::Mul(a, _)
            | LoopOp::FloorDiv(a, _)
            | LoopOp::Rem(a, _)
            | LoopOp::Div(a, _)
            | LoopOp::Within(a, ..)
            | LoopOp::Load(_, a)
            | LoopOp::Widen(_, a) => smallvec![a],
            LoopOp::Add(a, b)
            | LoopOp::Sub(a, b)
            | LoopOp::And(a, b)
            | LoopOp::Min(a, b)
            | LoopOp::Max(a, b)
            | LoopOp::LoadBits(_, _, a, b) => smallvec![a, b],
            LoopOp::Bound(a, b, c) => smallvec![a, b, c],
        }
    }
}

impl LoopStmt {
    /// The values that a statement without blocks names.
    pub(crate) fn operands(&self) -> LoopOperands {
        match self {
            LoopStmt::Let(_, op) => op.operands(),
            LoopStmt::If { .. } | LoopStmt::While { .. } | LoopStmt::FillLanes { .. } => {
                LoopOperands::new()
            }
            LoopStmt::Transpose { from, lines, .. } => smallvec![*from, *lines],
            LoopStmt::Groups { from, to, .. } => smallvec![*from, *to],
            LoopStmt::Line { joins, .. } => joins.iter().map(|(_, to)| *to).collect(),
            LoopStmt::Partial { at, first, count } => {
                first.iter().copied().chain([*at, *count]).collect()
            }
            LoopStmt::Invariants { params } | LoopStmt::Element { params, .. } => {
                params.iter().map(|p| p.1).collect()
            }
            LoopStmt::Store { at, value, .. } | LoopStmt::Combine { at, value, .. } => {
                smallvec![*at, *value]
            }
            LoopStmt::StoreBits { at, shift, value, .. } => smallvec![*at, *shift, *value],
            LoopStmt::FillColumns { at, count, .. } => count.iter().copied().chain([*at]).collect(),
            LoopStmt::JoinLanes { to, .. } => smallvec![*to],
        }
    }
}

impl LoopCond {
    /// The values that it names.
    pub(crate) fn operands(&self) -> LoopOperands {
        match *self {
            LoopCond::Within(a, ..) | LoopCond::Zero(a) => smallvec![a],
            LoopCond::Less(a, b) => smallvec![a, b],
        }
    }
}

impl LoopProgram {
    /// The values that a group names wherever it is.
    pub(crate) fn group_values(&self) -> impl Iterator<Item = LoopVal> {
        let reads = self.reads.iter().flat_map(GroupRead::values);
        reads.chain(self.writes.iter().flat_map(GroupWrite::values))
    }

    /// Whether an output is stored past the caches.
    // The x86 emitter asks.
    #[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), allow(dead_code))]
    pub(crate) fn is_nontemporal(&self) -> bool {
        self.writes.iter().any(|w| matches!(w, GroupWrite::Even { nontemporal: true, .. }))
    }
}

impl GroupFold {
    /// Whether lanes hold negated numbers: the least of those takes fewer instructions than the
    /// greatest, zeros and NaN being what they are.
    pub(crate) fn negated(&self) -> bool {
        self.lanes && self.dtype.is_float() && self.monoid == Monoid::Max
    }

    /// What combined with anything gives that, to the bit; as lanes hold it.
    pub(crate) fn neutral(&self) -> Literal {
        match self.monoid {
            Monoid::Sum if self.dtype.is_float() => Literal::from_f64(self.dtype, -0.0),
            Monoid::Max if self.negated() => Literal::from_f64(self.dtype, f64::INFINITY),
            m => m.empty(self.dtype),
        }
    }
}

//! What a row of the op table holds.

use super::inverse_row::Inverse;
use crate::attrs::{AttrSpec, Attrs};
use crate::builder::Builder;
use crate::dtype::DType;
use crate::entity::Value;
use crate::index::ViewMap;
use crate::infer::{InferCx, InferError, Sig, Types};
use crate::scalar::S;
use crate::types::TensorType;
use smallvec::SmallVec;

/// A row of the op table: everything that is known about an op.
#[derive(Clone, Copy)]
pub struct OpDef {
    /// Name in text.
    pub name: &'static str,
    /// One line for people.
    pub doc: &'static str,
    /// Number of operands.
    pub arity: Arity,
    /// Attribute schema, in printing order.
    pub attrs: &'static [AttrSpec],
    /// Names of the nested regions, in order; where they are [`Control::Branch`]es of one name, there may be any
    /// number of them.
    pub regions: &'static [&'static str],
    /// Whether the result type cannot be inferred and must be written.
    pub declared: bool,
    /// Result types from operand types.
    pub infer: Infer,
    /// Meaning, and with it the fusion class.
    pub body: Body,
    /// How it differentiates.
    pub deriv: Deriv,
    /// How operands follow from the answer.
    pub inverses: &'static [Inverse],
    /// Where operands are sampled by tests; one entry an operand, the last repeats.
    pub domain: &'static [Domain],
    /// Complete instructions with their parameters, for docs and table-driven tests:
    /// `"%x: f32[2,3] | reduce_sum %x {axes = [0]} : f32[3]"`.
    pub examples: &'static [&'static str],
}

/// Number of operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arity {
    /// Exactly this many.
    Exactly(usize),
    /// This many or more.
    AtLeast(usize),
}

/// Type inference of an op.
#[derive(Clone, Copy)]
pub enum Infer {
    /// Elementwise, by signature.
    Map(Sig),
    /// By a rule of its own.
    Rule(fn(&mut InferCx<'_>) -> Result<Types, InferError>),
    /// Those of the instructions an op is composed of, after a check of operands and attributes.
    Composed(Check),
}

/// A check of operands and attributes that gives literals their types.
pub type Check = fn(&mut InferCx<'_>) -> Result<(), InferError>;

/// The instructions that an op is short for: writes them for the operands and gives their results.
pub type Compose = fn(&mut Builder, &RuleCx<'_>) -> SmallVec<[Value; 1]>;

/// Where tests sample an operand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Domain {
    /// 3 times a standard normal.
    Normal,
    /// 1e-3 times a standard normal.
    Small,
    /// 3 times a standard normal, pushed away from 0 by 10.
    NormalFar,
    /// Uniform in `lo..hi`.
    Uniform(f64, f64),
    /// Uniform in `lo..hi` with a random sign.
    SignedUniform(f64, f64),
    /// Uniform over the integers `lo..hi`; distinct ones where the tensor is not larger.
    Ints(i64, i64),
    /// Symmetric positive definite matrices in the last two axes, far from singular.
    Definite,
}

/// 3·N(0,1)
pub const D: &[Domain] = &[Domain::Normal];
/// U[1,3)
pub const P: &[Domain] = &[Domain::Uniform(1.0, 3.0)];
/// 1e-3·N(0,1)
pub const SMALL: &[Domain] = &[Domain::Small];
/// 3·N(0,1) pushed away from 0 by 10
pub const NS: &[Domain] = &[Domain::NormalFar];

/// What an elementwise body may read besides its operands.
pub struct MapCx<'a> {
    /// The attributes.
    pub attrs: &'a Attrs,
    /// Element type of the result.
    pub result: DType,
}

/// The meaning of a `Map`: a closure that is recorded into a scalar program.
#[derive(Clone, Copy)]
pub enum MapBody {
    /// Of the operands alone.
    Plain(for<'r> fn(&[S<'r>]) -> S<'r>),
    /// Of attributes too.
    With(for<'r> fn(&MapCx<'_>, &[S<'r>]) -> S<'r>),
}

/// A partial derivative of a `Map`, written in the answer `y` and the operands `x`.
///
/// A float multiplies the tangent; a `bool` lets it pass or stops it, which keeps infinities out of
/// what does not depend on the operand and costs one bit to remember.
#[derive(Clone, Copy)]
pub enum Partials {
    /// Of answer and operands.
    Plain(&'static [for<'r> fn(S<'r>, &[S<'r>]) -> S<'r>]),
    /// Of attributes too.
    With(&'static [PartialWith]),
}

/// A partial derivative of attributes, answer and operands.
pub type PartialWith = for<'r> fn(&MapCx<'_>, S<'r>, &[S<'r>]) -> S<'r>;

/// What the rows' view functions see: all extents are known.
pub struct ViewCx<'a> {
    /// Extents of the operands.
    pub args: &'a [SmallVec<[i64; 4]>],
    /// Extents of the result that is asked for.
    pub out: &'a [i64],
    /// Which result is asked for.
    pub result: usize,
    /// The attributes.
    pub attrs: &'a Attrs,
}

/// An associative operation with a neutral start, for reductions and scans.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Monoid {
    /// Sum, from +0.
    Sum,
    /// Product, from 1.
    Prod,
    /// Maximum, from the type's least value (-inf).
    Max,
    /// Minimum, from the type's greatest value (+inf).
    Min,
    /// Logical and (bitwise on integers), from all ones.
    And,
    /// Logical or (bitwise on integers), from zero.
    Or,
    /// Index of the first maximum; NaN counts as larger than every number.
    ArgMax,
    /// Index of the first minimum; NaN counts as smaller than every number.
    ArgMin,
}

/// Ops that move elements by index values, or find those.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Indirect {
    /// Reads slices at computed places.
    Gather,
    /// Joins slices with what is at computed places.
    Scatter(Update),
    /// Reads one slice.
    DynamicSlice,
    /// Overwrites one slice.
    DynamicUpdateSlice,
    /// Finds the places of elements in ascending or descending order.
    Argsort,
}

/// What an update of a scatter does to the element at its place; updates of one place follow in the row-major order of
/// their own elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Update {
    /// Adds to it.
    Add,
    /// Leaves the larger.
    Max,
    /// Leaves the smaller.
    Min,
    /// Takes its place.
    Set,
}

impl Update {
    /// Every one.
    pub const ALL: [Update; 4] = [Update::Add, Update::Max, Update::Min, Update::Set];

    /// The name in the text of kernels.
    pub fn name(self) -> &'static str {
        match self {
            Update::Add => "add",
            Update::Max => "max",
            Update::Min => "min",
            Update::Set => "set",
        }
    }

    /// The monoid whose operation it is, where it is one.
    pub fn monoid(self) -> Option<Monoid> {
        match self {
            Update::Add => Some(Monoid::Sum),
            Update::Max => Some(Monoid::Max),
            Update::Min => Some(Monoid::Min),
            Update::Set => None,
        }
    }
}

/// What a generated source sees of its element.
#[derive(Clone, Copy)]
pub struct Place<'r> {
    /// Row-major position in the result, `i64`.
    pub linear: S<'r>,
    /// Coordinate along the `axis` attribute (0 without one), `i64`.
    pub along: S<'r>,
}

/// A generated source: the element at a place, from scalar operands, in the given type.
pub type SourceBody = for<'r> fn(Place<'r>, &[S<'r>], DType) -> S<'r>;

/// Ops that exchange values with the same program on other ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Collective {
    /// What the ranks have, folded, on all of them.
    AllReduce(Monoid),
    /// What the ranks have, one after the other, on all of them.
    AllGather,
    /// Each rank's part of the sum.
    ReduceScatter,
    /// Parts, one to each rank.
    AllToAll,
    /// What one rank has, on all of them.
    Broadcast,
    /// The number of the rank.
    Index,
}

/// Ops ordered by tokens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Starts a chain of effects.
    Start,
    /// Writes a tensor to the error stream.
    Print,
}

/// Ops with regions or callees. What values a region is entered with, ends with and sees is told by
/// [`control`](crate::control) from this.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Control {
    /// One of several regions: the first or the second where the operand is true or false, or the one with that
    /// number, the nearest there is.
    Branch,
    /// A region that is repeated a number of times that is known before, and for some a second one that goes back
    /// over the steps.
    Loop(LoopRow),
    /// A region that is repeated while another gives true.
    While,
    /// A function of the module.
    Call,
}

/// How a loop op is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LoopRow {
    /// What says how many steps there are.
    pub bounds: Bounds,
    /// Whether steps scan operands and stack results.
    pub stacks: bool,
    /// Whether there is a second region.
    pub returns: bool,
}

/// What says how many steps a loop takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Bounds {
    /// The extent of what is scanned.
    Length,
    /// Two operands: from the first to before the second.
    Range,
    /// The extent of what is scanned, or one operand where attribute `counted` is set.
    Either,
}

/// Meaning of an op, and its fusion class: engines and planner match on this, never on opcodes.
#[derive(Clone, Copy)]
pub enum Body {
    /// Elementwise.
    Map(MapBody),
    /// A pure change of index.
    View(fn(&ViewCx<'_>) -> ViewMap),
    /// Folds axes away with a monoid; attribute `axes`.
    Reduce(Monoid),
    /// Running fold along an axis; attributes `axis` and `reverse`.
    Scan(Monoid),
    /// Sum of products over contracted axes.
    Contract,
    /// Moves elements by index values, or finds those.
    Indirect(Indirect),
    /// Values written in the program; attribute `values`.
    Constant,
    /// Values computed from their place.
    Source(SourceBody),
    /// Nested regions or a callee.
    Region(Control),
    /// An exchange between the ranks that run the program.
    Collective(Collective),
    /// Ordered by a token.
    Effect(Effect),
    /// A function that the engine's user gives, by name: pure, and of no meaning here.
    Opaque,
    /// A step of its own where an engine has it, and short for other instructions elsewhere.
    Step(StepBody),
    /// Short for other instructions, which are written out wherever calls are inlined: plans and engines never see it, and
    /// derivatives and batches see those alone that have derivative rules of their own.
    Composed(Compose),
}

/// What an op that may be a step of its own is composed of.
#[derive(Clone, Copy)]
pub struct StepBody {
    /// What it means, to the bit.
    pub defined: Compose,
    /// The same numbers, rounded otherwise: for derivatives, and for modes that leave the order to the engine.
    pub other: Compose,
}

/// Which of the compositions of an op that may be a step of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Composition {
    /// The one that defines its bits.
    Defined,
    /// The other.
    Other,
}

impl StepBody {
    /// How the op is written in other ops: block by block, or all scores at once.
    pub fn composition(self, which: Composition) -> Compose {
        match which {
            Composition::Defined => self.defined,
            Composition::Other => self.other,
        }
    }
}

/// The parts of an instruction that derivative rules see, in the function under construction.
pub struct RuleCx<'a> {
    /// The operands.
    pub args: &'a [Value],
    /// The results (empty for a transposition of an op that is linear in all it depends on).
    pub results: &'a [Value],
    /// The attributes.
    pub attrs: &'a Attrs,
    /// Types of the operands.
    pub types: &'a [TensorType],
}

/// The tangents of the results, `None` where they are zero.
pub type Tangents = SmallVec<[Option<Value>; 1]>;

/// A forward rule: tangents of the results from tangents of the operands.
pub type JvpRule = fn(&mut Builder, &RuleCx<'_>, &[Option<Value>]) -> Tangents;

/// A transposition: cotangents of the operands marked linear, from the results' cotangents.
pub type TransposeRule = fn(&mut Builder, &RuleCx<'_>, &[bool], &[Option<Value>]) -> Tangents;

/// How an op differentiates.
#[derive(Clone, Copy)]
pub enum Deriv {
    /// By its partial derivatives; linear in every operand whose partial does not read it.
    Partials(Partials),
    /// Linear in the operands of the listed slots together; other operands are fixed.
    Linear(LinearSlots, TransposeRule),
    /// Linear in each operand by itself.
    Bilinear(TransposeRule),
    /// By a rule of its own, written in ops that have derivatives.
    Jvp(JvpRule),
    /// Forward by a rule of its own, written in ops that have derivatives; reverse by another, which gives the cotangents
    /// of operands from those of results and reads operands and results.
    Rules(JvpRule, TransposeRule),
    /// Locally constant, or not of a float type.
    Zero,
    /// By differentiating regions, the callee, or what it is composed of; for what is opaque, by the rule of a
    /// function that calls it.
    Structural,
}

/// Which operands an op is linear in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinearSlots {
    /// All of them.
    All,
    /// These.
    Only(&'static [usize]),
}

impl LinearSlots {
    /// Whether operand `k` is one of them.
    pub fn contains(self, k: usize) -> bool {
        match self {
            LinearSlots::All => true,
            LinearSlots::Only(slots) => slots.contains(&k),
        }
    }
}

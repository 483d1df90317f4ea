//! Programs: buffers, and the steps that fill them.

use super::block::{Branch, Loop};
use super::buffer::{Buffer, BufferData, Extents, Role};
use super::stage::{Kernel, Operand, Param, Stage};
use crate::attrs::{Attr, Attrs};
use crate::dtype::DType;
use crate::index::{Guard, IndexExpr};
use crate::op::{AttentionReach, Op, Update};
use crate::scalar::ScalarProgram;
use cranelift_entity::PrimaryMap;
use smallvec::SmallVec;

/// Steps over buffers: what a function becomes before an engine sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Program {
    /// Its name, without `@`.
    pub name: String,
    /// The buffers; those the caller gives are in the order in which it gives them.
    pub buffers: PrimaryMap<Buffer, BufferData>,
    /// What the caller is handed, in order. A buffer may occur more than once, and inputs and
    /// constants may occur.
    pub outputs: Vec<Buffer>,
    /// The steps in order.
    pub steps: Vec<Step>,
}

impl Program {
    /// The buffers that the caller gives, in order.
    pub fn inputs(&self) -> impl Iterator<Item = Buffer> + '_ {
        self.buffers.iter().filter(|(_, data)| data.role == Role::Input).map(|(b, _)| b)
    }
}

/// One step of a program.
// Almost every step is a kernel: boxing it would cost more than the few others waste.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// A parallel domain with stages.
    Kernel(Kernel),
    /// Sums of products.
    Contract(Contract),
    /// Values weighed by the softmax of scores, or the way back.
    Attend(Attend),
    /// Sums at computed places.
    Scatter(Scatter),
    /// Places of elements in order.
    Argsort(Argsort),
    /// A function of a library.
    Library(Library),
    /// A copy from one memory to another.
    Transfer(Transfer),
    /// An exchange between the ranks that run the program.
    Exchange(Exchange),
    /// An effect: a tensor is written where the host's effects go.
    Print(DebugPrint),
    /// A program that is repeated.
    Loop(Box<Loop>),
    /// One of several programs.
    Branch(Branch),
    /// Kernels that share nothing.
    Bundle(Bundle),
}

/// Kernels in one launch: none reads what another one writes, so they run in any order and at the same time. None
/// folds over its domain, since nothing comes after the points of a launch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bundle {
    /// A name for people, without `@`.
    pub name: String,
    /// The kernels, two at least.
    pub kernels: Vec<Kernel>,
}

/// Contractions in one launch. Where there are several, all read the same left operand or all the
/// same right one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Contract {
    /// A name for people, without `@`.
    pub name: String,
    /// The contractions.
    pub members: SmallVec<[Member; 1]>,
}

/// One contraction: sums of products in the order that `docs/fp.md` defines, and what becomes of each
/// sum. The coordinates of its result are those of `batch`, `rows`, `cols`, in this order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Member {
    /// Extents of the axes that operands and result share.
    pub batch: Extents,
    /// Extents of the axes of the left operand alone.
    pub rows: Extents,
    /// Extents of the axes of the right operand alone.
    pub cols: Extents,
    /// Extents of the axes summed over, row-major in the order of the sum.
    pub depth: Extents,
    /// The left operand, at the coordinates of `batch`, `rows`, `depth`.
    pub lhs: Feed,
    /// The right operand, at the coordinates of `batch`, `cols`, `depth`.
    pub rhs: Feed,
    /// The type of the sums: `f32`, `f64` or an integer type. Elements of operands widen to it.
    pub sum: DType,
    /// What becomes of the sums, at the coordinates of the result: a stage without axes that reads
    /// [`Param::Sum`] and stores or folds into buffers.
    pub then: Stage,
}

/// Where the elements of a contraction's operand come from: a program of loads, with one output.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Feed {
    /// What the program reads: loads and coordinates.
    pub params: Vec<Param>,
    /// Computes an element.
    pub program: ScalarProgram,
}

/// Attention, or its way back, in its defined order (`docs/fp.md`): the ops `attention` and `attention_grad`
/// in dense buffers. No engine stores scores for it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Attend {
    /// Whether it is the way back.
    pub backward: bool,
    /// Which keys a row sees by its place.
    pub reach: AttentionReach,
    /// The operands of the op, in order.
    pub inputs: Vec<Buffer>,
    /// The results of the op, in order: of the way back with the cotangents of scores where those are wanted.
    pub outputs: Vec<Buffer>,
}

impl Attend {
    /// The row of the op table whose step this is: attention, or its gradient.
    pub fn op(&self) -> Op {
        if self.backward { Op::AttentionGrad } else { Op::Attention }
    }

    /// The attributes of the op.
    pub fn attrs(&self) -> Attrs {
        let attrs = self.reach.with(Attrs::none());
        match self.backward {
            true => attrs.with("bias_grad", Attr::Bool(self.outputs.len() > 3)),
            false => attrs,
        }
    }

    /// The mask or the bias.
    pub fn extra(&self) -> Option<Buffer> {
        self.inputs.get(if self.backward { 6 } else { 3 }).copied()
    }
}

/// A function of a library, by name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Library {
    /// The function, without `@`.
    pub function: String,
    /// What it reads.
    pub inputs: Vec<Buffer>,
    /// What it writes, whole.
    pub outputs: Vec<Buffer>,
    /// Bytes of memory it needs beside.
    pub scratch: u64,
    /// Operations that it takes, as far as is known.
    pub operations: u64,
    /// Bytes that it moves beside those of what it reads and writes, as far as is known.
    pub bytes: u64,
}

/// Places of the elements along an axis in order, line by line: smaller ones first, equal ones as they come.
/// Zeros are equal whatever their sign, and NaN is larger than every number and equal to itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Argsort {
    /// The elements.
    pub from: Buffer,
    /// Where the places go, `i32`: extents like those of `from`, or less along the axis, for the first
    /// places alone.
    pub out: Buffer,
    /// The axis that lines lie along.
    pub axis: u8,
    /// Whether larger elements come first; equal ones still do as they come.
    pub descending: bool,
}

/// A copy from one memory to another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Transfer {
    /// What is copied.
    pub from: Buffer,
    /// Where it goes: a buffer of the same type in another memory.
    pub to: Buffer,
}

/// An exchange between the ranks of an axis: every rank runs the same program, and has the same exchanges in
/// the same order. Buffers are dense.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Exchange {
    /// What goes where.
    pub kind: ExchangeKind,
    /// The axis whose ranks take part.
    pub over: String,
    /// How many there are, at least two.
    pub ranks: u32,
    /// What this rank has; nothing where it asks for its number.
    pub from: Option<Buffer>,
    /// What it is given.
    pub to: Buffer,
}

/// What an exchange does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ExchangeKind {
    /// What all ranks have, one after the other.
    AllGather,
    /// As many equal parts as there are ranks, one to each; those that come are in the order of the ranks.
    AllToAll,
    /// What one rank has.
    Broadcast {
        /// The number of that rank.
        root: u32,
    },
    /// The number of the rank, `i32`.
    Index,
}

impl Exchange {
    /// The attributes of the op.
    pub fn attrs(&self) -> Attrs {
        let over = Attrs::none().with("over", Attr::Str(self.over.clone()));
        let attrs = over.with_int("ranks", self.ranks.into());
        match self.kind {
            ExchangeKind::AllGather => attrs.with_int("axis", 0),
            ExchangeKind::AllToAll => attrs.with_int("split", 0).with_int("concat", 0),
            ExchangeKind::Broadcast { root } => attrs.with_int("root", root.into()),
            ExchangeKind::Index => attrs,
        }
    }

    /// The op that it is.
    pub fn op(&self) -> Op {
        match self.kind {
            ExchangeKind::AllGather => Op::AllGather,
            ExchangeKind::AllToAll => Op::AllToAll,
            ExchangeKind::Broadcast { .. } => Op::Broadcast,
            ExchangeKind::Index => Op::AxisIndex,
        }
    }
}

/// A `debug_print`: the host writes a buffer out when all steps before it are done. It writes no buffer. Steps with effects
/// run in their order, each as often as its program does.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DebugPrint {
    /// What people know the tensor by.
    pub label: String,
    /// What is written out.
    pub from: Buffer,
}

/// Updates joined with elements of a buffer at computed places, one after the other in the row-major
/// order of `domain`. 16-bit floats accumulate as `f32` and are rounded once, at the end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scatter {
    /// What an update does to its element.
    pub update: Update,
    /// What the elements begin with: a buffer like `out`, or one value.
    pub from: Operand,
    /// Where the result goes.
    pub out: Buffer,
    /// Extents of the updates.
    pub domain: Extents,
    /// What the program reads.
    pub params: Vec<Param>,
    /// Computes the update, in the type that the type of `out` computes in.
    pub program: ScalarProgram,
    /// Which element of `out` the update is joined with.
    pub index: SmallVec<[IndexExpr; 4]>,
    /// Where one does not hold, the update is left out.
    pub guards: SmallVec<[Guard; 2]>,
}

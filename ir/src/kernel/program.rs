//! Programs: buffers, and the steps that fill them.

use super::stage::{Kernel, Operand, Param};
use crate::attrs::Ints;
use crate::dtype::DType;
use crate::index::{Guard, IndexExpr};
use crate::literal::Literal;
use crate::scalar::ScalarProgram;
use crate::types::TensorType;
use cranelift_entity::{PrimaryMap, entity_impl};
use smallvec::SmallVec;

/// A buffer of a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Buffer(u32);
entity_impl!(Buffer, "b");

/// Known extents, outermost first.
pub type Extents = SmallVec<[i64; 4]>;

/// What a buffer is to its program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// Given by the caller; never written.
    Input,
    /// Written by one step and handed to the caller.
    Output,
    /// Written by one step, read by later ones.
    Temp,
    /// Values written in the program, row-major; never written again.
    Constant(Vec<Literal>),
}

/// A dense tensor in memory, row-major.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BufferData {
    /// Its name, without `%`; no other buffer has it.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub dims: Extents,
    /// What it is to the program.
    pub role: Role,
}

impl BufferData {
    /// The type of the tensor it holds; `None` when an extent is negative.
    pub fn ty(&self) -> Option<TensorType> {
        let dims: Option<SmallVec<[u64; 4]>> =
            self.dims.iter().map(|&n| u64::try_from(n).ok()).collect();
        Some(TensorType::of(self.dtype, &dims?))
    }
}

/// Steps over buffers: what a function becomes before an engine sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
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
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A parallel domain with stages.
    Kernel(Kernel),
    /// Sums of products.
    Contract(Contract),
    /// Sums at computed places.
    Scatter(Scatter),
}

/// Sums of products over pairs of axes, in the order that `docs/fp.md` defines. Operands widen to the
/// type that the result's type computes in; each result element is rounded once.
///
/// The result's axes are the batch axes, the other axes of `lhs`, the other axes of `rhs`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contract {
    /// Left operand.
    pub lhs: Buffer,
    /// Right operand.
    pub rhs: Buffer,
    /// Where the result goes.
    pub out: Buffer,
    /// Paired axes that the result keeps: of `lhs`, of `rhs`.
    pub batch: (Ints, Ints),
    /// Paired axes that are summed over, in this order: of `lhs`, of `rhs`.
    pub contract: (Ints, Ints),
}

/// Updates added to elements of a buffer at computed places, one after the other in the row-major
/// order of `domain`. 16-bit floats accumulate as `f32` and are rounded once, at the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scatter {
    /// What the sums begin with: a buffer like `out`, or one value.
    pub from: Operand,
    /// Where the result goes.
    pub out: Buffer,
    /// Extents of the updates.
    pub domain: Extents,
    /// What the program reads.
    pub params: Vec<Param>,
    /// Computes the update, in the type that the type of `out` computes in.
    pub program: ScalarProgram,
    /// Which element of `out` the update is added to.
    pub index: SmallVec<[IndexExpr; 4]>,
    /// Where one does not hold, the update is left out.
    pub guards: SmallVec<[Guard; 2]>,
}

//! Loops whose values are scalars, as one function: what is carried from step to step is in registers.
//!
//! The blocks of such a loop are straight lines of scalar programs. Numbers of pointers are those of the program around it.

use adfuse_ir::scalar::ScalarProgram;
use adfuse_ir::{DType, Literal};

/// A loop over scalars.
pub(crate) struct ScalarLoop {
    pub(crate) carries: Vec<ScalarCarry>,
    /// Whether the loop goes on, for a loop that asks before each step.
    pub(crate) test: Option<ScalarBlock>,
    pub(crate) step: ScalarBlock,
    /// Where an element of each step goes: the number of a pointer. The outputs of the step that follow the carries.
    pub(crate) stacks: Vec<u32>,
    /// Whether positions go from the last to the first.
    pub(crate) reverse: bool,
    /// The type of positions, as blocks read them.
    pub(crate) index: DType,
}

/// A value that a loop carries.
pub(crate) struct ScalarCarry {
    pub(crate) start: ScalarStart,
    /// The number of the pointer to where it ends.
    pub(crate) to: u32,
    pub(crate) dtype: DType,
}

/// What a carry begins with.
#[derive(Clone, Copy)]
pub(crate) enum ScalarStart {
    At(u32),
    Literal(Literal),
}

/// A straight line of scalar programs over numbered values.
#[derive(Default)]
pub(crate) struct ScalarBlock {
    /// What values are before anything is computed.
    pub(crate) given: Vec<(usize, ScalarInput)>,
    pub(crate) stages: Vec<ScalarStage>,
    /// The values that it hands over, in order.
    pub(crate) outputs: Vec<usize>,
    /// How many values there are.
    pub(crate) values: usize,
}

/// What a value is before anything is computed.
#[derive(Clone, Copy)]
pub(crate) enum ScalarInput {
    /// The position, in the loop's type of positions.
    Index,
    Carry(usize),
    /// The element at the position of an array, whose pointer has this number.
    Element(u32, DType),
    /// An element that stays, by the number of its pointer.
    Whole(u32, DType),
    Literal(Literal),
}

/// A scalar program that is evaluated once.
pub(crate) struct ScalarStage {
    pub(crate) program: ScalarProgram,
    /// The value of each parameter.
    pub(crate) params: Vec<usize>,
    /// The value that each output becomes, and whether that is an element of a buffer, whose NaN is the canonical one.
    pub(crate) outputs: Vec<(usize, bool)>,
}

//! The typed indices of the IR, and the phase of an instruction.

use cranelift_entity::entity_impl;
use std::fmt;

/// An SSA value: a parameter, a result or a literal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(u32);
entity_impl!(Value, "v");

/// An instruction of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inst(u32);
entity_impl!(Inst, "inst");

/// A region: parameters, instructions in order, results. Region 0 of a function is its body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Region(u32);
entity_impl!(Region, "region");

/// A function of a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Func(u32);
entity_impl!(Func, "func");

/// An interned type of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(u32);
entity_impl!(TypeId, "type");

/// An interned attribute list of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttrsId(u32);
entity_impl!(AttrsId, "attrs");

/// Which pass of the step an instruction belongs to: 0 is primal, each transposition adds one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Phase(pub u8);

impl Phase {
    /// The primal phase.
    pub const PRIMAL: Phase = Phase(0);

    /// The phase after one more transposition; saturates.
    pub fn transposed(self) -> Phase {
        Phase(self.0.saturating_add(1))
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@p{}", self.0)
    }
}

impl fmt::Debug for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

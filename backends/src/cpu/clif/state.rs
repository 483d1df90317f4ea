//! What translation of loops and of vectors share: register types, quads, lanes of folds.

use adfuse_ir::DType;
use cranelift_codegen::ir::{MemFlagsData, Type, Value, types};

/// What code depends on of the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetFeatures {
    /// Whether it is x86-64. There a comparison of vectors that holds for NaN is one instruction and the larger of two floats is
    /// several; elsewhere it is the other way round.
    pub(crate) x86: bool,
    /// Whether it multiplies and adds with one rounding.
    pub(crate) fma: bool,
}

impl TargetFeatures {
    /// Registers of vectors of 128 bits.
    pub(crate) fn vector_registers(self) -> usize {
        if self.x86 { 16 } else { 32 }
    }
}

/// Accesses are in bounds, but callers' arrays are aligned to bytes only.
pub(crate) fn flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// Four elements.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Quad {
    /// Lanes of 32 bits.
    Narrow(Value),
    /// Lanes of 64 bits, the lower elements first.
    Wide([Value; 2]),
}

impl Quad {
    pub(crate) fn parts(&self) -> &[Value] {
        match self {
            Quad::Narrow(v) => std::slice::from_ref(v),
            Quad::Wide(both) => both,
        }
    }

    pub(crate) fn of(parts: &[Value]) -> Option<Quad> {
        match *parts {
            [v] => Some(Quad::Narrow(v)),
            [a, b] => Some(Quad::Wide([a, b])),
            _ => None,
        }
    }

    pub(crate) fn wide(&self) -> bool {
        matches!(self, Quad::Wide(_))
    }
}

/// Whether four elements of a type are two vectors.
pub(crate) fn wide(d: DType) -> bool {
    d.bytes() == 8
}

/// The type of the vectors that hold elements of a type; truth values may be wider.
pub(crate) fn vector(d: DType) -> Type {
    match d {
        DType::F32 => types::F32X4,
        DType::F64 => types::F64X2,
        DType::I64 => types::I64X2,
        _ => types::I32X4,
    }
}

/// The lanes of all outputs that fold in that order, in registers.
#[derive(Default)]
pub(crate) struct FoldLanes {
    /// Of each output.
    pub(crate) quads: Vec<Vec<Quad>>,
    /// The first of those that a body combines with.
    pub(crate) first: usize,
}

/// The type of an element in a register.
pub(crate) fn register(d: DType) -> Type {
    match d {
        DType::F64 => types::F64,
        DType::F32 => types::F32,
        DType::BF16 | DType::F16 => types::I16,
        DType::I64 => types::I64,
        DType::I32 | DType::U32 => types::I32,
        DType::I8 | DType::U8 | DType::Bool | DType::Token => types::I8,
    }
}

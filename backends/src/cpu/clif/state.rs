//! State that the emitters of loops and vectors share: register types, lines, interleaved groups, lanes of folds.

use cranelift_codegen::ir::Type;

use crate::cpu::codegen::loop_ir::{Access, LoadSource, LoopNest, ParamRead};
use adfuse_ir::DType;
use cranelift_codegen::ir::{MemFlagsData, Value, types};

/// What is known at a coordinate.
pub(crate) struct PointValues<'a> {
    /// The coordinates that are walked.
    pub(crate) at: &'a [Value],
    /// The parameters that have been read.
    pub(crate) params: &'a [Option<Value>],
}

/// What is the same all along the innermost axis.
#[derive(Default)]
pub(crate) struct LoopInvariants {
    /// Of each form, all but the step along it and what changes.
    pub(crate) forms: Vec<Option<Value>>,
    /// Of each parameter that does not change.
    pub(crate) params: Vec<Option<Value>>,
    /// The pointers of the table.
    pub(crate) bases: Vec<(u32, Value)>,
    /// Of each array whose element is affine, a pointer to where the innermost coordinate is 0.
    pub(crate) starts: Vec<(usize, Value)>,
}

/// Accesses are in bounds, but callers' arrays are aligned to bytes only.
pub(crate) fn flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// What is the same in a line, as the body of the loop finds it.
pub(crate) struct LineValues {
    pub(crate) fixed: LoopInvariants,
    /// Coordinates of all axes but the innermost.
    pub(crate) outer: Vec<Value>,
    /// The values of the body that do not change.
    pub(crate) values: Vec<Option<Value>>,
    /// Those of them that vectors read, in all lanes.
    pub(crate) spread: Vec<Option<Quad>>,
    /// Of each parameter that is read through guards, the way of the stretch.
    pub(crate) sources: Vec<Option<ChosenPointer>>,
    /// Of each output that folds, where.
    pub(crate) folds: Vec<Option<FoldLine>>,
}

/// The arrays that are read and written.
pub(crate) fn accesses(p: &LoopNest) -> impl Iterator<Item = &Access> {
    let reads = p.reads.iter().flat_map(|r| match r {
        ParamRead::Guarded(sources) => sources.as_slice(),
        ParamRead::Coord(_) => &[],
    });
    let arrays = reads.filter_map(|w| match &w.from {
        LoadSource::Array(a) => Some(a),
        LoadSource::Literal(_) => None,
    });
    let lanes = p.folds.iter().flatten().filter_map(|f| f.lanes.as_ref());
    arrays.chain(&p.writes).chain(lanes).chain(p.target.iter().map(|(_, _, places)| places))
}

/// The elements of a quad.
pub(crate) const LANES: u32 = 4;

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

/// How many quads are interleaved in the loops along a line: first this many at a time, then the least
/// number, then single elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Interleaving {
    pub(crate) most: u32,
    pub(crate) least: u32,
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

/// Where an output folds, all along a line.
#[derive(Clone, Copy)]
pub(crate) struct FoldLine {
    /// Of lanes, where they are; of columns, where the part of coordinate 0 is.
    pub(crate) start: Value,
    /// The place of coordinate 0 among those that fold into one result.
    pub(crate) place: Value,
}

/// The lanes of all outputs that fold in that order, in registers.
#[derive(Default)]
pub(crate) struct FoldLanes {
    /// Of each output.
    pub(crate) quads: Vec<Vec<Quad>>,
    /// The first of those that a body combines with.
    pub(crate) first: usize,
}

/// Through which way a parameter is read in a stretch.
#[derive(Clone, Copy)]
pub(crate) struct ChosenPointer {
    /// Where the element of the innermost coordinate 0 is.
    pub(crate) pointer: Value,
    /// All ones where the element changes with the coordinate, 0 where it does not.
    pub(crate) along: Value,
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

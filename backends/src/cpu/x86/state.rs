//! What translation of loops and of bodies share: reserved registers, values, lanes of folds.

use super::constant_pool::ConstantPool;
use super::frame::StackFrame;
pub(crate) use super::gpr::ALONG;
use super::gpr::ValueHome;
use super::inst::{CodeItem, Mem, RegClass, VirtualItem, VirtualReg};
use crate::cpu::codegen::loop_program::{GridGuard, LoopOp, LoopProgram};
use crate::cpu::codegen::shuffle::LANES;
use adfuse_ir::{DType, Literal};
use iced_x86::{Code, Register};
use smallvec::SmallVec;

/// Where the elements of a group are, one after the other.
#[derive(Clone, Copy)]
pub(crate) enum GroupAddress {
    /// At a pointer with an offset and an index, with this many bytes an element, this group of the copies.
    Array { base: Register, offset: i32, index: Register, bytes: u32, copy: u32 },
    /// In the frame.
    Frame(u32),
}

/// What an instruction reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadOperand {
    Reg(VirtualReg),
    /// The same bits in every lane of this many bytes.
    Const(u64, u8),
    /// A vector in the function's frame, or the bits of a mask.
    Slot(u32),
    /// A vector of an array that is read where it is used, once; or one element of it for all lanes.
    There(Mem),
}

/// A value of the body, for one group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GroupValue {
    /// Lanes of 32 bits.
    One(ReadOperand),
    /// Lanes of 64 bits, the lower elements first.
    Two([ReadOperand; 2]),
    /// A truth value an element, in a mask register.
    Bits(ReadOperand),
}

impl ReadOperand {
    /// The place in the frame.
    pub(crate) fn slot(&self) -> Option<u32> {
        if let ReadOperand::Slot(slot) = *self { Some(slot) } else { None }
    }
}

impl GroupValue {
    pub(crate) fn parts(&self) -> &[ReadOperand] {
        match self {
            GroupValue::One(x) | GroupValue::Bits(x) => std::slice::from_ref(x),
            GroupValue::Two(both) => both,
        }
    }

    pub(crate) fn of(parts: &[ReadOperand]) -> GroupValue {
        match *parts {
            [a, b] => GroupValue::Two([a, b]),
            [a, ..] => GroupValue::One(a),
            [] => GroupValue::One(ReadOperand::Const(0, 4)),
        }
    }

    /// Each part as something else.
    pub(crate) fn map(&self, mut of: impl FnMut(ReadOperand) -> ReadOperand) -> GroupValue {
        match *self {
            GroupValue::One(x) => GroupValue::One(of(x)),
            GroupValue::Two([a, b]) => GroupValue::Two([of(a), of(b)]),
            GroupValue::Bits(x) => GroupValue::Bits(of(x)),
        }
    }

    pub(crate) fn is_bits(&self) -> bool {
        matches!(self, GroupValue::Bits(_))
    }

    pub(crate) fn two(&self) -> bool {
        matches!(self, GroupValue::Two(_))
    }
}

/// The instructions of AVX-512 and of AVX2 that do the same.
#[derive(Clone, Copy)]
pub(crate) struct OpcodePair(pub(crate) Code, pub(crate) Code);

/// Whether a group of a type is two vectors.
pub(crate) fn long(d: DType) -> bool {
    d.bytes() == 8
}

/// What a body becomes.
pub(crate) struct BodyLowering<'a> {
    pub(crate) p: &'a LoopProgram,
    /// Whether vectors have 512 bits; else 256.
    pub(crate) wide: bool,
    pub(crate) items: Vec<VirtualItem>,
    pub(crate) classes: Vec<RegClass>,
    pub(crate) labels: &'a mut u32,
    pub(crate) pool: &'a mut ConstantPool,
    pub(crate) frame: &'a mut StackFrame,
    /// The values that are the same all along a line.
    pub(crate) still: &'a [Option<GroupValue>],
    /// Where the integers of the program are.
    pub(crate) homes: &'a [ValueHome],
    /// Coordinates along the line of the groups that have asked for them.
    pub(crate) coordinates: Vec<(u32, VirtualReg)>,
    /// Masks of what guards of grids hold for.
    pub(crate) guarded: Vec<GuardMask>,
    /// Elements that the lanes of masks have.
    pub(crate) element_masks: Vec<ElementMask>,
    /// Whether outputs are stored past the caches, those that may be.
    pub(crate) nontemporal: bool,
    /// For a group of which not all elements are there.
    pub(crate) partial: Option<Partial>,
    /// The masks of such a group.
    pub(crate) present: SmallVec<[VirtualReg; 2]>,
    /// Masks and the upper halves of them that are there.
    pub(crate) uppers: Vec<(VirtualReg, VirtualReg)>,
    /// The lanes of folds, where they are in registers.
    pub(crate) held: Option<LaneRegs>,
    /// The lanes of folds, where all groups of a line are in one body.
    pub(crate) of_line: Option<LineLanes>,
}

/// Vectors of lanes, of each output that folds in that order. None are there until a group has come to them.
pub(crate) type LineLanes = Vec<SmallVec<[ReadOperand; 8]>>;

/// Where a guard holds, of numbers this far from the first one of a copy of a group.
pub(crate) struct GuardMask {
    pub(crate) guard: GridGuard,
    pub(crate) copy: u32,
    pub(crate) offsets: [i64; LANES],
    pub(crate) made: VirtualReg,
}

/// The elements of a window that some lanes of a mask have, for windows alike.
pub(crate) struct ElementMask {
    pub(crate) lanes: VirtualReg,
    pub(crate) asked: Vec<[u8; LANES]>,
    pub(crate) read: u16,
    pub(crate) made: VirtualReg,
}

/// The lanes of the outputs that fold in that order, in registers.
#[derive(Clone, Default)]
pub(crate) struct LaneRegs {
    /// Of each output, the first of its registers.
    pub(crate) first: Vec<Option<u8>>,
    /// What is in each register.
    pub(crate) now: Vec<VirtualReg>,
}

/// Which elements of a group are there; all of it in the function's frame.
#[derive(Clone, Copy, Default)]
pub(crate) struct Partial {
    /// One past the last.
    pub(crate) to: u32,
    /// The first, where that is not always 0.
    pub(crate) from: Option<u32>,
    /// A bit each.
    pub(crate) bits: u32,
    /// With AVX2, a lane each: of 32 bits, and of 64 in two vectors.
    pub(crate) masks: [u32; 3],
}

/// Elements of a literal in memory: as many as the copies of a body read.
const LITERAL: usize = 4 * 16;

/// A literal as memory holds it, as often as a body may read it at once.
pub(crate) fn in_memory(l: Literal) -> Vec<u8> {
    let one = &l.bits().to_le_bytes()[..l.dtype().bytes() as usize];
    one.repeat(LITERAL)
}

/// The function of a sweep, as it is made.
pub(crate) struct SweepEmitter<'a> {
    pub(crate) p: &'a LoopProgram,
    pub(crate) wide: bool,
    pub(crate) done: Vec<CodeItem>,
    pub(crate) labels: u32,
    pub(crate) pool: ConstantPool,
    pub(crate) frame: StackFrame,
    /// Where the integers of the program are.
    pub(crate) homes: Vec<ValueHome>,
    /// How these are computed.
    pub(crate) ops: Vec<Option<LoopOp>>,
    /// The parameters of which groups read the one element of a line in place.
    pub(crate) repeated: Vec<bool>,
    /// The values of the body that do not change along a line.
    pub(crate) still: Vec<Option<GroupValue>>,
    /// Where what a partial group has is.
    pub(crate) partial: Partial,
    /// Where the first element of one is, where that is not always 0.
    pub(crate) first: u32,
    /// Where the transposed tiles are.
    pub(crate) tiles: Vec<u32>,
    /// The last group of whole lines, and how many elements it has, where those are not all.
    pub(crate) tail: Option<(Partial, i64)>,
    /// Whether bodies may be computed in parts.
    pub(crate) has_strips: bool,
}

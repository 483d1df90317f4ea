//! State that the emitters of loops and bodies share: reserved registers, values, pointers, lanes of folds.

use super::constant_pool::ConstantPool;

use super::frame::StackFrame;
use super::inst::{CodeItem, RegClass, VirtualItem};

use crate::cpu::codegen::loop_ir::LoopNest;

use super::inst::{Mem, VirtualReg};

use adfuse_ir::DType;
use iced_x86::{Code, Register};
use smallvec::SmallVec;

/// The coordinate along the line.
pub(crate) const ALONG: Register = Register::R9;

/// Where the elements of a group are, one after the other.
#[derive(Clone, Copy)]
pub(crate) enum GroupAddress {
    /// At a pointer and an index, with this many bytes an element, this group of the copies.
    Array { base: Register, index: Register, bytes: u32, copy: u32 },
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
    /// A vector of an array that is read where it is used, once.
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
    pub(crate) p: &'a LoopNest,
    /// Whether vectors have 512 bits; else 256.
    pub(crate) wide: bool,
    pub(crate) items: Vec<VirtualItem>,
    pub(crate) classes: Vec<RegClass>,
    pub(crate) labels: &'a mut u32,
    pub(crate) pool: &'a mut ConstantPool,
    pub(crate) frame: &'a mut StackFrame,
    /// The values that are the same all along a line.
    pub(crate) still: &'a [Option<GroupValue>],
    pub(crate) pointers: &'a Pointers,
    /// Of each parameter that is read by a mask, the coordinates between which it is.
    pub(crate) between: &'a [Option<CoordinateRange>],
    /// Coordinates along the line of the groups that have asked for them.
    pub(crate) coordinates: Vec<(u32, VirtualReg)>,
    /// The outputs that are stored past the caches, in a body for that.
    pub(crate) beyond: &'a [bool],
    /// For a group of which not all elements are there.
    pub(crate) partial: Option<Partial>,
    /// The masks of such a group.
    pub(crate) present: SmallVec<[VirtualReg; 2]>,
    /// Masks and the upper halves of them that are there.
    pub(crate) uppers: Vec<(VirtualReg, VirtualReg)>,
    /// The lanes of folds, where they are in registers.
    pub(crate) held: Option<LaneRegs>,
}

/// Lanes of a block.
pub(crate) const LANES: u32 = 32;

/// The lanes of the outputs that fold in that order, in registers.
#[derive(Clone, Default)]
pub(crate) struct LaneRegs {
    /// Of each output, the first of its registers.
    pub(crate) first: Vec<Option<u8>>,
    /// What is in each register.
    pub(crate) now: Vec<VirtualReg>,
}

/// One past the last coordinate of the line.
pub(crate) const HIGH: Register = Register::R10;

/// Registers that hold pointers all along a line; the frame has the others.
pub(crate) const POINTERS: [Register; 7] = [
    Register::RBX,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
    Register::R11,
    Register::RBP,
];

/// Where a pointer is.
#[derive(Clone, Copy)]
pub(crate) enum PointerHome {
    In(Register),
    At(u32),
}

/// How an access is reached along a line.
#[derive(Clone, Copy)]
pub(crate) struct LinePointer {
    /// Where the element of coordinate 0 is; of packed bits, where the array begins; of lanes that fold,
    /// where the part of the first block is.
    pub(crate) loc: PointerHome,
    /// Of packed bits the number of the element of coordinate 0, of coordinates their value there; of what
    /// is read through guards, the bits of coordinates that count.
    pub(crate) first: u32,
}

/// How all accesses are.
#[derive(Default)]
pub(crate) struct Pointers {
    pub(crate) reads: Vec<Option<LinePointer>>,
    pub(crate) writes: Vec<Option<LinePointer>>,
    /// The place of coordinate 0 among those that fold in the order of lanes.
    pub(crate) place: Option<u32>,
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

/// The groups of a body: this many interleaved, this many times.
#[derive(Clone, Copy)]
pub(crate) struct BodyShape {
    pub(crate) copies: u32,
    pub(crate) rounds: u32,
    /// Whether outputs go past the caches that may.
    pub(crate) nontemporal: bool,
}

/// The function of a sweep, as it is made.
pub(crate) struct SweepEmitter<'a> {
    pub(crate) p: &'a LoopNest,
    pub(crate) wide: bool,
    pub(crate) done: Vec<CodeItem>,
    pub(crate) labels: u32,
    pub(crate) pool: ConstantPool,
    pub(crate) frame: StackFrame,
    /// Where the coordinates are, of all axes but the innermost.
    pub(crate) outer: Vec<u32>,
    /// Where parameters are that do not change along a line, as numbers.
    pub(crate) scalars: Vec<u32>,
    /// Places for what waits while an expression is computed.
    pub(crate) spares: Vec<u32>,
    /// Which outputs go past the caches.
    pub(crate) beyond: Vec<bool>,
    pub(crate) still: Vec<Option<GroupValue>>,
    pub(crate) pointers: Pointers,
    pub(crate) partial: Partial,
    /// Of each parameter that is read by a mask, the coordinates between which it is.
    pub(crate) between: Vec<Option<CoordinateRange>>,
}

/// Where in the frame two coordinates are: the first of those between them, and one past the last.
#[derive(Clone, Copy)]
pub(crate) struct CoordinateRange {
    pub(crate) low: u32,
    pub(crate) high: u32,
}

//! Instructions before and after register allocation.
//!
//! A body is a list of instructions over virtual registers, each defined once. Instructions of general registers,
//! labels and jumps between them name their registers themselves, and keep no value in a vector register.

use iced_x86::{Code, Instruction, OpKind, Register};
use smallvec::SmallVec;

/// A value in a register of vectors or masks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct VirtualReg(pub(crate) u32);

/// Which registers a value may be in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RegClass {
    Vector,
    Mask,
    /// A vector that has a register of its own, counted from the last.
    Held(u8),
}

/// How much of a register an operand names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RegWidth {
    X,
    Y,
    Z,
    Mask,
}

/// A place in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mem {
    /// At an offset in the constants; one element that is read for all lanes, or as much as is read.
    Const { offset: u32, every: bool },
    /// At an offset in the function's frame.
    Frame(u32),
    /// At a register, a coordinate times a scale, and an offset.
    At { base: Register, index: Option<(Register, u32)>, offset: i32 },
    /// One element of this many bytes at a register and an offset, which is read for all lanes of 512-bit code.
    Every { base: Register, offset: i32, bytes: u8 },
}

/// An operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VirtualOperand {
    Reg(VirtualReg, RegWidth),
    Mem(Mem),
    General(Register),
    Byte(u8),
    /// Elements of this many bytes at a register, by the numbers in so much of another.
    Table(Register, VirtualReg, RegWidth, u32),
}

/// An instruction over values.
#[derive(Clone, Debug)]
pub(crate) struct VirtualInst {
    pub(crate) code: Code,
    pub(crate) def: Option<(VirtualReg, RegWidth)>,
    /// The operands after the result.
    pub(crate) args: SmallVec<[VirtualOperand; 4]>,
    /// A value that the result's register holds before, which the instruction changes.
    pub(crate) tied: Option<VirtualReg>,
    /// Whether the result is written before the operands have been read.
    pub(crate) early: bool,
    /// The lanes that are written.
    pub(crate) mask: Option<VirtualReg>,
    /// Whether other lanes become zero; they stay as they are otherwise.
    pub(crate) zeroing: bool,
}

/// A place in the code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Label(pub(crate) u32);

/// A piece of a body.
#[derive(Clone, Debug)]
pub(crate) enum VirtualItem {
    Ins(VirtualInst),
    /// What needs no register chosen.
    Done(CodeItem),
}

/// A piece of a function, ready to be encoded.
#[derive(Clone, Debug)]
pub(crate) enum CodeItem {
    Ins(Instruction),
    Label(Label),
    Jump(Code, Label),
}

/// An operand whose register is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AllocatedOperand {
    Reg(Register),
    Mem(Mem),
    Byte(u8),
    /// 32 bits, extended by their sign.
    Short(i32),
    /// 64 bits.
    Long(i64),
}

/// An instruction of these operands, the result first.
pub(crate) fn instruction(code: Code, ops: &[AllocatedOperand]) -> Instruction {
    let mut made = Instruction::default();
    made.set_code(code);
    for (k, op) in (0u32..).zip(ops) {
        match *op {
            AllocatedOperand::Reg(r) => {
                made.set_op_kind(k, OpKind::Register);
                made.set_op_register(k, r);
            }
            AllocatedOperand::Mem(m) => {
                made.set_op_kind(k, OpKind::Memory);
                place(&mut made, m);
            }
            AllocatedOperand::Byte(b) => {
                made.set_op_kind(k, OpKind::Immediate8);
                made.set_immediate8(b);
            }
            AllocatedOperand::Short(x) => {
                made.set_op_kind(k, OpKind::Immediate32to64);
                made.set_immediate32to64(x.into());
            }
            AllocatedOperand::Long(x) => {
                made.set_op_kind(k, OpKind::Immediate64);
                made.set_immediate64(x as u64);
            }
        }
    }
    made
}

fn place(made: &mut Instruction, m: Mem) {
    match m {
        Mem::Const { offset, every } => {
            // The constants begin at address 0, before the code.
            made.set_memory_base(Register::RIP);
            made.set_memory_displ_size(8);
            made.set_memory_displacement64(offset.into());
            made.set_is_broadcast(every);
        }
        Mem::Frame(offset) => {
            made.set_memory_base(Register::RSP);
            made.set_memory_displ_size(1);
            made.set_memory_displacement64(offset.into());
        }
        Mem::Every { base, offset, .. } => {
            made.set_memory_base(base);
            made.set_memory_displ_size(1);
            made.set_memory_displacement64(i64::from(offset) as u64);
            made.set_is_broadcast(true);
        }
        Mem::At { base, index, offset } => {
            made.set_memory_base(base);
            if let Some((index, scale)) = index {
                made.set_memory_index(index);
                made.set_memory_index_scale(scale);
            }
            made.set_memory_displ_size(1);
            made.set_memory_displacement64(i64::from(offset) as u64);
        }
    }
}

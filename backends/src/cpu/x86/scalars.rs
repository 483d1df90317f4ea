//! Integers of a loop program in general registers.

use super::gpr::ValueHome;
use super::inst::{AllocatedOperand, Label, Mem};
use super::scalar_asm::CodeSink;
use super::state::{SweepEmitter, in_memory};
use crate::cpu::codegen::loop_program::{LoopCond, LoopOp, LoopVal};
use crate::cpu::codegen::reciprocal::Reciprocal;
use crate::cpu::codegen::vector_width::Unsupported;
use adfuse_ir::DType;
use iced_x86::{Code, Register};

const RAX: Register = Register::RAX;
const RCX: Register = Register::RCX;
const RDX: Register = Register::RDX;

impl SweepEmitter<'_> {
    /// Puts a register's value where a value lives.
    pub(crate) fn settle(&mut self, v: LoopVal, from: Register) {
        match self.home(v) {
            ValueHome::In(r) => self.mov(r, from),
            ValueHome::Slot(slot) => self.store(Mem::Frame(slot), from),
            ValueHome::Unused
            | ValueHome::Near(..)
            | ValueHome::Number(_)
            | ValueHome::Table(_) => {}
        }
    }

    /// The register in which a value is computed: its own, unless an operand that is read later is there.
    fn result(&self, v: LoopVal, later: &[LoopVal]) -> Register {
        match self.home(v) {
            ValueHome::In(r) if later.iter().all(|&a| self.home(a) != ValueHome::In(r)) => r,
            _ => RAX,
        }
    }

    /// A value by its operation.
    pub(crate) fn define(&mut self, v: LoopVal, op: &LoopOp) -> Result<(), Unsupported> {
        if !matches!(self.home(v), ValueHome::In(_) | ValueHome::Slot(_)) {
            return Ok(());
        }
        let mut to = RAX;
        match *op {
            LoopOp::Int(x) => self.set(RAX, x),
            LoopOp::Literal(l) => {
                let signed = l.dtype().is_signed_int();
                self.set(RAX, if signed { l.to_i64() } else { l.bits() as i64 });
            }
            LoopOp::Pointer(k) => {
                to = self.result(v, &[]);
                self.pointer(to, k);
            }
            LoopOp::Tile(k) => {
                let slot = self.tiles.get(k as usize).copied().ok_or(Unsupported::Order)?;
                to = self.result(v, &[]);
                let m = AllocatedOperand::Mem(Mem::Frame(slot));
                self.ins(Code::Lea_r64_m, &[AllocatedOperand::Reg(to), m]);
            }
            LoopOp::Repeated(l) => {
                let offset = self.pool.place(&in_memory(l));
                let m = Mem::Const { offset, every: false };
                to = self.result(v, &[]);
                self.ins(Code::Lea_r64_m, &[AllocatedOperand::Reg(to), AllocatedOperand::Mem(m)]);
            }
            LoopOp::Add(a, b) => to = self.sum(v, [a, b]),
            LoopOp::Sub(a, b) => {
                to = self.result(v, &[b]);
                self.fetch(to, a);
                self.with(Code::Sub_r64_rm64, to, b);
            }
            LoopOp::And(a, b) => {
                to = self.result(v, &[b]);
                self.fetch(to, a);
                self.with(Code::And_r64_rm64, to, b);
            }
            LoopOp::Mul(a, by) => {
                to = self.result(v, &[]);
                let from = self.in_register(a, RCX);
                self.times(to, from, by, RDX);
            }
            LoopOp::FloorDiv(..) | LoopOp::Rem(..) | LoopOp::Div(..) => to = self.quotient(v, op),
            LoopOp::Min(a, b) => to = self.nearer(v, [a, b], Code::Cmovg_r64_rm64),
            LoopOp::Max(a, b) => to = self.nearer(v, [a, b], Code::Cmovl_r64_rm64),
            LoopOp::Bound(from, at, end) => {
                // The end, unless the bound is less and behind the coordinate.
                let skip = self.fresh();
                to = self.result(v, &[from, at]);
                self.fetch(to, end);
                let at = self.in_register(at, RCX);
                self.compare_with(at, from);
                self.jump(Code::Jle_rel32_64, skip);
                self.compare(to, at);
                self.ins(
                    Code::Cmovg_r64_rm64,
                    &[AllocatedOperand::Reg(to), AllocatedOperand::Reg(at)],
                );
                self.bind(skip);
            }
            LoopOp::Within(v, start, length) => {
                self.compare_within(v, start, length);
                let all = AllocatedOperand::Reg(RAX);
                self.ins(Code::Sbb_r64_rm64, &[all, all]);
            }
            LoopOp::Load(d, at) => {
                let m = self.element(at);
                self.load_number(d, m);
            }
            LoopOp::LoadBits(d, bits, at, shift) => self.load_packed_number(d, bits, at, shift),
            // Elements are numbers of 64 bits already.
            LoopOp::Widen(_, a) => {
                to = self.result(v, &[]);
                self.fetch(to, a);
            }
        }
        self.settle(v, to);
        Ok(())
    }

    fn sum(&mut self, v: LoopVal, [a, b]: [LoopVal; 2]) -> Register {
        let to = self.result(v, &[b]);
        match (self.home(a), self.home(b)) {
            (ValueHome::In(a), ValueHome::In(b)) => {
                let m = Mem::At { base: a, index: Some((b, 1)), offset: 0 };
                self.lea(to, m);
            }
            (ValueHome::In(a), ValueHome::Number(x)) if i32::try_from(x).is_ok() => {
                self.lea(to, Mem::At { base: a, index: None, offset: x as i32 });
            }
            (_, ValueHome::Number(x)) => {
                self.fetch(to, a);
                self.plus(to, x, RCX);
            }
            _ => {
                self.fetch(to, a);
                self.with(Code::Add_r64_rm64, to, b);
            }
        }

        to
    }

    /// A quotient or what is left of one.
    fn quotient(&mut self, v: LoopVal, op: &LoopOp) -> Register {
        let (a, by) = match *op {
            LoopOp::FloorDiv(a, by) | LoopOp::Rem(a, by) | LoopOp::Div(a, by) => (a, by),
            _ => return RAX,
        };
        let Some(reciprocal) = Reciprocal::of(by) else { return self.shifted(v, op) };
        self.fetch(RAX, a);
        if let LoopOp::Div(..) = op {
            self.multiplied(reciprocal);
            return RDX;
        }
        // Below 0 a quotient is rounded down: of `-1 - a` it is `-1 -` that of `a`.
        self.mov(RCX, RAX);
        let sign = AllocatedOperand::Reg(RCX);
        self.ins(Code::Sar_rm64_imm8, &[sign, AllocatedOperand::Byte(63)]);
        self.ins(Code::Xor_r64_rm64, &[AllocatedOperand::Reg(RAX), sign]);
        self.multiplied(reciprocal);
        self.ins(Code::Xor_r64_rm64, &[AllocatedOperand::Reg(RDX), sign]);
        if let LoopOp::FloorDiv(..) = op {
            return RDX;
        }
        self.times(RDX, RDX, by, RCX);
        self.fetch(RAX, a);
        self.ins(Code::Sub_r64_rm64, &[AllocatedOperand::Reg(RAX), AllocatedOperand::Reg(RDX)]);
        RAX
    }

    /// The quotient of `rax`, which is not below 0, in `rdx`; `rax` is lost.
    fn multiplied(&mut self, by: Reciprocal) {
        let offset = self.pool.place(&by.multiplier.to_le_bytes());
        let multiplier = AllocatedOperand::Mem(Mem::Const { offset, every: false });
        self.ins(Code::Mul_rm64, &[multiplier]);
        let shift = AllocatedOperand::Byte(by.shift);
        self.ins(Code::Shr_rm64_imm8, &[AllocatedOperand::Reg(RDX), shift]);
    }

    /// A quotient by a power of two, or what is left of one.
    fn shifted(&mut self, v: LoopVal, op: &LoopOp) -> Register {
        let to = self.result(v, &[]);
        let whole = AllocatedOperand::Reg(to);
        match *op {
            LoopOp::Rem(a, by) => {
                self.fetch(to, a);
                match i32::try_from(by - 1) {
                    Ok(mask) => {
                        self.ins(Code::And_rm64_imm32, &[whole, AllocatedOperand::Short(mask)])
                    }
                    Err(_) => {
                        self.set(RCX, by - 1);
                        self.ins(Code::And_r64_rm64, &[whole, AllocatedOperand::Reg(RCX)]);
                    }
                }
            }
            LoopOp::Div(a, by) | LoopOp::FloorDiv(a, by) => {
                self.fetch(to, a);
                let shift = AllocatedOperand::Byte(by.trailing_zeros() as u8);
                self.ins(Code::Sar_rm64_imm8, &[whole, shift]);
            }
            _ => {}
        }
        to
    }

    fn lea(&mut self, to: Register, m: Mem) {
        self.ins(Code::Lea_r64_m, &[AllocatedOperand::Reg(to), AllocatedOperand::Mem(m)]);
    }

    /// The first of two values, or the second where a comparison with that says so.
    fn nearer(&mut self, v: LoopVal, [a, b]: [LoopVal; 2], unless: Code) -> Register {
        let to = self.result(v, &[b]);
        let b = self.in_register(b, RCX);
        self.fetch(to, a);
        self.compare(to, b);
        self.ins(unless, &[AllocatedOperand::Reg(to), AllocatedOperand::Reg(b)]);
        to
    }

    /// Compares without sign, so that what is below is a value of this many from a number on: one comparison does for both
    /// ends, since expressions keep to 62 bits. `rax` and `rcx` are lost.
    fn compare_within(&mut self, v: LoopVal, start: i64, length: i64) {
        self.fetch(RAX, v);
        self.plus(RAX, start.wrapping_neg(), RCX);
        match i32::try_from(length) {
            Ok(short) => self.ins(
                Code::Cmp_rm64_imm32,
                &[AllocatedOperand::Reg(RAX), AllocatedOperand::Short(short)],
            ),
            Err(_) => {
                self.set(RCX, length);
                self.compare(RAX, RCX);
            }
        }
    }

    /// Goes on at a label unless a condition holds.
    pub(crate) fn unless(&mut self, cond: &LoopCond, otherwise: Label) {
        match *cond {
            LoopCond::Within(v, start, length) => {
                self.compare_within(v, start, length);
                self.jump(Code::Jae_rel32_64, otherwise);
            }
            LoopCond::Less(a, b) => {
                let a = self.in_register(a, RAX);
                self.compare_with(a, b);
                self.jump(Code::Jge_rel32_64, otherwise);
            }
            LoopCond::Zero(v) => {
                let r = self.in_register(v, RAX);
                self.ins(
                    Code::Test_rm64_r64,
                    &[AllocatedOperand::Reg(r), AllocatedOperand::Reg(r)],
                );
                self.jump(Code::Jne_rel32_64, otherwise);
            }
        }
    }

    /// What is at an address; `rax` may be lost.
    pub(crate) fn element(&mut self, at: LoopVal) -> Mem {
        match self.home(at) {
            ValueHome::Near(base, offset) => Mem::At { base, index: None, offset },
            _ => Mem::At { base: self.in_register(at, RAX), index: None, offset: 0 },
        }
    }

    /// An element as a number in `rax`.
    pub(crate) fn load_number(&mut self, d: DType, m: Mem) {
        let from = AllocatedOperand::Mem(m);
        let (whole, low) = (AllocatedOperand::Reg(RAX), AllocatedOperand::Reg(Register::EAX));
        match d {
            DType::F64 | DType::I64 => self.ins(Code::Mov_r64_rm64, &[whole, from]),
            DType::I32 => self.ins(Code::Movsxd_r64_rm32, &[whole, from]),
            DType::F32 | DType::U32 => self.ins(Code::Mov_r32_rm32, &[low, from]),
            DType::BF16 | DType::F16 => self.ins(Code::Movzx_r32_rm16, &[low, from]),
            DType::I8 => self.ins(Code::Movsx_r64_rm8, &[whole, from]),
            DType::U8 | DType::Bool | DType::Token => self.ins(Code::Movzx_r32_rm8, &[low, from]),
        }
        if d == DType::Bool {
            // A caller's truth values may have any bits above the lowest.
            self.ins(Code::And_rm64_imm32, &[whole, AllocatedOperand::Short(1)]);
        }
    }

    /// The bits of a byte from one on, as a number in `rax`.
    fn load_packed_number(&mut self, d: DType, bits: u8, at: LoopVal, shift: LoopVal) {
        let base = self.in_register(at, RAX);
        let byte = Mem::At { base, index: None, offset: 0 };
        self.ins(
            Code::Movzx_r32_rm8,
            &[AllocatedOperand::Reg(Register::EAX), AllocatedOperand::Mem(byte)],
        );
        self.fetch(RCX, shift);
        self.ins(
            Code::Shr_rm32_CL,
            &[AllocatedOperand::Reg(Register::EAX), AllocatedOperand::Reg(Register::CL)],
        );
        let mask = AllocatedOperand::Short((1i32 << bits.min(8)) - 1);
        self.ins(Code::And_rm64_imm32, &[AllocatedOperand::Reg(RAX), mask]);
        if d == DType::I8 {
            self.ins(
                Code::Movsx_r64_rm8,
                &[AllocatedOperand::Reg(RAX), AllocatedOperand::Reg(Register::AL)],
            );
        }
    }
}

//! Instructions of general registers.

use super::gpr::ValueHome;
use super::inst::{AllocatedOperand, CodeItem, Label, Mem, instruction};
use crate::cpu::codegen::loop_program::LoopVal;
use iced_x86::{Code, Register};

/// An entry of the table of pointers.
fn table(at: u32) -> Mem {
    let offset = i32::try_from(u64::from(at) * 8).unwrap_or_default();
    Mem::At { base: Register::RDI, index: None, offset }
}

/// What is emitted in order, with general registers and labels.
pub(crate) trait CodeSink {
    fn push(&mut self, done: CodeItem);
    fn fresh(&mut self) -> Label;
    /// Where an integer of the loop program is.
    fn home(&self, v: LoopVal) -> ValueHome;

    /// Moves an integer to a register.
    fn fetch(&mut self, to: Register, v: LoopVal) {
        match self.home(v) {
            ValueHome::In(r) => self.mov(to, r),
            ValueHome::Near(base, offset) => self.ins(
                Code::Lea_r64_m,
                &[
                    AllocatedOperand::Reg(to),
                    AllocatedOperand::Mem(Mem::At { base, index: None, offset }),
                ],
            ),
            ValueHome::Slot(slot) => self.load(to, Mem::Frame(slot)),
            ValueHome::Number(x) => self.set(to, x),
            ValueHome::Table(at) => self.pointer(to, at),
            ValueHome::Unused => {}
        }
    }

    /// An integer in the register that it is in, or else in another.
    fn in_register(&mut self, v: LoopVal, otherwise: Register) -> Register {
        match self.home(v) {
            ValueHome::In(r) => r,
            _ => {
                self.fetch(otherwise, v);
                otherwise
            }
        }
    }

    /// An instruction on a register and an integer; `rcx` may be lost.
    fn with(&mut self, code: Code, to: Register, v: LoopVal) {
        let from = match self.home(v) {
            ValueHome::In(r) => AllocatedOperand::Reg(r),
            ValueHome::Slot(slot) => AllocatedOperand::Mem(Mem::Frame(slot)),
            ValueHome::Table(at) => AllocatedOperand::Mem(table(at)),
            ValueHome::Near(..) | ValueHome::Number(_) | ValueHome::Unused => {
                self.fetch(Register::RCX, v);
                AllocatedOperand::Reg(Register::RCX)
            }
        };
        self.ins(code, &[AllocatedOperand::Reg(to), from]);
    }

    /// Compares a register with an integer; `rcx` may be lost.
    fn compare_with(&mut self, a: Register, v: LoopVal) {
        match self.home(v) {
            ValueHome::Number(x) if i32::try_from(x).is_ok() => self.ins(
                Code::Cmp_rm64_imm32,
                &[AllocatedOperand::Reg(a), AllocatedOperand::Short(x as i32)],
            ),
            ValueHome::Number(x) => {
                let other = if a == Register::RCX { Register::RDX } else { Register::RCX };
                self.set(other, x);
                self.compare(a, other);
            }
            _ => self.with(Code::Cmp_r64_rm64, a, v),
        }
    }

    /// Reads a pointer of the table.
    fn pointer(&mut self, to: Register, at: u32) {
        self.load(to, table(at));
    }

    fn ins(&mut self, code: Code, ops: &[AllocatedOperand]) {
        self.push(CodeItem::Ins(instruction(code, ops)));
    }

    fn bind(&mut self, l: Label) {
        self.push(CodeItem::Label(l));
    }

    fn jump(&mut self, code: Code, l: Label) {
        self.push(CodeItem::Jump(code, l));
    }

    fn mov(&mut self, to: Register, from: Register) {
        if to != from {
            self.ins(Code::Mov_r64_rm64, &[AllocatedOperand::Reg(to), AllocatedOperand::Reg(from)]);
        }
    }

    fn set(&mut self, to: Register, x: i64) {
        match i32::try_from(x) {
            Ok(short) => self.ins(
                Code::Mov_rm64_imm32,
                &[AllocatedOperand::Reg(to), AllocatedOperand::Short(short)],
            ),
            Err(_) => self
                .ins(Code::Mov_r64_imm64, &[AllocatedOperand::Reg(to), AllocatedOperand::Long(x)]),
        }
    }

    fn load(&mut self, to: Register, m: Mem) {
        self.ins(Code::Mov_r64_rm64, &[AllocatedOperand::Reg(to), AllocatedOperand::Mem(m)]);
    }

    fn store(&mut self, m: Mem, from: Register) {
        self.ins(Code::Mov_rm64_r64, &[AllocatedOperand::Mem(m), AllocatedOperand::Reg(from)]);
    }

    /// `to += x`; `spare` may be lost.
    fn plus(&mut self, to: Register, x: i64, spare: Register) {
        match i32::try_from(x) {
            Ok(0) => {}
            Ok(short) => self.ins(
                Code::Add_rm64_imm32,
                &[AllocatedOperand::Reg(to), AllocatedOperand::Short(short)],
            ),
            Err(_) => {
                self.set(spare, x);
                self.add(to, spare);
            }
        }
    }

    fn add(&mut self, to: Register, x: Register) {
        self.ins(Code::Add_r64_rm64, &[AllocatedOperand::Reg(to), AllocatedOperand::Reg(x)]);
    }

    fn compare(&mut self, a: Register, b: Register) {
        self.ins(Code::Cmp_r64_rm64, &[AllocatedOperand::Reg(a), AllocatedOperand::Reg(b)]);
    }

    /// `to = from * x`; `spare` may be lost.
    fn times(&mut self, to: Register, from: Register, x: i64, spare: Register) {
        let shift = x.trailing_zeros();
        match i32::try_from(x) {
            Ok(1) => self.mov(to, from),
            Ok(short) if short > 0 && short.count_ones() == 1 => {
                self.mov(to, from);
                self.ins(
                    Code::Shl_rm64_imm8,
                    &[AllocatedOperand::Reg(to), AllocatedOperand::Byte(shift as u8)],
                );
            }
            Ok(short) => {
                let ops = [
                    AllocatedOperand::Reg(to),
                    AllocatedOperand::Reg(from),
                    AllocatedOperand::Short(short),
                ];
                self.ins(Code::Imul_r64_rm64_imm32, &ops);
            }
            Err(_) => {
                self.set(spare, x);
                self.mov(to, from);
                self.ins(
                    Code::Imul_r64_rm64,
                    &[AllocatedOperand::Reg(to), AllocatedOperand::Reg(spare)],
                );
            }
        }
    }
}

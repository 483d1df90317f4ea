//! Instructions of general registers.

use super::inst::{AllocatedOperand, CodeItem, Label, Mem, instruction};
use iced_x86::{Code, Register};

/// What is emitted in order, with general registers and labels.
pub(crate) trait CodeSink {
    fn push(&mut self, done: CodeItem);
    fn fresh(&mut self) -> Label;

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

    fn sub(&mut self, to: Register, x: Register) {
        self.ins(Code::Sub_r64_rm64, &[AllocatedOperand::Reg(to), AllocatedOperand::Reg(x)]);
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

    /// Quotient and remainder of `rax`, both without sign, in `rax` and `rdx`; `rcx` is lost.
    fn divide(&mut self, by: i64) {
        if by > 0 && by.count_ones() == 1 {
            self.mov(Register::RDX, Register::RAX);
            self.set(Register::RCX, by - 1);
            self.ins(
                Code::And_r64_rm64,
                &[AllocatedOperand::Reg(Register::RDX), AllocatedOperand::Reg(Register::RCX)],
            );
            let shift = AllocatedOperand::Byte(by.trailing_zeros() as u8);
            self.ins(Code::Shr_rm64_imm8, &[AllocatedOperand::Reg(Register::RAX), shift]);
            return;
        }
        self.ins(
            Code::Xor_r32_rm32,
            &[AllocatedOperand::Reg(Register::EDX), AllocatedOperand::Reg(Register::EDX)],
        );
        self.set(Register::RCX, by);
        self.ins(Code::Div_rm64, &[AllocatedOperand::Reg(Register::RCX)]);
    }
}

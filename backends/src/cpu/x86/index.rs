//! Indices and guards of a line in general registers, computed once a line.

use super::inst::{AllocatedOperand, Label, Mem};
use super::scalar_asm::CodeSink;
use super::state::{ALONG, SweepEmitter};
use crate::cpu::codegen::loop_ir::{Access, FormRanges};
use adfuse_ir::DType;
use adfuse_ir::index::IndexExpr;
use iced_x86::{Code, Register};

const RAX: Register = Register::RAX;
const RCX: Register = Register::RCX;
const RDX: Register = Register::RDX;

impl SweepEmitter<'_> {
    /// The value of a form where the innermost coordinate is 0, in `rax`; `rcx` and `rdx` are lost.
    pub(crate) fn form(&mut self, form: usize) {
        let p = self.p;
        let f = &p.forms[form];
        let sum = self.spare(0);
        self.set(RAX, f.constant);
        for (a, &step) in f.steps.iter().enumerate().take(p.inner()) {
            if step != 0 {
                self.load(RCX, Mem::Frame(self.outer[a]));
                self.times(RCX, RCX, step, RDX);
                self.add(RAX, RCX);
            }
        }
        if f.rest.is_empty() {
            return;
        }
        self.store(Mem::Frame(sum), RAX);
        for (e, factor) in &f.rest {
            self.expression(e, 1);
            self.times(RAX, RAX, *factor, RDX);
            self.ins(
                Code::Add_rm64_r64,
                &[AllocatedOperand::Mem(Mem::Frame(sum)), AllocatedOperand::Reg(RAX)],
            );
        }
        self.load(RAX, Mem::Frame(sum));
    }

    /// A place in the frame for what waits so deep in an expression.
    fn spare(&mut self, depth: usize) -> u32 {
        while self.spares.len() <= depth {
            let slot = self.frame.long();
            self.spares.push(slot);
        }
        self.spares[depth]
    }

    fn expression(&mut self, e: &IndexExpr, depth: usize) {
        match e {
            IndexExpr::Axis(a) => match self.outer.get(usize::from(*a)) {
                Some(&slot) => self.load(RAX, Mem::Frame(slot)),
                None => self.set(RAX, 0),
            },
            IndexExpr::Const(c) => self.set(RAX, *c),
            IndexExpr::Add(a, b) => {
                let kept = self.spare(depth);
                self.expression(a, depth + 1);
                self.store(Mem::Frame(kept), RAX);
                self.expression(b, depth + 1);
                self.ins(
                    Code::Add_r64_rm64,
                    &[AllocatedOperand::Reg(RAX), AllocatedOperand::Mem(Mem::Frame(kept))],
                );
            }
            IndexExpr::Mul(a, c) => {
                self.expression(a, depth);
                self.times(RAX, RAX, *c, RDX);
            }
            IndexExpr::FloorDiv(a, c) => {
                self.expression(a, depth);
                self.floor(*c, false);
            }
            IndexExpr::Mod(a, c) => {
                self.expression(a, depth);
                self.floor(*c, true);
            }
            IndexExpr::Data { param, lo, hi } => {
                match self.scalars.get(*param as usize) {
                    Some(&slot) => self.load(RAX, Mem::Frame(slot)),
                    None => self.set(RAX, 0),
                }
                for (bound, below) in [(*lo, true), (*hi, false)] {
                    self.set(RCX, bound);
                    self.compare(RAX, RCX);
                    let code = if below { Code::Cmovl_r64_rm64 } else { Code::Cmovg_r64_rm64 };
                    self.ins(code, &[AllocatedOperand::Reg(RAX), AllocatedOperand::Reg(RCX)]);
                }
            }
        }
    }

    /// Quotient or remainder of `rax` by a constant above 0, rounded down.
    pub(crate) fn floor(&mut self, by: i64, rest: bool) {
        if by <= 1 {
            if rest {
                self.set(RAX, 0);
            }
            return;
        }
        if by.count_ones() == 1 {
            if rest {
                self.set(RCX, by - 1);
                self.ins(
                    Code::And_r64_rm64,
                    &[AllocatedOperand::Reg(RAX), AllocatedOperand::Reg(RCX)],
                );
            } else {
                let shift = by.trailing_zeros() as u8;
                self.ins(
                    Code::Sar_rm64_imm8,
                    &[AllocatedOperand::Reg(RAX), AllocatedOperand::Byte(shift)],
                );
            }
            return;
        }
        self.ins(Code::Cqo, &[]);
        self.set(RCX, by);
        self.ins(Code::Idiv_rm64, &[AllocatedOperand::Reg(RCX)]);
        // A remainder below 0 is one quotient too high.
        let done = self.fresh();
        self.ins(Code::Test_rm64_r64, &[AllocatedOperand::Reg(RDX), AllocatedOperand::Reg(RDX)]);
        self.jump(Code::Jns_rel32_64, done);
        self.ins(Code::Dec_rm64, &[AllocatedOperand::Reg(RAX)]);
        self.add(RDX, RCX);
        self.bind(done);
        if rest {
            self.mov(RAX, RDX);
        }
    }

    /// Goes on at a label unless all guards hold, at the coordinate where a stretch begins.
    pub(crate) fn guards(&mut self, guards: &FormRanges, otherwise: Label) {
        for (form, range) in guards {
            self.form(*form);
            let step = self.p.step(*form);
            if step != 0 {
                self.times(RCX, ALONG, step, RDX);
                self.add(RAX, RCX);
            }
            self.set(RCX, range.start);
            self.sub(RAX, RCX);
            // One comparison without sign does for both ends, since expressions keep to 62 bits.
            self.set(RCX, range.end.saturating_sub(range.start).max(0));
            self.compare(RAX, RCX);
            self.jump(Code::Jae_rel32_64, otherwise);
        }
    }

    /// Reads a table's pointer.
    pub(crate) fn pointer(&mut self, to: Register, at: u32) {
        let offset = i32::try_from(u64::from(at) * 8).unwrap_or_default();
        self.load(to, Mem::At { base: Register::RDI, index: None, offset });
    }

    /// The element of an access that does not change along the line, in `rax`.
    pub(crate) fn element(&mut self, a: &Access) {
        self.form(a.form);
        if let Some(bits) = a.packed {
            self.times(RAX, RAX, bits.into(), RDX);
            self.mov(RCX, RAX);
            self.ins(Code::Shr_rm64_imm8, &[AllocatedOperand::Reg(RAX), AllocatedOperand::Byte(3)]);
            self.pointer(RDX, a.at);
            self.add(RAX, RDX);
            let byte = Mem::At { base: RAX, index: None, offset: 0 };
            self.ins(
                Code::Movzx_r32_rm8,
                &[AllocatedOperand::Reg(Register::EAX), AllocatedOperand::Mem(byte)],
            );
            // The place of its lowest bit in the byte.
            self.set(RDX, 7);
            self.ins(Code::And_r64_rm64, &[AllocatedOperand::Reg(RCX), AllocatedOperand::Reg(RDX)]);
            self.ins(
                Code::Shr_rm32_CL,
                &[AllocatedOperand::Reg(Register::EAX), AllocatedOperand::Reg(Register::CL)],
            );
            self.set(RDX, (1i64 << bits.min(8)) - 1);
            self.ins(Code::And_r64_rm64, &[AllocatedOperand::Reg(RAX), AllocatedOperand::Reg(RDX)]);
            if a.dtype == DType::I8 {
                self.ins(
                    Code::Movsx_r64_rm8,
                    &[AllocatedOperand::Reg(RAX), AllocatedOperand::Reg(Register::AL)],
                );
            }
            return;
        }
        self.times(RAX, RAX, a.dtype.bytes() as i64, RDX);
        self.pointer(RDX, a.at);
        self.add(RAX, RDX);
        let from = AllocatedOperand::Mem(Mem::At { base: RAX, index: None, offset: 0 });
        let (whole, low) = (AllocatedOperand::Reg(RAX), AllocatedOperand::Reg(Register::EAX));
        match a.dtype {
            DType::F64 | DType::I64 => self.ins(Code::Mov_r64_rm64, &[whole, from]),
            DType::I32 => self.ins(Code::Movsxd_r64_rm32, &[whole, from]),
            DType::F32 | DType::U32 => self.ins(Code::Mov_r32_rm32, &[low, from]),
            DType::BF16 | DType::F16 => self.ins(Code::Movzx_r32_rm16, &[low, from]),
            DType::I8 => self.ins(Code::Movsx_r64_rm8, &[whole, from]),
            DType::U8 | DType::Bool | DType::Token => self.ins(Code::Movzx_r32_rm8, &[low, from]),
        }
        if a.dtype == DType::Bool {
            // A caller's truth values may have any bits above the lowest.
            self.set(RDX, 1);
            self.ins(Code::And_r64_rm64, &[whole, AllocatedOperand::Reg(RDX)]);
        }
    }
}

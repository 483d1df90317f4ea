//! Scalarized accesses: elements are copied one at a time between an array and the stack frame, where vectors access
//! them. For strides other than one, and with AVX2 for narrow elements of partial groups.

use super::inst::{AllocatedOperand, Mem};
use super::scalar_asm::CodeSink;
use super::state::{ALONG, BodyLowering};
use crate::cpu::codegen::loop_program::LoopVal;
use crate::cpu::codegen::vector_width::Unsupported;
use iced_x86::{Code, Register};

impl BodyLowering<'_> {
    /// Copies a group from an array to the frame; gives where it is. `along` has the bits of coordinates
    /// that count, where not all do.
    pub(crate) fn gathered(
        &mut self,
        pointer: LoopVal,
        bytes: u32,
        step: i64,
        copy: u32,
        along: Option<LoopVal>,
    ) -> Result<u32, Unsupported> {
        let buffer = self.frame.room(self.lanes() * bytes);
        self.copied(pointer, (bytes, step, copy), buffer, along, true)?;
        Ok(buffer)
    }

    /// Copies a group from the frame to an array.
    pub(crate) fn scattered(
        &mut self,
        pointer: LoopVal,
        bytes: u32,
        step: i64,
        copy: u32,
        buffer: u32,
    ) -> Result<(), Unsupported> {
        self.copied(pointer, (bytes, step, copy), buffer, None, false)
    }

    fn copied(
        &mut self,
        pointer: LoopVal,
        (bytes, step, copy): (u32, i64, u32),
        buffer: u32,
        along: Option<LoopVal>,
        load: bool,
    ) -> Result<(), Unsupported> {
        use Register::{RAX, RCX, RDX};
        let apart = step.checked_mul(bytes.into()).ok_or(Unsupported::Steps)?;
        let near = i32::try_from(apart).map_err(|_| Unsupported::Steps)?;
        // The first element is at `rax`, its number in the group is in `rdx`.
        match self.partial.and_then(|p| p.from) {
            Some(from) => self.load(RDX, Mem::Frame(from)),
            None => self.ins(
                Code::Xor_r32_rm32,
                &[AllocatedOperand::Reg(Register::EDX), AllocatedOperand::Reg(Register::EDX)],
            ),
        }
        self.mov(RAX, ALONG);
        self.add(RAX, RDX);
        self.plus(RAX, i64::from(self.first_of(copy)), RCX);
        if let Some(bits) = along {
            self.with(Code::And_r64_rm64, RAX, bits);
        }
        self.times(RAX, RAX, apart, RCX);
        self.with(Code::Add_r64_rm64, RAX, pointer);
        let top = self.fresh();
        self.bind(top);
        let array = Mem::At { base: RAX, index: None, offset: 0 };
        let frame =
            Mem::At { base: Register::RSP, index: Some((RDX, bytes)), offset: buffer as i32 };
        let (from, to) = if load { (array, frame) } else { (frame, array) };
        let (read, write, register) = match bytes {
            8 => (Code::Mov_r64_rm64, Code::Mov_rm64_r64, RCX),
            4 => (Code::Mov_r32_rm32, Code::Mov_rm32_r32, Register::ECX),
            2 => (Code::Mov_r16_rm16, Code::Mov_rm16_r16, Register::CX),
            _ => (Code::Mov_r8_rm8, Code::Mov_rm8_r8, Register::CL),
        };
        self.ins(read, &[AllocatedOperand::Reg(register), AllocatedOperand::Mem(from)]);
        self.ins(write, &[AllocatedOperand::Mem(to), AllocatedOperand::Reg(register)]);
        self.ins(
            Code::Add_rm64_imm32,
            &[AllocatedOperand::Reg(RAX), AllocatedOperand::Short(near)],
        );
        self.ins(Code::Inc_rm64, &[AllocatedOperand::Reg(RDX)]);
        match self.partial {
            Some(p) => self.ins(
                Code::Cmp_r64_rm64,
                &[AllocatedOperand::Reg(RDX), AllocatedOperand::Mem(Mem::Frame(p.to))],
            ),
            None => {
                let lanes = self.p.apart as i32;
                self.ins(
                    Code::Cmp_rm64_imm32,
                    &[AllocatedOperand::Reg(RDX), AllocatedOperand::Short(lanes)],
                );
            }
        }
        self.jump(Code::Jl_rel32_64, top);
        Ok(())
    }
}

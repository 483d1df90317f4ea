//! Accesses by the instructions that gather and scatter, with AVX-512: reads of elements of 64, 16 and 8 bits in equal steps, reads at places that
//! the body computes, and stores of elements of 32 and 64 bits in equal steps. Masks suppress the accesses of lanes that are not there.

use super::gpr::ValueHome;
use super::inst::{AllocatedOperand, Mem, RegWidth, VirtualInst, VirtualOperand, VirtualReg};
use super::isel::{ADD_INT, AND, SAR, SHL};
use super::scalar_asm::CodeSink;
use super::state::{ALONG, BodyLowering, GroupValue, OpcodePair, ReadOperand, long};
use crate::cpu::codegen::loop_program::{GroupRead, LoopVal};
use crate::cpu::codegen::vector_width::Unsupported;
use adfuse_ir::{DType, Literal};
use iced_x86::{Code, Register};
use smallvec::SmallVec;

/// Bytes of the words that elements of 16 and 8 bits are gathered in.
const WORD: i64 = 4;

impl BodyLowering<'_> {
    /// Elements of 64, 16 or 8 bits in equal steps; `None` where they are too far apart, or no such instructions are there.
    pub(crate) fn gather_even(
        &mut self,
        pointer: LoopVal,
        d: DType,
        step: i64,
        copy: u32,
    ) -> Option<GroupValue> {
        self.near_steps(d, step)?;
        let bytes = d.bytes() as i64;
        let apart = step * bytes;
        if d.bytes() == 4 {
            return None;
        }
        if long(d) {
            let parts = [0, 1].map(|part| {
                self.even_place(pointer, apart, copy);
                let at = self.lane_numbers(part as u32, 8, step);
                let at = VirtualOperand::Table(Register::RAX, at, RegWidth::Y, 8);
                let mask = self.accessed(part, None);
                let x = self.gathered_words(Code::EVEX_Vgatherdpd_zmm_k1_vm32y, at, mask);
                ReadOperand::Reg(x)
            });
            return Some(GroupValue::Two(parts));
        }
        self.even_place(pointer, apart, copy);
        let lanes: Vec<u8> =
            (0..16).flat_map(|l: i64| ((l * apart) as i32).to_le_bytes()).collect();
        let lanes = Mem::Const { offset: self.pool.place(&lanes), every: false };
        Some(self.gather_narrow(d, ReadOperand::There(lanes), None))
    }

    /// Elements of a parameter at places that the body computes.
    pub(crate) fn gather_placed(
        &mut self,
        k: usize,
        args: &[GroupValue],
    ) -> Result<GroupValue, Unsupported> {
        let (&GroupRead::Placed { pointer, rest }, [at, holds @ ..], true) =
            (&self.p.reads[k], args, self.wide)
        else {
            return Err(Unsupported::Read(k));
        };
        let (d, at) = (self.p.body.params[k], at.parts()[0]);
        let holds = holds.first().map(|holds| holds.parts()[0]);
        let at = self.reg(at);
        self.fetch(Register::RAX, pointer);
        let found = match d.bytes() {
            8 => {
                let halves = [at, self.upper(at)];
                let parts = [0, 1].map(|part| {
                    let at = VirtualOperand::Table(Register::RAX, halves[part], RegWidth::Y, 8);
                    let mask = self.accessed(part, holds);
                    let x = self.gathered_words(Code::EVEX_Vgatherdpd_zmm_k1_vm32y, at, mask);
                    ReadOperand::Reg(x)
                });
                GroupValue::Two(parts)
            }
            4 => {
                let at = VirtualOperand::Table(Register::RAX, at, RegWidth::Z, 4);
                let mask = self.accessed(0, holds);
                let x = self.gathered_words(Code::EVEX_Vgatherdps_zmm_k1_vm32z, at, mask);
                GroupValue::One(ReadOperand::Reg(x))
            }
            2 => {
                let bytes = self.by(SHL, ReadOperand::Reg(at), 1);
                self.gather_narrow(d, bytes, holds)
            }
            _ => self.gather_narrow(d, ReadOperand::Reg(at), holds),
        };
        match (holds, rest) {
            (Some(holds), Some(rest)) if rest.bits() != 0 => Ok(self.or_rest(found, holds, rest)),
            _ => Ok(found),
        }
    }

    /// What was read where a condition holds, and a literal elsewhere.
    fn or_rest(&mut self, found: GroupValue, holds: ReadOperand, rest: Literal) -> GroupValue {
        if let GroupValue::Bits(found) = found {
            let fails = self.on_bits(Code::VEX_Knotw_kr_kr, &[holds]);
            return GroupValue::Bits(self.on_bits(Code::VEX_Korw_kr_kr_kr, &[found, fails]));
        }
        let rest = self.constant(rest);
        let parts = found.parts().iter().zip(rest.parts()).enumerate();
        let parts: SmallVec<[ReadOperand; 2]> = parts
            .map(|(part, (&x, &rest))| {
                let holds = self.bits_of(holds, part);
                self.select(holds, x, rest, found.two())
            })
            .collect();
        GroupValue::of(&parts)
    }

    /// Elements of 16 or 8 bits, this many bytes behind `rax`: the aligned words that they are in, which are on the pages of the elements,
    /// shifted down.
    fn gather_narrow(
        &mut self,
        d: DType,
        offsets: ReadOperand,
        holds: Option<ReadOperand>,
    ) -> GroupValue {
        let (rax, rdx) = (Register::RAX, Register::RDX);
        self.mov(rdx, rax);
        let and = |low: &mut Self, to, bits| {
            let args = [AllocatedOperand::Reg(to), AllocatedOperand::Short(bits)];
            low.ins(Code::And_rm64_imm32, &args);
        };
        and(self, rdx, (WORD - 1) as i32);
        and(self, rax, -WORD as i32);
        let args = [VirtualOperand::General(Register::EDX)];
        let past = self.make(Code::EVEX_Vpbroadcastd_zmm_k1z_r32, RegWidth::Z, &args);
        let bytes = self.op(ADD_INT, &[ReadOperand::Reg(past), offsets]);
        let words = self.by(SAR, bytes, 2);
        let words = VirtualOperand::Table(rax, self.reg(words), RegWidth::Z, WORD as u32);
        let mask = self.accessed(0, holds);
        let found = self.gathered_words(Code::EVEX_Vpgatherdd_zmm_k1_vm32z, words, mask);
        let within = self.op(AND, &[bytes, ReadOperand::Const(WORD as u64 - 1, 4)]);
        let down = self.by(SHL, within, 3);
        let shift = OpcodePair(Code::EVEX_Vpsrlvd_zmm_k1z_zmm_zmmm512b32, Code::INVALID);
        let found = self.op(shift, &[ReadOperand::Reg(found), down]);
        match d {
            DType::Bool => {
                let found = self.reg(found);
                let args = [self.whole(found), self.any(ReadOperand::Const(1, 4))];
                let code = Code::EVEX_Vptestmd_kr_k1_zmm_zmmm512b32;
                GroupValue::Bits(ReadOperand::Reg(self.make(code, RegWidth::Mask, &args)))
            }
            DType::I8 | DType::U8 => GroupValue::One(self.wrapped_small_int(d, found)),
            _ => GroupValue::One(self.op(AND, &[found, ReadOperand::Const(0xffff, 4)])),
        }
    }

    /// Neighbouring truth values of a bit each that begin anywhere in a byte: those bits of the aligned words that the first and the last one
    /// that are there are in, which may be one word. `None` where the first one is not there.
    pub(crate) fn load_unaligned_bits(
        &mut self,
        [pointer, first]: [LoopVal; 2],
        copy: u32,
    ) -> Option<GroupValue> {
        let is_kept = matches!(
            self.home(pointer),
            ValueHome::In(_) | ValueHome::Slot(_) | ValueHome::Table(_)
        );
        if !self.wide || !is_kept || self.partial.is_some_and(|p| p.from.is_some()) {
            return None;
        }
        let [rax, rcx, rdx] = [Register::RAX, Register::RCX, Register::RDX];
        self.fetch(rax, first);
        self.add(rax, ALONG);
        self.plus(rax, self.first_of(copy).into(), rdx);
        self.mov(rdx, rax);
        match self.partial {
            Some(partial) => {
                let to = AllocatedOperand::Mem(Mem::Frame(partial.to));
                self.ins(Code::Add_r64_rm64, &[AllocatedOperand::Reg(rdx), to]);
                self.plus(rdx, -1, rcx);
            }
            None => self.plus(rdx, i64::from(self.lanes()) - 1, rcx),
        }
        self.mov(rcx, rax);
        for (at, word) in [(rdx, Register::EDX), (rcx, Register::ECX)] {
            let to = AllocatedOperand::Reg(at);
            self.ins(Code::Sar_rm64_imm8, &[to, AllocatedOperand::Byte(5)]);
            self.ins(Code::Shl_rm64_imm8, &[to, AllocatedOperand::Byte(2)]);
            self.with(Code::Add_r64_rm64, at, pointer);
            let m = AllocatedOperand::Mem(Mem::At { base: at, index: None, offset: 0 });
            self.ins(Code::Mov_r32_rm32, &[AllocatedOperand::Reg(word), m]);
        }
        // Of the number of the first bit, the lowest five bits shift.
        self.ins(Code::Xchg_rm64_r64, &[rax, rcx].map(AllocatedOperand::Reg));
        let words = [Register::EAX, Register::EDX, Register::CL].map(AllocatedOperand::Reg);
        self.ins(Code::Shrd_rm32_r32_CL, &words);
        let args = [VirtualOperand::General(Register::EAX)];
        let bits = self.make(Code::VEX_Kmovw_kr_r32, RegWidth::Mask, &args);
        Some(GroupValue::Bits(ReadOperand::Reg(bits)))
    }

    /// Stores elements of 32 or 64 bits in equal steps; whether it does.
    pub(crate) fn scatter_even(
        &mut self,
        pointer: LoopVal,
        d: DType,
        (step, copy): (i64, u32),
        parts: &[VirtualReg],
    ) -> bool {
        if d.bytes() < 4 || self.near_steps(d, step).is_none() {
            return false;
        }
        self.even_place(pointer, step * d.bytes() as i64, copy);
        for (part, &x) in parts.iter().enumerate() {
            let (code, width, lanes) = match long(d) {
                true => (Code::EVEX_Vscatterdpd_vm32y_k1_zmm, RegWidth::Y, 8),
                false => (Code::EVEX_Vscatterdps_vm32z_k1_zmm, RegWidth::Z, 16),
            };
            let at = self.lane_numbers(part as u32, lanes, step);
            let at = VirtualOperand::Table(Register::RAX, at, width, d.bytes() as u32);
            let mask = self.accessed(part, None);
            self.effect(code, &[at, self.whole(x)], Some(mask));
        }
        true
    }

    /// Whether vectors of 32 bits number elements in such steps, as far as AVX-512 goes.
    fn near_steps(&self, d: DType, step: i64) -> Option<()> {
        let reach = step.checked_mul(d.bytes() as i64 * i64::from(self.lanes()))?;
        (self.wide && i32::try_from(reach).is_ok()).then_some(())
    }

    /// Puts the address of a group's first element in `rax`; `rcx` and `rdx` may be lost.
    fn even_place(&mut self, pointer: LoopVal, apart: i64, copy: u32) {
        self.times(Register::RAX, ALONG, apart, Register::RDX);
        self.with(Code::Add_r64_rm64, Register::RAX, pointer);
        let more = i64::from(self.first_of(copy)).wrapping_mul(apart);
        self.plus(Register::RAX, more, Register::RDX);
    }

    /// How many elements those of a part's lanes are from the first one.
    fn lane_numbers(&mut self, part: u32, lanes: u32, step: i64) -> VirtualReg {
        let numbers = (part * lanes..(part + 1) * lanes).map(|l| (i64::from(l) * step) as i32);
        let bytes: Vec<u8> = numbers.flat_map(i32::to_le_bytes).collect();
        let m = [VirtualOperand::Mem(Mem::Const { offset: self.pool.place(&bytes), every: false })];
        match lanes {
            8 => self.make(Code::EVEX_Vmovups_ymm_k1z_ymmm256, RegWidth::Y, &m),
            _ => self.make(Code::EVEX_Vmovups_zmm_k1z_zmmm512, RegWidth::Z, &m),
        }
    }

    /// The lanes of a part that are accessed, of those for which a condition holds, in a register that the instruction may clear.
    fn accessed(&mut self, part: usize, holds: Option<ReadOperand>) -> VirtualReg {
        let holds = holds.map(|holds| self.bits_of(holds, part));
        let both = match (self.there(part), holds) {
            (None, None) => return self.bits(ReadOperand::Const(u16::MAX.into(), 2)),
            (Some(all), None) | (None, Some(all)) => [all, all],
            (Some(there), Some(holds)) => [there, holds],
        };
        let copy = self.on_bits(Code::VEX_Kandw_kr_kr_kr, &both.map(ReadOperand::Reg));
        self.bits(copy)
    }

    /// Elements that an instruction gathers, and 0 in lanes that are not accessed. It clears the mask.
    pub(crate) fn gathered_words(
        &mut self,
        code: Code,
        at: VirtualOperand,
        mask: VirtualReg,
    ) -> VirtualReg {
        let zero = self.reg(ReadOperand::Const(0, 4));
        self.make_with(code, RegWidth::Z, &[at], |i: &mut VirtualInst| {
            i.mask = Some(mask);
            i.tied = Some(zero);
            i.early = true;
        })
    }
}

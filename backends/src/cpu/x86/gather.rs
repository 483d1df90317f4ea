//! Gathers of 32-bit elements by vector loads and permutations: every other element, the first of each two or four, and
//! one for each two or four lanes. For AVX-512, whose masks suppress accesses of unwanted lanes.

use super::inst::{AllocatedOperand, Mem, RegWidth, VirtualOperand, VirtualReg};
use super::scalar_asm::CodeSink;
use super::state::{ALONG, BodyLowering, GroupValue, ReadOperand};
use crate::cpu::codegen::loop_program::LoopVal;
use iced_x86::{Code, Register};

const EAX: AllocatedOperand = AllocatedOperand::Reg(Register::EAX);
const ECX: AllocatedOperand = AllocatedOperand::Reg(Register::ECX);
const EDX: AllocatedOperand = AllocatedOperand::Reg(Register::EDX);

impl BodyLowering<'_> {
    /// The same element for each few lanes.
    pub(crate) fn load_spread(
        &mut self,
        pointer: LoopVal,
        [each, step]: [u32; 2],
        copy: u32,
    ) -> GroupValue {
        let lanes = self.lanes();
        // One bit for each few lanes, the first.
        let firsts: u32 = (0..lanes).step_by(each as usize).map(|k| 1 << k).sum();
        let beside = step == 1;
        let mask = match self.partial {
            None if beside => ReadOperand::Const((1u64 << (lanes / each)) - 1, 4),
            None => ReadOperand::Const(firsts.into(), 4),
            Some(partial) => {
                self.ins(
                    Code::Mov_r32_rm32,
                    &[EAX, AllocatedOperand::Mem(Mem::Frame(partial.bits))],
                );
                let mut by = 1;
                while by < each {
                    self.ins(Code::Mov_r32_rm32, &[ECX, EAX]);
                    self.ins(Code::Shr_rm32_imm8, &[ECX, AllocatedOperand::Byte(by as u8)]);
                    self.ins(Code::Or_r32_rm32, &[EAX, ECX]);
                    by *= 2;
                }
                self.set(Register::RDX, firsts.into());
                match beside {
                    true => self.ins(Code::VEX_Pext_r32_r32_rm32, &[EAX, EAX, EDX]),
                    false => self.ins(Code::And_r32_rm32, &[EAX, EDX]),
                }
                ReadOperand::Reg(self.lanes_in(Register::EAX))
            }
        };
        let base = self.base(pointer);
        // Groups begin at multiples of `each`.
        let scale = step * 4 / each;
        let m =
            Mem::At { base, index: Some((ALONG, scale)), offset: (copy * lanes * scale) as i32 };
        let x = self.load_lanes(m, mask);
        let from = |lane: u32| if beside { lane / each } else { lane / each * each };
        GroupValue::One(self.permuted(x, (0..lanes).map(from)))
    }

    /// Every other element.
    pub(crate) fn load_second(&mut self, pointer: LoopVal, copy: u32) -> GroupValue {
        let lanes = self.lanes();
        let masks = match self.partial {
            // What lies behind the last is not read.
            None => [u64::from(u16::MAX), 0x7fff].map(|bits| ReadOperand::Const(bits, 4)),
            Some(partial) => {
                self.ins(
                    Code::Mov_r32_rm32,
                    &[EAX, AllocatedOperand::Mem(Mem::Frame(partial.bits))],
                );
                self.set(Register::RCX, 0x5555_5555);
                self.ins(Code::VEX_Pdep_r32_r32_rm32, &[EAX, EAX, ECX]);
                let low = self.lanes_in(Register::EAX);
                self.ins(Code::Shr_rm32_imm8, &[EAX, AllocatedOperand::Byte(16)]);
                [ReadOperand::Reg(low), ReadOperand::Reg(self.lanes_in(Register::EAX))]
            }
        };
        let base = self.base(pointer);
        let mut half = 0;
        let [low, high] = masks.map(|mask| {
            let offset = (copy * lanes * 8 + half * lanes * 4) as i32;
            half += 1;
            self.load_lanes(Mem::At { base, index: Some((ALONG, 8)), offset }, mask)
        });
        let places: Vec<u8> = (0..lanes).flat_map(|k| (2 * k).to_le_bytes()).collect();
        let offset = self.pool.place(&places);
        let from = [VirtualOperand::Mem(Mem::Const { offset, every: false })];
        let places = self.make(Code::EVEX_Vmovups_zmm_k1z_zmmm512, RegWidth::Z, &from);
        let args =
            [VirtualOperand::Reg(places, RegWidth::Z), VirtualOperand::Reg(high, RegWidth::Z)];
        let code = Code::EVEX_Vpermt2ps_zmm_k1z_zmm_zmmm512b32;
        let x = self.make_with(code, RegWidth::Z, &args, |i| i.tied = Some(low));
        GroupValue::One(ReadOperand::Reg(x))
    }

    fn lanes_in(&mut self, from: Register) -> VirtualReg {
        self.make(Code::VEX_Kmovw_kr_r32, RegWidth::Mask, &[VirtualOperand::General(from)])
    }

    fn load_lanes(&mut self, m: Mem, mask: ReadOperand) -> VirtualReg {
        let mask = self.bits(mask);
        self.make_with(
            Code::EVEX_Vmovups_zmm_k1z_zmmm512,
            RegWidth::Z,
            &[VirtualOperand::Mem(m)],
            |i| {
                i.mask = Some(mask);
                i.zeroing = true;
            },
        )
    }

    /// The lanes of a vector at these places.
    fn permuted(&mut self, x: VirtualReg, from: impl Iterator<Item = u32>) -> ReadOperand {
        let places: Vec<u8> = from.flat_map(u32::to_le_bytes).collect();
        let offset = self.pool.place(&places);
        let places = [VirtualOperand::Mem(Mem::Const { offset, every: false })];
        let places = self.make(Code::EVEX_Vmovups_zmm_k1z_zmmm512, RegWidth::Z, &places);
        let args = [VirtualOperand::Reg(places, RegWidth::Z), VirtualOperand::Reg(x, RegWidth::Z)];
        ReadOperand::Reg(self.make(Code::EVEX_Vpermps_zmm_k1z_zmm_zmmm512b32, RegWidth::Z, &args))
    }
}
